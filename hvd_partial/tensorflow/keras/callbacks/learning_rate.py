# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Learning rates set by callbacks, the same on all ranks at the same round."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import horovod.tensorflow as _hvd

from hvd_partial import arguments
from hvd_partial.errors import InvalidArgumentError
from hvd_partial.tensorflow import _keras
from hvd_partial.tensorflow._distributed import Distributed
from hvd_partial.tensorflow._errors import names_rank
from hvd_partial.tensorflow.keras.callbacks._base import PartialCallback, states_of


class LearningRateScheduleCallback(PartialCallback):
    """Sets the learning rate to `initial_lr * multiplier(epoch)`.

    The epoch is where training stands: the first epoch's number and the contributions of all ranks
    since then, divided by `steps_per_epoch` x size. In sync mode that is Horovod's
    `epoch + batch / steps_per_epoch`. It is known for each round, so every rank applies a round
    with the same rate, however late it is, and replicas stay equal. A plain optimizer's rate is set
    before each batch.

    Args:
      initial_lr: The learning rate that multipliers refer to.
      multiplier: A function of the epoch, or a number m for m ** (epoch - start_epoch).
      start_epoch: First epoch in which the rate is set.
      end_epoch: First one in which it is not any more; None for never.
      staircase: Give the multiplier the whole number of the epoch.
      momentum_correction: When the rate changes, scale the velocity of SGD with momentum by the
        same factor. (Horovod scales the coefficient for one batch, which is the same arithmetic for
        plain momentum; Keras has the coefficient compiled into the step.)
      steps_per_epoch: Batches per rank in an epoch; by default what Keras knows, if it does.
    """

    @names_rank
    def __init__(
        self,
        initial_lr: float,
        multiplier: float | Callable[[float], float],
        start_epoch: int = 0,
        end_epoch: int | None = None,
        staircase: bool = True,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
    ) -> None:
        super().__init__()
        self.initial_lr = arguments.number(
            "initial_lr", initial_lr, hint="the learning rate that multipliers refer to"
        )
        arguments.whole("start_epoch", start_epoch)
        if end_epoch is not None:
            arguments.whole("end_epoch", end_epoch, hint="or None for never")
        if steps_per_epoch is not None:
            arguments.whole("steps_per_epoch", steps_per_epoch, least=1, hint="batches of one rank")
        arguments.flag("staircase", staircase)
        arguments.flag("momentum_correction", momentum_correction)
        if callable(multiplier):
            self.multiplier = multiplier
        else:
            factor = arguments.number("multiplier", multiplier, hint="or a function of the epoch")
            self.multiplier = lambda epoch: factor ** (epoch - start_epoch)
        self.start_epoch = start_epoch
        self.end_epoch = end_epoch
        self.staircase = staircase
        self.momentum_correction = momentum_correction
        self.steps_per_epoch = steps_per_epoch
        self._anchor: tuple[float, float] | None = None  # an epoch, contributions at its begin
        self._state: Distributed | None = None
        self._epoch = 0

    # ---- where training stands --------------------------------------------------

    def rate_at(self, epoch: float) -> float | None:
        """The rate at a position in epochs; None outside of start_epoch to end_epoch."""
        # The quotient of two whole numbers may be a little below the whole number that it is.
        whole = int(epoch + 1e-9)
        if whole < self.start_epoch or (self.end_epoch is not None and whole >= self.end_epoch):
            return None
        return self.initial_lr * self.multiplier(whole if self.staircase else epoch)

    def set_model(self, model: Any) -> None:
        super().set_model(model)
        states = states_of(model)
        self._state = states[0] if states else None
        if self._state is not None and _register(self._state, self):
            # The step that was traced before does not ask for the rate.
            model.train_function = None

    def on_train_begin(self, logs: Any = None) -> None:
        super().on_train_begin(logs)
        self._anchor = None
        if self.steps_per_epoch is None:
            self.steps_per_epoch = (self.params or {}).get("steps")
        if self.steps_per_epoch is None:
            raise InvalidArgumentError(
                f"{type(self).__name__}: steps_per_epoch must be given, because Keras does not "
                "know how many batches an epoch of this dataset has"
            )

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        del logs
        self._epoch = epoch
        if self._state is not None and self._anchor is None:
            self._anchor = (float(epoch), float(self._state.contributions))

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        del logs
        if self._state is None and (batch == 0 or not self.staircase):
            self._set_plain(self._epoch + batch / float(self.steps_per_epoch or 1))

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        del epoch
        rate = _keras.learning_rate_variable(self.model.optimizer)
        if logs is not None and rate is not None:
            logs["lr"] = float(rate)

    def rate_after(self, contributions: float) -> float | None:
        """The rate of a round before which there were so many contributions."""
        if self._anchor is None or self.steps_per_epoch is None or self._state is None:
            return None
        epoch, begin = self._anchor
        per_epoch = float(self.steps_per_epoch) * float(self._state.ranks)
        return self.rate_at(epoch + (contributions - begin) / per_epoch)

    def _set_plain(self, epoch: float) -> None:
        new = self.rate_at(epoch)
        if new is None:
            return
        optimizer = self.model.optimizer
        rate = _keras.learning_rate_variable(optimizer)
        if rate is None:
            raise InvalidArgumentError(
                f"{type(self).__name__}: the optimizer has a learning-rate schedule of its own"
            )
        old = float(rate)
        if self.momentum_correction and old > 0 and new != old:
            for velocity in _keras.momentum_variables(optimizer, self.model.trainable_variables):
                velocity.assign(velocity * (new / old))
        rate.assign(new)


class LearningRateWarmupCallback(LearningRateScheduleCallback):
    """Raises the learning rate from `initial_lr / size` to `initial_lr` over the first epochs.

    After Goyal et al., arXiv 1706.02677.

    Args:
      initial_lr: The rate after the warm-up.
      warmup_epochs: Its length.
      momentum_correction, steps_per_epoch: See LearningRateScheduleCallback.
      verbose: 1: rank 0 says when it is over.
    """

    @names_rank
    def __init__(
        self,
        initial_lr: float,
        warmup_epochs: int = 5,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
        verbose: int = 0,
    ) -> None:
        arguments.whole("warmup_epochs", warmup_epochs, least=1)
        if not isinstance(verbose, int):
            raise arguments.wrong("verbose", verbose, "0 or 1", "1: rank 0 says when it is over")

        def multiplier(epoch: float) -> float:
            # One step further, as Horovod has it, so that epochs end at round numbers.
            position = epoch + 1.0 / float(self.steps_per_epoch or 1)
            size = _hvd.size()
            return (position * (size - 1) / warmup_epochs + 1) / size

        super().__init__(
            initial_lr,
            multiplier,
            start_epoch=0,
            end_epoch=warmup_epochs,
            staircase=False,
            momentum_correction=momentum_correction,
            steps_per_epoch=steps_per_epoch,
        )
        self.verbose = verbose

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        super().on_epoch_end(epoch, logs)
        if self.end_epoch == epoch + 1 and self.verbose > 0 and _hvd.rank() == 0:
            rate = _keras.learning_rate_variable(self.model.optimizer)
            print(
                f"\nEpoch {epoch + 1}: finished gradual learning rate warmup to {rate.numpy():g}."
            )


class _Schedules:
    """The callbacks that set one optimizer's rate; the last one that has an opinion wins."""

    def __init__(self, state: Distributed) -> None:
        self._state = state
        self.callbacks: list[LearningRateScheduleCallback] = []

    def __call__(self, contributions: float) -> float:
        for callback in reversed(self.callbacks):
            rate = callback.rate_after(contributions)
            if rate is not None:
                return rate
        return float(_keras.learning_rate_variable(self._state.optimizer).numpy())


def _register(state: Distributed, callback: LearningRateScheduleCallback) -> bool:
    """Has the optimizer ask this callback for the rate. True if it asked none before."""
    hook = state.rate_hook
    first = not isinstance(hook, _Schedules)
    if not isinstance(hook, _Schedules):
        hook = state.rate_hook = _Schedules(state)
    if callback not in hook.callbacks:
        hook.callbacks.append(callback)
    retrace = callback.momentum_correction and not state.correct_momentum
    state.correct_momentum |= callback.momentum_correction
    return first or retrace
