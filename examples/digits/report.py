# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""From the results of the runs to `demo.json` and to a table for people."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from rich.table import Table

from examples.digits.plan import HOROVOD

Result = dict[str, Any]


def to_runs(results: Sequence[Result]) -> list[Result]:
    """The "runs" of demo.json: each result with its speed-up over Horovod's run of the same seed.

    All runs of a seed make the same number of contributions up to less than one round, so the
    speed-up compares seconds per contribution. It is None without a run of Horovod.
    """
    baseline = {
        r["seed"]: r["seconds"] / r["contributions"] for r in results if r["mode"] == HOROVOD
    }
    runs = []
    for result in results:
        base = baseline.get(result["seed"])
        cost = result["seconds"] / result["contributions"]
        runs.append(
            {
                "mode": result["mode"],
                "seconds": round(result["seconds"], 3),
                "speedup": None if base is None else round(base / cost, 3),
                "accuracy": round(result["accuracy"], 5),
                "rounds": result["rounds"],
                "contributions_per_round": round(result["contributions"] / result["rounds"], 3),
                "full_share": round(result["full_share"], 4),
                "late_share": round(result["late_share"], 4),
                "max_lag": result["max_lag"],
                "replicas_equal": result["replicas_equal"],
                "seed": result["seed"],
                "contributions": result["contributions"],
                "keras": result["keras"],
            }
        )
    return runs


def mean_over_seeds(runs: Sequence[Result]) -> list[Result]:
    """One row for each mode: means, the largest lag, and whether all replicas were equal."""
    rows = []
    for mode in dict.fromkeys(run["mode"] for run in runs):
        of_mode = [run for run in runs if run["mode"] == mode]
        row: Result = {"mode": mode, "seeds": len(of_mode)}
        for key in (
            *("seconds", "accuracy", "rounds", "contributions_per_round"),
            *("full_share", "late_share"),
        ):
            row[key] = statistics.fmean(run[key] for run in of_mode)
        speedups = [run["speedup"] for run in of_mode if run["speedup"] is not None]
        row["speedup"] = statistics.fmean(speedups) if speedups else None
        row["max_lag"] = max(run["max_lag"] for run in of_mode)
        row["replicas_equal"] = all(run["replicas_equal"] for run in of_mode)
        rows.append(row)
    return rows


def table(rows: Sequence[Result], title: str) -> Table:
    """A table of `mean_over_seeds`."""
    result = Table(title=title, title_justify="left", caption_justify="left")
    result.add_column("mode")
    for heading in (
        "seconds",
        "speed-up",
        "accuracy",
        "rounds",
        "contributions\na round",
        "full",
        "late",
        "max lag",
    ):
        result.add_column(heading, justify="right")
    result.add_column("replicas")
    for row in rows:
        result.add_row(
            row["mode"],
            f"{row['seconds']:.1f}",
            "-" if row["speedup"] is None else f"{row['speedup']:.2f}x",
            f"{100 * row['accuracy']:.1f} %",
            f"{row['rounds']:.0f}",
            f"{row['contributions_per_round']:.2f}",
            f"{100 * row['full_share']:.0f} %",
            f"{100 * row['late_share']:.0f} %",
            str(row["max_lag"]),
            "equal" if row["replicas_equal"] else "DIFFERENT",
        )
    return result
