# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""A process that opens and closes engines again and again does not grow."""

from __future__ import annotations

import gc

import numpy as np

from benchmarks.soak_rank import Resources, resources
from tests.engine.process_ranks import Ranks, run

CHANNELS = 8
# A channel of these has six buffers of 400 kB: 19 MB for all of them, which must be given back.
ELEMENTS = 50_000
MEBIBYTE = 1 << 20


def open_and_close(ranks: Ranks, times: int) -> list[Resources]:
    held = []
    arrays = [np.zeros(ELEMENTS, np.int64)]
    for _ in range(times):
        with ranks.connect() as engine:
            for number in range(CHANNELS):
                channel = engine.channel(
                    f"channel {number}", arrays, "sync", average=None, staleness="full", max_lag=4
                )
                channel.allreduce(arrays)
                channel.leave()
        gc.collect()
        held.append(resources())
    return held


def test_engines_that_were_closed_hold_nothing() -> None:
    for held in run(open_and_close, 2, 12, deadline=60):
        early, late = held[3], held[-1]
        assert late.threads == early.threads
        assert late.descriptors == early.descriptors
        # One engine's buffers that stayed would be more than this.
        assert late.rss - early.rss < 8 * MEBIBYTE, [item.rss // MEBIBYTE for item in held]
