# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Policies: what is seen goes in, modes and exclusions come out; no training."""

from __future__ import annotations

import json
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvd_partial.errors import InvalidArgumentError
from hvd_partial.modes import Mode
from hvd_partial.stragglers import Straggler
from hvd_partial.sync_switch import (
    Adaptive,
    BySchedule,
    Decision,
    Elastic,
    Greedy,
    Observation,
    OnPlateau,
    OnStraggler,
    Policy,
    Schedule,
)
from hvd_partial.sync_switch.policies import parse_policy

SIZE, TOTAL = 4, 400
HALF = Schedule.from_bsp_fraction(0.5)
ONLINE = {"greedy": Greedy, "elastic": Elastic, "adaptive": Adaptive}


def slow(*ranks: int) -> tuple[Straggler, ...]:
    return tuple(Straggler(rank, 0, 2.0) for rank in ranks)


def seen(contributions: int, ranks: Iterable[int] = (), loss: float | None = None) -> Observation:
    return Observation(
        SIZE, TOTAL, contributions, 1, Mode("sync"), (0.1,) * SIZE, slow(*ranks), loss
    )


def drive(policy: Policy, slow_from: int, slow_to: int) -> list[tuple[int, str, tuple[int, ...]]]:
    """Trains the workload; rank 3 is slow between these contributions. Where decisions change."""
    found: list[tuple[int, str, tuple[int, ...]]] = []
    done = 0
    while done < TOTAL:
        decision = policy.decide(seen(done, [3] if slow_from <= done < slow_to else []))
        entry = (str(decision.mode), decision.excluded)
        if not found or found[-1][1:] != entry:
            found.append((done, *entry))
        done += 1 if decision.mode.kind == "async" else SIZE - len(decision.excluded)
    return found


def test_baseline_does_not_look() -> None:
    assert drive(BySchedule(HALF), 40, 120) == [(0, "sync", ()), (200, "async", ())]


def test_greedy_finishes_the_sync_share_afterwards() -> None:
    """200 contributions in sync as planned: 40 before, 160 after the detour of 80."""
    assert drive(Greedy(HALF), 40, 120) == [
        (0, "sync", ()),
        (40, "async", ()),
        (120, "sync", ()),
        (280, "async", ()),
    ]


def test_greedy_with_a_straggler_that_stays() -> None:
    assert drive(Greedy(HALF), 40, TOTAL) == [(0, "sync", ()), (40, "async", ())]


def test_elastic_excludes_until_the_sync_share_is_done() -> None:
    assert drive(Elastic(HALF), 40, 120) == [
        (0, "sync", ()),
        (40, "sync", (3,)),
        (202, "async", ()),
    ]


def test_elastic_leaves_somebody() -> None:
    policy = Elastic(HALF, late="drop")
    assert policy.decide(seen(4, [0, 1])) == Decision(Mode("sync"), (0, 1), "drop")
    assert policy.decide(seen(8, [1, 2, 3])) == Decision(Mode("sync"), (0, 1), "drop")


def test_adaptive_undoes_itself() -> None:
    assert drive(Adaptive(HALF), 40, 120) == [
        (0, "sync", ()),
        (40, "quorum(3)", ()),
        (120, "sync", ()),
        (200, "async", ()),
    ]


@pytest.mark.parametrize("name", ONLINE)
def test_nothing_happens_in_asynchronous_phases(name: str) -> None:
    policy = ONLINE[name](HALF)
    assert policy.decide(seen(300, [1, 2])) == Decision(Mode("async"))


@given(
    name=st.sampled_from(sorted(ONLINE)),
    steps=st.lists(st.tuples(st.integers(1, SIZE), st.sets(st.integers(0, SIZE - 1))), max_size=60),
    cut=st.integers(0, 60),
)
def test_restored_policies_go_on_alike(name, steps, cut) -> None:
    """From any point, through JSON; and every decision can be carried out."""
    policy, other = ONLINE[name](HALF), ONLINE[name](HALF)
    done = 0
    for number, (contributions, ranks) in enumerate(steps):
        done += contributions
        decision = policy.decide(seen(done, sorted(ranks)))
        assert len(decision.excluded) < SIZE
        assert decision.mode.k is None or 1 <= decision.mode.k <= SIZE
        if number == cut:
            other.restore(json.loads(json.dumps(policy.state())))
        elif number > cut:
            assert other.decide(seen(done, sorted(ranks))) == decision
    if len(steps) > cut:
        assert other.state() == policy.state()


def test_a_plateau_switches_for_good() -> None:
    policy = OnPlateau(patience=2, min_delta=0.1)
    losses = [None, 1.0, 0.5, None, 0.45, float("nan"), None, 0.1]
    kinds = [policy.decide(seen(8, loss=loss)).mode.kind for loss in losses]
    assert kinds == ["sync"] * 5 + ["async"] * 3
    again = OnPlateau(patience=2, min_delta=0.1)
    again.restore(json.loads(json.dumps(policy.state())))
    assert again.decide(seen(8)).mode.kind == "async"


def test_a_plateau_that_begins_with_nan() -> None:
    policy = OnPlateau(patience=2)
    kinds = [policy.decide(seen(8, loss=x)).mode.kind for x in (float("nan"), 2.0, 1.0)]
    assert kinds == ["sync"] * 3


def test_a_straggler_switches_for_good() -> None:
    policy = OnStraggler(after="solo")
    kinds = [policy.decide(seen(8, ranks)).mode.kind for ranks in ([], [2], [])]
    assert kinds == ["sync", "solo", "solo"]


def test_functions() -> None:
    policy = parse_policy(lambda found: "solo" if found.progress > 0.5 else "quorum(3)", None)
    assert str(policy.decide(seen(100)).mode) == "quorum(3)"
    assert str(policy.decide(seen(300)).mode) == "solo"
    kept = parse_policy(lambda found: Decision(Mode("sync"), (1,)), None)
    assert kept.decide(seen(0)).excluded == (1,)
    with pytest.raises(InvalidArgumentError, match="k must be 1 to 4"):
        parse_policy(lambda found: "quorum(9)", None).decide(seen(0))


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: parse_policy("lazy", HALF), "policy='lazy'"),
        (lambda: parse_policy("greedy", None), "needs a schedule"),
        (lambda: parse_policy(7, HALF), "policy=7"),
        (lambda: Elastic(HALF, late="never"), "late='never'"),
        (lambda: OnPlateau(patience=0), "patience=0"),
        (lambda: OnPlateau(min_delta=-1), "min_delta=-1"),
    ],
)
def test_wrong_arguments(make, text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=text):
        make()
