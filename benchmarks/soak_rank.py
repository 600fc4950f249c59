# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""A rank of the soak: does what it is told over a pipe, for as many engines as it lives to see."""

from __future__ import annotations

import faulthandler
import gc
import hashlib
import os
import signal
import time
import traceback
from collections.abc import Iterable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hvd_partial import engine as engine_module
from hvd_partial.diagnosis import LEAVE_OUT
from hvd_partial.errors import HvdPartialError

Integers = npt.NDArray[np.int64]
# So that the stops of a soak are long enough.
LEAVE_OUT_SECONDS = 0.15


@dataclass(frozen=True)
class Part:
    """What a rank does in an episode.

    Attributes:
      channel: Name; opened now, or open already.
      options: Of the channel, besides its tensors.
      elements: Of its tensor.
      epochs: In each, seconds to sleep before each call; then all ranks flush.
      modes: (epoch, call) to the mode set before it.
      endless: Go on calling until it fails.
      leave: Leave the channel in the end.
    """

    channel: str
    options: dict[str, Any]
    elements: int
    epochs: tuple[tuple[float, ...], ...]
    modes: dict[tuple[int, int], str] = field(default_factory=dict)
    endless: bool = False
    leave: bool = True


@dataclass(frozen=True)
class Resources:
    """What a process holds.

    Attributes:
      rss: Bytes of memory in use.
      threads: Number of them.
      descriptors: Open file descriptors.
    """

    rss: int
    threads: int
    descriptors: int


def contribution(rank: int, epoch: int, call: int, elements: int) -> Integers:
    """Whole numbers that tell whose they are."""
    base = (rank + 1) * 1_000_003 + epoch * 1_009 + call
    return base + np.arange(elements, dtype=np.int64)


def digest(values: Integers) -> str:
    """For comparison over a pipe."""
    return hashlib.sha256(values.tobytes()).hexdigest()


def expected(parts: Iterable[Part], epoch: int) -> tuple[str, int]:
    """Digest and number of all ranks' contributions to an epoch."""
    total, count = np.zeros(0, np.int64), 0
    for rank, part in enumerate(parts):
        if not total.size:
            total = np.zeros(part.elements, np.int64)
        for call in range(len(part.epochs[epoch])):
            total += contribution(rank, epoch, call, part.elements)
            count += 1
    return digest(total), count


def resources(pid: int | str = "self") -> Resources:
    """Of a process."""
    folder = Path(f"/proc/{pid}")
    pages = int((folder / "statm").read_text().split()[1])
    return Resources(
        rss=pages * os.sysconf("SC_PAGE_SIZE"),
        threads=len(list((folder / "task").iterdir())),
        descriptors=len(list((folder / "fd").iterdir())),
    )


def main(rank: int, size: int, pipe: Connection, traces: str) -> None:
    """Serves until it is told to end; writes where it stands into a file at SIGUSR1."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the one who controls ends it
    with (Path(traces) / f"{rank}-{os.getpid()}").open("w") as trace:
        faulthandler.register(signal.SIGUSR1, file=trace, all_threads=True)
        _Rank(rank, size, pipe).serve()


class _Rank:
    def __init__(self, rank: int, size: int, pipe: Connection) -> None:
        self._rank = rank
        self._size = size
        self._pipe = pipe
        self._engine: Any = None

    def serve(self) -> None:
        while True:
            command, argument = self._pipe.recv()
            if command == "end":
                return
            try:
                answer = getattr(self, f"_{command}")(argument)
            except HvdPartialError as error:
                kinds = [kind.__name__ for kind in type(error).__mro__]
                answer = ("failed", {"kinds": kinds, "text": str(error), "at": time.monotonic()})
            except Exception:
                answer = ("bug", traceback.format_exc())
            self._pipe.send(answer)

    def _exchange(self, address: bytes) -> list[bytes]:
        self._pipe.send(("exchange", address))
        addresses: list[bytes] = self._pipe.recv()
        return addresses

    def _connect(self, argument: None) -> tuple[str, Any]:
        os.environ[LEAVE_OUT] = str(LEAVE_OUT_SECONDS)
        self._engine = engine_module.connect(self._rank, self._size, self._exchange)
        return "done", None

    def _close(self, argument: None) -> tuple[str, Any]:
        begun = time.monotonic()
        if self._engine is not None:
            self._engine.close()
        self._engine = None
        seconds = time.monotonic() - begun
        gc.collect()
        return "done", (seconds, resources())

    def _play(self, part: Part) -> tuple[str, Any]:
        like = [np.zeros(part.elements, np.int64)]
        channel = self._engine.channel(part.channel, like, **part.options)
        epochs, before = [], channel.stats().rounds
        for epoch, delays in enumerate(part.epochs):
            total, count = np.zeros(part.elements, np.int64), 0
            results: list[Any] = []
            for call, seconds in enumerate(delays):
                if (epoch, call) in part.modes:
                    channel.set_mode(part.modes[epoch, call])
                if seconds:
                    time.sleep(seconds)
                mine = contribution(self._rank, epoch, call, part.elements)
                results += channel.allreduce([mine])
            results += channel.flush()
            for result in results:
                total += result.values[0]
                count += result.contributions
            epochs.append((digest(total), count))
        while part.endless:
            channel.allreduce(like)
        rounds, largest_lag = channel.stats().rounds - before, channel.stats().largest_lag
        if part.leave:
            channel.leave()
        return "done", (epochs, rounds, largest_lag)
