# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs a function of a test module as P ranks, each in a light process of its own.

Processes are forked from a small server that has imported the engine already, so that eight of them
start in a few milliseconds. Each has a pipe to the test's process, which serves as meeting point:
an allgather of bytes, and named events, so that tests order things without sleeping. Whatever the
ranks do, everything has ended when `launch` returns: at the deadline they are asked where they
stand, and killed.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib.util
import multiprocessing
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import ModuleType
from typing import Any

from hvd_partial import engine

DEADLINE_SECONDS = 60.0
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["numpy", "pytest", "hvd_partial.engine"])


class Ranks:
    """What a rank's function gets: who it is, and how to meet the others."""

    def __init__(self, rank: int, size: int, pipe: Connection) -> None:
        self.rank = rank
        self.size = size
        self._pipe = pipe

    def exchange(self, item: Any) -> list[Any]:
        """Gives the items of all ranks to every rank; waits for all."""
        return self._ask("exchange", item)

    def barrier(self) -> None:
        self.exchange(None)

    def set(self, event: str) -> None:
        """Lets everybody go on who waits, now or later, for this event."""
        self._ask("set", event)

    def wait_for(self, event: str) -> None:
        """Blocks on a pipe until some rank has set the event."""
        self._ask("wait", event)

    def connect(self) -> engine.Engine:
        return engine.connect(self.rank, self.size, self.exchange)

    def signal(self, rank: int, number: int) -> float:
        """Has the launcher send a signal to a rank, maybe this one, and set an event of it.

        Returns:
          time.monotonic() just before. A rank that was stopped stands still by now.
        """
        return self._ask("signal", (rank, int(number)))

    def wait_for_signal(self, rank: int, number: int) -> None:
        """Blocks until `signal` has sent this one."""
        self.wait_for(_signal_event(rank, number))

    def die(self) -> None:
        """Ends this process at once, as the kernel does when memory is short."""
        os.kill(os.getpid(), signal.SIGKILL)

    def _ask(self, what: str, item: Any) -> Any:
        self._pipe.send((what, item))
        answer, value = self._pipe.recv()
        if answer == "lost":
            raise RuntimeError(f"rank {self.rank} waits for {what} {item!r} in vain: {value}")
        return value


@dataclass
class Outcome:
    """How a rank ended.

    Attributes:
      value: What its function returned.
      error: Name of the class of what it raised, and of its bases, most special first.
      message: Of the exception.
      trace: Its traceback, or where the rank stood at the deadline.
      exit_code: Of the process; negative: killed by that signal; None: at the deadline.
      signals: What `Ranks.signal` sent to it: number, and time.monotonic() just before.
    """

    rank: int
    value: Any = None
    error: tuple[str, ...] = ()
    message: str = ""
    trace: str = ""
    exit_code: int | None = None
    signals: list[tuple[int, float]] = field(default_factory=list)
    ended: bool = False


class RankError(AssertionError):
    """A rank raised, died or did not end."""


def launch(
    function: Callable[..., Any],
    size: int,
    *arguments: Any,
    deadline: float = DEADLINE_SECONDS,
) -> list[Outcome]:
    """Runs `function(ranks, *arguments)` as `size` ranks and returns how each of them ended.

    Args:
      function: At the top level of a file of the tests.
      arguments: Whatever can be pickled.
      deadline: Seconds until the ranks are killed.

    Raises:
      RankError: only if a rank did not end by itself before the deadline.
    """
    with tempfile.TemporaryDirectory() as folder:
        job = _Job(function, size, arguments, Path(folder))
        try:
            job.serve(time.monotonic() + deadline)
        finally:
            job.end()
    late = [outcome for outcome in job.outcomes if not outcome.ended]
    if late:
        raise RankError(
            f"no end after {deadline:g} s: "
            + "\n".join(f"rank {outcome.rank} stood at\n{outcome.trace}" for outcome in late)
            + _describe([outcome for outcome in job.outcomes if outcome.ended])
        )
    return job.outcomes


def run(
    function: Callable[..., Any],
    size: int,
    *arguments: Any,
    deadline: float = DEADLINE_SECONDS,
) -> list[Any]:
    """As `launch`, for ranks that must all succeed: returns what they returned.

    Raises:
      RankError: if one did not.
    """
    outcomes = launch(function, size, *arguments, deadline=deadline)
    if any(outcome.error or outcome.exit_code != 0 for outcome in outcomes):
        raise RankError(_describe(outcomes))
    return [outcome.value for outcome in outcomes]


def _describe(outcomes: Sequence[Outcome]) -> str:
    lines = []
    for outcome in outcomes:
        how = f"raised {outcome.error[0]}: {outcome.message}" if outcome.error else "returned"
        lines.append(f"rank {outcome.rank} {how} (exit code {outcome.exit_code})\n{outcome.trace}")
    return "\n".join(lines)


@dataclass
class _Rank:
    process: Any
    pipe: Connection
    waiting: str | None = None  # for this event
    offered: list[Any] = field(default_factory=list)  # to the exchange that is open


class _Job:
    def __init__(
        self, function: Callable[..., Any], size: int, arguments: tuple[Any, ...], folder: Path
    ) -> None:
        self.outcomes = [Outcome(rank) for rank in range(size)]
        self._folder = folder
        self._events: set[str] = set()
        self._ranks: list[_Rank] = []
        path = sys.modules[function.__module__].__file__
        for rank in range(size):
            ours, theirs = _context.Pipe()
            process = _context.Process(
                target=_rank_main,
                args=(path, function.__qualname__, rank, size, theirs, arguments, str(folder)),
                daemon=True,
            )
            self._ranks.append(_Rank(process, ours))
            process.start()
            theirs.close()

    def serve(self, deadline: float) -> None:
        open_pipes = {rank.pipe: number for number, rank in enumerate(self._ranks)}
        while open_pipes:
            seconds = deadline - time.monotonic()
            if seconds <= 0:
                return
            for pipe in wait(list(open_pipes), seconds):
                number = open_pipes[pipe]  # type: ignore[index]
                try:
                    self._handle(number, self._ranks[number].pipe.recv())
                except (EOFError, ConnectionResetError):
                    del open_pipes[pipe]  # type: ignore[arg-type]
                    self.outcomes[number].ended = True
            self._answer(len(open_pipes) < len(self._ranks))
        for rank in self._ranks:
            rank.process.join(max(0.0, deadline - time.monotonic()))

    def end(self) -> None:
        for number, rank in enumerate(self._ranks):
            if rank.process.is_alive():
                self.outcomes[number].ended = False
                os.kill(rank.process.pid, signal.SIGUSR1)  # writes where it stands
                os.kill(rank.process.pid, signal.SIGCONT)  # also if it was stopped
        if any(rank.process.is_alive() for rank in self._ranks):
            time.sleep(0.5)
        for number, rank in enumerate(self._ranks):
            if rank.process.is_alive():
                rank.process.kill()
                stack = self._folder / f"{number}"
                self.outcomes[number].trace = stack.read_text() if stack.exists() else ""
            rank.process.join()
            if self.outcomes[number].ended:
                self.outcomes[number].exit_code = rank.process.exitcode
            rank.pipe.close()

    def _handle(self, number: int, message: tuple[str, Any]) -> None:
        what, item = message
        rank, outcome = self._ranks[number], self.outcomes[number]
        if what == "exchange":
            rank.offered.append(item)
        elif what == "set":
            self._events.add(item)
            rank.pipe.send(("done", None))
        elif what == "wait":
            rank.waiting = item
        elif what == "signal":
            self._reply(rank, ("done", self._signal(*item)))
        elif what == "value":
            outcome.value = item
        else:
            outcome.error, outcome.message, outcome.trace = item

    def _signal(self, target: int, number: int) -> float:
        pid = self._ranks[target].process.pid
        sent = time.monotonic()
        os.kill(pid, number)
        self.outcomes[target].signals.append((number, sent))
        while number == signal.SIGSTOP and not _stands_still(pid):
            time.sleep(0.0005)
        self._events.add(_signal_event(target, number))
        return sent

    def _answer(self, some_ended: bool) -> None:
        for rank in self._ranks:
            if rank.waiting in self._events:
                rank.waiting = None
                self._reply(rank, ("done", None))
        if all(rank.offered for rank in self._ranks):
            items = [rank.offered.pop() for rank in self._ranks]
            for rank in self._ranks:
                self._reply(rank, ("done", items))
        elif some_ended:
            gone = [outcome.rank for outcome in self.outcomes if outcome.ended]
            for rank in self._ranks:
                if rank.offered:
                    rank.offered.pop()
                    self._reply(rank, ("lost", f"ranks {gone} have ended"))

    def _reply(self, rank: _Rank, answer: tuple[str, Any]) -> None:
        # If it has ended, serve() will see that.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            rank.pipe.send(answer)


def _signal_event(rank: int, number: int) -> str:
    return f"signal {int(number)} to rank {rank}"


def _stands_still(pid: int) -> bool:
    """Whether all threads of a process are stopped."""
    stats = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    return all(text.rpartition(")")[2].split()[0] == "T" for text in stats)


def _rank_main(
    path: str,
    name: str,
    rank: int,
    size: int,
    pipe: Connection,
    arguments: tuple[Any, ...],
    folder: str,
) -> None:
    with (Path(folder) / f"{rank}").open("w") as stack:
        faulthandler.register(signal.SIGUSR1, file=stack, all_threads=True)
        # What a shell starts in the background inherits that it is ignored.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            function: Any = _load(path)
            for part in name.split("."):
                function = getattr(function, part)
            pipe.send(("value", function(Ranks(rank, size, pipe), *arguments)))
        except BaseException as error:  # the test decides what it means
            bases = tuple(base.__name__ for base in type(error).__mro__)
            pipe.send(("error", (bases, str(error), traceback.format_exc())))
        finally:
            pipe.close()


def _load(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location("rank_functions", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot load {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules["rank_functions"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module
