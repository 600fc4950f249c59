# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""A rank that stands still for a while: its whole process, or only its user's thread.

SIGSTOP stops the progress thread too, so no reduce can have that rank's part meanwhile. Rounds that
need it wait; solo and majority go on without it once it has not answered for a while, until its
ring is full, and it gets what it has missed after SIGCONT. Rank 0 decides about rounds: nothing
goes on without it. Where only the user's thread stands still (a slow input, a page fault, a
debugger), the progress thread takes part on its behalf: no round is made without it.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from hvd_partial.channel import Channel
from tests.engine.process_ranks import Ranks, run

SIZE = 4
MAX_LAG = 6
CALLS = 40
AT_CALL = 10  # the rank stands still before its call of this number


@dataclass(frozen=True)
class Stood:
    """What became of a job in which one rank stood still.

    Attributes:
      rounds_meanwhile: Rounds that other ranks saw between the stop and the continuation.
      equal: All ranks' running sums are equal to the last bit.
      exact: They are the sum of all contributions.
      caught_up: Results that the rank got in its first call afterwards.
      seconds: It stood still.
      late: By rank, its contributions that went into a later round than they were made for.
      made_without: Rounds that were made without the rank, and given to it afterwards.
      deferred: Rounds under way when it was stopped, whose sum came later.
    """

    rounds_meanwhile: int
    equal: bool
    exact: bool
    caught_up: int
    seconds: float
    late: list[int]
    made_without: int = 0
    deferred: int = 0


def stop_process(
    mode: str,
    victim: int,
    seconds: float,
    *,
    leave_out: float,
    rounds: int = 0,
    max_lag: int = MAX_LAG,
    deadline: float = 60.0,
) -> Stood:
    """SIGSTOP of a rank, SIGCONT after so many seconds, and so many rounds of the others."""
    arguments = (mode, victim, seconds, leave_out, rounds, max_lag)
    return _judge(run(_stopped, SIZE, *arguments, deadline=deadline), victim)


def stop_thread(mode: str, victim: int, deadline: float = 60.0) -> Stood:
    """The user's thread of a rank stands still until the others can make no more rounds."""
    return _judge(run(_thread_stopped, SIZE, mode, victim, deadline=deadline), victim)


def _judge(reports: list[dict[str, Any]], victim: int) -> Stood:
    sums = [report["sum"] for report in reports]
    watched = [report for report in reports if "meanwhile" in report]
    return Stood(
        rounds_meanwhile=max(report["meanwhile"] for report in watched),
        equal=len(set(sums)) == 1,
        exact=sums[0] == _all_contributions().tobytes(),
        caught_up=reports[victim]["caught up"],
        seconds=max(report["seconds"] for report in watched),
        late=[report["late"] for report in reports],
        made_without=reports[victim]["made without"],
        deferred=reports[victim]["deferred"],
    )


def _gradient(rank: int, call: int) -> np.ndarray[Any, Any]:
    """Whole numbers, so that sums do not depend on their order."""
    return np.arange(8.0) * (rank + 1) + call


def _all_contributions() -> np.ndarray[Any, Any]:
    return sum(
        (_gradient(rank, call) for rank in range(SIZE) for call in range(CALLS)), np.zeros(8)
    )


class _Training:
    """The same loop for all: calls, a running sum of results, a flush in the end."""

    def __init__(self, ranks: Ranks, channel: Channel, max_lag: int) -> None:
        self.max_lag = max_lag
        self.ranks = ranks
        self.channel = channel
        self.sum = np.zeros(8)
        self.call = 0

    def step(self) -> int:
        results = self.channel.allreduce([_gradient(self.ranks.rank, self.call)])
        self.call += 1
        return self._apply(results)

    def finish(self) -> dict[str, Any]:
        while self.call < CALLS:
            self.step()
        self._apply(self.channel.flush())
        stats = self.channel.stats()
        assert stats.largest_lag <= self.max_lag
        return {
            "sum": self.sum.tobytes(),
            "late": stats.late_deposits,
            "made without": stats.made_without,
            "deferred": stats.deferred,
            "caught up": 0,
        }

    def _apply(self, results: list[Any]) -> int:
        for result in results:
            self.sum += result.values[0]
        return len(results)


def _begin(ranks: Ranks, engine: Any, mode: str, max_lag: int = MAX_LAG) -> _Training:
    like = [np.zeros(8)]
    channel = engine.channel(
        "g", like, mode, average=None, staleness="full", grace=0.0, max_lag=max_lag
    )
    return _Training(ranks, channel, max_lag)


def _stopped(
    ranks: Ranks,
    mode: str,
    victim: int,
    seconds: float,
    leave_out: float,
    wanted: int,
    max_lag: int,
) -> dict[str, Any]:
    os.environ["HVD_PARTIAL_LEAVE_OUT_S"] = str(leave_out)
    with ranks.connect() as engine:
        training = _begin(ranks, engine, mode, max_lag)
        if ranks.rank == victim:
            while training.call < AT_CALL:
                training.step()
            ranks.signal(victim, signal.SIGSTOP)
            caught_up = training.step()
            return training.finish() | {"caught up": caught_up}
        if ranks.rank != (victim + 1) % ranks.size:
            return training.finish()
        seen: dict[str, Any] = {}

        def watch() -> None:
            # A thread of its own, because this rank's calls may need the one that is stopped.
            ranks.wait_for_signal(victim, signal.SIGSTOP)
            begun, rounds = time.monotonic(), training.channel.stats().rounds
            time.sleep(seconds)
            while training.channel.stats().rounds < rounds + wanted:
                time.sleep(0.001)
            seen["meanwhile"] = training.channel.stats().rounds - rounds
            ranks.signal(victim, signal.SIGCONT)
            seen["seconds"] = time.monotonic() - begun

        watcher = threading.Thread(target=watch)
        watcher.start()
        report = training.finish()
        watcher.join()
        return report | seen


def _thread_stopped(ranks: Ranks, mode: str, victim: int) -> dict[str, Any]:
    with ranks.connect() as engine:
        training = _begin(ranks, engine, mode)
        while training.call < AT_CALL:
            training.step()
        training._apply(training.channel.flush())  # all stand at the same round
        channel = training.channel
        begun, rounds = time.monotonic(), channel.stats().rounds
        ranks.barrier()
        if ranks.rank == victim:
            if mode != "sync":  # the others go on until there is no room
                while channel.stats().lag < MAX_LAG:
                    time.sleep(0.001)
            time.sleep(0.2)  # for rounds too many; this can only hide some
            seen = {
                "meanwhile": channel.stats().rounds - rounds,
                "seconds": time.monotonic() - begun,
            }
            caught_up = training.step()
            return training.finish() | seen | {"caught up": caught_up}
        return training.finish()
