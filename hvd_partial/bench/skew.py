# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Who arrives how late: seconds that each rank sleeps before each call, the same in all systems."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

PATTERNS = {
    "linear": "rank r sleeps r times the unit (Figure 8 of the eager-SGD paper, arXiv 1908.04207)",
    "rotating": "one rank in turn sleeps the unit",
    "random": "one rank, drawn anew for each call, sleeps the unit",
    "lognormal": "every rank sleeps the unit times a log-normal number (median 1, sigma 1)",
}
DEFAULT_SECONDS = {"linear": 0.001, "rotating": 0.05, "random": 0.05, "lognormal": 0.01}


def delays(
    pattern: str, ranks: int, calls: int, seconds: float, seed: int = 1
) -> npt.NDArray[np.float64]:
    """Seconds to sleep, of shape (calls, ranks).

    Args:
      pattern: One of PATTERNS, or "none".
      seconds: The unit.
    """
    table = np.zeros((calls, ranks))
    random = np.random.default_rng(seed)
    if pattern == "linear":
        table[:] = np.arange(ranks)
    elif pattern == "rotating":
        table[np.arange(calls), np.arange(calls) % ranks] = 1
    elif pattern == "random":
        table[np.arange(calls), random.integers(0, ranks, calls)] = 1
    elif pattern == "lognormal":
        table[:] = random.lognormal(0.0, 1.0, (calls, ranks))
    elif pattern != "none":
        raise ValueError(f"skew pattern {pattern!r} is none of {', '.join(PATTERNS)}")
    return table * seconds
