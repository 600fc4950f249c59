# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""SIGKILL of one rank at a point of its life that is met exactly, and what the others see of it.

The victim, or a thread of it, sees that it is there and has the launcher kill it; a bystander among
the others keeps what the victim is in from ending. No point is hit by sleeping.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hvd_partial.channel import Channel
from hvd_partial.engine import Engine
from hvd_partial.errors import HvdPartialError
from tests.engine.process_ranks import Ranks

# The bound for the time from the kill to the error. Tests on a busy machine allow more.
PROMISED_SECONDS = 2.0

# Not the coordinator, and nobody with whom the victim exchanges first in a reduce.
_BYSTANDERS = {0: 3, 2: 1}
_NEXT_MODE = {"sync": "solo", "majority": "sync", "solo": "majority"}
# Longer than any test: a round waits for everybody, although its quorum is there.
_FOREVER = 600.0
SMALL = [np.ones(4, np.float32)]
LARGE = [np.ones(1 << 22, np.float32)]


@dataclass(frozen=True)
class Seen:
    """What a survivor saw.

    Attributes:
      error: Class of what its call raised, and its bases; empty if nothing was raised.
      message: Of the error.
      at: time.monotonic() when the call that the victim's death concerned had ended.
      after: Classes that later calls raised.
      rounds: Results it got after the kill, before any error.
      close_seconds: How long its last close() took.
    """

    error: tuple[str, ...]
    message: str
    at: float
    after: tuple[str, ...] = ()
    rounds: int = 0
    close_seconds: float = 0.0


@dataclass(frozen=True)
class Point:
    """A point at which a rank is killed.

    Attributes:
      text: What the victim is doing.
      fate: What becomes of the survivors: "error", "go on" or "close ends"; by whether the victim
        is rank 0, if that makes a difference.
      run: The rank's function.
      large: Reduces many bytes.
      grace: Rounds wait for everybody in every mode, so that calls last until the kill.
    """

    text: str
    run: Callable[[Scene], Seen | None]
    fate: str = "error"
    fate_of_coordinator: str = "error"
    large: bool = False
    grace: float = _FOREVER

    def fate_of(self, victim: int) -> str:
        return self.fate_of_coordinator if victim == 0 else self.fate


@dataclass
class Scene:
    """What a rank's part in the play needs."""

    ranks: Ranks
    engine: Engine
    channel: Channel
    mode: str
    victim: int
    arrays: list[Any]

    @property
    def is_victim(self) -> bool:
        return self.ranks.rank == self.victim

    @property
    def bystander(self) -> int:
        return _BYSTANDERS[self.victim]

    @property
    def is_bystander(self) -> bool:
        return self.ranks.rank == self.bystander

    def kill(self) -> None:
        self.ranks.signal(self.victim, signal.SIGKILL)

    def kill_when(self, condition: Callable[[], bool]) -> None:
        when(condition, self.kill)

    def wait_for_kill(self) -> None:
        self.ranks.wait_for_signal(self.victim, signal.SIGKILL)

    def survive(self, call: Callable[[], list[Any]]) -> Seen:
        """Calls until it raises, and checks that everything ends then."""
        rounds = 0
        try:
            while True:
                rounds += len(call())
        except HvdPartialError as error:
            at = time.monotonic()
            kinds, message = _kinds(error), str(error)
        after = []
        for again in (self.channel.flush, lambda: self.channel.allreduce(self.arrays)):
            try:
                again()
                after.append("nothing")
            except HvdPartialError as error:
                after.append(type(error).__name__)
        return Seen(kinds, message, at, tuple(after), rounds, self.close())

    def allreduce(self) -> list[Any]:
        return self.channel.allreduce(self.arrays)

    def close(self) -> float:
        begun = time.monotonic()
        self.engine.close()
        return time.monotonic() - begun


def when(condition: Callable[[], bool], action: Callable[[], object]) -> None:
    """Acts as soon as the condition holds, while this thread is busy."""

    def watch() -> None:
        while not condition():
            time.sleep(0.0002)
        action()

    threading.Thread(target=watch, daemon=True).start()


def _kinds(error: BaseException) -> tuple[str, ...]:
    return tuple(kind.__name__ for kind in type(error).__mro__)


# ---- the points -----------------------------------------------------------------


def _before_deposit(scene: Scene) -> Seen | None:
    if scene.is_victim:
        scene.kill()
        return None
    return scene.survive(scene.allreduce)


def _waiting(scene: Scene) -> Seen | None:
    if scene.is_victim:
        deposits = scene.channel.stats().deposits
        scene.kill_when(lambda: scene.channel.stats().deposits > deposits)
        scene.allreduce()
        return None
    if scene.is_bystander:
        scene.wait_for_kill()  # the round cannot start without it
    return scene.survive(scene.allreduce)


class _Start:
    """Where a rank stands when it looks for the next reduce."""

    def __init__(self, scene: Scene) -> None:
        stats = scene.engine.stats()
        self.bytes_moved = stats.bytes_sent + stats.bytes_received
        self.rounds = scene.channel.stats().rounds


def _in_a_reduce(scene: Scene) -> Seen | None:
    """The bystander is stopped, so that the reduce begins and cannot end."""
    ranks = scene.ranks
    if scene.is_bystander:
        if scene.mode == "sync":  # there is no round without its call, which must have left
            sent = scene.engine.stats().control_messages_sent
            when(
                lambda: scene.engine.stats().control_messages_sent > sent,
                lambda: ranks.set("stop me"),
            )
            return scene.survive(scene.allreduce)
        ranks.set("stop me")
        scene.wait_for_kill()
        return scene.survive(scene.allreduce)
    ranks.wait_for("stop me")
    if scene.is_victim:
        ranks.signal(scene.bystander, signal.SIGSTOP)
        start = _Start(scene)

        def in_it() -> bool:
            # A round that had all parts of the stopped rank may still end.
            nonlocal start
            now = _Start(scene)
            if now.rounds != start.rounds:
                start = now
            return now.bytes_moved > start.bytes_moved

        scene.kill_when(in_it)
        while True:
            scene.allreduce()
    ranks.wait_for_signal(scene.bystander, signal.SIGSTOP)
    seen = scene.survive(scene.allreduce)
    others = (rank for rank in range(ranks.size) if rank not in (scene.victim, scene.bystander))
    if ranks.rank == min(others):
        ranks.signal(scene.bystander, signal.SIGCONT)
    return seen


def _in_a_flush(scene: Scene) -> Seen | None:
    if scene.is_victim:
        scene.kill_when(lambda: scene.channel._flushing)
        scene.channel.flush()
        return None
    if scene.is_bystander:
        scene.wait_for_kill()
    return scene.survive(scene.channel.flush)


def _in_a_mode_change(scene: Scene) -> Seen | None:
    if scene.is_victim:
        # In force from the next round on, which the bystander holds up.
        scene.channel.set_mode(_NEXT_MODE[scene.mode])
        scene.kill()
        return None
    if scene.is_bystander:
        scene.wait_for_kill()
    return scene.survive(scene.allreduce)


def _before_goodbye(scene: Scene) -> Seen | None:
    """It has left its only channel, and close() has not said goodbye yet."""
    if scene.is_victim:
        scene.channel.leave()
        scene.ranks.exchange("left")
        scene.ranks.exchange("gone on without it")
        scene.kill()
        return None
    scene.ranks.exchange("left")
    scene.allreduce()
    scene.ranks.exchange("gone on without it")
    return scene.survive(scene.allreduce)


def _after_goodbye(scene: Scene) -> Seen | None:
    ranks = scene.ranks
    others = [rank for rank in range(ranks.size) if rank != scene.victim]
    if scene.is_victim:

        def said_goodbye() -> bool:
            return _goodbye_sent(scene, sent)

        def kill() -> None:
            for rank in others:
                ranks.wait_for(f"rank {rank} has gone on")
            scene.kill()

        sent = scene.engine.stats().control_messages_sent
        when(said_goodbye, kill)
        scene.engine.close()
        return None
    scene.allreduce()  # in sync mode this ends only when the victim has left
    ranks.set(f"rank {ranks.rank} has gone on")
    if scene.victim == 0:
        return scene.survive(scene.allreduce)
    scene.wait_for_kill()
    killed = time.monotonic()
    rounds = sum(len(scene.allreduce()) for _ in range(20))
    rounds += len(scene.channel.flush())
    assert scene.channel.stats().lag == 0
    return Seen((), "", killed, (), rounds, scene.close())


def _goodbye_sent(scene: Scene, sent_before: int) -> bool:
    """Its Leave and its Goodbye are on their way; rank 0 says it to itself."""
    if scene.ranks.rank == 0:
        return scene.engine._closed
    try:
        return scene.engine.stats().control_messages_sent >= sent_before + 2
    except HvdPartialError:  # closed
        return True


def _waited_for_in_close(scene: Scene) -> Seen | None:
    ranks = scene.ranks
    others = [rank for rank in range(ranks.size) if rank != scene.victim]
    if scene.is_victim:
        for rank in others:
            ranks.wait_for(f"rank {rank} waits in close")
        scene.kill()
        return None
    sent = scene.engine.stats().control_messages_sent
    when(lambda: _goodbye_sent(scene, sent), lambda: ranks.set(f"rank {ranks.rank} waits in close"))
    seconds = scene.close()
    return Seen((), "", time.monotonic(), (), 0, seconds)


def _while_stopped(scene: Scene) -> Seen | None:
    """The victim is stopped, and the others, where they can, have gone on without it."""
    ranks, channel = scene.ranks, scene.channel
    if scene.is_victim:
        ranks.set("stop me")
        while True:
            scene.allreduce()
    if scene.is_bystander:
        ranks.wait_for("stop me")
        ranks.signal(scene.victim, signal.SIGSTOP)
        before = channel.stats()
        needed = scene.mode == "sync" or scene.victim == 0

        def gone_on() -> bool:
            now = channel.stats()
            # More rounds than can still end with what the stopped rank has sent.
            return needed or now.deferred > before.deferred or now.rounds > before.rounds + 2

        scene.kill_when(gone_on)
    return scene.survive(scene.allreduce)


POINTS = {
    "before deposit": Point("computes, the others wait for it", _before_deposit),
    "waiting": Point("has deposited and waits for the round", _waiting),
    "reduce": Point("has sent a part of 16 MB", _in_a_reduce, large=True, grace=0.0),
    "stopped": Point(
        "is stopped (SIGSTOP); solo and majority have gone on without it", _while_stopped, grace=0.0
    ),
    "flush": Point("waits in flush()", _in_a_flush),
    "mode change": Point("has just called set_mode()", _in_a_mode_change),
    "shutdown, before goodbye": Point(
        "has left its channel, the others still train", _before_goodbye
    ),
    "shutdown, after goodbye": Point(
        "waits in close() for the others, who still train", _after_goodbye, fate="go on"
    ),
    "shutdown, waited for": Point(
        "computes, the others wait in close()",
        _waited_for_in_close,
        fate="close ends",
        fate_of_coordinator="close ends",
    ),
}
