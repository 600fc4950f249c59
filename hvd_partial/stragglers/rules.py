# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Which ranks are suspiciously slow, by their throughputs alone: named rules.

A rule looks at one window. That a rank must be slow for several windows, and by a certain ratio, is
the detector's part.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hvd_partial.errors import InvalidArgumentError

Numbers = np.ndarray[Any, Any]
# From the throughputs of all ranks to a boolean for each.
Rule = Callable[[Numbers], Numbers]

# Standard deviations in a median absolute deviation of normally distributed numbers.
_MAD_TO_STD = 1.4826
# With two ranks mean - std is the smaller one, but for the last bit.
_ROUNDING = 1e-9


def high_median(values: Numbers) -> float:
    """The middle one; of an even number the larger of the two, so that of two ranks the slower one
    is compared with the faster, not with itself."""
    return float(np.partition(values, len(values) // 2)[len(values) // 2])


def _low_median(values: Numbers) -> float:
    middle = (len(values) - 1) // 2
    return float(np.partition(values, middle)[middle])


@dataclass(frozen=True)
class MeanStd:
    """Slower than the mean by `k` standard deviations: the rule of Sync-Switch.

    The slow ranks are in the mean and in the deviation themselves: of two equally slow ranks in
    four it still sees both, of two that differ only the slower.
    """

    k: float = 1.0

    def __call__(self, throughputs: Numbers) -> Numbers:
        limit = throughputs.mean() - self.k * throughputs.std()
        return throughputs <= limit * (1.0 + _ROUNDING)


@dataclass(frozen=True)
class MedianMad:
    """Slower than the median by `k` robust standard deviations (1.4826 times the median distance
    from the median): up to half of the ranks may be slow without hiding each other."""

    k: float = 3.0

    def __call__(self, throughputs: Numbers) -> Numbers:
        median = high_median(throughputs)
        spread = _MAD_TO_STD * _low_median(np.abs(throughputs - median))
        return throughputs < median - self.k * spread


@dataclass(frozen=True)
class Ratio:
    """More than `factor` times as slow as the fastest rank."""

    factor: float = 1.5

    def __call__(self, throughputs: Numbers) -> Numbers:
        return throughputs * self.factor < throughputs.max()


RULES: dict[str, Rule] = {"mean-std": MeanStd(), "median-mad": MedianMad(), "ratio": Ratio()}


def parse_rule(rule: str | Rule) -> Rule:
    """A rule by its name, or as it is.

    Raises:
      InvalidArgumentError: if there is none of that name, or its number makes no sense.
    """
    if isinstance(rule, MeanStd | MedianMad) and not (math.isfinite(rule.k) and rule.k > 0):
        raise InvalidArgumentError(f"rule={rule!r}: k must be positive")
    if isinstance(rule, Ratio) and not (math.isfinite(rule.factor) and rule.factor > 1):
        raise InvalidArgumentError(f"rule={rule!r}: factor must be above 1")
    if callable(rule):
        return rule
    if isinstance(rule, str) and rule in RULES:
        return RULES[rule]
    close = difflib.get_close_matches(str(rule), RULES, n=1, cutoff=0.4)
    guess = f"; did you mean {close[0]!r}?" if close else ""
    raise InvalidArgumentError(
        f"rule={rule!r}: must be one of {', '.join(map(repr, RULES))}, or a function from the "
        f"throughputs of all ranks to a boolean for each{guess}"
    )
