# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Ranks at different places: late ones, ones that flush, ones that leave."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from itertools import chain

import numpy as np
import pytest

from tests.engine.process_ranks import Ranks, run
from tests.engine.records import Record, assert_agreement, assert_counts, record

ONE = [np.ones(4, np.float32)]


def until(condition: Callable[[], bool]) -> None:
    """Waits for what another thread or rank brings about; the test's deadline is the limit."""
    while not condition():
        time.sleep(0.001)


def alone_up_to_max_lag(ranks: Ranks, mode: str, max_lag: int) -> list[list[Record]]:
    with ranks.connect() as engine:
        channel = engine.channel("g", ONE, mode, max_lag=max_lag)
        if ranks.rank == 0:
            seen = [record(channel.allreduce(ONE)) for _ in range(max_lag)]
            ranks.set("full")
            # One more than the others' rings hold: it needs them to take one out.
            seen.append(record(channel.allreduce(ONE)))
        else:
            ranks.wait_for("full")  # has not called at all; only its progress thread took part
            until(lambda: channel.stats().lag == max_lag)
            time.sleep(0.2)  # rank 0 calls once more meanwhile; this can only hide a failure
            assert channel.stats().lag == channel.stats().rounds == max_lag
            seen = [record(channel.allreduce(ONE))]
        seen.append(record(channel.flush()))
        assert channel.stats().largest_lag <= max_lag
        return seen


@pytest.mark.parametrize("mode", ["solo", "async"])
@pytest.mark.parametrize("max_lag", [1, 3, 8])
def test_a_rank_makes_rounds_alone_until_the_rings_of_the_others_are_full(
    mode: str, max_lag: int
) -> None:
    fast, *slow = run(alone_up_to_max_lag, 3, mode, max_lag)
    # I6: each call of the fast rank got its own round, with its own contribution in it.
    assert [[item.round for item in seen] for seen in fast[: max_lag + 1]] == [
        [number] for number in range(max_lag + 1)
    ]
    assert all(seen[0].included for seen in fast[: max_lag + 1])
    for calls in slow:
        # A late rank gets everything at once, in order.
        assert [item.round for item in calls[0]] == list(range(max_lag))
    everything = assert_agreement([list(chain(*calls)) for calls in (fast, *slow)])
    assert_counts(everything)
    assert everything[max(everything)].total_contributions == max_lag + 1 + 2


def far_behind(ranks: Ranks, rounds: int) -> tuple[list[list[Record]], int]:
    with ranks.connect() as engine:
        channel = engine.channel("g", ONE, "solo", catch_up="latest", max_lag=2)
        if ranks.rank == 0:
            seen = [record(channel.allreduce(ONE)) for _ in range(rounds)]
            ranks.set("far ahead")
        else:
            ranks.wait_for("far ahead")
            until(lambda: channel.stats().rounds == rounds)
            seen = [record(channel.allreduce(ONE))]
        ranks.barrier()
        seen.append(record(channel.flush()))
        return seen, channel.stats().missed


def test_latest_never_holds_the_others_up_and_gives_the_newest_only() -> None:
    (fast, _), (slow, missed) = run(far_behind, 2, 20)
    assert [[item.round for item in seen] for seen in fast[:20]] == [[n] for n in range(20)]
    assert [item.round for item in slow[0]] == [19]
    assert missed == 19
    # The one late contribution goes into the round that ends the flush.
    assert [(item.round, item.contributors) for item in slow[1]] == [(20, (1,))]
    assert slow[1][0].total_contributions == 21


def uneven_calls_then_flush(ranks: Ranks, mode: str) -> tuple[list[Record], list[Record]]:
    chance = random.Random(ranks.rank)
    with ranks.connect() as engine:
        channel = engine.channel("g", ONE, mode)
        seen: list[Record] = []
        for epoch in range(3):
            for _ in range((ranks.rank * 3 + epoch) % 7):  # some make none
                time.sleep(chance.random() * 0.002)
                seen += record(channel.allreduce(ONE))
            seen += record(channel.flush())
            ranks.barrier()
            assert channel.stats().lag == 0
            assert channel.flush() == [], "nothing can be left"
        return seen, record(channel.flush())


@pytest.mark.parametrize("mode", ["sync", "majority", "solo", "designated(3)"])
def test_flush_ends_whatever_number_of_calls_each_rank_made(mode: str) -> None:
    size = 5
    outcome = run(uneven_calls_then_flush, size, mode)
    everything = assert_agreement([seen for seen, _ in outcome])
    assert_counts(everything)
    calls = sum((rank * 3 + epoch) % 7 for rank in range(size) for epoch in range(3))
    assert everything[max(everything)].total_contributions == calls
    # Everybody has everything.
    assert all(len(seen) == len(everything) for seen, _ in outcome)
    assert all(rest == [] for _, rest in outcome)


def flush_first(ranks: Ranks) -> tuple[int, list[bool]]:
    with ranks.connect() as engine:
        channel = engine.channel("g", ONE, "solo")
        nothing = channel.flush()
        if ranks.rank == 0:
            channel.allreduce(ONE)
            ranks.set("called")
        ranks.wait_for("called")
        if ranks.rank == 1:
            until(lambda: channel.stats().rounds >= 2)
            channel.allreduce(ONE)  # returns rank 0's round; its own is pending
        return len(nothing), [result.flush for result in channel.flush()]


def test_a_flush_says_which_round_ended_it_and_may_be_empty() -> None:
    (zero, first), (one, second) = run(flush_first, 2)
    assert (zero, one) == (0, 0)
    assert first == second == [True]


def leave_one_after_the_other(ranks: Ranks, mode: str) -> tuple[list[Record], int]:
    calls = 4 * (ranks.rank + 1)
    with ranks.connect() as engine:
        with engine.channel("g", ONE, mode) as channel:
            seen: list[Record] = []
            for _ in range(calls):
                seen += record(channel.allreduce(ONE))
        with pytest.raises(ValueError, match=f"rank {ranks.rank}, channel 'g'.*left the channel"):
            channel.allreduce(ONE)
        channel.leave()  # again: nothing happens
        return seen, calls


@pytest.mark.parametrize("mode", ["sync", "majority", "solo", "quorum(3)"])
def test_others_go_on_when_a_rank_has_left(mode: str) -> None:
    outcome = run(leave_one_after_the_other, 4, mode)
    everything = assert_agreement([seen for seen, _ in outcome])
    assert_counts(everything)
    if mode == "sync":
        # Rank r is in the rounds before 4 (r + 1), and in no other.
        for number, item in everything.items():
            assert item.contributors == tuple(r for r in range(4) if number < 4 * (r + 1))
        assert len(everything) == 16


def a_rank_without_data(ranks: Ranks) -> int:
    with ranks.connect() as engine:
        channel = engine.channel("g", ONE, "sync")
        if ranks.rank == 1:
            channel.leave()
            return 0
        return sum(len(channel.allreduce(ONE)) for _ in range(5))


def test_a_rank_that_leaves_at_once_holds_nobody_up() -> None:
    assert run(a_rank_without_data, 3) == [5, 0, 5]


def everybody_flushes_but_one_that_leaves(ranks: Ranks) -> list[int]:
    with ranks.connect() as engine:
        channel = engine.channel("g", ONE, "majority", average=None)
        numbers = [item.contributions for item in channel.allreduce(ONE)]
        if ranks.rank == 2:
            channel.leave()
            return []
        return numbers + [item.contributions for item in channel.flush()]


def test_a_flush_does_not_wait_for_a_rank_that_has_left() -> None:
    outcome = run(everybody_flushes_but_one_that_leaves, 4)
    for numbers in (outcome[0], outcome[1], outcome[3]):
        assert sum(numbers) == 4


def close_while_others_train(ranks: Ranks) -> int:
    engine = ranks.connect()
    channel = engine.channel("g", ONE, "sync")
    steps = 3 if ranks.rank == 1 else 12
    count = sum(len(channel.allreduce(ONE)) for _ in range(steps))
    engine.close()  # rank 1 waits in there until the others close too
    return count


def test_a_rank_may_close_while_others_train_on() -> None:
    assert run(close_while_others_train, 3) == [12, 3, 12]
