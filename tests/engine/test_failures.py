# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""I7: whatever goes wrong ends in a typed error on every rank, and in no hang."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any

import numpy as np
import pytest

from hvd_partial import engine as engine_module
from hvd_partial.errors import AbortedError, HvdPartialError, MismatchError, PeerLostError
from tests.engine.process_ranks import Ranks, launch, run

W, B = np.zeros((3, 2), np.float32), np.zeros(2)
ONE = [np.ones(4, np.float32)]

DIFFERENT: dict[str, tuple[dict[str, Any], str]] = {
    "number": ({"like": [W]}, "2 tensors"),
    "shape": ({"like": [W.T, B]}, "float32[3,2]"),
    "size": ({"like": [W, np.zeros(3)]}, "float64[3]"),
    "dtype": ({"like": [W, B.astype(np.float32)]}, "float64[2]"),
    "order": ({"like": [B, W]}, "float64[2]"),
    "names": ({"names": ["w", "b"]}, "tensor 0"),
    "mode": ({"mode": "solo"}, "solo"),
    "average": ({"average": None}, "average"),
    "staleness": ({"staleness": "full"}, "staleness"),
    "grace": ({"grace": 0.5}, "grace"),
    "max_lag": ({"max_lag": 4}, "max_lag"),
    "catch_up": ({"catch_up": "latest"}, "catch_up"),
}


def one_rank_is_different(ranks: Ranks, odd: int, different: str) -> str:
    options: dict[str, Any] = {"like": [W, B], "mode": "sync"}
    if ranks.rank == odd:
        options.update(DIFFERENT[different][0])
    with ranks.connect() as engine:
        channel = engine.channel("weights", **options)
        with pytest.raises(MismatchError) as raised:
            channel.allreduce(list(options["like"]))
        assert isinstance(raised.value, ValueError)
        with pytest.raises(MismatchError):
            channel.flush()
        # Other channels are not concerned.
        good = engine.channel("good", ONE, "sync")
        assert len(good.allreduce(ONE)) == 1
        return str(raised.value)


@pytest.mark.parametrize("different", DIFFERENT)
@pytest.mark.parametrize("odd", [0, 2])
def test_ranks_that_disagree_about_a_channel_learn_it_everywhere(different: str, odd: int) -> None:
    for rank, message in enumerate(run(one_rank_is_different, 3, odd, different, deadline=20)):
        assert f"rank {rank}" in message
        assert "channel 'weights'" in message
        # It says who differs, and in what.
        assert "rank 2" in message or "rank 0" in message
        assert DIFFERENT[different][1] in message, message


def survive(ranks: Ranks, victim: int, when: str, mode: str) -> tuple[list[str], str]:
    """Rank `victim` dies; what the others' calls say of it."""
    engine = ranks.connect()
    channel = engine.channel("g", ONE, mode)
    channel.allreduce(ONE)
    ranks.barrier()
    if ranks.rank == victim:
        if when == "waiting":
            # Dies inside its own call.
            threading.Timer(0.1, ranks.die).start()
            while True:
                channel.allreduce(ONE)
        ranks.die()
    with pytest.raises(PeerLostError) as raised:
        while True:
            channel.allreduce(ONE)
    # It stays so, for all calls.
    with pytest.raises(PeerLostError):
        channel.flush()
    with pytest.raises(PeerLostError):
        channel.allreduce(ONE)
    engine.close()
    return [base.__name__ for base in type(raised.value).__mro__], str(raised.value)


@pytest.mark.parametrize("victim", [0, 2])
@pytest.mark.parametrize("when", ["computing", "waiting"])
@pytest.mark.parametrize("mode", ["sync", "solo"])
def test_a_lost_rank_is_named_on_all_survivors(victim: int, when: str, mode: str) -> None:
    outcomes = launch(survive, 4, victim, when, mode, deadline=30)
    for outcome in outcomes:
        if outcome.rank == victim:
            assert outcome.exit_code == -signal.SIGKILL
            continue
        assert not outcome.error, outcome.trace
        bases, message = outcome.value
        assert "HorovodInternalError" in bases, "Horovod is installed here; elastic loops need it"
        assert f"rank {outcome.rank}" in message
        assert f"rank {victim}" in message.replace(f"rank {outcome.rank},", "")
        assert "channel 'g'" in message


def give_up(ranks: Ranks, victim: int) -> str:
    engine = ranks.connect()
    channel = engine.channel("g", ONE, "sync")
    channel.allreduce(ONE)
    ranks.barrier()
    if ranks.rank == victim:
        engine.abort("the disk is full")
    with pytest.raises(AbortedError) as raised:
        while True:
            channel.allreduce(ONE)
    engine.close()
    return str(raised.value)


def test_abort_ends_all_ranks_with_its_reason() -> None:
    for rank, message in enumerate(run(give_up, 3, 1)):
        assert "the disk is full" in message
        assert ("rank 1 ended the job" in message) == (rank != 1)
        assert f"rank {rank}, channel 'g'" in message


def raise_in_the_body(ranks: Ranks) -> None:
    with ranks.connect() as engine:
        channel = engine.channel("g", ONE, "sync")
        channel.allreduce(ONE)
        ranks.barrier()
        if ranks.rank == 2:
            raise KeyError("a bug in a callback")
        while True:
            channel.allreduce(ONE)


def test_an_exception_on_one_rank_reaches_the_others_as_its_reason() -> None:
    outcomes = launch(raise_in_the_body, 3)
    assert outcomes[2].error[0] == "KeyError"
    for outcome in outcomes[:2]:
        assert outcome.error[0] == "AbortedError"
        assert "rank 2 ended the job: KeyError: 'a bug in a callback'" in outcome.message


def interrupt_when(condition: Any) -> None:
    """Ctrl-C for this process, as soon as the condition holds."""

    def watch() -> None:
        while not condition():
            time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=watch, daemon=True).start()


def interrupted_in_allreduce(ranks: Ranks) -> tuple[int, int]:
    with ranks.connect() as engine:
        # With full weight, because the second contribution may come while round 0 is under way.
        channel = engine.channel("g", ONE, "sync", average=None, staleness="full")
        if ranks.rank == 1:
            interrupt_when(lambda: channel.stats().deposits == 1)
            with pytest.raises(KeyboardInterrupt):
                channel.allreduce(ONE)  # rank 0 does not come
            ranks.set("interrupted")
        ranks.wait_for("interrupted")
        # The contribution has stayed; whoever catches the interrupt can go on.
        results = channel.allreduce(ONE) + channel.flush()
        return (sum(int(r.values[0][0]) for r in results), sum(r.contributions for r in results))


def test_ctrl_c_ends_a_wait_and_loses_nothing() -> None:
    assert run(interrupted_in_allreduce, 2) == [(3, 3)] * 2


def interrupted_in_flush(ranks: Ranks) -> int:
    with ranks.connect() as engine:
        channel = engine.channel("g", ONE, "solo")
        if ranks.rank == 0:
            for _ in range(3):
                channel.allreduce(ONE)
            ranks.set("three rounds")
            ranks.wait_for("interrupted")
            return sum(r.contributions for r in channel.flush())
        ranks.wait_for("three rounds")
        interrupt_when(lambda: channel.stats().lag == 0 and channel.stats().rounds == 3)
        with pytest.raises(KeyboardInterrupt):
            channel.flush()  # takes the three rounds, then waits for rank 0
        with pytest.raises(ValueError, match="during a flush"):
            channel.allreduce(ONE)
        ranks.set("interrupted")
        return sum(r.contributions for r in channel.flush())


def test_a_flush_that_was_interrupted_goes_on_with_everything_it_had() -> None:
    assert run(interrupted_in_flush, 2) == [0, 3]


def interrupted_without_rank_0(ranks: Ranks) -> None:
    with ranks.connect() as engine:
        channel = engine.channel("g", ONE, "sync")
        channel.allreduce(ONE)
        if ranks.rank == 0:
            ranks.wait_for("rank 2 knows")
            return
        if ranks.rank == 1:
            interrupt_when(lambda: channel.stats().deposits == 2)
        try:
            channel.allreduce(ONE)
        finally:
            if ranks.rank == 2:
                ranks.set("rank 2 knows")


def test_ctrl_c_on_one_rank_ends_the_others_with_a_reason() -> None:
    outcomes = launch(interrupted_without_rank_0, 3)
    assert outcomes[1].error[0] == "KeyboardInterrupt"
    assert outcomes[2].error[0] == "AbortedError"
    assert "rank 1 ended the job: KeyboardInterrupt" in outcomes[2].message


def interrupted_in_close(ranks: Ranks) -> None:
    engine = ranks.connect()
    channel = engine.channel("g", ONE, "sync")
    if ranks.rank == 1:
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            engine.close(600.0)  # rank 0 goes on for ever
        return
    with pytest.raises(AbortedError, match="rank 1 ended the job: interrupted while"):
        while True:
            channel.allreduce(ONE)
    engine.close()


def test_ctrl_c_ends_close_and_the_job() -> None:
    run(interrupted_in_close, 2)


def threads_on_two_channels(ranks: Ranks) -> list[int]:
    with ranks.connect() as engine:
        counts = []

        def train(name: str, steps: int) -> None:
            channel = engine.channel(name, ONE, "sync")
            counts.append(sum(len(channel.allreduce(ONE)) for _ in range(steps)))

        # While one thread waits for the other ranks the GIL is free for the next.
        names = ["a", "b", "c"] if ranks.rank == 0 else ["c", "a", "b"]
        threads = [threading.Thread(target=train, args=(name, 20)) for name in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return counts


def test_threads_may_use_a_channel_each() -> None:
    assert run(threads_on_two_channels, 2) == [[20, 20, 20]] * 2


def test_all_errors_have_one_base_and_transports_need_no_engine() -> None:
    for kind in (MismatchError, PeerLostError, AbortedError):
        assert issubclass(kind, HvdPartialError)
        assert issubclass(kind, RuntimeError)
    assert any("tcp" in name for name in engine_module.transports())
