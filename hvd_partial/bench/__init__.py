# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""``python -m hvd_partial bench``: allreduce alone, ours beside Horovod's and MPI's.

Everything that is compared runs in turn within one call, `--repeats` times around, so that what the
machine does meanwhile meets all of them alike.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import re
import sys
from typing import Any

from hvd_partial.bench import report
from hvd_partial.bench.cells import HOROVOD_SYSTEMS, OTHER_SYSTEMS, Cell, Launch, Task, summarize
from hvd_partial.bench.launch import LaunchError, describe_command, launch, missing
from hvd_partial.bench.skew import DEFAULT_SECONDS, PATTERNS

EXAMPLES = """\
examples:
  python -m hvd_partial bench latency --ranks 2 4 8 --against horovod mpi
  python -m hvd_partial bench latency --sizes 4 64K 16M --modes sync --repeats 3 --json
  python -m hvd_partial bench skew --ranks 32 --sizes 64 64K --against mpi
  python -m hvd_partial bench skew --pattern rotating --ranks 4 --modes solo majority
  python -m hvd_partial bench idle --ranks 4 --against horovod
  python -m hvd_partial bench memory --sizes 16M --max-lag 4

exit code: 0 done, 1 a run failed, 2 wrong arguments
"""

DEFAULT_SIZES = {
    "latency": "4 1K 64K 1M 16M",
    "skew": "64 64K 4M",
    "idle": "1M",
    "memory": "16M",
}
DEFAULT_RANKS = {"latency": "2 4 8", "skew": "32", "idle": "2 4", "memory": "2"}
DEFAULT_MODES = {"latency": "sync majority solo", "skew": "solo majority"}
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}


def size_in_bytes(text: str) -> int:
    """Parses 4, 64K, 16M, 1G."""
    match = re.fullmatch(r"(\d+)\s*([KMG]?)B?", text.strip(), re.IGNORECASE)
    size = int(match[1]) * _UNITS[match[2].upper()] if match else 0
    if size < 4 or size % 4 != 0:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no size: use a multiple of 4 bytes such as 4, 64K, 16M"
        )
    return size


def _positive(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number, at least 1")
    return value


def _ranks(text: str) -> int:
    value = _positive(text)
    if value < 2:
        raise argparse.ArgumentTypeError("an allreduce needs at least 2 ranks")
    return value


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} must be a number of seconds above 0")
    return value


def _mode(text: str) -> str:
    # Whether k fits the number of ranks is seen when that is known.
    if reason := _objection(text, 2**20):
        raise argparse.ArgumentTypeError(reason)
    return text


def _objection(mode: str, ranks: int) -> str:
    """Why there is no such mode, or none for so many ranks; or an empty text."""
    # Imported late: the errors are Horovod's too, and other commands can do without it.
    from hvd_partial.errors import InvalidArgumentError
    from hvd_partial.modes import Mode

    try:
        Mode.parse(mode, ranks)
    except InvalidArgumentError as error:
        return str(error)
    return ""


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "bench",
        help="measure the allreduce: latency, skew, idle CPU, memory",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", choices=list(DEFAULT_SIZES), help="what to measure")
    parser.add_argument("--ranks", type=_ranks, nargs="+", metavar="P", help="numbers of processes")
    parser.add_argument(
        "--sizes", type=size_in_bytes, nargs="+", metavar="BYTES", help="of the tensor: 4, 64K, 16M"
    )
    parser.add_argument("--modes", type=_mode, nargs="+", metavar="MODE", help="of ours")
    parser.add_argument(
        "--against",
        nargs="+",
        default=[],
        metavar="SYSTEM",
        choices=["horovod", *OTHER_SYSTEMS],
        help="run in turn with ours: horovod (both controllers), horovod-gloo, horovod-mpi, mpi",
    )
    parser.add_argument("--repeats", type=_positive, default=1, help="turns of everything (1)")
    parser.add_argument("--calls", type=_positive, default=200, help="of small sizes a turn (200)")
    parser.add_argument(
        "--pattern", choices=list(PATTERNS), default="linear", help="of the skew (linear)"
    )
    parser.add_argument(
        "--skew-seconds", type=_seconds, help="unit of the pattern (linear 0.001, rotating 0.05)"
    )
    parser.add_argument("--seconds", type=_seconds, default=5.0, help="that idle watches (5)")
    parser.add_argument("--max-lag", type=_positive, default=8, help="of our channel (8)")
    parser.add_argument(
        "--deadline", type=_seconds, default=600.0, help="seconds for one launch (600)"
    )
    parser.add_argument("--json", action="store_true", help="print cells for programs")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Measures; prints a table, or JSON."""
    what = options.what
    ranks = options.ranks or [int(text) for text in DEFAULT_RANKS[what].split()]
    sizes = options.sizes or [size_in_bytes(text) for text in DEFAULT_SIZES[what].split()]
    modes = options.modes or DEFAULT_MODES.get(what, "majority").split()
    others = list(
        dict.fromkeys(
            itertools.chain.from_iterable(
                HOROVOD_SYSTEMS if name == "horovod" else (name,) for name in options.against
            )
        )
    )
    for mode, size in itertools.product(modes, ranks):
        if reason := _objection(mode, size):
            print(f"bench: --modes {mode} with --ranks {size}: {reason}", file=sys.stderr)
            return 2
    for system in others:
        if reason := missing(system):
            print(f"bench: --against {system}: {reason}", file=sys.stderr)
            return 2
    tasks = [
        Task(
            what=what,
            mode=mode,
            sizes=tuple(sizes),
            calls=options.calls,
            skew=options.pattern if what == "skew" else "none",
            skew_seconds=(options.skew_seconds or DEFAULT_SECONDS[options.pattern]),
            seconds=options.seconds,
            max_lag=options.max_lag,
        )
        for mode in [*modes, *others]
    ]
    try:
        cells = _measure(tasks, ranks, options.repeats, options.deadline)
    except LaunchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    facts = {
        "machine": {
            "cores": os.cpu_count(),
            "processor": report.processor(),
            "system": platform.platform(),
            "python": platform.python_version(),
        },
        "command": "python -m hvd_partial " + " ".join(sys.argv[1:]),
        "launches": {name: describe_command(name, ranks[-1]) for name in (modes[0], *others)},
        "repeats": options.repeats,
    }
    if options.json:
        print(json.dumps({**facts, "cells": [cell.as_json() for cell in cells]}, indent=1))
    else:
        report.print_tables(what, cells, [*modes], others, facts)
    return 0


def _measure(tasks: list[Task], ranks: list[int], repeats: int, deadline: float) -> list[Cell]:
    launches: dict[tuple[str, int], list[Launch]] = {}
    turns = list(itertools.product(range(repeats), ranks, tasks))
    with report.progress(len(turns)) as advance:
        for turn, size, task in turns:
            advance(f"{task.what}, {task.mode}, {size} ranks, turn {turn + 1} of {repeats}")
            launches.setdefault((task.mode, size), []).append(launch(task, size, deadline))
    return [
        cell
        for size, task in itertools.product(ranks, tasks)
        for cell in summarize(launches[task.mode, size])
    ]
