# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Schedules of (mode, share of the workload)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvd_partial.errors import InvalidArgumentError
from hvd_partial.sync_switch import Schedule


def test_short_form() -> None:
    schedule = Schedule.from_bsp_fraction(0.0625)
    assert str(schedule) == "Schedule([('sync', 0.0625), ('async', 0.9375)])"
    assert schedule.boundaries == (0.0625,)
    assert str(schedule.mode_at(0.0624)) == "sync"
    assert str(schedule.mode_at(0.0625)) == "async"
    assert str(schedule.mode_at(2.0)) == "async"


def test_phases_without_length_are_passed_over() -> None:
    assert str(Schedule.from_bsp_fraction(0).mode_at(0.0)) == "async"
    assert str(Schedule.from_bsp_fraction(1).mode_at(1.0)) == "sync"
    middle = Schedule([("sync", 0.5), ("solo", 0), ("async", None)])
    assert [str(middle.mode_at(x)) for x in (0.4, 0.5)] == ["sync", "async"]


@given(parts=st.lists(st.integers(0, 50), min_size=1, max_size=8).filter(sum))
def test_every_phase_gets_its_share(parts: list[int]) -> None:
    """Counted one by one, as contributions are, however shares are rounded."""
    total = sum(parts)
    modes = ["sync", "async", "majority", "quorum(2)"]
    schedule = Schedule([(modes[i % 4], part / total) for i, part in enumerate(parts)], size=4)
    counts = [0] * len(parts)
    for done in range(total):
        counts[schedule.index_at(done / total)] += 1
    assert counts == parts


@pytest.mark.parametrize(
    ("phases", "text"),
    [
        ([], "at least one phase"),
        (5, "must be a list of"),
        ([("sync",)], "phase 0 .* must be"),
        ([("sync", 0.5), ("async", 0.6)], "add up to 1.1"),
        ([("sync", 0.5), ("async", 0.4)], "add up to 0.9"),
        ([("sync", None), ("async", 0.5)], "phase 0"),
        ([("sync", -0.5), ("async", None)], "must be 0 to 1"),
        ([("sync", True)], "must be 0 to 1"),
        ([("asink", 1)], "did you mean 'async'"),
        ([("quorum(5)", 1)], "k must be 1 to 4"),
    ],
)
def test_wrong_schedules(phases, text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=text):
        Schedule(phases, size=4)


@pytest.mark.parametrize("fraction", [-0.1, 1.1, float("nan"), "0.5", True, None])
def test_wrong_fractions(fraction) -> None:
    with pytest.raises(InvalidArgumentError, match="bsp_fraction"):
        Schedule.from_bsp_fraction(fraction)
