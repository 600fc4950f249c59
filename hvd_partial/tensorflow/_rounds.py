# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Who looks at each round before it is applied, and how it is applied then.

All ranks apply the same rounds in the same order. So what follows from the rounds alone is the same
on all ranks at the same round, however late one of them is: learning rate, momentum, decisions.
What changes from round to round is read from variables; nothing is traced again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from hvd_partial.errors import InvalidArgumentError
from hvd_partial.modes import KINDS, Mode
from hvd_partial.sync_switch import Setting
from hvd_partial.tensorflow import _keras
from hvd_partial.tensorflow._ops import Header


@dataclass(frozen=True)
class Round:
    """A round that is about to be applied, the same on every rank.

    Attributes:
      number: Of the round, from 0 with each engine.
      mode: It was started in ("designated" without its seed).
      before: Contributions of all rounds before it, over all engines this process has had.
      contributions: In it.
      divisor: By which the sum has been divided.
      contributions_of: By rank.
      dropped_of: By rank.
      compute_seconds: By rank, before its last call.
      iterations: Of the optimizer, before this round.
    """

    number: int
    mode: Mode
    before: int
    contributions: int
    divisor: float
    contributions_of: tuple[int, ...]
    dropped_of: tuple[int, ...]
    compute_seconds: tuple[float, ...]
    iterations: int


# Looks at each round before it is applied; at most one of them says how to apply it.
Hook = Callable[[Round], Setting | None]


class LiveMomentum(float):
    """A coefficient that a traced update reads from a variable, and that is a plain number for all
    else: comparisons, configurations, files. (A number that is assigned to `optimizer.momentum` is
    compiled into the update, and a variable cannot be compared or saved there.)"""

    variable: tf.Variable

    def __new__(cls, value: float, variable: tf.Variable) -> LiveMomentum:
        made = super().__new__(cls, value)
        made.variable = variable
        return made

    def __tf_tensor__(self, dtype: Any = None, name: str | None = None) -> tf.Tensor:
        value = tf.identity(self.variable, name=name)
        return value if dtype is None else tf.cast(value, dtype)

    def __reduce__(self) -> Any:
        return float, (float(self),)


def momentum_of(optimizer: Any) -> float:
    """The coefficient of SGD with momentum; 0 for other optimizers, whose update has none or which
    do more with it."""
    if _keras.is_loss_scaling(optimizer):
        return momentum_of(_keras.inner_optimizer(optimizer))
    kinds = {kind.__name__ for kind in type(optimizer).__mro__}
    if "SGD" not in kinds:
        return 0.0
    if _keras.flavour(optimizer) == "tf_keras_legacy":
        return float(optimizer._serialize_hyperparameter("momentum"))
    return float(optimizer.momentum)


class Applying:
    """How the rounds of one distributed optimizer are applied."""

    def __init__(self) -> None:
        self.hooks: list[Hook] = []
        # What is traced from the first hook on asks, whether there are hooks then or not.
        self.watched = False
        with tf.init_scope():
            # On the rate of a schedule; a rate in a variable is changed itself.
            self.rate_factor = tf.Variable(1.0, dtype=tf.float32, trainable=False)
            self.momentum = tf.Variable(0.0, dtype=tf.float64, trainable=False)

    def add(self, hook: Hook) -> bool:
        """True if what was traced before does not ask."""
        if hook not in self.hooks:
            self.hooks.append(hook)
        first, self.watched = not self.watched, True
        return first

    def remove(self, hook: Hook) -> None:
        """The hook is asked no longer."""
        if hook in self.hooks:
            self.hooks.remove(hook)

    def make_momentum_live(self, optimizer: Any) -> bool:
        """Has updates read the coefficient from `self.momentum`; True if they did not so far.

        Raises:
          InvalidArgumentError: if the optimizer is not SGD with momentum.
        """
        if _keras.is_loss_scaling(optimizer):
            return self.make_momentum_live(_keras.inner_optimizer(optimizer))
        momentum = momentum_of(optimizer)
        if not momentum:
            raise InvalidArgumentError(
                f"momentum_policy: {type(optimizer).__name__} has no momentum that could change; "
                "use SGD with momentum, or momentum_policy='keep'"
            )
        self.momentum.assign(momentum)
        if _keras.flavour(optimizer) == "tf_keras_legacy":
            return False  # a variable already
        if isinstance(optimizer.momentum, LiveMomentum):
            return False
        optimizer.momentum = LiveMomentum(momentum, self.momentum)
        return True

    def look(self, header: Header, before: tf.Tensor, iterations: tf.Tensor) -> tf.Tensor:
        """Shows the round to the hooks: rate factor, divisor and momentum of it (nan: as it is),
        float64[3]."""

        def compute(numbers: Any, ranks: Any, before: Any, iterations: Any) -> Any:
            number, kind, quorum, contributions, divisor = numbers.tolist()
            name = KINDS[int(kind)]
            found = Round(
                number=int(number),
                mode=Mode(
                    name,
                    k=int(quorum) if name == "quorum" else None,
                    seed=0 if name == "designated" else None,
                ),
                before=int(before),
                contributions=int(contributions),
                divisor=divisor,
                contributions_of=tuple(int(x) for x in ranks[0]),
                dropped_of=tuple(int(x) for x in ranks[1]),
                compute_seconds=tuple(ranks[2].tolist()),
                iterations=int(iterations),
            )
            setting = None
            for hook in list(self.hooks):
                setting = hook(found) or setting
            if setting is None:
                return np.array([1.0, divisor, np.nan])
            return np.array([setting.rate_factor, setting.divisor, setting.momentum])

        numbers = tf.stack(
            [header.round, header.mode, header.quorum, header.contributions, header.divisor]
        )
        inputs = [numbers, header.ranks, before, iterations]
        if tf.executing_eagerly():
            return tf.constant(compute(*(np.asarray(value) for value in inputs)))
        setting = tf.numpy_function(compute, inputs, tf.float64)
        setting.set_shape([3])
        return setting

    @contextlib.contextmanager
    def set(self, optimizer: Any, setting: tf.Tensor) -> Iterator[None]:
        """While the update is made rate and momentum are those of the setting; afterwards, for
        whoever reads them, the user's."""
        factor, momentum = setting[0], setting[2]
        self.rate_factor.assign(tf.cast(factor, tf.float32))
        rate = _keras.learning_rate_variable(optimizer)
        legacy = _legacy_momentum(optimizer)
        base = momentum_of(optimizer)
        momentum = tf.where(tf.math.is_nan(momentum), tf.cast(base, tf.float64), momentum)
        self.momentum.assign(momentum)
        users_rate = None
        if rate is not None:
            users_rate = tf.identity(rate)
            rate.assign(users_rate * tf.cast(factor, rate.dtype))
        users_momentum = None
        if legacy is not None:
            users_momentum = tf.identity(legacy)
            legacy.assign(tf.cast(momentum, legacy.dtype))
        yield
        if rate is not None:
            rate.assign(users_rate)
        if legacy is not None:
            legacy.assign(users_momentum)


def _legacy_momentum(optimizer: Any) -> tf.Variable | None:
    if _keras.is_loss_scaling(optimizer):
        return _legacy_momentum(_keras.inner_optimizer(optimizer))
    if _keras.flavour(optimizer) != "tf_keras_legacy" or not momentum_of(optimizer):
        return None
    found = optimizer._get_hyper("momentum")
    return found if isinstance(found, tf.Variable) else None
