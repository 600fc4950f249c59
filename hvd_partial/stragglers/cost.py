# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""What a straggler costs: the seconds that the others wait for it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Cost:
    """Of one straggler so far.

    Attributes:
      rounds: That waited for it.
      job_seconds: By which those rounds would have been shorter without it.
      rank_seconds: The same, added up over the ranks that waited.
    """

    rounds: int = 0
    job_seconds: float = 0.0
    rank_seconds: float = 0.0


class CostAccount:
    """Adds up, round by round.

    A round that waited for all took what its slowest rank computed; without the straggler it would
    have taken what the slowest of the others computed. The difference is the straggler's.
    """

    def __init__(self) -> None:
        self._costs: dict[int, Cost] = {}

    def of(self, rank: int) -> Cost:
        """Of a rank; zeros if it has cost nothing."""
        return self._costs.get(rank, Cost())

    def observe(
        self, waited_for: Collection[int], compute_seconds: Sequence[float], stragglers: set[int]
    ) -> None:
        """Takes in one round.

        Args:
          waited_for: Ranks that the round could not start without.
          compute_seconds: By rank, before the call that this round waited for.
          stragglers: At present.
        """
        blamed = stragglers.intersection(waited_for)
        others = [compute_seconds[rank] for rank in waited_for if rank not in stragglers]
        if not blamed or not others:
            return
        slowest = max(blamed, key=lambda rank: (compute_seconds[rank], rank))
        seconds = compute_seconds[slowest] - max(others)
        if not seconds > 0:
            return
        before = self.of(slowest)
        self._costs[slowest] = Cost(
            before.rounds + 1,
            before.job_seconds + seconds,
            before.rank_seconds + seconds * (len(waited_for) - 1),
        )
