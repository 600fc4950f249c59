# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Replicas are equal to the last bit after every epoch, in every mode, with random delays."""

from __future__ import annotations

import pytest

from tests.tensorflow.suite import FLAVOURS, launched

pytestmark = [pytest.mark.slow, pytest.mark.timeout(450)]
RANKS, STEPS = 4, 6


@pytest.mark.parametrize("legacy_keras", FLAVOURS)
def test_replicas_are_equal_after_every_epoch(legacy_keras: bool) -> None:
    reports = launched("replicas", RANKS, legacy_keras).reports
    names = set(reports[0])
    modes = {name.split()[0] for name in names}
    assert {"sync", "majority", "solo", "changing"} <= modes
    assert legacy_keras or {"quorum(3)", "designated(5)", "async"} <= modes
    for name in names:
        epochs = 6 if name.startswith("changing") else 2
        for found in reports.values():
            assert found[name]["equal"] == [True] * epochs, name
            # Every batch of every rank is in some round.
            assert found[name]["contributions"] == RANKS * STEPS * epochs, name


@pytest.mark.parametrize("legacy_keras", FLAVOURS)
def test_ranks_were_late_indeed(legacy_keras: bool) -> None:
    """Without late ranks the test above would say little."""
    reports = launched("replicas", RANKS, legacy_keras).reports
    for name, found in reports[0].items():
        if name.startswith("changing") or "solo" in name:
            assert sum(found["late"]) > 0, name
        if name.startswith("sync"):
            assert sum(found["late"]) == 0
            assert found["rounds"] - 12 in (0, 1, 2)  # flushes end with a round of their own
