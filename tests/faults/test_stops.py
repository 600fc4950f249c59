# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Ranks that stand still and go on."""

from __future__ import annotations

import pytest

from tests.faults.stops import MAX_LAG, stop_process, stop_thread

MODES = ("sync", "majority", "solo")


@pytest.mark.parametrize("victim", [0, 3])
@pytest.mark.parametrize("mode", MODES)
def test_a_stopped_process_holds_the_others_up_and_nothing_is_lost(mode: str, victim: int) -> None:
    stood = stop_process(mode, victim, seconds=0.5)
    assert stood.equal and stood.exact
    # One round may have had all parts of the stopped rank already.
    assert stood.rounds_meanwhile <= 1, stood


@pytest.mark.parametrize("victim", [0, 3])
@pytest.mark.parametrize("mode", MODES)
def test_a_stopped_thread_is_not_waited_for_until_its_ring_is_full(mode: str, victim: int) -> None:
    stood = stop_thread(mode, victim)
    assert stood.equal and stood.exact
    wanted = 0 if mode == "sync" else MAX_LAG
    assert stood.rounds_meanwhile == wanted, stood
    # It gets all of them in its next call; in sync mode, the round that it makes possible.
    assert stood.caught_up == max(wanted, 1), stood
