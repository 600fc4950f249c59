# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Sync-Switch: sync rounds for the first part of the workload, asynchronous ones for the rest.

Schedules, policies and arithmetic: pure, without TensorFlow and without an engine. In Keras they
are used through `callbacks.SyncSwitchCallback`.
"""

from __future__ import annotations

from hvd_partial.sync_switch.configuration import MOMENTUM_POLICIES, Configuration, Setting
from hvd_partial.sync_switch.policies import (
    Adaptive,
    ByFunction,
    BySchedule,
    Decision,
    Elastic,
    Greedy,
    Observation,
    OnPlateau,
    OnStraggler,
    Policy,
)
from hvd_partial.sync_switch.schedule import Phase, Schedule

__all__ = [
    "MOMENTUM_POLICIES",
    "Adaptive",
    "ByFunction",
    "BySchedule",
    "Configuration",
    "Decision",
    "Elastic",
    "Greedy",
    "Observation",
    "OnPlateau",
    "OnStraggler",
    "Phase",
    "Policy",
    "Schedule",
    "Setting",
]
