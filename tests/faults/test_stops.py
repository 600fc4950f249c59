# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Ranks that stand still and go on."""

from __future__ import annotations

import pytest

from tests.faults.stops import MAX_LAG, stop_process, stop_thread

MODES = ("sync", "majority", "solo")

# Rounds that can still end after a stop: one that the stopped rank had ended, but not yet the one
# that is watched, and one that had all parts of the stopped rank already.
IN_FLIGHT = 2


@pytest.mark.parametrize(
    ("mode", "victim", "leave_out"),
    [
        *((mode, 3, 0.0) for mode in MODES),  # switched off
        *((mode, 0, 0.2) for mode in MODES),  # the rank that decides
        ("sync", 3, 0.2),  # each round needs everybody
    ],
)
def test_a_stopped_process_that_is_needed_holds_the_others_up_and_nothing_is_lost(
    mode: str, victim: int, leave_out: float
) -> None:
    stood = stop_process(mode, victim, seconds=0.8, leave_out=leave_out)
    assert stood.equal and stood.exact
    assert stood.rounds_meanwhile <= IN_FLIGHT, stood
    assert stood.made_without == 0, stood


@pytest.mark.parametrize("victim", [1, 3])
@pytest.mark.parametrize("mode", ["majority", "solo"])
def test_rounds_that_can_do_without_a_stopped_process_go_on_and_it_gets_them_afterwards(
    mode: str, victim: int
) -> None:
    # It ends only if there are so many; there is room for them.
    wanted = IN_FLIGHT + 4
    stood = stop_process(mode, victim, seconds=0.0, leave_out=0.2, rounds=wanted, max_lag=100)
    assert stood.equal and stood.exact
    assert stood.made_without >= wanted - IN_FLIGHT - 1, stood


@pytest.mark.parametrize("mode", ["majority", "solo"])
def test_a_stopped_process_is_waited_for_when_its_ring_would_be_full(mode: str) -> None:
    stood = stop_process(mode, 3, seconds=1.0, leave_out=0.1)
    assert stood.equal and stood.exact
    # The ring may have held some already; how many, the others cannot see.
    assert stood.rounds_meanwhile <= MAX_LAG + IN_FLIGHT, stood
    assert stood.made_without <= MAX_LAG, stood


@pytest.mark.parametrize("victim", [0, 3])
@pytest.mark.parametrize("mode", MODES)
def test_a_stopped_thread_is_not_waited_for_until_its_ring_is_full(mode: str, victim: int) -> None:
    stood = stop_thread(mode, victim)
    assert stood.equal and stood.exact
    wanted = 0 if mode == "sync" else MAX_LAG
    assert stood.rounds_meanwhile == wanted, stood
    # It gets all of them in its next call; in sync mode, the round that it makes possible.
    assert stood.caught_up == max(wanted, 1), stood
