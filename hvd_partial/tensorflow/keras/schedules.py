# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Learning-rate schedules that count contributions, not steps."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from hvd_partial import arguments
from hvd_partial.errors import InvalidArgumentError
from hvd_partial.tensorflow._errors import names_rank


class ByContributions(tf.keras.optimizers.schedules.LearningRateSchedule):
    """A schedule whose step is contributions / size instead of the optimizer's iterations.

    A round with few contributions moves it by little. In sync mode it is the schedule itself. Every
    rank applies a round at the position of the contributions before it, so replicas stay equal.
    Saved files hold the schedule inside, and load without this package.

    Args:
      schedule: Any Keras schedule.
      start: Position of the first contribution, in steps; by default the optimizer's iterations
        when the engine starts counting (0, unless training goes on from a file).
    """

    @names_rank
    def __init__(self, schedule: Any, start: float | None = None) -> None:
        super().__init__()
        if not isinstance(schedule, tf.keras.optimizers.schedules.LearningRateSchedule):
            raise arguments.wrong(
                "schedule", schedule, "a Keras schedule", "a constant rate needs none"
            )
        if start is not None:
            arguments.number("start", start, hint="or None for the optimizer's iterations")
        self.schedule = schedule
        self.start = start
        self._state: Any = None

    def bind(self, state: Any) -> None:
        """Follows the contributions of this distributed optimizer, which calls it."""
        if self._state is not None and self._state is not state:
            raise InvalidArgumentError(
                "ByContributions: one schedule for each optimizer; they count separately"
            )
        object.__setattr__(self, "_state", state)

    def __call__(self, step: Any) -> Any:
        state = self._state
        if state is None:
            return self.schedule(step)
        done = state.steps()
        first = state.first_iteration if self.start is None else self.start
        position = tf.cast(first, tf.float64) + done * float(state.iterations_per_round)
        rate = self.schedule(tf.cast(position, tf.float32))
        return rate * tf.cast(state.applying.rate_factor, rate.dtype)

    def portable(self) -> Any:
        """The configuration of the schedule inside."""
        return tf.keras.optimizers.schedules.serialize(self.schedule)

    def get_config(self) -> dict[str, Any]:
        return {"schedule": self.portable(), "start": self.start}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> ByContributions:
        inner = tf.keras.optimizers.schedules.deserialize(config["schedule"])
        return cls(inner, config.get("start"))
