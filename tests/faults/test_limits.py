# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Ranks that get too little of a processor, or of memory."""

from __future__ import annotations

import pytest

from tests.faults.limits import SIZE, STEPS, CannotLimitError, throttle, too_little_memory


@pytest.mark.parametrize("mode", ["sync", "majority", "solo"])
def test_a_rank_with_a_fifth_of_a_processor_ends_right(mode: str) -> None:
    try:
        found = throttle(mode, victim=2)
    except CannotLimitError as error:
        pytest.skip(f"no processor quota can be set here: {error}")
    assert found.equal and found.exact
    assert found.rounds >= STEPS
    if mode == "sync":
        assert found.late == [0] * SIZE
    if found.throttled == 0:
        pytest.skip("the machine is so busy that the quota held nobody back")


@pytest.mark.parametrize("victim", [0, 1])
def test_no_memory_for_a_ring_on_one_rank_is_an_error_on_all(victim: int) -> None:
    seen = too_little_memory(victim)
    for rank, found in enumerate(seen):
        assert found.kinds[0] == ("HvdPartialError" if rank == victim else "AbortedError"), found
        assert f"rank {rank}" in found.message
        assert f"rank {victim}, channel 'g': out of memory: max_lag=8 asks for" in found.message
        # 11 buffers of 16 MiB and a header.
        assert "11 buffers of 16777" in found.message
        assert "a smaller max_lag needs less" in found.message
        # At once: nobody waits for the channel to open.
        assert found.seconds < 10.0


def test_a_ring_larger_than_the_machine_is_refused_before_it_fills_it() -> None:
    for found in too_little_memory(None):
        # Each rank sees it itself, or hears of it from the one that was first.
        assert found.kinds[0] in ("HvdPartialError", "AbortedError"), found
        assert ", channel 'g'" in found.message
        assert "out of memory: max_lag=60000 asks for" in found.message
        assert found.seconds < 10.0
