# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""The delays of each scenario, for both libraries under comparison."""

from __future__ import annotations

from dataclasses import dataclass

from examples.digits.plan import LATE_SECONDS, TRANSIENT, Run
from hvd_partial.tensorflow.keras.callbacks import DelayInjectionCallback, FixedRank, RandomRank

# What model, Keras and exchange take of a step by themselves, about: the rest of it is slept.
OWN_STEP_SECONDS = 0.01


@dataclass(frozen=True)
class Pattern:
    """Every step is padded to the run's step time, and some ranks are late on top of that."""

    run: Run

    def __call__(self, rank: int, step: int, size: int) -> float:
        run = self.run
        padding = max(0.0, run.step_seconds * run.time_scale - OWN_STEP_SECONDS)
        seconds = LATE_SECONDS[run.scenario] * run.time_scale
        if run.scenario == "random":
            return padding + RandomRank(seconds, seed=run.seed)(rank, step, size)
        if run.scenario == "last":
            return padding + FixedRank(-1, seconds)(rank, step, size)
        if run.scenario == TRANSIENT and run.late_steps[0] <= step < run.late_steps[1]:
            return padding + FixedRank(-1, seconds)(rank, step, size)
        return padding


def delay_callback(run: Run) -> DelayInjectionCallback:
    """Sleeps before each batch as the run's scenario says."""
    return DelayInjectionCallback(Pattern(run))
