# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Times the steps around changes of mode, in light processes without TensorFlow."""

from __future__ import annotations

import multiprocessing
import time
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from hvd_partial import engine

STEP_SECONDS = 0.02
ELEMENTS = 250_000
EVERY = 10  # steps between switches
STEPS = 400
PLACES = {"before": -1, "switching": 0, "after": 1}
DEADLINE_SECONDS = 120.0


def measure(ranks: int) -> list[dict[str, Any]]:
    """Median and 90 % of the seconds of a step: before a switch, the first in the new mode, after.

    Raises:
      RuntimeError: if the ranks do not end in time.
    """
    context = multiprocessing.get_context("spawn")
    pipes, processes = [], []
    for rank in range(ranks):
        ours, theirs = context.Pipe()
        process = context.Process(target=_rank, args=(rank, ranks, theirs), daemon=True)
        process.start()
        theirs.close()
        pipes.append(ours)
        processes.append(process)
    try:
        addresses = [_receive(pipe) for pipe in pipes]
        for pipe in pipes:
            pipe.send(addresses)
        steps = [step for pipe in pipes for step in _receive(pipe)]
        for process in processes:
            process.join(DEADLINE_SECONDS)
    finally:
        for process in processes:
            if process.is_alive():
                process.kill()
    rows = []
    for mode in ("async", "sync"):
        row: dict[str, Any] = {"ranks": ranks, "to": mode}
        for name, place in PLACES.items():
            seconds = [s for to, at, s in steps if (to, at) == (mode, place)]
            row["switches"] = len(seconds) // ranks
            row[name] = [float(np.median(seconds)), float(np.quantile(seconds, 0.9))]
        rows.append(row)
    return rows


def _receive(pipe: Connection) -> Any:
    if not pipe.poll(DEADLINE_SECONDS):
        raise RuntimeError("a rank did not answer in time")
    return pipe.recv()


def _rank(rank: int, size: int, pipe: Connection) -> None:
    def exchange(address: bytes) -> list[bytes]:
        pipe.send(address)
        return _receive(pipe)

    with engine.connect(rank, size, exchange) as connected:
        like = [np.zeros(ELEMENTS, np.float32)]
        channel = connected.channel("g", like, "sync", staleness="full")
        gradient = np.ones(ELEMENTS, np.float32)
        calls: list[tuple[str, float]] = []
        mode, since, done = "sync", 0, 0
        while done < STEPS * size:
            time.sleep(STEP_SECONDS)
            for result in channel.allreduce([gradient]):
                done = result.total_contributions
                since = since + 1 if result.mode == mode else 1
                mode = result.mode
                # In async a step of all ranks is as many rounds.
                if since == EVERY * (1 if mode == "sync" else size):
                    channel.decide(result.round + 1, "async" if mode == "sync" else "sync")
            calls.append((mode, time.perf_counter()))
        channel.flush()
    pipe.send(_around_switches(calls))


def _around_switches(calls: list[tuple[str, float]]) -> list[tuple[str, int, float]]:
    """(new mode, place, seconds of the step): place 0 is the first that ended in the new mode."""
    modes = [mode for mode, _ in calls]
    times = [end for _, end in calls]
    return [
        (modes[step], place, times[step + place] - times[step + place - 1])
        for step in range(2, len(calls) - 1)
        if modes[step] != modes[step - 1]
        for place in PLACES.values()
    ]
