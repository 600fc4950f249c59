# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Rounds between processes: modes, sums, dtypes, weights, channels."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from hvd_partial.channel import Channel, ChannelStats
from tests.engine.process_ranks import Ranks, run
from tests.engine.records import (
    Record,
    assert_agreement,
    assert_counts,
    assert_quorum,
    record,
)

MODES = ["sync", "majority", "solo", "quorum(3)", "designated(7)", "async"]


def calls_with_jitter(ranks: Ranks, mode: str, calls: int) -> tuple[list[Record], list[Record]]:
    chance = random.Random(ranks.rank)
    with ranks.connect() as engine:
        channel = engine.channel("g", [np.zeros(5, np.float32), np.zeros((2, 3))], mode)
        seen = []
        for _ in range(calls):
            time.sleep(chance.random() * 0.003)
            gradients = [
                np.array([chance.random() for _ in range(5)], np.float32),
                np.full((2, 3), chance.random()),
            ]
            results = channel.allreduce(gradients)
            assert results
            seen += record(results)
        return seen, record(channel.flush())


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("size", [4, 5])
def test_every_mode(mode: str, size: int) -> None:
    calls = 25
    outcome = run(calls_with_jitter, size, mode, calls)
    everything = assert_agreement([before + after for before, after in outcome])
    assert_counts(everything)
    assert list(everything) == list(range(len(everything)))
    assert {item.mode for item in everything.values()} == {mode}
    assert {item.divisor for item in everything.values()} == {float(size)}
    assert everything[max(everything)].total_contributions == size * calls
    for before, after in outcome:
        # With replay everybody gets everything.
        assert len(before) + len(after) == len(everything)
    # Ranks flush at different times; until the first of them does, all are active.
    undisturbed = min(len(before) for before, _ in outcome)
    assert_quorum({r: i for r, i in everything.items() if r < undisturbed}, size)
    if mode == "sync":
        assert len(everything) == calls
        assert all(item.contributions == size for item in everything.values())


SIX = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16, np.int32, np.int64]


def sum_of_all_dtypes(ranks: Ranks) -> list[np.ndarray]:
    with ranks.connect() as engine:
        like = [np.zeros((3, 5), dtype) for dtype in SIX]
        channel = engine.channel("g", like, "sync", average=None, staleness="full")
        (result,) = channel.allreduce([np.full_like(array, ranks.rank + 1) for array in like])
        for value, array in zip(result.values, like, strict=True):
            assert value.dtype == array.dtype
            assert value.shape == array.shape
            assert value.flags.owndata
        return [value.astype(np.float64) for value in result.values]


@pytest.mark.parametrize("size", [1, 2, 3, 6])
def test_all_dtypes_in_one_channel(size: int) -> None:
    expected = np.full((3, 5), float(sum(range(1, size + 1))))
    for values in run(sum_of_all_dtypes, size):
        for value in values:
            np.testing.assert_array_equal(value, expected)


def averages(ranks: Ranks) -> list[tuple[list[float], float]]:
    with ranks.connect() as engine:
        outcome = []
        for average in ("size", "contributions", None):
            like = [np.zeros((), np.float32), np.zeros(2, np.float16)]
            channel = engine.channel(f"{average}", like, "sync", average)
            nothing = ranks.rank == 0  # left out: not finite
            value = np.inf if nothing else ranks.rank * 3.0
            (result,) = channel.allreduce([np.float32(value), np.full(2, value, np.float16)])
            assert result.skipped == 1
            assert result.contributions == ranks.size - 1
            assert result.included == (not nothing)
            assert result.values[0].shape == ()
            outcome.append(([float(result.values[0]), float(result.values[1][1])], result.divisor))
        return outcome


def test_averages_and_contributions_that_are_not_finite() -> None:
    # 3 + 6 + 9 = 18 of three contributions on four ranks.
    for outcome in run(averages, 4):
        assert outcome == [([4.5, 4.5], 4.0), ([6.0, 6.0], 3.0), ([18.0, 18.0], 1.0)]


def nothing_finite(ranks: Ranks) -> tuple[int, list[float], int]:
    with ranks.connect() as engine:
        channel = engine.channel("g", [np.zeros(2, np.float32)], "sync")
        empty = channel.allreduce([np.full(2, np.nan, np.float32)])
        (result,) = channel.allreduce([np.ones(2, np.float32)])
        return len(empty), result.values[0].tolist(), channel.stats().skipped


def test_a_round_without_any_finite_contribution_has_no_result_and_training_goes_on() -> None:
    assert run(nothing_finite, 3) == [(0, [1.0, 1.0], 1)] * 3


def poison(ranks: Ranks) -> bool:
    with ranks.connect() as engine:
        channel = engine.channel("g", [np.zeros(1, np.float32)], "sync", skip_nonfinite=False)
        value = np.inf if ranks.rank == 1 else 1.0
        (result,) = channel.allreduce([np.array([value], np.float32)])
        return bool(np.isinf(result.values[0][0])) and result.contributions == ranks.size


def test_contributions_that_are_not_finite_can_be_let_in() -> None:
    assert run(poison, 3) == [True] * 3


def until(condition: Callable[[], bool]) -> None:
    """Waits for what another thread or rank brings about; the test's deadline is the limit."""
    while not condition():
        time.sleep(0.001)


def half(tau: int) -> float:
    return 0.5**tau


def late_by_three(ranks: Ranks, staleness: Any, mode: str) -> tuple[float, float, int, int]:
    with ranks.connect() as engine:
        channel = engine.channel("g", [np.zeros(2)], mode, staleness=staleness, average=None)
        if ranks.rank == 0:
            for _ in range(3):
                channel.allreduce([np.ones(2)])
            ranks.set("three rounds")
            ranks.wait_for("late deposit")
            (result,) = channel.allreduce([np.ones(2)])
        else:
            ranks.wait_for("three rounds")
            until(lambda: channel.stats().rounds == 3)
            results = channel.allreduce([np.full(2, 1000.0)])
            assert [r.round for r in results] == [0, 1, 2], "they were there, so no waiting"
            assert not any(r.included for r in results)
            ranks.set("late deposit")
            (result,) = channel.flush()
        assert result.round == 3
        assert result.included
        late = channel.stats().late_deposits
        return float(result.values[0][1]), result.weight, result.contributions, late


@pytest.mark.parametrize(
    ("staleness", "mode", "weight"),
    [
        ("inverse", "solo", 0.25),
        ("inverse_squared", "solo", 0.0625),
        ("full", "solo", 1.0),
        (half, "solo", 0.125),
        ("inverse", "async", 1.0),
    ],
)
def test_weight_of_a_contribution_three_rounds_late(
    staleness: Any, mode: str, weight: float
) -> None:
    outcome = run(late_by_three, 2, staleness, mode)
    assert [late for *_, late in outcome] == [0, 1]
    for value, total_weight, contributions, _ in outcome:
        assert value == 1.0 + 1000.0 * weight
        assert total_weight == 1.0 + weight
        assert contributions == 2


def channels_in_another_order(ranks: Ranks) -> list[tuple[str, float]]:
    names = ["a", "b", "c", "d"]
    with ranks.connect() as engine:
        order = random.Random(ranks.rank).sample(names, 4)
        channels = {}
        for name in order:
            like = [np.zeros(names.index(name) + 1)]
            channels[name] = engine.channel(name, like, "solo", average=None)
        # Each channel has its own rounds; rank r contributes to those from r on.
        for name in order:
            if names.index(name) >= ranks.rank:
                channels[name].allreduce([np.full(names.index(name) + 1, 1.0)])
        ranks.barrier()
        sums = []
        for name in names:
            channels[name].flush()
            sums.append((name, channels[name].stats().contributions))
        return sums


def test_channels_are_opened_and_used_in_any_order() -> None:
    assert run(channels_in_another_order, 4) == [[("a", 1), ("b", 2), ("c", 3), ("d", 4)]] * 4


def open_again(ranks: Ranks) -> None:
    with ranks.connect() as engine:
        like = [np.zeros(2, np.float32)]
        first = engine.channel("g", like, "sync")
        assert engine.channel("g", like, "sync") is first
        for changed in (
            {"like": [np.zeros(3, np.float32)]},
            {"like": [np.zeros(2)]},
            {"like": [np.zeros((2, 1), np.float32)]},
            {"mode": "solo"},
            {"max_lag": 9},
            {"average": None},
        ):
            arguments: dict[str, Any] = {"like": like, "mode": "sync", **changed}
            with pytest.raises(ValueError, match=f"rank {ranks.rank}.*'g'"):
                engine.channel("g", **arguments)
        assert len(first.allreduce([np.zeros(2, np.float32)])) == 1


def test_a_name_opens_the_same_channel_again_but_no_other() -> None:
    run(open_again, 2)


def modes_of_the_engine(ranks: Ranks) -> list[str]:
    with ranks.connect() as engine:
        like = [np.zeros(1)]
        before = engine.channel("before", like, "majority")
        if ranks.rank == 1:
            engine.set_mode("quorum(2)")
            ranks.set("said")
        ranks.wait_for("said")
        # Rank 1's wish reaches rank 0 ahead of its call, so this or the next round has it.
        modes = [[r.mode for r in before.allreduce([np.ones(1)])][-1] for _ in range(3)]
        ranks.barrier()
        after = engine.channel("after", like, "sync")
        modes += [[r.mode for r in after.allreduce([np.ones(1)])][-1] for _ in range(3)]
        before.flush()
        after.flush()
        return [modes[2], modes[5], before.mode, after.mode]


def test_the_engine_sets_the_mode_of_present_and_future_channels() -> None:
    assert run(modes_of_the_engine, 2) == [["quorum(2)"] * 4] * 2


def facts(ranks: Ranks) -> tuple[ChannelStats, int, int]:
    with ranks.connect() as engine:
        channel = engine.channel("g", {"w": np.zeros(1000, np.float32)}, "sync")
        for _ in range(4):
            if ranks.rank == 1:
                time.sleep(0.05)
            (result,) = channel.allreduce({"w": np.ones(1000, np.float32)})
            assert len(result.compute_seconds) == ranks.size
        # The header carries the last value before the round; the first call has none.
        assert result.compute_seconds[1] >= 0.05
        stats = engine.stats()
        before_flush = channel.stats()
        channel.flush()
        return before_flush, channel.stats(), stats.bytes_sent, stats.rounds


def test_stats() -> None:
    for rank, (stats, flushed, bytes_sent, rounds) in enumerate(run(facts, 3)):
        assert stats.rounds == stats.full_rounds == rounds == 4
        assert stats.flushes == 0
        assert (flushed.rounds, flushed.full_rounds, flushed.flushes) == (5, 4, 1)
        assert stats.contributions == 12
        assert stats.contribution_weight == 12.0
        assert stats.deposits == 4
        assert stats.late_deposits == stats.skipped == stats.missed == stats.lag == 0
        assert stats.largest_lag == 1
        assert stats.mode == "sync"
        assert stats.bytes_sent == bytes_sent >= 4 * 4000
        assert stats.compute_seconds[1] >= 0.05
        assert stats.deposit_seconds > 0
        assert (stats.grace_seconds is not None) == (rank == 0)
        if rank != 1:
            assert stats.blocked_seconds >= 0.1, "they waited for rank 1"


def one_rank_alone(ranks: Ranks, mode: str) -> list[float]:
    with ranks.connect() as engine:
        channel = engine.channel("g", [np.zeros(3, np.float32)], mode)
        values = []
        for step in range(5):
            (result,) = channel.allreduce([np.full(3, float(step), np.float32)])
            assert result.included
            values.append(float(result.values[0][2]))
        assert channel.flush() == []
        return values


@pytest.mark.parametrize(
    "mode", ["sync", "majority", "solo", "quorum(1)", "designated(7)", "async"]
)
def test_size_one(mode: str) -> None:
    assert run(one_rank_alone, 1, mode) == [[0.0, 1.0, 2.0, 3.0, 4.0]]


def large_tensors(ranks: Ranks) -> int:
    elements = 2_500_000
    with ranks.connect() as engine:
        channel: Channel = engine.channel("g", [np.zeros(elements, np.float32)], "sync")
        base = np.arange(elements, dtype=np.float32) % 1024
        (result,) = channel.allreduce([base * (ranks.rank + 1)])
        expected = base * (sum(range(1, ranks.size + 1)) / ranks.size)
        np.testing.assert_array_equal(result.values[0], expected)
        return channel.stats().bytes_sent


@pytest.mark.parametrize("size", [2, 3, 4])
def test_large_tensors_go_round_in_pieces(size: int) -> None:
    # Each rank sends 2 (P - 1) / P of the bytes, and not much more.
    for sent in run(large_tensors, size):
        assert 10_000_000 * 2 * (size - 1) / size <= sent <= 10_010_000 * 2 * (size - 1) / size
