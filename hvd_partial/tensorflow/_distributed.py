# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""What a distributed optimizer has besides the optimizer: its channel, accumulators, position."""

from __future__ import annotations

import gc
import itertools
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tensorflow as tf

from hvd_partial.errors import InvalidArgumentError
from hvd_partial.tensorflow import _channels, _keras, _ops, _replay, _runtime
from hvd_partial.tensorflow._channels import Options
from hvd_partial.tensorflow._ops import Header
from hvd_partial.tensorflow._reduced import refuse_reduced
from hvd_partial.tensorflow._replay import Apply, Replay
from hvd_partial.tensorflow._rounds import Applying

ATTRIBUTE = "_hvd_partial"

# Updates the weights. Arguments: the optimizer, values (None where nobody has a gradient), their
# variables, whether all contributions were non-finite, whether any was.
Update = Callable[[Any, list[Any], list[Any], tf.Tensor, tf.Tensor], None]

# Contributions, the same in steps, and the first iteration.
Position = tuple[int, float, float]

_numbers: dict[str, Iterator[int]] = defaultdict(itertools.count)
_order: Iterator[int] = itertools.count()
_named: weakref.WeakValueDictionary[str, Distributed] = weakref.WeakValueDictionary()
_live: weakref.WeakSet[Distributed] = weakref.WeakSet()


@dataclass(frozen=True)
class Settings:
    """What DistributedOptimizer was called with, checked.

    Attributes:
      options: Of the channel.
      passes: Backward passes in a contribution.
      average_passes: Whether a contribution is their mean, not their sum.
      predivide: Gradients are divided by it before the sum and multiplied after.
      compression: Horovod's none or fp16.
    """

    options: Options
    passes: int = 1
    average_passes: bool = False
    predivide: float = 1.0
    compression: Any = None


class Distributed:
    """The state of one distributed optimizer.

    Args:
      optimizer: The Keras optimizer.
      name: Of the channel; None for the class's name and a number in order of creation, which
        must be the same on all ranks.
      settings: Checked arguments.
      update: Applies one result.
      screen: See `Replay`.
    """

    def __init__(
        self,
        optimizer: Any,
        name: str | None,
        settings: Settings,
        update: Update,
        screen: bool = False,
    ) -> None:
        self.name = _unique_name(type(optimizer).__name__, name)
        self.number = next(_order)
        if name is not None:
            _named[name] = self
        _live.add(self)
        self.settings = settings
        self.update = update
        self.replay = Replay(self.name, settings.options, screen)
        self.variables: list[Any] = []
        self._positions: dict[Any, int] = {}
        self._accumulators: list[tf.Variable] = []
        self._optimizer = weakref.ref(optimizer)
        with tf.init_scope():
            # Of the results applied, over all engines this process has had; while a result is being
            # applied, of those before it.
            self.contributions = tf.Variable(0, dtype=tf.int64, trainable=False, name="hvd_partial")
            self._base = tf.Variable(0, dtype=tf.int64, trainable=False, name="hvd_partial")
            # Contributions in steps: those under earlier numbers of ranks, and when the present one
            # began.
            self._steps = tf.Variable(0.0, dtype=tf.float64, trainable=False, name="hvd_partial")
            self._steps_at = tf.Variable(0, dtype=tf.int64, trainable=False, name="hvd_partial")
            self.ranks = tf.Variable(1.0, dtype=tf.float64, trainable=False, name="hvd_partial")
            self._pass = tf.Variable(0, dtype=tf.int64, trainable=False, name="hvd_partial")
            # Where training went on from, e.g. that of a file.
            self.first_iteration = tf.Variable(0.0, dtype=tf.float64, trainable=False)
        self.iterations_per_round = 1  # as the optimizer counts them
        # Sets the learning rate of each result by the contributions before it; see
        # callbacks.LearningRateScheduleCallback.
        self.rate_hook: Callable[[float], float] | None = None
        self.correct_momentum = False
        self.applying = Applying()

    @property
    def optimizer(self) -> Any:
        """The Keras optimizer."""
        return self._optimizer()

    # ---- life -----------------------------------------------------------------

    def prepare(self, variables: Sequence[Any]) -> None:
        """Builds the optimizer and opens the channel for these variables, in this order.

        Ranks that have no batch at all come here too (a callback does it), so that the others do
        not wait for them to open the channel.
        """
        if self.variables:
            if self.replay.channel is not None and _runtime.connected():
                return
        else:
            self.variables = list(variables)
            self._positions = {_key(variable): i for i, variable in enumerate(self.variables)}
            for variable in self.variables:
                if getattr(variable, "overwrite_with_gradient", False):
                    raise InvalidArgumentError(
                        f"{_keras.full_name(variable)}: float8 training keeps scales in gradients, "
                        "which cannot be averaged over ranks"
                    )
        specs = _keras.tensor_specs(self.variables)
        if self.settings.compression is not None:
            half = [
                replace(spec, dtype=tf.float16) if spec.dtype.is_floating else spec
                for spec in specs
            ]
            specs = half
        first = self.replay.channel is None
        channel = self.replay.open(specs)
        if first:
            # When ranks drop an optimizer is up to their garbage collectors; a rank that has left
            # its channel keeps nobody waiting.
            weakref.finalize(self, _channels.leave, self.name).atexit = False
            restart = weakref.WeakMethod(self._restart)

            def call() -> None:
                method = restart()
                if method is not None:
                    method()

            channel.on_open.append(call)
            with tf.init_scope():
                self.first_iteration.assign(tf.cast(self.iterations(), tf.float64))
            self._restart()

    def _restart(self) -> None:
        # A new engine counts from 0; an old channel may have been somebody else's before.
        with tf.init_scope():
            self._steps.assign(self.steps())
            self._steps_at.assign(self.contributions)
            seen = self.progress().contributions
            self._base.assign(self.contributions - seen)
            self.ranks.assign(float(_runtime.connect().size))

    # ---- a step ---------------------------------------------------------------

    def step(self, gradients: Sequence[Any], variables: Sequence[Any]) -> tf.Tensor:
        """One backward pass: accumulate, and at the last of a contribution deposit and apply."""
        refuse_reduced(gradients, f"The distributed optimizer {self.name!r}")
        if not self.variables:
            self.prepare(variables)
        full: list[Any] = [None] * len(self.variables)
        for gradient, variable in zip(gradients, variables, strict=True):
            position = self._positions.get(_key(variable))
            if position is None:
                raise InvalidArgumentError(
                    f"{_keras.full_name(variable)} is not among the variables that the distributed "
                    f"optimizer {self.name!r} was built with; make a new optimizer for the new set"
                )
            full[position] = gradient
        passed = {_key(variable) for variable in variables}

        def apply(values: list[Any], all_bad: Any, any_bad: Any, header: Header) -> None:
            kept = [i for i, v in enumerate(self.variables) if _key(v) in passed]
            self._apply(
                [values[i] for i in kept],
                [self.variables[i] for i in kept],
                all_bad,
                any_bad,
                header,
            )

        if self.settings.passes == 1:
            return self.replay.step(self._packed(full), apply)
        return self._accumulate(full, apply)

    def _accumulate(self, gradients: list[Any], apply: Any) -> tf.Tensor:
        passes = self.settings.passes
        if not self._accumulators:
            with tf.init_scope():
                for spec in _keras.tensor_specs(self.variables):
                    zeros = tf.zeros(spec.shape, spec.dtype)
                    self._accumulators.append(tf.Variable(zeros, trainable=False))
        for accumulator, gradient in zip(self._accumulators, gradients, strict=True):
            if gradient is not None:
                accumulator.assign_add(tf.cast(tf.convert_to_tensor(gradient), accumulator.dtype))
        done = self._pass.assign_add(1)

        def contribute() -> tf.Tensor:
            scale = 1.0 / passes if self.settings.average_passes else 1.0
            sums = [
                None if gradient is None else accumulator * tf.cast(scale, accumulator.dtype)
                for accumulator, gradient in zip(self._accumulators, gradients, strict=True)
            ]
            count = self.replay.step(self._packed(sums), apply)
            for accumulator in self._accumulators:
                accumulator.assign(tf.zeros_like(accumulator))
            return count

        if tf.executing_eagerly():
            return contribute() if int(done) % passes == 0 else tf.constant(0)
        return tf.cond(tf.equal(done % passes, 0), contribute, lambda: tf.constant(0))

    def _packed(self, gradients: list[Any]) -> list[Any]:
        packed: list[Any] = []
        for gradient in gradients:
            if gradient is None:
                packed.append(None)
                continue
            value = tf.convert_to_tensor(gradient)
            if self.settings.predivide != 1.0:
                value = value / tf.cast(self.settings.predivide, value.dtype)
            if self.settings.compression is not None:
                value, _ = self.settings.compression.compress(value)
            packed.append(value)
        return packed

    # ---- applying -------------------------------------------------------------

    def flushing(self) -> tuple[Replay, Apply]:
        """What `_replay.flush` needs to make the replicas equal.

        Raises:
          InvalidArgumentError: if nothing has been trained yet.
        """
        if not self.variables:
            raise InvalidArgumentError(f"{self.name!r}: nothing has been trained yet")
        self.prepare(self.variables)

        def apply(values: list[Any], all_bad: Any, any_bad: Any, header: Header) -> None:
            kept = [i for i, value in enumerate(values) if value is not None]
            self._apply(
                [values[i] for i in kept],
                [self.variables[i] for i in kept],
                all_bad,
                any_bad,
                header,
            )

        return self.replay, apply

    def steps(self) -> tf.Tensor:
        """Contributions divided by the number of ranks that there were when they were made."""
        since = tf.cast(self.contributions - self._steps_at, tf.float64)
        return self._steps + since / self.ranks

    def position(self) -> Position:
        """Where training stands, for schedules: part of what an elastic job commits."""
        return int(self.contributions), float(self.steps()), float(self.first_iteration)

    def go_to(self, position: Position) -> None:
        """Goes on from there. Backward passes that are not a whole contribution yet are dropped."""
        contributions, steps, first_iteration = position
        self.contributions.assign(contributions)
        self._steps.assign(steps)
        self._steps_at.assign(contributions)
        self.first_iteration.assign(first_iteration)
        self._pass.assign(0)
        for accumulator in self._accumulators:
            accumulator.assign(tf.zeros_like(accumulator))
        if self.replay.channel is not None and _runtime.connected():
            self._restart()

    def progress(self) -> _ops.Progress:
        """Counters of this rank's channel."""
        return self.replay.progress()

    def _apply(
        self, values: list[Any], variables: list[Any], all_bad: Any, any_bad: Any, header: Header
    ) -> None:
        total = self._base + tf.cast(header.total_contributions, tf.int64)
        before = total - tf.cast(header.contributions, tf.int64)
        self.contributions.assign(before)
        if self.rate_hook is not None:
            self._set_rate(self.rate_hook, before)
        setting = scale = None
        if self.applying.watched:
            setting = self.applying.look(header, before, self.iterations())
            scale = header.divisor / setting[1]
        unpacked = []
        for value, variable in zip(values, variables, strict=True):
            if value is not None:
                dtype = _keras.tensor_spec(variable).dtype
                value = tf.cast(value, dtype)
                if self.settings.predivide != 1.0:
                    value = value * tf.cast(self.settings.predivide, dtype)
                if scale is not None and dtype.is_floating:
                    value = value * tf.cast(scale, dtype)
            unpacked.append(value)
        if setting is None:
            self.update(self.optimizer, unpacked, variables, all_bad, any_bad)
        else:
            with self.applying.set(self.optimizer, setting):
                self.update(self.optimizer, unpacked, variables, all_bad, any_bad)
        self.contributions.assign(total)

    def iterations(self) -> tf.Tensor:
        """Updates, as the optimizer counts them and as they stand in files."""
        worker = self.optimizer
        if _keras.is_loss_scaling(worker):
            worker = _keras.inner_optimizer(worker)
        counted = getattr(worker, "_iterations", None)
        if counted is None:  # tf_keras's legacy optimizers have them under this name only
            counted = worker.iterations
        return tf.cast(_keras.raw(counted), tf.int64)

    def _set_rate(self, hook: Callable[[float], float], before: tf.Tensor) -> None:
        rate = _keras.learning_rate_variable(self.optimizer)
        if rate is None:
            raise InvalidArgumentError(
                f"{self.name!r} has a learning-rate schedule; a callback cannot set its rate too"
            )

        def compute(contributions: Any) -> np.float32:
            return np.float32(hook(float(contributions)))

        if tf.executing_eagerly():
            new = tf.constant(compute(before), rate.dtype)
        else:
            new = tf.cast(tf.numpy_function(compute, [before], tf.float32), rate.dtype)
            new.set_shape([])
        if self.correct_momentum:
            change = tf.math.divide_no_nan(new, rate)
            for velocity in _keras.momentum_variables(self.optimizer, self.variables):
                velocity.assign(velocity * tf.cast(change, velocity.dtype))
        rate.assign(new)


def _unique_name(kind: str, name: str | None) -> str:
    """Of a channel: the same on all ranks, and never that of an earlier optimizer."""
    if name is None:
        return f"optimizer/{kind}/{next(_numbers[kind])}"
    if name in _named:
        gc.collect()  # an optimizer that nobody uses any more may still be there
    if name in _named:
        raise InvalidArgumentError(
            f"name={name!r}: there is a distributed optimizer of that name already; two optimizers "
            "must not share their gradients"
        )
    number = next(_numbers[f"name {name}"])
    return f"optimizer/{name}" if number == 0 else f"optimizer/{name}/{number}"


def _number_anew(engine: Any) -> None:
    """A new engine knows no names: those of optimizers that are no more are free again, as they are
    on a rank that has just started."""
    del engine
    if _runtime.generation() == 1:
        return
    taken = {state.name for state in _live}
    for key in _numbers:
        stem = f"optimizer/{key.removeprefix('name ')}"
        used = [0] if stem in taken else []
        for name in taken:
            number = name.removeprefix(f"{stem}/")
            if number != name and number.isdecimal():
                used.append(int(number))
        _numbers[key] = itertools.count(max(used, default=-1) + 1)


_runtime.on_connect(_number_anew)


def _key(variable: Any) -> Any:
    return _keras.raw(variable).ref()


def state_of(optimizer: Any) -> Distributed | None:
    """The state of a distributed optimizer, also inside a LossScaleOptimizer; None for a plain
    one."""
    if optimizer is None:
        return None
    found = vars(optimizer).get(ATTRIBUTE)
    if found is None and _keras.is_loss_scaling(optimizer):
        return state_of(_keras.inner_optimizer(optimizer))
    return found


def newest_state() -> Distributed | None:
    """Of the distributed optimizer that was made last and still exists."""
    return max(_live, key=lambda state: state.number, default=None)


def live_states() -> list[Distributed]:
    """Of all distributed optimizers that exist, by name."""
    return sorted(_live, key=lambda state: state.name)


def flush(states: Sequence[Distributed]) -> None:
    """All ranks meet, leftovers are reduced, everything is applied: replicas are equal."""
    _replay.flush([state.flushing() for state in states])
