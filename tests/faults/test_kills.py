# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""I7 with real processes: a rank is killed at every point of its life."""

from __future__ import annotations

import pytest

from tests.faults.kill_points import POINTS
from tests.faults.kills import MODES, VICTIMS, kill

# The promise is two seconds; a machine that does much else meanwhile gets more time here. What was
# measured is in docs/reliability.md.
DEADLINE_SECONDS = 40.0
LONGEST_SECONDS = 10.0


@pytest.mark.parametrize("victim", VICTIMS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("point", POINTS)
def test_survivors_of_a_killed_rank(point: str, mode: str, victim: int) -> None:
    killed = kill(point, mode, victim, deadline=DEADLINE_SECONDS)
    assert killed.seconds < LONGEST_SECONDS, killed
