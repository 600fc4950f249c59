# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""The launcher that the other tests stand on."""

from __future__ import annotations

import time

import pytest

from tests.engine.process_ranks import RankError, Ranks, launch, run


def exchange_twice(ranks: Ranks, offset: int) -> list[list[int]]:
    return [ranks.exchange(ranks.rank + offset), ranks.exchange(-ranks.rank)]


def test_exchange_gives_all_items_in_the_order_of_ranks() -> None:
    assert run(exchange_twice, 3, 10) == [[[10, 11, 12], [0, -1, -2]]] * 3


def one_after_the_other(ranks: Ranks) -> list[str]:
    if ranks.rank == 1:
        ranks.wait_for("first")
        return ["waited"]
    ranks.set("first")
    ranks.set("nobody waits for this")
    return []


def test_events() -> None:
    assert run(one_after_the_other, 2) == [[], ["waited"]]


def fail_on_one(ranks: Ranks) -> None:
    if ranks.rank == 1:
        raise KeyError("no such thing")


def test_an_exception_names_its_rank() -> None:
    outcomes = launch(fail_on_one, 2)
    assert not outcomes[0].error
    assert outcomes[1].error[:2] == ("KeyError", "LookupError")
    assert "no such thing" in outcomes[1].message
    with pytest.raises(RankError, match="rank 1 raised KeyError"):
        run(fail_on_one, 2)


def die_on_one(ranks: Ranks) -> None:
    if ranks.rank == 1:
        ranks.die()
    ranks.barrier()


def test_a_dead_rank_is_reported_and_nobody_waits_for_it() -> None:
    outcomes = launch(die_on_one, 2)
    assert outcomes[1].exit_code == -9
    assert outcomes[0].error[0] == "RuntimeError"
    assert "ranks [1] have ended" in outcomes[0].message


def stay_on_one(ranks: Ranks) -> None:
    if ranks.rank == 1:
        time.sleep(1000)


def test_at_the_deadline_everything_ends() -> None:
    started = time.monotonic()
    with pytest.raises(RankError, match=r"rank 1 stood at[\s\S]*stay_on_one"):
        launch(stay_on_one, 2, deadline=2.0)
    assert time.monotonic() - started < 30
