# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""What faults do to a job, as docs/reliability.md tells it: measured, not promised.

Kills a rank at each point of its life, in each mode, rank 0 or another; stops ranks; gives them too
little; tries a wrong value for each public argument. Kills are kept in a file as they come: a
second call makes only those that are missing there, and what was measured in several calls is
written down together.

  python -m benchmarks.faults --write docs/reliability.md
  python -m benchmarks.faults --repetitions 100 --json benchmarks/results/faults.json \\
      --write docs/reliability.md
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shlex
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    wait,
)
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from benchmarks import faults_report
from examples.digits import environment
from hvd_partial.diagnosis import DEFAULT_LEAVE_OUT_SECONDS
from tests.engine.process_ranks import run
from tests.faults import bad_run
from tests.faults.kill_points import POINTS
from tests.faults.kills import MODES, VICTIMS, kill
from tests.faults.limits import CannotLimitError, throttle, too_little_memory
from tests.faults.stops import stop_process, stop_thread
from tests.tensorflow.launch import launch

DEADLINE_SECONDS = 60.0
SOAK = Path("benchmarks/results/soak.json")
Found = dict[str, Any]


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.faults",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--write", type=Path, metavar="FILE", help="the report, as Markdown")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the results here")
    parser.add_argument(
        "--repetitions",
        type=int,
        default=len(MODES) * len(VICTIMS),
        help="kills at each point, spread evenly over modes and victims (default: %(default)s)",
    )
    parser.add_argument("--parallel", type=int, default=min(2, os.cpu_count() or 1), help="jobs")
    parser.add_argument("--stop-seconds", type=float, default=5.0, help="of a SIGSTOP")
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="begin nothing after so long"
    )
    parser.add_argument(
        "--only",
        nargs="*",
        choices=sorted(PARTS),
        default=[*PARTS],
        help="measure these only; without any name: nothing, just --write",
    )
    parser.add_argument("--note", help="about the circumstances, for the report")
    parser.add_argument("--soak", type=Path, default=SOAK, help="results of benchmarks.soak")
    options = parser.parse_args(arguments)
    for name in ("repetitions", "parallel"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} must be at least 1")
    return options


# ---- measuring ----------------------------------------------------------------------


def one_kill(point: str, mode: str, victim: int) -> Found:
    """Kills once; what went wrong is a result too."""
    cell: Found = {"point": point, "mode": mode, "victim": victim}
    try:
        killed = kill(point, mode, victim, deadline=DEADLINE_SECONDS)
    except AssertionError as error:  # a hang as well
        return cell | {"problem": str(error)}
    return cell | {"fate": killed.fate, "seconds": killed.seconds}


def missing_kills(kills: Sequence[Found], repetitions: int) -> Iterator[tuple[str, str, int]]:
    """What there is too little of, so that all points and all cells of a point grow evenly."""
    done: dict[tuple[str, str, int], int] = {}
    for found in kills:
        cell = (found["point"], found["mode"], found["victim"])
        done[cell] = done.get(cell, 0) + 1
    cells = [(mode, victim) for mode in MODES for victim in VICTIMS]
    for number in range(repetitions):
        mode, victim = cells[number % len(cells)]
        for point in POINTS:
            if done.get((point, mode, victim), 0) <= number // len(cells):
                yield point, mode, victim


def measure_kills(found: Found, options: argparse.Namespace, keep: Callable[[], None]) -> None:
    kills: list[Found] = found.setdefault("kills", [])
    wanted = list(missing_kills(kills, options.repetitions))
    ends_at = time.monotonic() + options.seconds
    loads: list[float] = []
    with _progress("kills", len(wanted)) as advance, _pool(options.parallel) as pool:
        running: set[Future[Found]] = set()
        while wanted or running:
            while wanted and len(running) < options.parallel and time.monotonic() < ends_at:
                running.add(pool.submit(one_kill, *wanted.pop(0)))
            if not running:
                return
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                kills.append(future.result())
                loads.append(os.getloadavg()[0])
                found["load average"] = round(statistics.median(loads), 1)
                advance()
                keep()


def _pool(parallel: int) -> Executor:
    # Not several threads: multiprocessing asks for the end of all its children whenever it starts
    # one, and a child's exit code can be read only once.
    if parallel == 1:
        return ThreadPoolExecutor(1)
    spawn = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(parallel, mp_context=spawn, initializer=_end_with_parent)


def _end_with_parent() -> None:
    """So that no worker stays behind when the one who started it is killed."""

    def watch() -> None:
        parent = multiprocessing.parent_process()
        if parent is not None:
            parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def measure_stops(found: Found, options: argparse.Namespace, keep: Callable[[], None]) -> None:
    found["stops"] = []
    for mode in MODES:
        for victim in (0, 3):
            stood = stop_process(
                mode, victim, options.stop_seconds, leave_out=DEFAULT_LEAVE_OUT_SECONDS
            )
            found["stops"].append(
                {"what": "process", "mode": mode, "victim": victim} | asdict(stood)
            )
            keep()
    for mode in MODES:
        stood = stop_thread(mode, 3)
        found["stops"].append({"what": "thread", "mode": mode, "victim": 3} | asdict(stood))
        keep()


def measure_limits(found: Found, options: argparse.Namespace, keep: Callable[[], None]) -> None:
    found["quota"] = []
    try:
        for mode in MODES:
            found["quota"].append({"mode": mode} | asdict(throttle(mode, victim=2)))
    except CannotLimitError as error:
        found["quota"] = str(error)
    found["memory"] = [
        {"case": case, "ranks": [asdict(seen) for seen in too_little_memory(victim)]}
        for case, victim in (("rank 1", 1), ("all", None))
    ]
    keep()


def measure_input(found: Found, options: argparse.Namespace, keep: Callable[[], None]) -> None:
    answers = bad_run.of_engine(run)
    bindings, _ = bad_run.of_tensorflow()
    found["bad input"] = {
        "hvd_partial.engine": [asdict(answer) for answer in answers.values()],
        "hvd_partial.tensorflow and hvd_partial.tensorflow.keras": [
            asdict(answer) for answer in bindings.values()
        ],
    }
    keep()


def measure_horovodrun(found: Found, options: argparse.Namespace, keep: Callable[[], None]) -> None:
    done = launch("lives", "killed_while_waiting", ranks=3, deadline=200)
    found["horovodrun"] = [
        {
            "rank": rank,
            "seconds": report["since_kill"],
            "kinds": report["failure"]["kinds"],
            "message": report["failure"]["text"],
        }
        for rank, report in sorted(done.reports.items())
        if "failure" in report
    ]
    keep()


PARTS = {
    "kills": measure_kills,
    "stops": measure_stops,
    "limits": measure_limits,
    "input": measure_input,
    "horovodrun": measure_horovodrun,
}


class _progress:  # noqa: N801 - reads like a function
    """A bar, for as long as it takes."""

    def __init__(self, title: str, total: int) -> None:
        self._bar = Progress(
            TextColumn(title),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            transient=True,
        )
        self._task = self._bar.add_task(title, total=total)

    def __enter__(self) -> Callable[[], None]:
        self._bar.start()
        return lambda: self._bar.advance(self._task)

    def __exit__(self, *error: object) -> None:
        self._bar.stop()


# ---- command line ---------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    console = Console()
    found: Found = {}
    if options.json and options.json.exists():
        found = json.loads(options.json.read_text())
    given = sys.argv[1:] if arguments is None else arguments
    if options.only or "command" not in found:
        found["command"] = shlex.join(["python", "-m", "benchmarks.faults", *given])
        found["environment"] = environment.describe()
    if options.note:
        found["note"] = options.note

    def keep() -> None:
        if options.json:
            options.json.parent.mkdir(parents=True, exist_ok=True)
            partial = options.json.with_suffix(".new")
            partial.write_text(json.dumps(found, indent=1) + "\n")
            partial.replace(options.json)

    for name in options.only:
        PARTS[name](found, options, keep)
    keep()
    soak = json.loads(options.soak.read_text()) if options.soak.exists() else None
    if options.write:
        options.write.write_text(faults_report.markdown(found, soak))
    problems = faults_report.problems(found)
    for problem in problems:
        console.print(problem, style="red", markup=False, soft_wrap=True)
    console.print(faults_report.summary(found), markup=False, soft_wrap=True, highlight=False)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
