# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Delays on purpose, to see what late ranks do to training.

A pattern is a pure function of rank, step and size, so what a run met can be told afterwards.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import horovod.tensorflow as _hvd
import numpy as np

from hvd_partial import arguments
from hvd_partial.errors import InvalidArgumentError
from hvd_partial.tensorflow._errors import names_rank
from hvd_partial.tensorflow.keras.callbacks._base import PartialCallback


@dataclass(frozen=True)
class FixedRank:
    """One rank is late in every step. A negative rank counts from the end.

    Attributes:
      rank: Which.
      seconds: By how much.
    """

    rank: int
    seconds: float

    @names_rank
    def __post_init__(self) -> None:
        arguments.whole("rank", self.rank, least=None, hint="negative: from the end")
        arguments.number("seconds", self.seconds, least=0.0)

    def __call__(self, rank: int, step: int, size: int) -> float:
        return self.seconds if rank == self.rank % size else 0.0


@dataclass(frozen=True)
class RandomRank:
    """In each step one rank, drawn anew, is late.

    Attributes:
      seconds: By how much.
      seed: Of the draws, the same on all ranks.
    """

    seconds: float
    seed: int = 0

    @names_rank
    def __post_init__(self) -> None:
        arguments.number("seconds", self.seconds, least=0.0)
        arguments.whole("seed", self.seed, hint="the same on all ranks")

    def __call__(self, rank: int, step: int, size: int) -> float:
        drawn = int(np.random.default_rng([self.seed, step]).integers(size))
        return self.seconds if rank == drawn else 0.0


@dataclass(frozen=True)
class RotatingSkew:
    """All ranks are late by different times, from `shortest` to `longest` in equal parts, and the
    times move on by one rank in each step.

    Attributes:
      shortest: In seconds.
      longest: In seconds.
    """

    shortest: float
    longest: float

    @names_rank
    def __post_init__(self) -> None:
        arguments.number("shortest", self.shortest, least=0.0, hint="in seconds")
        arguments.number("longest", self.longest, least=self.shortest, hint="which is the shortest")

    def __call__(self, rank: int, step: int, size: int) -> float:
        if size == 1:
            return self.shortest
        place = (rank + step) % size
        return self.shortest + (self.longest - self.shortest) * place / (size - 1)


@dataclass(frozen=True)
class LogNormal:
    """Each rank is late by a time of its own in each step, log-normally distributed.

    Attributes:
      median: In seconds.
      sigma: Of the logarithm.
      seed: Of the draws.
    """

    median: float
    sigma: float = 1.0
    seed: int = 0

    @names_rank
    def __post_init__(self) -> None:
        arguments.number("median", self.median, least=0.0, hint="in seconds")
        arguments.number("sigma", self.sigma, least=0.0)
        arguments.whole("seed", self.seed)

    def __call__(self, rank: int, step: int, size: int) -> float:
        del size
        drawn = np.random.default_rng([self.seed, rank, step]).standard_normal()
        return float(self.median * np.exp(self.sigma * drawn))


class DelayInjectionCallback(PartialCallback):
    """Sleeps before each batch, as long as the pattern says. Steps are counted over all epochs.

    Args:
      pattern: FixedRank, RandomRank, RotatingSkew, LogNormal, or any function of (rank, step, size)
        that gives seconds.
      sleep: Takes the seconds.
    """

    @names_rank
    def __init__(
        self,
        pattern: Callable[[int, int, int], float],
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__()
        if not callable(pattern):
            raise InvalidArgumentError(
                f"pattern={pattern!r}: must be a function of (rank, step, size), e.g. "
                "FixedRank(rank=-1, seconds=0.3)"
            )
        arguments.function("sleep", sleep, "the seconds to sleep")
        self.pattern = pattern
        self.step = 0
        self._sleep = sleep
        self._begun = False

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        del batch, logs
        if self._begun:
            # Where Keras does not know how many batches there are, it began one more at the end of
            # the last epoch: this batch has had its delay.
            return
        self._begun = True
        seconds = float(self.pattern(_hvd.rank(), self.step, _hvd.size()))
        self.step += 1
        if seconds > 0:
            self._sleep(seconds)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        del batch, logs
        self._begun = False
