# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""What ranks hand to the test about their results, and what must hold of it in every run."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from hvd_partial.channel import RoundResult
from hvd_partial.modes import Mode


@dataclass(frozen=True)
class Record:
    """A result as a rank saw it; all but `included` must be the same on every rank."""

    round: int
    bits: tuple[bytes, ...]
    facts: tuple[tuple[str, Any], ...]
    included: bool

    def __getattr__(self, name: str) -> Any:
        if name in ("facts", "__setstate__"):
            raise AttributeError(name)
        return dict(self.facts)[name]


def record(results: Iterable[RoundResult]) -> list[Record]:
    """Results in a form that can be compared and sent."""
    records = []
    for result in results:
        facts = {
            field.name: getattr(result, field.name)
            for field in dataclasses.fields(result)
            if field.name not in ("values", "round", "included")
        }
        bits = tuple(value.tobytes() for value in result.values)
        records.append(Record(result.round, bits, tuple(facts.items()), result.included))
    return records


def assert_agreement(seen_by: list[list[Record]]) -> dict[int, Record]:
    """I2: whoever saw a round saw the same. Returns all rounds that somebody saw, in order."""
    rounds: dict[int, Record] = {}
    for rank, seen in enumerate(seen_by):
        numbers = [item.round for item in seen]
        assert numbers == sorted(set(numbers)), f"rank {rank} saw rounds out of order: {numbers}"
        for item in seen:
            first = rounds.setdefault(item.round, item)
            assert (item.bits, item.facts) == (first.bits, first.facts), f"round {item.round}"
            assert item.included == (rank in item.contributors), f"round {item.round}, rank {rank}"
    return dict(sorted(rounds.items()))


def assert_quorum(rounds: dict[int, Record], size: int) -> None:
    """I3, while no rank flushes or has left: as many contributors as the mode asks for."""
    for item in rounds.values():
        mode = Mode.parse(item.mode)
        needed = {"sync": size, "majority": (size + 1) // 2, "quorum": mode.k}.get(mode.kind, 1)
        assert len(item.contributors) >= needed, f"round {item.round}: {item}"


def assert_counts(rounds: dict[int, Record]) -> None:
    """Headers add up: counts from round to round, and weights to counts."""
    total = 0
    previous = -1
    for number, item in rounds.items():
        total += item.contributions
        if number == previous + 1:
            assert item.total_contributions == total, f"round {number}"
        total = item.total_contributions
        previous = number
        assert len(item.contributors) <= item.contributions
        assert item.weight <= item.contributions
