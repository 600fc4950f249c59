# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""``python -m hvd_partial simulate``: what would each mode do on these delays?

The engine's own coordinator and members run on simulated time. docs/simulation.md says how to read
the answer, and what is not in it.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from hvd_partial.errors import InvalidArgumentError
from hvd_partial.forecast import Plan, compare, reduction_seconds
from hvd_partial.modes import VALID_MODES, Mode
from hvd_partial.traces import KINDS, Trace

LARGEST_SIZE = 1024
DEFAULT_RANKS = 8
DEFAULT_SEEDS = 5
DEFAULT_ROUNDS = 200
DEFAULT_MODES = ("sync", "majority", "solo")
DEFAULT_MAX_LAG = 8
DEFAULT_COMPUTE = 0.1
DEFAULT_BYTES = 4_000_000  # a million parameters in float32
DEFAULT_BANDWIDTH = 1.25e9  # 10 Gbit/s
DEFAULT_LATENCY = 50e-6
SECONDS_UNTIL_PROGRESS = 1.0
LEAST_SHARE_SHOWN = 0.005

EXAMPLES = """\
traces (numbers in seconds unless they are ranks, probabilities, sigma or tail):
{traces}
  {file:<30} whole steps as measured: a column for each rank, or the columns
  {nothing:<30} rank,seconds; --compute does not come on top
Several with + between them add up: one-slow:0,0.3+lognormal:0.01,0.5

examples:
  python -m hvd_partial simulate --ranks 8 --trace one-random:0.2
  python -m hvd_partial simulate --ranks 64 --seeds 20 --trace lognormal:0.05,1 --communication 0.02
  python -m hvd_partial simulate --trace file:steps.csv --mode sync majority 'quorum(6)' solo
  python -m hvd_partial simulate --ranks 4 --trace one-slow:-1,0.3 --grace 0 --json

exit code: 0; 2 for a wrong argument; 130 if interrupted
""".format(
    traces="\n".join(
        f"  {name + ':' + ','.join(kind.parameters):<30} {kind.meaning}"
        for name, kind in KINDS.items()
    ),
    file="file:PATH",
    nothing="",
)


class ProgressBar:
    """On a terminal's stderr, once it has taken a while."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._started = time.monotonic()
        self._update: Callable[[float], None] | None = None

    def __call__(self, share: float) -> None:
        late = time.monotonic() > self._started + SECONDS_UNTIL_PROGRESS
        if self._update is None and late and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import Progress

            bar = self._stack.enter_context(Progress(console=Console(stderr=True), transient=True))
            task = bar.add_task("simulating", total=1.0)
            self._update = lambda completed: bar.update(task, completed=completed)
        if self._update is not None:
            self._update(share)


def staleness_rows(histogram: Sequence[int]) -> list[tuple[str, int]]:
    """(rounds late, contributions); from 4 on in classes that double: 4-7, 8-15, ..."""
    rows: list[tuple[str, int]] = []
    first = 0
    while first < len(histogram):
        last = first if first < 4 else 2 * first - 1
        label = str(first) if first == last else f"{first}-{last}"
        rows.append((label, sum(histogram[first : last + 1])))
        first = last + 1
    return rows


def show(plan: Plan, summaries: Sequence[dict[str, Any]]) -> None:
    """Prints the answer for people."""
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() else 110, highlight=False)
    seeds = "1 seed" if plan.seeds == 1 else f"mean of {plan.seeds} seeds"
    table = Table(
        title=f"{plan.ranks} ranks, {plan.trace.text}, {seeds}, as many contributions as "
        f"{plan.rounds} sync rounds",
        title_justify="left",
    )
    table.add_column("mode")
    for column in (
        "contributions\na second",
        "speed-up\n(lowest-highest)",
        "contributions\na round",
        "full",
        "late",
        "staleness\nmean (max)",
        "waiting\ns/step",
    ):
        table.add_column(column, justify="right")
    for row in summaries:
        table.add_row(
            row["mode"],
            f"{row['contributions_per_second']:.4g}",
            f"{row['speed_up']:.2f}x ({row['speed_up_lowest']:.2f}-{row['speed_up_highest']:.2f})",
            f"{row['contributions_per_round']:.4g}",
            f"{100 * row['full_share']:.0f} %",
            f"{100 * row['late_share']:.0f} %",
            f"{row['staleness_mean']:.2f} ({row['staleness_max']})",
            f"{row['waiting_seconds_per_step']:.3f}",
        )
    console.print(table)

    histogram = Table(title="share of contributions by rounds late", title_justify="left")
    histogram.add_column("rounds late", justify="right")
    columns = []
    for row in summaries:
        histogram.add_column(row["mode"])
        columns.append(dict(staleness_rows(row["staleness_histogram"])))
    for label in max(columns, key=len):
        cells = []
        for row, counts in zip(summaries, columns, strict=True):
            share = counts.get(label, 0) / row["contributions"]
            bar = "█" * round(20 * share)
            cells.append(f"{100 * share:5.1f} % {bar}" if share else "")
        histogram.add_row(label, *cells)
    console.print(histogram)
    for row in summaries:
        if row["held_up_share"] > LEAST_SHARE_SHOWN:
            console.print(
                f"{row['mode']}: in {100 * row['held_up_share']:.0f} % of the time a rank whose "
                f"ring was full, {plan.max_lag} results behind, kept all others from a round."
            )
    given = f"steps of {plan.compute:g} s and the delays" if plan.compute else "the steps given"
    grace = "learned where the mode has one" if plan.grace < 0 else f"{plan.grace:g} s"
    console.print(
        f"Simulated: {given}, {plan.communication:.4g} s to reduce, messages of "
        f"{plan.latency:g} s, {plan.apply:g} s to apply a result, grace {grace}, max_lag "
        f"{plan.max_lag}. Speed-up: over sync on the same delays, for as many contributions. Full: "
        "rounds with a contribution of every rank. Late: contributions that went into a later "
        "round than they were made for."
    )


def run(options: argparse.Namespace) -> int:
    """The command: 0, 2 for a wrong argument, 130 if interrupted."""
    try:
        plan, modes = make_plan(options)
        with ExitStack() as stack:
            summaries = compare(plan, modes, ProgressBar(stack))
    except InvalidArgumentError as error:
        print(f"python -m hvd_partial simulate: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    if options.json:
        print(json.dumps({"options": describe(plan), "modes": summaries}, indent=2))
    else:
        show(plan, summaries)
    return 0


def describe(plan: Plan) -> dict[str, Any]:
    """The plan for programs."""
    return {
        "ranks": plan.ranks,
        "seeds": plan.seeds,
        "rounds": plan.rounds,
        "trace": plan.trace.text,
        "compute_seconds": plan.compute,
        "communication_seconds": plan.communication,
        "latency_seconds": plan.latency,
        "apply_seconds": plan.apply,
        "grace_seconds": "auto" if plan.grace < 0 else plan.grace,
        "max_lag": plan.max_lag,
    }


def make_plan(options: argparse.Namespace) -> tuple[Plan, list[Mode]]:
    """From the parsed arguments, with what they say about each other."""
    try:
        trace = Trace.parse(options.trace)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"--trace: {error}") from None
    ranks = options.ranks or len(trace.recorded) or DEFAULT_RANKS
    if ranks < len(trace.recorded) or ranks > LARGEST_SIZE:
        raise InvalidArgumentError(
            f"--ranks: the file has {len(trace.recorded)} ranks; all of them are simulated, and at "
            f"most {LARGEST_SIZE}"
        )
    if outside := trace.rank_outside(ranks):
        raise InvalidArgumentError(f"--trace: {outside}")
    if trace.recorded and options.compute is not None:
        raise InvalidArgumentError(
            "--compute: a file has the seconds of whole steps; leave --compute out"
        )
    compute = options.compute
    if compute is None:
        compute = 0.0 if trace.recorded else DEFAULT_COMPUTE
    try:
        modes = [Mode.parse(mode, size=ranks) for mode in options.mode]
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"--mode: {error}") from None
    communication = options.communication
    if communication is None:
        communication = reduction_seconds(ranks, options.bytes, options.bandwidth, options.latency)
    plan = Plan(
        ranks=ranks,
        seeds=options.seeds,
        rounds=options.rounds,
        trace=trace,
        compute=compute,
        communication=communication,
        latency=options.latency,
        apply=options.apply,
        grace=options.grace,
        max_lag=options.max_lag,
    )
    return plan, modes


def whole(low: int, high: int) -> Callable[[str], int]:
    """A type for argparse: a whole number from `low` to `high`."""

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = low - 1
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(
                f"{text!r} must be a whole number from {low} to {high}"
            )
        return value

    return parse


def number(above: float | None = None) -> Callable[[str], float]:
    """A type for argparse: a finite number that is not negative, or above `above`."""

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value) or value < 0 or (above is not None and value <= above):
            wanted = "0 or more" if above is None else f"above {above:g}"
            raise argparse.ArgumentTypeError(f"{text!r} must be a number, {wanted}")
        return value

    return parse


def grace(text: str) -> float:
    """A type for argparse: seconds, or negative for "auto"."""
    return -1.0 if text == "auto" else number()(text)


def add_parser(commands: Any) -> None:
    """Adds `simulate` to the command line."""
    parser = commands.add_parser(
        "simulate",
        help="what would each mode do on these delays?",
        description="Runs the engine's protocol on simulated time: throughput, contributions a "
        "round and staleness of each mode, on the same delays.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--trace", required=True, metavar="T", help="how late the ranks are; see below")
    add(
        "--ranks",
        type=whole(1, LARGEST_SIZE),
        metavar="N",
        help=f"1 to {LARGEST_SIZE} (default: as many as the file has, else {DEFAULT_RANKS})",
    )
    add(
        "--seeds",
        type=whole(1, 1_000_000),
        default=DEFAULT_SEEDS,
        metavar="S",
        help=f"runs of each mode, with other draws (default: {DEFAULT_SEEDS})",
    )
    add(
        "--mode",
        nargs="+",
        default=list(DEFAULT_MODES),
        metavar="M",
        help=f"of {VALID_MODES} (default: {' '.join(DEFAULT_MODES)})",
    )
    add(
        "--rounds",
        type=whole(1, 1_000_000),
        default=DEFAULT_ROUNDS,
        metavar="R",
        help="each run makes as many contributions as this many sync rounds "
        f"(default: {DEFAULT_ROUNDS})",
    )
    add(
        "--compute",
        type=number(),
        metavar="S",
        help=f"seconds of a step without delay (default: {DEFAULT_COMPUTE:g}; none with a file)",
    )
    add(
        "--communication",
        type=number(),
        metavar="S",
        help="seconds of one reduction (default: from the next three)",
    )
    add(
        "--bytes",
        type=number(),
        default=DEFAULT_BYTES,
        metavar="B",
        help=f"of the gradients (default: {DEFAULT_BYTES:g})",
    )
    add(
        "--bandwidth",
        type=number(above=0),
        default=DEFAULT_BANDWIDTH,
        metavar="B/S",
        help=f"bytes a second from rank to rank (default: {DEFAULT_BANDWIDTH:g})",
    )
    add(
        "--latency",
        type=number(),
        default=DEFAULT_LATENCY,
        metavar="S",
        help=f"seconds of a message, one way (default: {DEFAULT_LATENCY:g})",
    )
    add(
        "--apply",
        type=number(),
        default=0.0,
        metavar="S",
        help="seconds to apply one result (default: 0; else part of a step)",
    )
    add(
        "--grace",
        type=grace,
        default=-1.0,
        metavar="S",
        help="seconds that a round whose quorum is complete waits for the rest (default: auto)",
    )
    add(
        "--max-lag",
        type=whole(1, 1_000_000),
        default=DEFAULT_MAX_LAG,
        metavar="N",
        help=f"results that a rank may be behind (default: {DEFAULT_MAX_LAG})",
    )
    add("--json", action="store_true", help="for programs")
    parser.set_defaults(run=run)
