# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""The command `search-switch`: arguments, what is run with them, and the exit code."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from hvd_partial.search_switch import recorded
from hvd_partial.search_switch.bisection import (
    BSP,
    Midpoints,
    Outcome,
    RecordedFractions,
    Review,
    Run,
    SearchError,
    Settings,
    SettingsError,
    search,
)
from hvd_partial.search_switch.contract import Script
from hvd_partial.search_switch.journal import Journal
from hvd_partial.search_switch.summary import Document, summarize

DEFAULT_RUNS = 5
DEFAULT_JOURNAL = Path("search-switch.jsonl")
DEFAULT_TIMEOUT_SECONDS = 86400.0
EXIT_FOUND, EXIT_NOTHING, EXIT_ARGUMENTS = 0, 1, 2

DESCRIPTION = """\
Searches for the smallest share of a job that must be trained with BSP before the switch to ASP, so
that the accuracy stays within --beta of BSP's: Sync-Switch's bisection, on your own training
script.

The script is run once for each training run. It gets the fraction as {bsp_fraction} in its
arguments or HVD_PARTIAL_BSP_FRACTION in its environment, the seed as {seed} or HVD_PARTIAL_SEED,
and prints one line: {"accuracy": 0.93, "seconds": 1234.5}, with "loss" if you like.
A run with NaN, with an accuracy at chance, with another exit code than 0, or that takes too long
has failed. Every run is kept in the journal: the same command continues an interrupted search.
"""

EXAMPLES = """\
examples:
  python -m hvd_partial search-switch -- \\
      horovodrun -np 4 python train.py --bsp-fraction {bsp_fraction} --seed {seed}
  python -m hvd_partial search-switch --target 0.93 --bsp-seconds 5400 --runs 3 --chance 0.12 -- \\
      ./train.sh                  the target is known: no BSP runs; ten classes
  python -m hvd_partial search-switch --bsp-history runs.csv -- ./train.sh
                                  the target is the mean of BSP runs made before
  python -m hvd_partial search-switch --replay runs.csv --setup resnet50-cifar100-8
                                  runs nothing: searches over recorded runs

exit code: 0 a fraction was found; 1 nothing but BSP reaches the target, or the search failed;
  2 bad arguments; 130 or 143 interrupted (give the same command again to continue)
"""


class Interrupted(BaseException):
    """A signal asked the search to end."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def add_parser(commands: Any) -> None:
    """Adds `search-switch` to the command line."""
    parser = commands.add_parser(
        "search-switch",
        help="how much of a job must be trained with BSP before the switch to ASP",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    defaults = Settings()
    target = parser.add_argument_group("target")
    target.add_argument(
        "--target",
        type=float,
        metavar="ACCURACY",
        help="a number; without it, BSP runs are made first and their mean is the target",
    )
    target.add_argument(
        "--bsp-runs", type=int, metavar="N", help="number of these BSP runs (default: as --runs)"
    )
    target.add_argument(
        "--bsp-history",
        type=Path,
        metavar="FILE.csv",
        help="take the BSP runs (bsp_fraction 1) from this file instead; format as for --replay",
    )
    target.add_argument(
        "--bsp-seconds",
        type=float,
        metavar="S",
        help="with --target: what a BSP run takes, to tell what is saved",
    )
    target.add_argument(
        "--beta",
        type=float,
        default=defaults.beta,
        help="how far below the target the mean accuracy may be (default: %(default)s)",
    )
    runs = parser.add_argument_group("runs")
    runs.add_argument(
        "--runs",
        type=int,
        metavar="N",
        help=f"for each setting (default: {DEFAULT_RUNS}; with --replay: all there are)",
    )
    runs.add_argument(
        "--max-settings",
        type=int,
        default=defaults.max_settings,
        metavar="N",
        help="fractions tried at most; N of them find the fraction to 2**-N (default: %(default)s)",
    )
    runs.add_argument(
        "--try-asp",
        action="store_true",
        help="if every fraction tried was accepted, try ASP alone as one more setting",
    )
    runs.add_argument(
        "--first-seed",
        type=int,
        default=1,
        metavar="SEED",
        help="of run 1 of each setting; run 2 has the next one (default: %(default)s)",
    )
    runs.add_argument(
        "--run-timeout",
        type=float,
        default=DEFAULT_TIMEOUT_SECONDS,
        metavar="S",
        help="seconds after which a run is ended and has failed (default: %(default)g)",
    )
    judging = parser.add_argument_group("judging")
    judging.add_argument(
        "--chance",
        type=float,
        default=defaults.chance,
        metavar="ACCURACY",
        help="a run at or below it has diverged; a little above 1/classes (default: %(default)s)",
    )
    judging.add_argument(
        "--best-accuracy",
        type=float,
        default=defaults.best_accuracy,
        metavar="ACCURACY",
        help="what no run exceeds; the lower, the earlier are settings rejected "
        "(default: %(default)s)",
    )
    judging.add_argument(
        "--allowed-failures",
        type=int,
        default=defaults.allowed_failures,
        metavar="N",
        help="more failed runs than this reject a setting (default: %(default)s)",
    )
    judging.add_argument(
        "--no-early-rejection",
        dest="early_rejection",
        action="store_false",
        help="make all runs of a setting even if they cannot save it any more",
    )
    keeping = parser.add_argument_group("journal")
    keeping.add_argument(
        "--journal",
        type=Path,
        metavar="FILE",
        help=f"where runs are kept (default: {DEFAULT_JOURNAL}); what they print goes to FILE.logs",
    )
    keeping.add_argument(
        "--rejudge",
        action="store_true",
        help="use the runs of a journal whose search had another target, tolerance, number of "
        "runs, ...",
    )
    keeping.add_argument(
        "--retry-failed",
        action="store_true",
        help="make runs again that crashed or took too long",
    )
    replay = parser.add_argument_group("recorded runs")
    replay.add_argument(
        "--replay",
        type=Path,
        metavar="FILE.csv",
        help="search over recorded runs: columns bsp_fraction, accuracy (or final_accuracy), "
        "seconds (or minutes); optional setup, run",
    )
    replay.add_argument("--setup", help="which job, where the file has several")
    parser.add_argument("--json", action="store_true", help="print the result for programs")
    parser.add_argument(
        "command", nargs=argparse.REMAINDER, metavar="-- COMMAND ...", help="your training script"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """The command."""
    try:
        with _signals():
            document = _replay(options) if options.replay else _search(options)
    except SettingsError as error:
        print(f"search-switch: error: {error}", file=sys.stderr)
        return EXIT_ARGUMENTS
    except SearchError as error:
        print(f"search-switch: {error}", file=sys.stderr)
        if options.json:
            print(json.dumps({"found": False, "bsp_fraction": None, "failure": str(error)}))
        return EXIT_NOTHING
    except Interrupted as error:
        print(
            "search-switch: interrupted; the same command goes on after the last run that ended",
            file=sys.stderr,
        )
        return 128 + error.number
    if options.json:
        print(json.dumps(document, indent=2, allow_nan=False))
    else:
        from rich.console import Console

        from hvd_partial.search_switch import report

        # Without a terminal rich assumes 80 columns; the table has a few more.
        report.show(document, Console(width=None if sys.stdout.isatty() else 110))
    return EXIT_FOUND if document["found"] else EXIT_NOTHING


def _settings(options: argparse.Namespace, runs: int, bsp_runs: int, **others: Any) -> Settings:
    names = {field.name for field in dataclasses.fields(Settings)}
    given = {name: value for name, value in vars(options).items() if name in names}
    return Settings(**(given | {"runs": runs, "bsp_runs": bsp_runs} | others))


def _replay(options: argparse.Namespace) -> Document:
    """Searches over recorded runs."""
    for option in ("journal", "rejudge", "retry_failed", "bsp_history", "command"):
        if getattr(options, option):
            shown = "a command" if option == "command" else f"--{option.replace('_', '-')}"
            raise SettingsError(f"--replay runs nothing and keeps nothing: leave out {shown}")
    path: Path = options.replay
    found = recorded.read(path, "--replay", options.setup, options.best_accuracy)
    most = max(len(outcomes) for outcomes in found.values())
    runs = most if options.runs is None else options.runs
    settings = _settings(options, runs, runs if options.bsp_runs is None else options.bsp_runs)
    if BSP not in found and settings.target is None:
        raise SettingsError(f"--replay {path}: no BSP runs (bsp_fraction 1); give --target NUMBER")
    made: dict[Run, Outcome] = {}
    result = search(
        settings,
        RecordedFractions({fraction: len(outcomes) for fraction, outcomes in found.items()}),
        made,
        lambda run, _: found[run.bsp_fraction][run.number - 1],
    )
    # Recorded BSP runs are no cost where the target was given, but tell what is saved.
    if settings.target is not None and settings.bsp_seconds is None and BSP in found:
        good = [o.seconds for o in found[BSP] if not o.failure_at(settings.chance)]
        if good:
            settings = dataclasses.replace(settings, bsp_seconds=sum(good) / len(good))
    return summarize(settings, result, made, others=found)


def _search(options: argparse.Namespace) -> Document:
    """Searches on the user's script."""
    from rich.console import Console

    from hvd_partial.search_switch.report import SearchProgress

    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        raise SettingsError("give your training script behind --, or --replay FILE.csv")
    if shutil.which(command[0]) is None:
        raise SettingsError(f"{command[0]}: no such program")
    if options.setup is not None and options.bsp_history is None:
        raise SettingsError("--setup goes with --replay or --bsp-history")
    if not options.run_timeout > 0:
        raise SettingsError("--run-timeout must be positive")
    runs = DEFAULT_RUNS if options.runs is None else options.runs
    history: tuple[Outcome, ...] = ()
    if options.bsp_history is not None:
        found = recorded.read(
            options.bsp_history, "--bsp-history", options.setup, options.best_accuracy
        )
        history = found.get(BSP, ())[: options.bsp_runs]
        if not history:
            raise SettingsError(f"--bsp-history {options.bsp_history}: no runs of bsp_fraction 1")
    bsp_runs = runs if options.bsp_runs is None else options.bsp_runs
    settings = _settings(options, runs, bsp_runs, history=history)
    path: Path = options.journal or DEFAULT_JOURNAL
    script = Script(
        command=tuple(command),
        first_seed=options.first_seed,
        timeout_seconds=options.run_timeout,
        best_accuracy=settings.best_accuracy,
        logs=path.with_name(path.name + ".logs"),
    )
    journal = Journal(
        path,
        {"command": command, "first_seed": options.first_seed},
        dataclasses.asdict(settings) | {"run_timeout": options.run_timeout},
        rejudge=options.rejudge,
        retry_failed=options.retry_failed,
    )
    # Not in the way of what --json prints.
    with journal, SearchProgress(Console(stderr=True), settings) as progress:
        if journal.made:
            progress.continued(len(journal.made), path)
        made = dict(journal.made)

        def make(run: Run, known: Review) -> Outcome:
            progress.start(run, known, len(made))
            outcome = script.make(run)
            journal.add(run, script.seed(run), outcome)
            progress.end(run, outcome)
            return outcome

        result = search(settings, Midpoints(), made, make)
    return summarize(settings, result, made, wasted_seconds=journal.wasted_seconds)


@contextlib.contextmanager
def _signals() -> Iterator[None]:
    """SIGINT and SIGTERM end the script that runs, too."""

    def interrupt(number: int, _: FrameType | None) -> None:
        # A second one must not disturb the end of the script, which takes a bounded time.
        for each in before:
            signal.signal(each, signal.SIG_IGN)
        raise Interrupted(number)

    before = {
        number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
