# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Synthetic traces of per-rank compute seconds, labelled: who is slow, from when to when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

# Standard deviation of the logarithm of a step's seconds: a quiet machine; and everybody noisy, as
# Transformer batches of varying length are (mean 475 ms, deviation 144 ms, in the eager-SGD paper).
QUIET, NOISY = 0.05, 0.3
STEP_SECONDS = 0.1


@dataclass(frozen=True)
class Kind:
    """A kind of trace.

    Attributes:
      noise: Of every rank.
      slowdown: Of one rank; 1: nobody is slow.
      share: Of the trace that it is slow for, from its third on; the rest of the trace if 1.
    """

    noise: float = QUIET
    slowdown: float = 1.0
    share: float = 1.0


KINDS: dict[str, Kind] = {
    "nobody slow": Kind(),
    "nobody slow, everybody noisy": Kind(noise=NOISY),
    "1.3x, permanent": Kind(slowdown=1.3),
    "2x, permanent": Kind(slowdown=2.0),
    "5x, permanent": Kind(slowdown=5.0),
    "2x, transient": Kind(slowdown=2.0, share=1 / 3),
    "2x, permanent, everybody noisy": Kind(noise=NOISY, slowdown=2.0),
}


@dataclass(frozen=True)
class Trace:
    """Attributes:
    seconds: Of each round and rank.
    rank: Which is slow; None: nobody.
    start: Its first slow round.
    stop: Its first round that is not slow any more.
    """

    seconds: np.ndarray[Any, Any]
    rank: int | None
    start: int
    stop: int


def make(kind: Kind, size: int, rounds: int, seed: int) -> Trace:
    """The same arguments give the same trace."""
    random = np.random.default_rng([seed, size])
    seconds = STEP_SECONDS * np.exp(kind.noise * random.standard_normal((rounds, size)))
    if kind.slowdown == 1.0:
        return Trace(seconds, None, rounds, rounds)
    rank = int(random.integers(size))
    start = rounds // 3 + int(random.integers(12))
    stop = rounds if kind.share == 1.0 else start + int(kind.share * rounds)
    seconds[start:stop, rank] *= kind.slowdown
    return Trace(seconds, rank, start, stop)
