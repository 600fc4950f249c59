# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Which mode for which part of the workload."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from hvd_partial.errors import InvalidArgumentError
from hvd_partial.modes import Mode

# Shares come as decimal fractions: 0.7 + 0.2 + 0.1 is not 1 to the last bit.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Phase:
    """A mode and the share of the workload, 0 to 1, that is trained in it."""

    mode: Mode
    share: float


class Schedule:
    """Phases of any number that make up the whole workload.

    Args:
      phases: (mode, share) in order, e.g. [("sync", 0.0625), ("async", 0.9375)]. Shares add up to
        1; the last one may be None for what is left.
      size: Number of ranks, to check a quorum against; None if not known yet.

    Raises:
      InvalidArgumentError: naming the phase.
    """

    def __init__(
        self, phases: Iterable[tuple[str | Mode, float | None]], size: int | None = None
    ) -> None:
        try:
            given: list[Any] = [tuple(phase) for phase in phases]
        except TypeError:
            raise InvalidArgumentError(
                f"schedule={phases!r}: must be a list of (mode, share), e.g. [('sync', 0.0625), "
                "('async', None)]"
            ) from None
        if not given:
            raise InvalidArgumentError("schedule: must have at least one phase")
        found: list[Phase] = []
        left = 1.0
        for number, phase in enumerate(given):
            where = f"schedule: phase {number} {phase!r}"
            if len(phase) != 2:
                raise InvalidArgumentError(f"{where} must be (mode, share)")
            mode, share = phase
            if share is None and number == len(given) - 1:
                share = max(left, 0.0)
            number_given = isinstance(share, int | float) and not isinstance(share, bool)
            if not number_given or not math.isfinite(share) or not 0 <= share <= 1:
                raise InvalidArgumentError(
                    f"{where}: the share must be 0 to 1 (only the last may be None: the rest)"
                )
            left -= share
            found.append(Phase(Mode.parse(mode, size), float(share)))
        if abs(left) > _ROUNDING:
            raise InvalidArgumentError(
                f"schedule: the shares add up to {1 - left:g}, not to 1; give None as the last "
                "one for what is left"
            )
        self.phases = tuple(found)
        self._ends = list(itertools.accumulate(phase.share for phase in found))

    @classmethod
    def from_bsp_fraction(cls, fraction: float) -> Schedule:
        """Sync for this share of the workload, then async: Sync-Switch's."""
        number_given = isinstance(fraction, int | float) and not isinstance(fraction, bool)
        if not number_given or not 0 <= fraction <= 1:
            raise InvalidArgumentError(f"bsp_fraction={fraction!r}: must be 0 to 1, e.g. 0.0625")
        return cls([("sync", float(fraction)), ("async", None)])

    @property
    def boundaries(self) -> tuple[float, ...]:
        """Where phases end but for the last one, as shares of the workload."""
        return tuple(self._ends[:-1])

    def index_at(self, progress: float) -> int:
        """Number of the phase at a share of the workload; phases of no length are passed over."""
        last = 0
        for number, (phase, end) in enumerate(zip(self.phases, self._ends, strict=True)):
            if phase.share > 0:
                last = number
            if progress < end - _ROUNDING:
                return number
        return last

    def mode_at(self, progress: float) -> Mode:
        """The mode at a share of the workload; beyond its end that of the last phase."""
        return self.phases[self.index_at(progress)].mode

    def __repr__(self) -> str:
        return f"Schedule({[(str(phase.mode), phase.share) for phase in self.phases]})"


def as_schedule(schedule: Schedule | Iterable[tuple[str | Mode, float | None]]) -> Schedule:
    """A schedule as it is, or from its phases."""
    return schedule if isinstance(schedule, Schedule) else Schedule(schedule)
