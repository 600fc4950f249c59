# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs that were made elsewhere, from a CSV file: one row a run.

Columns (others are ignored; lines that start with # too):
  bsp_fraction: share of the workload trained with BSP, 0 to 1; 1 is BSP alone, 0 ASP alone.
  accuracy or final_accuracy: 0 to 1; empty or nan of a run that diverged.
  seconds, minutes or minutes_without_switch_gap: what the run took.
  setup: optional; which job, if the file has several.
  run: optional; the order of the runs of a fraction, else that of the file.
"""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

from hvd_partial.search_switch.bisection import Outcome, SettingsError

ACCURACY_COLUMNS = ("accuracy", "final_accuracy")
# With the seconds of their unit.
TIME_COLUMNS = {"seconds": 1.0, "minutes": 60.0, "minutes_without_switch_gap": 60.0}

Recorded = dict[float, tuple[Outcome, ...]]


def read(path: Path, option: str, setup: str | None, best_accuracy: float) -> Recorded:
    """The outcomes of each fraction, in the order of their runs.

    Args:
      path: The file.
      option: The option that named it, for messages.
      setup: Which job; needed if the file has several.
      best_accuracy: No run can have more.

    Raises:
      SettingsError: The file cannot be used.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            lines = [(n, line) for n, line in enumerate(file, 1) if _has_data(line)]
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{option} {path}: {error}") from error
    rows = list(csv.DictReader(line for _, line in lines))
    numbers = [number for number, _ in lines[1:]]
    if not rows:
        raise SettingsError(f"{option} {path}: no runs in it")
    accuracy = _column(rows[0], ACCURACY_COLUMNS, f"{option} {path}")
    time = _column(rows[0], TIME_COLUMNS, f"{option} {path}")
    _column(rows[0], ["bsp_fraction"], f"{option} {path}")
    setup = _the_setup(rows, setup, f"{option} {path}")

    found: dict[float, list[tuple[float, Outcome]]] = defaultdict(list)
    for position, (number, row) in enumerate(zip(numbers, rows, strict=False)):
        if setup is not None and row["setup"] != setup:
            continue
        where = f"{option} {path}, line {number}"
        fraction = _number(row, "bsp_fraction", 0.0, 1.0, where)
        seconds = _number(row, time, 0.0, math.inf, where) * TIME_COLUMNS[time]
        order = _number(row, "run", -math.inf, math.inf, where) if "run" in row else position
        if seconds == 0:
            raise SettingsError(f"{where}: {time} must be positive")
        text = (row[accuracy] or "").strip().lower()
        if text in ("", "nan"):
            outcome = Outcome(None, seconds, failure="diverged: no accuracy was recorded")
        else:
            outcome = Outcome(_number(row, accuracy, 0.0, best_accuracy, where), seconds)
        found[fraction].append((order, outcome))
    return {
        fraction: tuple(outcome for _, outcome in sorted(runs, key=lambda run: run[0]))
        for fraction, runs in sorted(found.items())
    }


def _has_data(line: str) -> bool:
    return bool(line.strip()) and not line.startswith("#")


def _column(row: Mapping[str, str | None], names: Iterable[str], where: str) -> str:
    found = next((name for name in names if name in row), None)
    if found is None:
        raise SettingsError(
            f"{where}: needs a column {' or '.join(names)}; it has {', '.join(map(str, row))}"
        )
    return found


def _the_setup(rows: list[dict[str, str]], setup: str | None, where: str) -> str | None:
    if "setup" not in rows[0]:
        if setup is not None:
            raise SettingsError(f"--setup {setup}: {where} has no column setup")
        return None
    names = list(dict.fromkeys(row["setup"] for row in rows))
    if setup is None and len(names) > 1:
        raise SettingsError(f"{where} has several jobs; add --setup with one of {', '.join(names)}")
    if setup is not None and setup not in names:
        raise SettingsError(f"--setup {setup}: {where} has {', '.join(names)}")
    return names[0] if setup is None else setup


def _number(
    row: Mapping[str, str | None], column: str, low: float, high: float, where: str
) -> float:
    text = row[column]
    try:
        value = float(text or "")
    except ValueError:
        value = math.nan
    if not low <= value <= high or math.isinf(value):
        raise SettingsError(
            f"{where}: {column} is {text!r}, it must be a number"
            + ("" if math.isinf(low) else f" of at least {low:g}")
            + ("" if math.isinf(high) else f" and at most {high:g}")
        )
    return value
