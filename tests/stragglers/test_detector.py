# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""The straggler detector: properties, and labelled synthetic traces."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.straggler_detector import score
from benchmarks.straggler_traces import KINDS, Kind, make
from hvd_partial.errors import InvalidArgumentError
from hvd_partial.stragglers import (
    RULES,
    CostAccount,
    MeanStd,
    MedianMad,
    Ratio,
    StragglerDetector,
)

SIZES = (2, 3, 4, 8, 16, 64)
every_rule = pytest.mark.parametrize("rule", list(RULES))


def feed(detector: StragglerDetector, seconds: np.ndarray, rounds: int = 1) -> list[int]:
    """Sync rounds; who is a straggler afterwards."""
    for _ in range(rounds):
        detector.observe([1] * detector.size, seconds)
    return [straggler.rank for straggler in detector.stragglers]


@every_rule
def test_few_false_alarms_where_nobody_is_slow(rule: str) -> None:
    for name in ("nobody slow", "nobody slow, everybody noisy"):
        windows = false = 0
        for size in SIZES:
            for seed in range(4):
                found = score(
                    StragglerDetector(size, rule), make(KINDS[name], size, 240, 1000 + seed)
                )
                windows += found.windows
                false += found.false_windows
        assert windows > 1000
        assert false < 0.01 * windows, name


@every_rule
@pytest.mark.parametrize("kind", ["2x, permanent", "5x, permanent", "2x, transient"])
def test_found_within_three_windows(rule: str, kind: str) -> None:
    for size in SIZES:
        for seed in range(3):
            detector = StragglerDetector(size, rule)
            found = score(detector, make(KINDS[kind], size, 240, 2000 + seed))
            assert found.delay is not None, (size, seed)
            assert found.delay <= 3 * detector.window
            if "transient" in kind:
                assert found.undone is not None
                assert found.undone <= 3 * detector.window


@every_rule
def test_below_the_floor_is_a_matter_of_the_floor(rule: str) -> None:
    """A rank at 1.3x is none by default, and one with a higher floor."""
    trace = make(Kind(noise=0.02, slowdown=1.3), 8, 120, 7)
    assert score(StragglerDetector(8, rule), trace).delay is None
    eager = {"ratio": Ratio(1.2)}.get(rule, rule)
    sharp = StragglerDetector(8, eager, floor=0.85, recovery=0.9)
    assert score(sharp, trace).delay is not None


@given(
    size=st.integers(2, 12),
    slow=st.data(),
    factor=st.floats(1.6, 20.0),
    step=st.floats(1e-4, 100.0),
    rule=st.sampled_from(sorted(RULES)),
)
def test_a_slow_rank_is_found_whoever_it_is(size, slow, factor, step, rule) -> None:
    """Whatever the unit of time is; and it recovers, and nobody else is ever accused."""
    rank = slow.draw(st.integers(0, size - 1))
    detector = StragglerDetector(size, rule, window=6, in_row=2, stride=2)
    even = np.full(size, step)
    uneven = even.copy()
    uneven[rank] *= factor
    assert feed(detector, even, 10) == []
    assert feed(detector, uneven, 12) == [rank]
    assert detector.stragglers[0].slowdown == pytest.approx(factor)
    assert 10 * size - 6 * size <= detector.stragglers[0].since <= 14 * size
    assert feed(detector, even, 12) == []


@given(
    seconds=st.lists(
        st.lists(st.floats(0.0, 10.0), min_size=4, max_size=4), min_size=1, max_size=40
    )
)
def test_all_ranks_find_the_same(seconds) -> None:
    """Pure: the same rounds give the same, and never all ranks are stragglers."""
    first, second = StragglerDetector(4, window=3), StragglerDetector(4, window=3)
    for row in seconds:
        assert first.observe([1] * 4, row) == second.observe([1] * 4, row)
        assert first.stragglers == second.stragglers
        assert len(first.stragglers) < 4


def test_one_slow_step_makes_no_straggler() -> None:
    detector = StragglerDetector(4)
    for number in range(100):
        seconds = np.full(4, 0.1)
        if number % 12 == 0:
            seconds[0] = 30.0  # it saves a checkpoint
        assert feed(detector, seconds) == []


def test_hysteresis() -> None:
    """Between floor and recovery a straggler stays one, and nobody becomes one."""
    detector = StragglerDetector(4, floor=0.7, recovery=0.9)
    between = np.array([0.1, 0.1, 0.1, 0.125])
    assert feed(detector, between, 60) == []
    assert feed(detector, np.array([0.1, 0.1, 0.1, 0.2]), 40) == [3]
    assert feed(detector, between, 60) == [3]
    assert feed(detector, np.full(4, 0.1), 40) == []


def test_waiting_is_not_blamed_and_seldom_contributors_are_compared_by_seconds() -> None:
    """In solo mode a rank that contributes half as often is slow only if it computes longer."""
    detector = StragglerDetector(2)
    for number in range(80):
        detector.observe([1, number % 2], [0.1, 0.1])
    assert detector.stragglers == ()
    for number in range(80):
        detector.observe([1, number % 2], [0.1, 0.2])
    assert [straggler.rank for straggler in detector.stragglers] == [1]


def test_silent_ranks_are_slow() -> None:
    """Nothing of rank 2 comes any more: the others go on without it."""
    detector = StragglerDetector(4)
    feed(detector, np.full(4, 0.1), 20)
    for _ in range(40):
        detector.observe([1, 1, 0, 1], [0.1] * 4)
    (found,) = detector.stragglers
    assert (found.rank, found.slowdown) == (2, pytest.approx(detector.window))


def test_dropped_contributions_tell_how_fast_a_rank_is() -> None:
    detector = StragglerDetector(3)
    for _ in range(40):
        detector.observe([1, 1, 0], [0.1, 0.1, 0.3], [0, 0, 1])
    assert [straggler.rank for straggler in detector.stragglers] == [2]
    for _ in range(40):
        detector.observe([1, 1, 0], [0.1, 0.1, 0.1], [0, 0, 1])
    assert detector.stragglers == ()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"rule": "mean"}, "did you mean 'mean-std'"),
        ({"rule": MeanStd(0.0)}, "k must be positive"),
        ({"rule": MedianMad(float("nan"))}, "k must be positive"),
        ({"rule": Ratio(1.0)}, "factor must be above 1"),
        ({"window": 1}, "window=1"),
        ({"in_row": True}, "in_row=True"),
        ({"floor": 0.9}, "floor < recovery"),
        ({"recovery": 1.5}, "recovery=1.5"),
    ],
)
def test_wrong_arguments(arguments, text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=text):
        StragglerDetector(4, **arguments)


def test_wrong_rounds() -> None:
    with pytest.raises(InvalidArgumentError, match="for 4 ranks"):
        StragglerDetector(4).observe([1, 1], [0.1, 0.1])


def test_the_cost_is_what_the_round_would_have_been_shorter() -> None:
    account = CostAccount()
    account.observe([0, 1, 2, 3], [0.1, 0.2, 0.1, 0.5], {3})
    account.observe([0, 1, 2, 3], [0.1, 0.2, 0.1, 0.1], {3})  # not slow this time
    account.observe([0, 1, 2], [0.1, 0.2, 0.1, 0.5], {3})  # not waited for
    account.observe([3], [0.1, 0.2, 0.1, 0.5], {3})  # nobody else to compare with
    cost = account.of(3)
    assert (cost.rounds, cost.job_seconds) == (1, pytest.approx(0.3))
    assert cost.rank_seconds == pytest.approx(0.9)
    assert account.of(0).rounds == 0
