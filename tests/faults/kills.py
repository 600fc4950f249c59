# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Kills a rank at a point of its life and judges what the others saw."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass

from tests.engine.process_ranks import DEADLINE_SECONDS, Outcome, Ranks, launch
from tests.faults.kill_points import LARGE, POINTS, SMALL, Scene, Seen

SIZE = 4
MODES = ("sync", "majority", "solo")
VICTIMS = (0, 2)  # the coordinator, and a rank like any other
# Nobody is waited for after an error; a busy machine gets this long to end a thread.
CLOSE_SECONDS = 10.0


def live_through(ranks: Ranks, point: str, mode: str, victim: int) -> Seen | None:
    """A rank's part."""
    chosen = POINTS[point]
    os.environ["HVD_PARTIAL_LEAVE_OUT_S"] = "0.2"
    arrays = LARGE if chosen.large else SMALL
    engine = ranks.connect()
    channel = engine.channel("g", arrays, mode, grace=chosen.grace, max_lag=2)
    channel.allreduce(arrays)
    channel.flush()
    ranks.barrier()
    return chosen.run(Scene(ranks, engine, channel, mode, victim, arrays))


# ---- what must come of it ---------------------------------------------------------


@dataclass(frozen=True)
class Killed:
    """How a job of which one rank was killed ended.

    Attributes:
      seconds: From the kill until the slowest survivor knew, or had ended.
      each: By survivor.
      fate: As `Point.fate_of`.
    """

    point: str
    mode: str
    victim: int
    fate: str
    seconds: float
    each: dict[int, float]


def kill(point: str, mode: str, victim: int, deadline: float = DEADLINE_SECONDS) -> Killed:
    """Runs a job, kills one rank of it, and judges what the others report.

    Raises:
      AssertionError: if a survivor hung, raised something else, or did not know who was lost.
    """
    outcomes = launch(live_through, SIZE, point, mode, victim, deadline=deadline)
    fate = POINTS[point].fate_of(victim)
    assert outcomes[victim].exit_code == -signal.SIGKILL, outcomes[victim]
    killed_at = next(at for number, at in outcomes[victim].signals if number == signal.SIGKILL)
    each = {}
    for outcome in outcomes:
        if outcome.rank == victim:
            continue
        seen = _seen(outcome)
        # Who was stopped could know only when it went on.
        resumed = [at for number, at in outcome.signals if number == signal.SIGCONT]
        each[outcome.rank] = seen.at - max([killed_at, *resumed])
        if fate == "error":
            _judge_error(outcome.rank, seen, victim)
        else:
            assert not seen.error, seen
        if fate == "go on":
            assert seen.rounds >= 20, seen
            each[outcome.rank] = seen.close_seconds
    return Killed(point, mode, victim, fate, max(each.values()), each)


def _seen(outcome: Outcome) -> Seen:
    assert not outcome.error, f"rank {outcome.rank}: {outcome.trace}"
    assert outcome.exit_code == 0, outcome
    assert isinstance(outcome.value, Seen), outcome
    return outcome.value


def _judge_error(rank: int, seen: Seen, victim: int) -> None:
    text = f"rank {rank}: {seen}"
    assert seen.error[0] == "PeerLostError", text
    # Horovod's elastic loop catches this; it is there where Horovod can be imported.
    assert "HorovodInternalError" in seen.error, text
    assert f"rank {victim} was lost" in seen.message, text
    assert f"rank {rank}, channel 'g'" in seen.message, text
    assert seen.after == ("PeerLostError", "PeerLostError"), text
    assert seen.close_seconds < CLOSE_SECONDS, text
