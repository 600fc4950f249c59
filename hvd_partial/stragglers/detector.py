# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Finds the ranks that are slow for a while, from what the headers of rounds say."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from hvd_partial.errors import InvalidArgumentError
from hvd_partial.stragglers.rules import Numbers, Rule, high_median, parse_rule

_LEAST_SECONDS = 1e-9  # what is less is not a measurement


@dataclass(frozen=True)
class Straggler:
    """A rank that is slow at present.

    Attributes:
      rank: Which.
      since: Contributions of all ranks when the first of the windows began that gave it away.
      slowdown: Seconds that it computes, over those of the middle rank, in the last window.
    """

    rank: int
    since: int
    slowdown: float


@dataclass
class _Record:
    """What is known of one rank."""

    slow_windows: int = 0  # in a row
    good_windows: int = 0  # in a row, while it is a straggler
    began: int = 0  # contributions when the first slow window in a row began
    straggler: bool = False


@dataclass(frozen=True)
class Window:
    """One look at all ranks.

    Attributes:
      end: Contributions of all ranks at its end.
      throughputs: Contributions per second of computing, by rank.
      accused: By rank, whether it was slow in this window alone.
    """

    end: int
    throughputs: tuple[float, ...] = field(repr=False)
    accused: tuple[bool, ...] = field(repr=False)


class StragglerDetector:
    """Pure: the same rounds give the same stragglers, so all ranks find the same ones.

    A rank is a straggler when in `in_row` windows in a row the rule accuses it *and* its throughput
    is below `floor` times that of the middle rank. It recovers when it is above `recovery` times
    that in as many windows. What counts are the seconds that a rank computes, not its steps: who
    waits for a straggler is not slow.

    Time is counted in steps, one for each `size` contributions; in sync mode that is one a round.
    A window holds the last `window` steps, and there is one in every `stride` steps. In a window
    the slowest sample of each rank counts as its second slowest: a checkpoint or a collection of
    garbage does not make a straggler. A rank of which a whole window has nothing is as slow as if
    it had needed all of it for one contribution.

    Args:
      size: Number of ranks.
      rule: "mean-std" (below mean - k * std; the paper's), "median-mad" (the same, robust),
        "ratio" (1.5 times as slow as the fastest), a rule of `hvd_partial.stragglers.rules` with
        other numbers, or a function from throughputs to booleans.
      window: Steps in a window.
      in_row: Windows.
      floor: Above 0, below `recovery`. Needed because among few ranks mean - std always accuses
        one.
      recovery: Up to 1.
      stride: Steps between windows; default: a third of a window.

    Raises:
      InvalidArgumentError: naming the argument.
    """

    def __init__(
        self,
        size: int,
        rule: str | Rule = "mean-std",
        *,
        window: int = 12,
        in_row: int = 3,
        floor: float = 0.7,
        recovery: float = 0.85,
        stride: int | None = None,
    ) -> None:
        stride = max(1, window // 3) if stride is None else stride
        for name, value, least in (
            ("size", size, 1),
            ("window", window, 2),
            ("in_row", in_row, 1),
            ("stride", stride, 1),
        ):
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise InvalidArgumentError(
                    f"StragglerDetector: {name}={value!r} must be a whole number from {least}"
                )
        if not (math.isfinite(floor) and math.isfinite(recovery) and 0 < floor < recovery <= 1):
            raise InvalidArgumentError(
                f"StragglerDetector: floor={floor!r}, recovery={recovery!r}: must be "
                "0 < floor < recovery <= 1"
            )
        self.size = size
        self.rule = parse_rule(rule)
        self.window = window
        self.in_row = in_row
        self.floor = floor
        self.recovery = recovery
        self.stride = stride
        self.contributions = 0
        self.last_window: Window | None = None
        self._next_look = window * size
        self._records = [_Record() for _ in range(size)]
        # The last samples of each rank, and when they came.
        self._seconds = np.full((size, window), np.nan)
        self._came = np.zeros((size, window), np.int64)
        self._count = np.zeros(size, np.int64)

    @property
    def stragglers(self) -> tuple[Straggler, ...]:
        """Those of the present, by rank."""
        if self.last_window is None:
            return ()
        throughputs = np.array(self.last_window.throughputs)
        middle = high_median(throughputs)
        return tuple(
            Straggler(rank, record.began, middle / throughputs[rank])
            for rank, record in enumerate(self._records)
            if record.straggler
        )

    def observe(
        self,
        contributions_of: Sequence[int],
        compute_seconds: Sequence[float],
        dropped_of: Sequence[int] | None = None,
    ) -> bool:
        """Takes in one round.

        Args:
          contributions_of: By rank, how many contributions of it are in the round.
          compute_seconds: By rank, what the header says; read only where there is something of the
            rank in the round.
          dropped_of: By rank, how many contributions were dropped because the rank is excluded:
            they tell how fast it is as well.

        Returns:
          Whether there are other stragglers than before.

        Raises:
          InvalidArgumentError: if there is not a number for each rank.
        """
        arrived = np.asarray(contributions_of, np.int64)
        if dropped_of is not None:
            arrived = arrived + np.asarray(dropped_of, np.int64)
        seconds = np.asarray(compute_seconds, float)
        if arrived.shape != (self.size,) or seconds.shape != (self.size,):
            raise InvalidArgumentError(
                f"StragglerDetector: {len(contributions_of)} contributions and "
                f"{len(compute_seconds)} seconds given for {self.size} ranks"
            )
        self.contributions += int(arrived.sum())
        # The engine knows no seconds of a rank's first call and says 0.
        told = (arrived > 0) & (seconds > _LEAST_SECONDS) & np.isfinite(seconds)
        ranks = np.flatnonzero(told)
        places = self._count[ranks] % self.window
        self._seconds[ranks, places] = seconds[ranks]
        self._came[ranks, places] = self.contributions
        self._count[ranks] += 1
        if self.contributions < self._next_look:
            return False
        self._next_look = self.contributions + self.stride * self.size
        return self._look()

    def _throughputs(self) -> Numbers:
        oldest = self.contributions - self.window * self.size
        seconds = np.sort(np.where(self._came > oldest, self._seconds, np.nan), axis=1)
        known = np.isfinite(seconds).sum(axis=1)
        ranks = np.flatnonzero(known >= 3)
        seconds[ranks, known[ranks] - 1] = seconds[ranks, known[ranks] - 2]
        total = np.nansum(seconds, axis=1)
        throughputs = np.divide(known, total, out=np.zeros(self.size), where=total > 0)
        if known.any():
            typical = high_median(throughputs[known > 0])
            throughputs[known == 0] = typical / self.window
        return throughputs

    def _look(self) -> bool:
        throughputs = self._throughputs()
        if not throughputs.any():
            return False  # nobody has told any seconds yet
        middle = high_median(throughputs)
        slow = np.asarray(self.rule(throughputs), bool) & (throughputs < self.floor * middle)
        good = throughputs > self.recovery * middle
        self.last_window = Window(
            self.contributions, tuple(throughputs.tolist()), tuple(slow.tolist())
        )
        changed = False
        began = max(0, self.contributions - self.window * self.size)
        for rank, record in enumerate(self._records):
            if record.straggler:
                record.good_windows = record.good_windows + 1 if good[rank] else 0
                if record.good_windows >= self.in_row:
                    record.straggler, record.slow_windows = False, 0
                    changed = True
                continue
            if not slow[rank]:
                record.slow_windows = 0
                continue
            if record.slow_windows == 0:
                record.began = began
            record.slow_windows += 1
            if record.slow_windows >= self.in_row:
                record.straggler, record.good_windows = True, 0
                changed = True
        return changed
