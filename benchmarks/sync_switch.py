# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""What a switch costs, what the online policies give, and Sync-Switch beside BSP and ASP.

Runs are kept in a file as they come: a second call makes only what is missing there. The tables go
to docs/sync_switch.md.

  python -m benchmarks.sync_switch cost --np 4 8
  python -m benchmarks.sync_switch policies --seeds 0 1 2
  python -m benchmarks.sync_switch accuracy --seeds 0 1 2 3 4
  python -m benchmarks.sync_switch --only-tables
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import switch_cost
from examples import sync_switch as example
from examples.digits import environment
from examples.digits.launch import LaunchError

RESULTS = Path("benchmarks/results/sync_switch.json")
TABLES = Path("docs/sync_switch.md")
BEGIN = "<!-- tables: python -m benchmarks.sync_switch --only-tables -->"
END = "<!-- end of the tables -->"
POLICIES = ("baseline", "greedy", "elastic", "adaptive")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.sync_switch",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", nargs="*", help="cost, policies, accuracy")
    parser.add_argument("--np", type=int, nargs="+", default=[4])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--learning-rate", type=float, default=0.2)
    parser.add_argument("--bsp-fraction", type=float, help="default: 0.5 for policies, else 0.25")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--scenarios", nargs="+", default=["last"])
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--tables", type=Path, default=TABLES)
    parser.add_argument("--only-tables", action="store_true")
    parser.add_argument("--timeout", type=float, default=3600.0)
    options = parser.parse_args(arguments)
    for what in options.what:
        if what not in ("cost", "policies", "accuracy"):
            parser.error(f"{what}: must be cost, policies or accuracy")
    return options


def read(path: Path) -> dict[str, Any]:
    empty: dict[str, Any] = {"environment": {}, "cost": [], "policies": [], "accuracy": []}
    return json.loads(path.read_text()) if path.exists() else empty


def write(path: Path, found: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # How busy the machine was, which shows in all that is not slept.
    load = {"load average over 5 minutes": round(os.getloadavg()[1], 1)}
    found["environment"] = environment.describe() | load
    path.write_text(json.dumps(found, indent=1) + "\n")


def train(options: argparse.Namespace, what: str, found: dict[str, Any], console: Console) -> None:
    """Makes the runs of the example that are missing; each is kept as soon as it is done."""
    fraction = options.bsp_fraction
    if fraction is None:
        fraction = 0.5 if what == "policies" else 0.25
    command = [
        *("--np", str(options.np[0]), "--bsp-fraction", str(fraction)),
        *("--learning-rate", str(options.learning_rate), "--epochs", str(options.epochs)),
        *("--timeout", str(options.timeout), "--seeds", *map(str, options.seeds)),
    ]
    if what == "policies":
        command += ["--scenarios", "transient", "--only-policies", "--policies", *POLICIES]
    else:
        command += ["--scenarios", *options.scenarios]
    setting = {
        "ranks": options.np[0],
        "learning_rate": options.learning_rate,
        "bsp_fraction": fraction,
        "epochs": options.epochs,
    }

    def key(entry: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(entry[name] for name in ("kind", "scenario", "seed", *setting))

    done = {key(entry) for entry in found[what]}

    def wanted(planned: example.Planned) -> bool:
        kind, run = planned
        return key({"kind": kind, "scenario": run.scenario, "seed": run.seed} | setting) not in done

    def keep(entry: dict[str, Any]) -> None:
        without_curve = {name: value for name, value in entry.items() if name != "curve"}
        found[what].append(without_curve | setting)
        write(options.results, found)

    example.measure(example.parse(command), console, wanted, keep)


def spread(values: Sequence[float], factor: float = 1.0, digits: int = 1) -> str:
    """Mean and, of several, the standard deviation."""
    mean = f"{factor * statistics.fmean(values):.{digits}f}"
    if len(values) < 2:
        return mean
    return f"{mean} ± {factor * statistics.stdev(values):.{digits}f}"


def cost_table(rows: Sequence[dict[str, Any]]) -> list[str]:
    text = [
        "### A switch",
        "",
        "Light ranks (`hvd_partial.engine`, no TensorFlow), steps of 20 ms by sleeping, 1 MB of "
        "gradients, a switch from sync to async or back after every 10 steps. A step is the time "
        "from one call's end to the next one's; in milliseconds, median (90 %) over all switches "
        "and ranks. Measured by `python -m benchmarks.sync_switch cost`.",
        "",
        "| ranks | to | switches | the step before | the first in the new mode | the step after |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        cells = [
            f"{1e3 * row[name][0]:.1f} ({1e3 * row[name][1]:.1f})"
            for name in ("before", "switching", "after")
        ]
        text.append(f"| {row['ranks']} | {row['to']} | {row['switches']} | {' | '.join(cells)} |")
    return text


def run_tables(title: str, note: str, rows: Sequence[dict[str, Any]], base: str) -> list[str]:
    text = [f"### {title}", "", note, ""]
    groups = dict.fromkeys(
        (r["scenario"], r["learning_rate"], r["bsp_fraction"], r["epochs"], r["ranks"])
        for r in rows
    )
    for group in groups:
        scenario, rate, fraction, epochs, ranks = group
        own = [
            r
            for r in rows
            if (r["scenario"], r["learning_rate"], r["bsp_fraction"], r["epochs"], r["ranks"])
            == group
        ]
        text += [
            f"{ranks} ranks, {scenario}: {example.KNOWN[scenario]}, SGD {rate:g} with momentum "
            f"0.9, {epochs} epochs, BSP share {100 * fraction:g} %; steps of 50 ms, delays halved.",
            "",
            f"| training | seeds | seconds | faster than {base} | accuracy % | worst % | "
            "switches | late contributions |",
            "|---|---|---|---|---|---|---|---|",
        ]
        seconds = [r["seconds"] for r in own if r["kind"] == base]
        for kind in dict.fromkeys(r["kind"] for r in own):
            of_kind = [r for r in own if r["kind"] == kind]
            times = [r["seconds"] for r in of_kind]
            accuracies = [r["accuracy"] for r in of_kind]
            faster = (
                f"{statistics.fmean(seconds) / statistics.fmean(times):.2f}x" if seconds else "-"
            )
            switches = "/".join(sorted({str(len(r["switches"])) for r in of_kind}))
            late = f"{100 * statistics.fmean(r['late_share'] for r in of_kind):.0f} %"
            text.append(
                f"| {kind} | {len(of_kind)} | {spread(times)} | {faster} | "
                f"{spread(accuracies, 100)} | {100 * min(accuracies):.1f} | {switches} | {late} |"
            )
        text.append("")
    return text


def tables(found: dict[str, Any]) -> str:
    machine = ", ".join(f"{name} {value}" for name, value in found["environment"].items())
    text = [f"Measured on: {machine}. Each run is in `benchmarks/results/sync_switch.json`.", ""]
    if found["cost"]:
        text += [*cost_table(found["cost"]), ""]
    if found["policies"]:
        text += run_tables(
            "One transient straggler",
            "The digits example (`python -m benchmarks.sync_switch policies`). The last rank is "
            "late by three step times in as many of its own steps as a third of the BSP share has.",
            found["policies"],
            "Sync-Switch",
        )
    if found["accuracy"]:
        text += run_tables(
            "BSP, ASP and Sync-Switch",
            "The digits example (`python -m benchmarks.sync_switch accuracy`). ASP: mode async, "
            "late gradients with full weight, as published. ASP, inverse: mode solo, where a "
            "gradient tau rounds late has weight 1 / (1 + tau).",
            found["accuracy"],
            "BSP",
        )
    return "\n".join(text).rstrip() + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    console = Console(width=None if sys.stdout.isatty() else 110)
    found = read(options.results)
    for what in () if options.only_tables else options.what:
        try:
            if what == "cost":
                new = [row for ranks in options.np for row in switch_cost.measure(ranks)]
                kept = [row for row in found["cost"] if row["ranks"] not in options.np]
                found["cost"] = sorted(kept + new, key=lambda row: (row["ranks"], row["to"]))
            else:
                train(options, what, found, console)
        except LaunchError as error:
            console.print(f"error: {error}", style="red", markup=False, soft_wrap=True)
            return 1
        write(options.results, found)
    text = options.tables.read_text()
    if BEGIN not in text or END not in text:
        console.print(f"error: {options.tables}: the marks of the tables are not there")
        return 1
    before, rest = text.split(BEGIN, 1)
    options.tables.write_text(f"{before}{BEGIN}\n\n{tables(found)}\n{END}{rest.split(END, 1)[1]}")
    console.print(f"{options.tables} written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
