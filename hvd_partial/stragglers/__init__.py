# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Who is slow, since when, and what it costs: pure, without TensorFlow and without an engine."""

from __future__ import annotations

from hvd_partial.stragglers.cost import Cost, CostAccount
from hvd_partial.stragglers.detector import Straggler, StragglerDetector, Window
from hvd_partial.stragglers.rules import RULES, MeanStd, MedianMad, Ratio

__all__ = [
    "RULES",
    "Cost",
    "CostAccount",
    "MeanStd",
    "MedianMad",
    "Ratio",
    "Straggler",
    "StragglerDetector",
    "Window",
]
