# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""From results to demo.json and the table."""

from __future__ import annotations

from typing import Any

import pytest
from rich.console import Console

from examples.digits import report


def result(mode: str, seed: int = 0, **values: Any) -> dict[str, Any]:
    return {
        "mode": mode,
        "seed": seed,
        "seconds": 30.0,
        "contributions": 400,
        "accuracy": 0.95,
        "rounds": 100,
        "full_share": 1.0,
        "late_share": 0.0,
        "max_lag": 0,
        "replicas_equal": True,
        "keras": "3.15.1",
        **values,
    }


def test_speedup_is_of_time_per_contribution() -> None:
    runs = report.to_runs(
        [
            result("horovod", seconds=30.0, contributions=400),
            # Two contributions more than asked for: the last round had several in it.
            result("majority", seconds=15.0, contributions=402),
        ]
    )
    assert runs[0]["speedup"] == 1.0
    assert runs[1]["speedup"] == pytest.approx((30 / 400) / (15 / 402), abs=1e-3)


def test_each_seed_has_its_own_baseline() -> None:
    runs = report.to_runs(
        [
            result("horovod", seed=0, seconds=30.0),
            result("horovod", seed=1, seconds=60.0),
            result("solo", seed=0, seconds=15.0),
            result("solo", seed=1, seconds=15.0),
            result("solo", seed=2, seconds=15.0),
        ]
    )
    assert [run["speedup"] for run in runs] == [1.0, 1.0, 2.0, 4.0, None]
    solo = report.mean_over_seeds(runs)[1]
    assert solo["seeds"] == 3
    assert solo["speedup"] == 3.0


def test_a_run_has_the_keys_that_demo_json_promises() -> None:
    (run,) = report.to_runs([result("solo", rounds=160)])
    promised = {
        *("mode", "seconds", "speedup", "accuracy", "rounds", "contributions_per_round"),
        *("full_share", "late_share", "max_lag", "replicas_equal"),
    }
    assert promised <= run.keys()
    assert run["contributions_per_round"] == 2.5
    assert run["speedup"] is None


def test_one_unequal_seed_shows_in_the_row_and_in_the_table() -> None:
    runs = report.to_runs(
        [result("solo", max_lag=1), result("solo", seed=1, max_lag=3, replicas_equal=False)]
    )
    (row,) = report.mean_over_seeds(runs)
    assert row["replicas_equal"] is False
    assert row["max_lag"] == 3
    console = Console(width=120)
    with console.capture() as capture:
        console.print(report.table([row], "title"))
    assert "DIFFERENT" in capture.get()
