# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""The document of `summary` for people, and what is shown while runs are being made."""

from __future__ import annotations

import math
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from hvd_partial.search_switch.bisection import BSP, Outcome, Review, Run, Settings
from hvd_partial.search_switch.summary import Document

_VERDICTS = {
    "target": "the target",
    "accepted": "[green]accepted[/]",
    "rejected": "[red]rejected[/]",
    "open": "open",
    "not tried": "[dim]not tried[/]",
}


def percent(share: float) -> str:
    """12.5 %, 3.125 %: as short as it can be."""
    return f"{100 * share:.6g} %"


def duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.1f} s"
    if seconds < 7200:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h"


def show(document: Document, console: Console) -> None:
    """Prints the settings as a table, and what came out below it."""
    console.print(_table(document))
    for line in _sentences(document):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _table(document: Document) -> Table:
    table = Table()
    table.add_column("BSP")
    for title in ("runs", "accuracy", "margin", "a run takes", "of BSP's time"):
        table.add_column(title, justify="right")
    table.add_column("verdict")
    for row in document["settings"]:
        planned = row.get("runs_planned", row["runs"])
        of = "" if planned == row["runs"] else f" of {planned}"
        accuracy = "-" if row["accuracy"] is None else f"{row['accuracy']:.4f}"
        spread = "" if row["spread"] is None else f" ± {row['spread']:.4f}"
        is_target = row["verdict"] == "target"
        margin = "" if row["margin"] is None or is_target else f"{row['margin']:+.4f}"
        close = " ~" if row["close"] and not is_target else ""
        verdict = _VERDICTS[row["verdict"]]
        # An accuracy that is too low stands in the row already.
        if row["reason"] and not row["reason"].startswith("mean accuracy"):
            verdict += f": {escape(row['reason'])}"
        elif row["failed_runs"]:
            verdict += f", {row['failed_runs']} failed"
        chosen = document["found"] and row["bsp_fraction"] == document["bsp_fraction"]
        table.add_row(
            percent(row["bsp_fraction"]),
            f"{row['runs']}{of}",
            accuracy + spread,
            margin + close,
            "-" if row["seconds"] is None else duration(row["seconds"]),
            "-"
            if row["share_of_bsp_seconds"] is None
            else f"{100 * row['share_of_bsp_seconds']:.1f} %",
            verdict,
            style="bold" if chosen else None,
        )
    return table


def _sentences(document: Document) -> list[str]:
    if document["failure"]:
        return [f"The search failed: {document['failure']}."]
    needed = (
        f"Target {document['target']:.4f}, tolerance {document['beta']:g}: a setting must reach "
        f"{document['needed']:.4f}; margin: above that."
    )
    if any(row["close"] for row in document["settings"] if row["verdict"] != "target"):
        needed += " ~: less than a standard error of the mean; more runs could turn it."
    lines = [needed]
    cost, without = document["cost"], document["cost_without_bsp_runs"]
    if not document["found"]:
        lines.append(
            "Chosen: BSP for the whole job; no fraction that was tried reaches the target."
        )
    else:
        row = next(r for r in document["settings"] if r["bsp_fraction"] == document["bsp_fraction"])
        share = row["share_of_bsp_seconds"]
        gain = (
            "; BSP's time is not known (--bsp-seconds)"
            if share is None
            else f", {100 * share:.1f} % of BSP's time ({1 / share:.2f}x as fast)"
        )
        lines.append(
            f"Chosen: {percent(document['bsp_fraction'])} BSP, then ASP: accuracy "
            f"{row['accuracy']:.4f}{gain}. In the training script: "
            f"SyncSwitchCallback(bsp_fraction={document['bsp_fraction']!r})."
        )
    in_bsp_runs = "" if cost["in_bsp_runs"] is None else f" = {cost['in_bsp_runs']:.1f} x a BSP run"
    lines.append(
        f"Cost: {cost['runs']} runs, {duration(cost['seconds'])}{in_bsp_runs}."
        + (_recurrences(document) if document["found"] else "")
    )
    if without["recurrences"] is not None and without["runs"] != cost["runs"]:
        lines.append(
            "Where BSP runs of this job exist anyway (--bsp-history): "
            f"{without['in_bsp_runs']:.1f} x a BSP run, {without['recurrences']:.1f} recurrences."
        )
    return lines


def _recurrences(document: Document) -> str:
    recurrences = document["cost"]["recurrences"]
    if recurrences is None:
        if document["saved_seconds"] is None:
            return ""
        return " It never pays for itself: the setting chosen is not faster than BSP."
    return (
        f" It pays for itself after {math.ceil(recurrences)} recurrences of the job "
        f"({recurrences:.1f}), each {duration(document['saved_seconds'])} shorter."
    )


class SearchProgress:
    """A context manager: a bar on a terminal, a line for each run everywhere."""

    def __init__(self, console: Console, settings: Settings) -> None:
        bsp_runs = 0 if settings.target is not None or settings.history else settings.bsp_runs
        most = settings.max_settings + settings.try_asp
        self._console = console
        self._settings = settings
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed} runs of at most {task.total}"),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task("starting", total=bsp_runs + most * settings.runs)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def continued(self, runs: int, path: Path) -> None:
        self._console.print(
            f"going on with the {runs} runs in {path}", markup=False, highlight=False
        )

    def start(self, run: Run, known: Review, done: int) -> None:
        between = "" if run.bsp_fraction == BSP else f" ({_interval(known)})"
        description = f"{percent(run.bsp_fraction)} BSP, run {run.number}{between}"
        self._progress.update(self._task, description=description, completed=done)

    def end(self, run: Run, outcome: Outcome) -> None:
        failure = outcome.failure_at(self._settings.chance)
        result = failure if failure else f"accuracy {outcome.accuracy:.4f}"
        self._console.print(
            f"{percent(run.bsp_fraction):>9} BSP, run {run.number}: {result}, "
            f"{duration(outcome.seconds)}",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )


def _interval(known: Review) -> str:
    return f"between {percent(known.low)} and {percent(known.high)}"
