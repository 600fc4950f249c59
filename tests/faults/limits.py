# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Ranks that the system gives too little: a fifth of a processor, or no memory for the ring."""

from __future__ import annotations

import contextlib
import os
import resource
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hvd_partial.errors import HvdPartialError
from tests.engine.process_ranks import Ranks, run

SIZE = 4
STEPS = 30
# Processor time that a step takes.
STEP_SECONDS = 0.01
QUOTA = 0.2
_PERIOD_MICROSECONDS = 100_000


# ---- processor --------------------------------------------------------------------


@dataclass(frozen=True)
class Throttled:
    """A job one of whose ranks had a fifth of a processor.

    Attributes:
      rounds: In all.
      late: By rank, contributions that went into a later round than they were made for.
      equal: Replicas at the end.
      exact: Nothing was lost or counted twice.
      throttled: Periods in which the kernel held the rank back.
      seconds: By rank, until its last step was made.
    """

    rounds: int
    late: list[int]
    equal: bool
    exact: bool
    throttled: int
    seconds: list[float]


class CannotLimitError(Exception):
    """There is no control group that this process may make; says why."""


@contextlib.contextmanager
def cpu_group(share: float) -> Iterator[Path]:
    """A control group with so much of a processor, of version 1 or 2.

    Raises:
      CannotLimitError: if there is none to be made here.
    """
    quota = int(share * _PERIOD_MICROSECONDS)
    parent, settings = _cpu_controller(quota)
    group = parent / f"hvd_partial-{uuid.uuid4().hex[:8]}"
    try:
        group.mkdir()
    except OSError as error:
        raise CannotLimitError(f"{group}: {error.strerror}") from None
    try:
        for name, value in settings:
            (group / name).write_text(value)
        yield group
    except OSError as error:
        raise CannotLimitError(f"{error.filename or group}: {error.strerror}") from None
    finally:
        _remove(group)


def _cpu_controller(quota: int) -> tuple[Path, list[tuple[str, str]]]:
    for line in Path("/proc/mounts").read_text().splitlines():
        _, where, kind, options, *_ = line.split()
        if kind == "cgroup" and "cpu" in options.split(","):
            return Path(where), [
                ("cpu.cfs_period_us", str(_PERIOD_MICROSECONDS)),
                ("cpu.cfs_quota_us", str(quota)),
            ]
        controllers = Path(where) / "cgroup.subtree_control"
        if kind == "cgroup2" and controllers.exists() and "cpu" in controllers.read_text().split():
            return Path(where), [("cpu.max", f"{quota} {_PERIOD_MICROSECONDS}")]
    raise CannotLimitError("no control group with the cpu controller is mounted")


def _remove(group: Path) -> None:
    # Its processes have been waited for; the kernel may still be counting them.
    for _ in range(100):
        try:
            group.rmdir()
            return
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(0.02)


def throttle(mode: str, victim: int, deadline: float = 90.0) -> Throttled:
    """Runs a job with one rank in a control group of `QUOTA` of a processor.

    Raises:
      CannotLimitError: if there is none to be made here.
    """
    with cpu_group(QUOTA) as group:
        reports = run(_busy, SIZE, mode, victim, str(group), deadline=deadline)
        counted = dict(
            line.split() for line in (group / "cpu.stat").read_text().splitlines() if line
        )
    wanted = sum(rank + 1 for rank in range(SIZE)) * STEPS
    sums = [report["sum"] for report in reports]
    return Throttled(
        rounds=reports[0]["rounds"],
        late=[report["late"] for report in reports],
        equal=len(set(sums)) == 1,
        exact=sums[0] == wanted,
        throttled=int(counted["nr_throttled"]),
        seconds=[report["seconds"] for report in reports],
    )


def _busy(ranks: Ranks, mode: str, victim: int, group: str) -> dict[str, Any]:
    if ranks.rank == victim:
        (Path(group) / "cgroup.procs").write_text(str(os.getpid()))
    with ranks.connect() as engine:
        channel = engine.channel("g", [np.zeros(16)], mode, average=None, staleness="full")
        total, begun = 0.0, time.monotonic()
        for _ in range(STEPS):
            end = time.thread_time() + STEP_SECONDS
            while time.thread_time() < end:
                pass
            for result in channel.allreduce([np.full(16, ranks.rank + 1.0)]):
                total += float(result.values[0][0])
        seconds = time.monotonic() - begun
        for result in channel.flush():
            total += float(result.values[0][0])
        stats = channel.stats()
        return {
            "sum": total,
            "rounds": stats.rounds,
            "late": stats.late_deposits,
            "seconds": seconds,
        }


# ---- memory -----------------------------------------------------------------------


@dataclass(frozen=True)
class NoMemory:
    """What a rank saw when it or another had no memory for its ring.

    Attributes:
      kinds: Of the error: its class and bases.
      message: Its text.
      seconds: Since all ranks were ready to open the channel.
    """

    kinds: tuple[str, ...]
    message: str
    seconds: float


def too_little_memory(victim: int | None, deadline: float = 60.0) -> list[NoMemory]:
    """Opens a channel for which a rank has no memory.

    Args:
      victim: The rank whose address space is limited; None: all ask for more than any machine has.
      deadline: Seconds until the ranks are killed.

    Returns:
      By rank, what it saw.
    """
    return [NoMemory(*seen) for seen in run(_open_large, SIZE, victim, deadline=deadline)]


def _open_large(ranks: Ranks, victim: int | None) -> tuple[tuple[str, ...], str, float]:
    engine = ranks.connect()
    arrays = [np.ones(1 << 22, np.float32)]  # 16 MiB
    engine.channel("small", [np.zeros(4)], "sync").allreduce([np.zeros(4)])
    ranks.barrier()
    begun = time.monotonic()
    limits = resource.getrlimit(resource.RLIMIT_AS)
    if ranks.rank == victim:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        resource.setrlimit(
            resource.RLIMIT_AS, (pages * resource.getpagesize() + (64 << 20), limits[1])
        )
    try:
        channel = engine.channel(
            "g", arrays, "majority", max_lag=8 if victim is not None else 60000
        )
        while True:
            channel.allreduce(arrays)
    except HvdPartialError as error:
        seconds = time.monotonic() - begun
        kinds = tuple(kind.__name__ for kind in type(error).__mro__)
        message = str(error)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
    engine.close()
    return kinds, message, seconds
