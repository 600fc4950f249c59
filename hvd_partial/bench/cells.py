# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""What a benchmark run is asked for, what comes out of it, and how samples become a cell."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

# Other systems that can run in turn with ours, by the names that `--against` and the cells use.
HOROVOD_SYSTEMS = ("horovod-gloo", "horovod-mpi")
MPI_SYSTEM = "mpi"
OTHER_SYSTEMS = (*HOROVOD_SYSTEMS, MPI_SYSTEM)


@dataclass(frozen=True)
class Task:
    """What the processes of one launch do; it travels to them as JSON.

    Attributes:
      what: "latency", "skew", "idle" or "memory".
      mode: A mode of ours, or one of OTHER_SYSTEMS.
      sizes: Bytes of the float32 tensor of one call.
      calls: Measured calls of the smallest size; larger ones get fewer.
      least_calls: ... but not fewer than these, if there are as many.
      skew: Who arrives how late, as `skew.delays` names it.
      skew_seconds: Scale of the skew.
      seconds: That "idle" watches.
      max_lag: Of our channel.
    """

    what: str
    mode: str
    sizes: tuple[int, ...]
    calls: int = 200
    least_calls: int = 10
    skew: str = "none"
    skew_seconds: float = 0.0
    seconds: float = 5.0
    max_lag: int = 8

    def calls_of(self, size: int) -> int:
        """Measured calls for one size: about the same number of bytes for each size above 1 MB."""
        scaled = int(self.calls * 2**20 / max(size, 2**20))
        return max(min(self.least_calls, self.calls), min(self.calls, scaled))


@dataclass(frozen=True)
class Sample:
    """What one rank measured for one size.

    Attributes:
      seconds: Of each measured call.
      slept: Seconds that the rank had slept before each.
      cpu_seconds: Of the process during all of them, the barriers between them included.
      value: What "idle" (share of a core) and "memory" (bytes) found.
    """

    size: int
    seconds: tuple[float, ...] = ()
    slept: tuple[float, ...] = ()
    cpu_seconds: float = 0.0
    value: float = 0.0


@dataclass
class Cell:
    """One result, as `--json` prints it; times in microseconds, CPU in seconds a call.

    Attributes:
      median_us: Latency: of the slowest rank of each call. Skew: of the mean over the ranks.
      fast_median_us: Skew: of the ranks that had not slept, over all calls.
      gbytes_per_s: Bytes of the tensor over the median.
      cpu_s: Of all ranks for one call and the barrier before it.
      value: What "idle" (share of a core, mean over ranks) and "memory" (times the tensor's bytes,
        largest rank) found.
    """

    what: str
    mode: str
    ranks: int
    bytes: int
    calls: int = 0
    median_us: float | None = None
    p95_us: float | None = None
    fast_median_us: float | None = None
    gbytes_per_s: float | None = None
    cpu_s: float | None = None
    value: float | None = None
    skew: str = ""

    def as_json(self) -> dict[str, object]:
        return {k: v for k, v in dataclasses.asdict(self).items() if v is not None and v != ""}


@dataclass
class Launch:
    """The samples of all ranks of one launch: `samples[rank][i]` belongs to `task.sizes[i]`."""

    task: Task
    samples: list[list[Sample]] = field(default_factory=list)


def percentile(values: Sequence[float], share: float) -> float:
    """The value that this share of the values is not above; of few values the largest."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def summarize(launches: Iterable[Launch]) -> list[Cell]:
    """A cell for each size, over repeated launches of one task."""
    launches = list(launches)
    task = launches[0].task
    return [_summarize_size(task, index, launches) for index in range(len(task.sizes))]


def _summarize_size(task: Task, index: int, launches: Sequence[Launch]) -> Cell:
    by_rank = [[ranks[index] for ranks in launch.samples] for launch in launches]
    ranks = len(by_rank[0])
    cell = Cell(task.what, task.mode, ranks, task.sizes[index])
    if task.what in ("idle", "memory"):
        values = [sample.value for samples in by_rank for sample in samples]
        cell.value = statistics.mean(values) if task.what == "idle" else max(values)
        return cell
    times: list[float] = []
    fast: list[float] = []
    for samples in by_rank:
        for call in range(len(samples[0].seconds)):
            of_ranks = [sample.seconds[call] for sample in samples]
            slept = [sample.slept[call] for sample in samples]
            if task.what == "latency":
                times.append(max(of_ranks))
            else:
                times.append(statistics.mean(of_ranks))
                least = min(slept)
                fast += [s for s, d in zip(of_ranks, slept, strict=True) if d <= least]
    cell.calls = len(times)
    cell.median_us = 1e6 * statistics.median(times)
    cell.p95_us = 1e6 * percentile(times, 0.95)
    cell.gbytes_per_s = 1e-9 * cell.bytes / (1e-6 * cell.median_us)
    cell.cpu_s = sum(s.cpu_seconds for samples in by_rank for s in samples) / len(times)
    if task.what == "skew":
        cell.skew = task.skew
        cell.fast_median_us = 1e6 * statistics.median(fast)
    return cell
