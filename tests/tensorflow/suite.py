# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""One launch of a worker serves many tests; each asks for its part of the report."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from tests.tensorflow.launch import Launch, launch

# A launch under load; it must be well below pytest's limit for the test that starts it.
DEADLINE = 400.0
FLAVOURS = [pytest.param(False, id="keras3"), pytest.param(True, id="tf_keras")]


@functools.cache
def launched(worker: str, ranks: int, legacy_keras: bool) -> Launch:
    """Started by the first test that needs it."""
    found = launch(worker, ranks=ranks, legacy_keras=legacy_keras, deadline=DEADLINE)
    assert found.code == 0, found.output
    assert len(found.reports) == ranks, found.output
    return found


def outcomes(worker: str, name: str, legacy_keras: bool, ranks: int = 2) -> list[Any]:
    """What the check returned on each rank; fails with the traceback if it raised on one."""
    values = []
    for rank, found in sorted(launched(worker, ranks, legacy_keras).reports.items()):
        assert name in found, f"rank {rank} did not come to {name}"
        if "error" in found[name]:
            pytest.fail(f"rank {rank}: {found[name]['error']}")
        values.append(found[name]["value"])
    return values
