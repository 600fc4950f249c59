# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""What one rank does in a benchmark, whatever the system."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np

from hvd_partial.bench.cells import Sample, Task
from hvd_partial.bench.skew import delays
from hvd_partial.bench.systems import Floats, System

WARM_UP_CALLS = 3
MEMORY_CALLS = 20


def run(task: Task, system: System) -> list[Sample]:
    """Does the task and returns a sample for each size.

    Raises:
      RuntimeError: if a sum was wrong (an allreduce that computes nothing is fast).
    """
    measure = {"latency": _calls, "skew": _calls, "idle": _idle, "memory": _memory}[task.what]
    return [measure(task, system, size) for size in task.sizes]


def _calls(task: Task, system: System, size: int) -> Sample:
    values = _values(system, size)
    system.prepare(values.size)
    calls = task.calls_of(size)
    table = delays(task.skew, system.size, calls, task.skew_seconds)[:, system.rank]
    for _ in range(WARM_UP_CALLS):
        system.barrier()
        system.call(values)
    seconds = []
    cpu = time.process_time()
    for call in range(calls):
        system.barrier()
        if table[call] > 0:
            time.sleep(table[call])
        start = time.perf_counter()
        result = system.call(values)
        seconds.append(time.perf_counter() - start)
    cpu = time.process_time() - cpu
    # Who is late in a partial mode is not in the newest sum; the whole is in every sum otherwise.
    whole = system.size * (system.size + 1) / 2
    found = float(result[-1])
    partial = task.mode not in ("sync", "horovod-gloo", "horovod-mpi", "mpi")
    if (not partial and found != whole) or found <= 0:
        raise RuntimeError(
            f"rank {system.rank}: {task.mode} returned the sum {found:g} of {whole:g} "
            f"for {size} bytes"
        )
    system.finish()
    system.barrier()
    return Sample(size, tuple(seconds), tuple(map(float, table)), cpu)


def _idle(task: Task, system: System, size: int) -> Sample:
    values = _values(system, size)
    system.prepare(values.size)
    system.call(values)
    system.barrier()
    time.sleep(0.2)
    cpu, start = time.process_time(), time.perf_counter()
    time.sleep(task.seconds)
    share = (time.process_time() - cpu) / (time.perf_counter() - start)
    system.barrier()
    system.finish()
    system.barrier()
    return Sample(size, value=share)


def _memory(task: Task, system: System, size: int) -> Sample:
    """Resident bytes that calls of this size cost, in multiples of the size."""
    values = _values(system, size)
    result = values.copy()  # what any caller has
    system.barrier()
    before = _resident_bytes()
    system.prepare(values.size)
    for _ in range(MEMORY_CALLS):
        # In step: a rank that waits for the others applies nothing, and would hold them up in a
        # partial mode once its ring is full.
        system.barrier()
        np.copyto(result, system.call(values))
    grown = _resident_bytes() - before
    system.barrier()
    system.finish()
    system.barrier()
    return Sample(size, value=grown / size)


def _values(system: System, size: int) -> Floats:
    # The sum of ranks + 1 is exact in float32.
    return np.full(max(1, size // 4), system.rank + 1, np.float32)


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
