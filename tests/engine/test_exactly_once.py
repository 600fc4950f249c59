# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""I1: what is deposited is in exactly one round, whatever the modes and delays."""

from __future__ import annotations

import random
import time
from itertools import pairwise

import numpy as np
import pytest

from tests.engine.process_ranks import Ranks, run
from tests.engine.records import Record, assert_agreement, assert_counts, record

SIZE = 8
CALLS = 60
MODES = ["sync", "majority", "solo", "quorum(3)", "designated(7)", "async"]


def like() -> list[np.ndarray]:
    # Of each rank: how many contributions; the sum of their numbers; and anything at all.
    return [np.zeros(SIZE, np.int64), np.zeros(SIZE, np.int64), np.zeros(1000, np.int64)]


def contribution(rank: int, number: int, chance: np.random.Generator) -> list[np.ndarray]:
    arrays = like()
    arrays[0][rank] = 1
    arrays[1][rank] = number
    arrays[2][:] = chance.integers(-(2**62), 2**62, 1000)  # sums wrap
    return arrays


def deposit_and_flush(
    ranks: Ranks, modes: list[str], catch_up: str, seed: int
) -> tuple[list[np.ndarray], list[np.ndarray], list[Record]]:
    """What this rank deposited and what came out, in sum; and the results."""
    chance = np.random.default_rng((seed, ranks.rank))
    delays = random.Random(seed * 100 + ranks.rank)
    deposited, received = like(), like()
    seen: list[Record] = []
    with ranks.connect() as engine:
        channel = engine.channel(
            "g", like(), modes[0], average=None, staleness="full", max_lag=4, catch_up=catch_up
        )

        def receive(results: list) -> None:
            for result in results:
                for total, value in zip(received, result.values, strict=True):
                    total += value
            seen.extend(record(results))

        for number in range(CALLS):
            if delays.random() < 0.3:
                time.sleep(delays.random() * 0.01)
            if len(modes) > 1 and delays.random() < 0.1:
                channel.set_mode(delays.choice(modes))  # any rank, at any time
            arrays = contribution(ranks.rank, number, chance)
            for total, value in zip(deposited, arrays, strict=True):
                total += value
            receive(channel.allreduce(arrays))
        receive(channel.flush())
        stats = channel.stats()
        assert stats.deposits == CALLS
        assert stats.contributions == SIZE * CALLS
        assert catch_up == "latest" or (stats.missed == 0 and stats.largest_lag <= 4)
    return deposited, received, seen


@pytest.mark.parametrize("modes", [[mode] for mode in MODES] + [MODES], ids=[*MODES, "changing"])
def test_results_add_up_to_the_deposits_on_every_rank(modes: list[str]) -> None:
    outcome = run(deposit_and_flush, SIZE, modes, "replay", len(modes[0]))
    expected = [
        sum(arrays) for arrays in zip(*(deposited for deposited, _, _ in outcome), strict=True)
    ]
    np.testing.assert_array_equal(expected[0], np.full(SIZE, CALLS))
    for _, received, _ in outcome:
        for total, value in zip(expected, received, strict=True):
            np.testing.assert_array_equal(total, value)
    rounds = assert_agreement([seen for _, _, seen in outcome])
    assert_counts(rounds)
    if len(modes) > 1:
        assert len({item.mode for item in rounds.values()}) > 1, "no mode change came through"


@pytest.mark.parametrize("modes", [["solo"], ["majority"], MODES], ids=["solo", "majority", "all"])
def test_published_rounds_add_up_with_latest_too(modes: list[str]) -> None:
    """Results are missed, so their sum says nothing. But the counts of all rounds add up, no two of
    those that somebody saw hold the same contribution, and each holds what its header says.
    """
    outcome = run(deposit_and_flush, SIZE, modes, "latest", 5)
    rounds = assert_agreement([seen for _, _, seen in outcome])
    assert_counts(rounds)
    last = max(rounds)
    assert rounds[last].total_contributions == SIZE * CALLS

    seen_contributions = 0
    gaps = 0
    for rank in range(SIZE):
        # A rank's contributions go out in their order, so each round holds consecutive ones.
        taken = [(0, 0)]
        for item in rounds.values():
            count, numbers = (int(np.frombuffer(bits, np.int64)[rank]) for bits in item.bits[:2])
            assert (count > 0) == (rank in item.contributors)
            if count == 0:
                continue
            start, odd = divmod(numbers - count * (count - 1) // 2, count)
            assert odd == 0, f"round {item.round}: contributions {numbers=} {count=} of rank {rank}"
            taken.append((start, start + count))
            seen_contributions += count
        for (_, end), (start, _) in pairwise([*taken, (CALLS, CALLS)]):
            assert start >= end, f"rank {rank}: contribution {start} is in two rounds"
            gaps += start - end
    assert seen_contributions == sum(item.contributions for item in rounds.values())
    # What is missing must have been in rounds that nobody saw.
    assert gaps == 0 or len(rounds) < last + 1
