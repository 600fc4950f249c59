# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Ranks that no round waits for, and decisions that every rank makes alike."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hvd_partial.engine import Channel
from hvd_partial.errors import InvalidArgumentError
from tests.engine.process_ranks import Ranks, run

ONE = [np.zeros(1)]


def until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError("the condition did not come true")
        time.sleep(0.002)


def total(results: list[Any]) -> float:
    return float(sum(result.values[0][0] for result in results))


def with_rank_two_excluded(ranks: Ranks, late: str) -> dict[str, Any]:
    """Sync mode. Ranks 0 and 1 make five rounds that rank 2 is not there for, then it comes with
    one contribution; then everybody counts again."""
    with ranks.connect() as engine:
        channel: Channel = engine.channel(
            "g", ONE, "sync", average=None, staleness="full", max_lag=20
        )
        channel.allreduce([np.zeros(1)])  # all ranks are there
        if ranks.rank == 0:
            channel.exclude([2], late)
        results = []
        if ranks.rank < 2:
            if ranks.rank == 1:
                ranks.wait_for("excluded")
            else:
                ranks.set("excluded")
            for _ in range(5):
                results += channel.allreduce([np.ones(1)])
            ranks.set(f"five of {ranks.rank}")
            ranks.wait_for("late one deposited")
            results += channel.allreduce([np.ones(1)])
        else:
            ranks.wait_for("five of 0")
            ranks.wait_for("five of 1")
            until(lambda: channel.stats().lag == 5)
            # It does not wait: five results are there. What it gives goes into the next round.
            results += channel.allreduce([np.full(1, 100.0)])
            assert len(results) == 5
            ranks.set("late one deposited")
        ranks.barrier()
        seen = channel.stats().excluded
        if ranks.rank == 1:
            channel.exclude([])
            ranks.set("admitted")
        ranks.wait_for("admitted")
        results += channel.flush()
        after = channel.allreduce([np.ones(1)])
        results += after
        stats = channel.stats()
        return {
            "total": total(results),
            "rounds": [(r.round, r.contributors, r.dropped) for r in results],
            "excluded": seen,
            "afterwards": stats.excluded,
            "dropped": stats.dropped,
            "deposits": stats.deposits,
            "contributions": stats.contributions,
        }


@pytest.mark.parametrize("late", ["count", "drop"])
def test_rounds_do_not_wait_for_the_excluded(late: str) -> None:
    found = run(with_rank_two_excluded, 3, late)
    assert [part["total"] for part in found] == [found[0]["total"]] * 3
    assert found[0]["total"] == 12 + 3 + (100 if late == "count" else 0)
    for part in found:
        assert part["excluded"] == (2,)
        assert part["afterwards"] == ()
        rounds = part["rounds"]
        assert [contributors for _, contributors, _ in rounds[:5]] == [(0, 1)] * 5
        assert rounds[5][1] == ((0, 1, 2) if late == "count" else (0, 1))
        assert rounds[5][2] == (0 if late == "count" else 1)
        assert rounds[-1][1] == (0, 1, 2)
    assert [part["dropped"] for part in found] == [0, 0, 0 if late == "count" else 1]
    # Exactly once, restated: what went into rounds is what was deposited and not dropped.
    deposited = sum(part["deposits"] - part["dropped"] for part in found)
    assert found[0]["contributions"] == deposited


def decided(ranks: Ranks) -> list[str]:
    """Each rank decides after some rounds; rank 1 takes its time. All modes wait for all three."""
    plan = {0: "quorum(3)", 2: "sync", 3: "quorum(3)", 6: "sync"}
    with ranks.connect() as engine:
        channel: Channel = engine.channel("g", ONE, "sync")
        found = []
        while len(found) < 8:
            for result in channel.allreduce([np.ones(1)]):
                found.append(result.mode)
                if ranks.rank == 1:
                    time.sleep(0.01)
                if result.round in plan:
                    channel.decide(result.round + 1, plan[result.round])
        channel.flush()
        return found[:8]


def test_decisions_are_in_force_at_the_same_round() -> None:
    quorum = "quorum(3)"
    want = ["sync", quorum, quorum, "sync", quorum, quorum, quorum, "sync"]
    assert run(decided, 3) == [want] * 3


def wrong(ranks: Ranks) -> list[str]:
    with ranks.connect() as engine:
        channel: Channel = engine.channel("g", ONE, "sync")
        found = []
        for call in (
            lambda: channel.exclude([2]),
            lambda: channel.exclude([-1]),
            lambda: channel.exclude([0, 1]),
            lambda: channel.exclude(["one"]),  # type: ignore[list-item]
            lambda: channel.exclude([1], late="perhaps"),
            lambda: channel.decide(0, "sync"),
            lambda: channel.decide(1, "quorum(3)"),
            lambda: channel.decide(1, "sync", [0, 1]),
        ):
            with pytest.raises(InvalidArgumentError) as caught:
                call()
            found.append(str(caught.value))
        channel.allreduce([np.ones(1)])
        return found


def test_wrong_arguments_name_rank_and_channel() -> None:
    for rank, messages in enumerate(run(wrong, 2)):
        for text, expected in zip(
            messages,
            (
                "ranks are 0 to 1",
                "ranks are 0 to 1",
                "cannot exclude all ranks",
                "must be a list of ranks",
                "late='perhaps'",
                "number=0",
                "k must be 1 to 2",
                "cannot exclude all ranks",
            ),
            strict=True,
        ):
            assert f"rank {rank}, channel 'g'" in text
            assert expected in text
