# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""What a benchmark prints for people."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from hvd_partial.bench.cells import Cell

_WHAT = {
    "latency": "microseconds a call, the slowest rank of each: median (p95)",
    "skew": "microseconds a call, mean over the ranks: median (median of those that had not slept)",
    "idle": "per cent of a core that a process takes while nothing happens",
    "memory": "resident bytes added, in multiples of the tensor's, largest rank",
}


def processor() -> str:
    """The processor's name, as the kernel tells it."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return "unknown"


@contextlib.contextmanager
def progress(turns: int) -> Iterator[Callable[[str], None]]:
    """A bar on the error stream, where that is a terminal; the function starts the next turn."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        shown = bar.add_task("starting", total=turns)
        begun = False

        def advance(description: str) -> None:
            nonlocal begun
            bar.update(shown, description=description, advance=1 if begun else 0)
            begun = True

        yield advance
        bar.update(shown, completed=turns)


def size_text(size: int) -> str:
    """64K, 16M, ..."""
    for unit, factor in (("G", 2**30), ("M", 2**20), ("K", 2**10)):
        if size >= factor and size % factor == 0:
            return f"{size // factor}{unit}"
    return str(size)


def print_tables(
    what: str,
    cells: Sequence[Cell],
    modes: Sequence[str],
    others: Sequence[str],
    facts: dict[str, Any],
) -> None:
    """One table: a row for each number of ranks and size, a column for each mode and system."""
    console = Console()
    table = Table(title=f"{what}: {_WHAT[what]}")
    table.add_column("ranks", justify="right")
    table.add_column("bytes", justify="right")
    for name in (*modes, *others):
        table.add_column(name, justify="right")
    for other in others:
        table.add_column(f"{other} / {modes[0]}", justify="right")
    found = {(cell.ranks, cell.bytes, cell.mode): cell for cell in cells}
    for ranks, size in dict.fromkeys((cell.ranks, cell.bytes) for cell in cells):
        row = [str(ranks), size_text(size)]
        row += [_shown(found[ranks, size, name]) for name in (*modes, *others)]
        ours = _value(found[ranks, size, modes[0]])
        row += [_ratio(_value(found[ranks, size, other]), ours) for other in others]
        table.add_row(*row)
    console.print(table)
    machine = facts["machine"]
    turns = f"{facts['repeats']} turn" + ("s" if facts["repeats"] > 1 else "")
    console.print(
        f"{machine['processor']}, {machine['cores']} cores, {machine['system']}; {turns} in turn; "
        f"{facts['command']}",
        highlight=False,
        style="dim",
    )


def _value(cell: Cell) -> float:
    return float(cell.median_us if cell.median_us is not None else cell.value or 0.0)


def _shown(cell: Cell) -> str:
    if cell.what == "idle":
        return f"{100 * _value(cell):.2f} %"
    if cell.what == "memory":
        return f"{_value(cell):.2f}"
    second = cell.fast_median_us if cell.what == "skew" else cell.p95_us
    return f"{_value(cell):,.0f} ({second:,.0f})"


def _ratio(other: float, ours: float) -> str:
    return f"{other / ours:.2f}" if ours > 0 else "-"
