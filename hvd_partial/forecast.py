# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Jobs on simulated time, mode by mode on the same delays, and what comes out of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hvd_partial import _native
from hvd_partial.errors import InvalidArgumentError
from hvd_partial.modes import Mode
from hvd_partial.traces import Trace


@dataclass(frozen=True)
class Plan:
    """One simulation: everything but mode and seed."""

    ranks: int
    seeds: int
    rounds: int
    trace: Trace
    compute: float
    communication: float
    latency: float
    apply: float
    grace: float  # negative: learned
    max_lag: int

    def run(
        self, mode: Mode, seed: int, progress: Callable[[float], None] | None = None
    ) -> dict[str, Any]:
        """One job in one mode: what the engine's simulation counted."""
        return _native.load().simulate(
            ranks=self.ranks,
            mode=mode.to_native(),
            max_lag=self.max_lag,
            grace_seconds=self.grace,
            message_seconds=self.latency,
            reduce_seconds=self.communication,
            apply_seconds=self.apply,
            contributions=self.rounds * self.ranks,
            compute_seconds=self.compute,
            delays=list(self.trace.delays),
            recorded=self.trace.recorded,
            seed=seed,
            progress=progress,
        )


def reduction_seconds(ranks: int, size: float, bandwidth: float, latency: float) -> float:
    """An allreduce by halving and doubling: it sends nearly twice the bytes, in 2 log2(P) turns."""
    if ranks == 1:
        return 0.0
    turns = 2 * math.ceil(math.log2(ranks))
    return turns * latency + 2 * (ranks - 1) / ranks * size / bandwidth


def summarize(
    mode: Mode, jobs: Sequence[dict[str, Any]], sync_jobs: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """One mode over all seeds; `sync_jobs` had the same delays, seed by seed."""
    throughputs = [job["contributions"] / job["seconds"] for job in jobs]
    sync = [job["contributions"] / job["seconds"] for job in sync_jobs]
    speed_ups = [ours / theirs for ours, theirs in zip(throughputs, sync, strict=True)]
    contributions = sum(job["contributions"] for job in jobs)
    rounds = sum(sum(job["rounds_with"]) for job in jobs)
    ranks = len(jobs[0]["contributions_of"])
    full = sum(sum(job["rounds_with"][ranks:]) for job in jobs)
    histogram = [0] * max(len(job["staleness"]) for job in jobs)
    for job in jobs:
        for late, count in enumerate(job["staleness"]):
            histogram[late] += count
    waited = sum(sum(job["waiting_seconds_of"]) for job in jobs)
    return {
        "mode": str(mode),
        "contributions_per_second": sum(throughputs) / len(jobs),
        "speed_up": sum(speed_ups) / len(jobs),
        "speed_up_lowest": min(speed_ups),
        "speed_up_highest": max(speed_ups),
        "rounds": rounds,
        "contributions": contributions,
        "contributions_per_round": contributions / rounds,
        "full_share": full / rounds,
        "late_share": 1 - histogram[0] / contributions,
        "staleness_mean": sum(late * n for late, n in enumerate(histogram)) / contributions,
        "staleness_max": max(late for late, n in enumerate(histogram) if n),
        "staleness_histogram": histogram,
        "waiting_seconds": waited,
        "waiting_seconds_per_step": waited / contributions,
        "waiting_share": waited / (ranks * sum(job["seconds"] for job in jobs)),
        "held_up_share": sum(job["held_up_seconds"] for job in jobs)
        / sum(job["seconds"] for job in jobs),
        "largest_lag": max(job["largest_lag"] for job in jobs),
        "grace_seconds": sum(job["grace_seconds"] for job in jobs) / len(jobs),
        "seconds": [job["seconds"] for job in jobs],
        "contributions_of": [
            sum(job["contributions_of"][rank] for job in jobs) for rank in range(ranks)
        ],
    }


def compare(
    plan: Plan, modes: Sequence[Mode], progress: Callable[[float], None] | None = None
) -> list[dict[str, Any]]:
    """All modes over all seeds, each a summary. Sync is simulated in any case, to compare with."""
    sync = Mode("sync")
    wanted = list(dict.fromkeys([sync, *modes]))
    jobs: dict[Mode, list[dict[str, Any]]] = {mode: [] for mode in wanted}
    total = plan.seeds * len(wanted)
    done = 0

    def on_progress(share: float) -> None:
        if progress is not None:
            progress((done + share) / total)

    for seed in range(plan.seeds):
        for mode in wanted:
            job = plan.run(mode, seed, on_progress)
            if job["seconds"] == 0:
                raise InvalidArgumentError(
                    "--compute, --communication, --trace: a step must take some time"
                )
            jobs[mode].append(job)
            done += 1
    return [summarize(mode, jobs[mode], jobs[sync]) for mode in dict.fromkeys(modes)]
