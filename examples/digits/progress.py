# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Shows how far the runs of a launch are: bars on a terminal, a line a run elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from examples.digits.launch import Event
from examples.digits.plan import Run


class RunProgress:
    """A context manager whose `on_event` takes the events of `launch`."""

    def __init__(self, console: Console, title: str, runs: Sequence[Run]) -> None:
        self._console = console
        self._title = title
        self._runs = runs
        self._bars = console.is_terminal
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description:<24}"),
            BarColumn(),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
            console=console,
            disable=not self._bars,
        )
        self._starting: TaskID | None = None
        self._tasks: dict[int, TaskID] = {}

    def __enter__(self) -> Self:
        self._console.print(f"\n{self._title}")
        self._progress.start()
        self._starting = self._progress.add_task("starting processes", total=None, note="")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def on_event(self, event: Event) -> None:
        if self._starting is not None:
            self._progress.remove_task(self._starting)
            self._starting = None
        index = event["run"]
        name = self._name(index)
        if event["event"] == "start":
            self._tasks[index] = self._progress.add_task(name, total=event["total"], note="")
        elif event["event"] == "progress":
            note = f"epoch {event['epoch'] + 1}  loss {event['loss']:.3f}"
            self._progress.update(self._tasks[index], completed=event["contributions"], note=note)
        elif event["event"] == "result":
            note = f"{event['seconds']:.1f} s  accuracy {100 * event['accuracy']:.1f} %"
            self._progress.update(
                self._tasks[index], completed=event["contributions"], total=event["contributions"]
            )
            self._progress.update(self._tasks[index], note=note)
            self._progress.stop_task(self._tasks[index])
            if not self._bars:
                self._console.print(
                    f"  {name:<24} {event['contributions']} contributions in {note}",
                    highlight=False,
                )

    def _name(self, index: int) -> str:
        run = self._runs[index]
        several = len({other.seed for other in self._runs}) > 1
        return f"{run.mode}, seed {run.seed}" if several else run.mode
