# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""``python -m hvd_partial check``: will training work here, and if not, what to do.

Each question is asked in a process of its own, so that a library that crashes or hangs at import is
an answer like any other. Nothing here imports TensorFlow, Horovod or the engine itself.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

PACKAGE = Path(__file__).resolve().parent
TENSORFLOW_RANGE = ((2, 16), (2, 19))
TENSORFLOW_RANGE_TEXT = "2.16 to 2.18"
PROBE_SECONDS = 120.0
LAUNCH_SECONDS = 180.0
ANSWER = "hvd_partial-check:"

BUILD_REMEDY = (
    "build the package: `make build` in its source folder, or "
    "`pip install --no-build-isolation .` where TensorFlow is installed already"
)
HOROVOD_REMEDY = (
    "install Horovod 0.28.1 into an environment that has TensorFlow already: "
    "HOROVOD_WITH_TENSORFLOW=1 HOROVOD_WITH_GLOO=1 pip install --no-cache-dir "
    "--no-build-isolation 'setuptools<70' horovod==0.28.1 (or `make env` in the source folder)"
)

Status = Literal["ok", "note", "problem"]

EXAMPLES = """\
examples:
  python -m hvd_partial check            ask everything, start two processes at the end
  python -m hvd_partial check --quick    the same without starting processes
  python -m hvd_partial check --json     for programs: {"ok": ..., "items": [...]}

exit code: 0 if training will work here, 1 if not
"""


@dataclass(frozen=True)
class Item:
    """One line of the answer.

    Attributes:
      group: "versions", "built", "engine", "tensorflow" or "launcher".
      name: What was looked at.
      value: What was found.
      status: "ok"; "note" where something is missing that not everybody needs; "problem".
      remedy: What to do about it; empty if ok.
    """

    group: str
    name: str
    value: str
    status: Status = "ok"
    remedy: str = ""


@dataclass
class Report:
    items: list[Item] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return all(item.status != "problem" for item in self.items)

    def add(
        self, group: str, name: str, value: str, status: Status = "ok", remedy: str = ""
    ) -> None:
        self.items.append(Item(group, name, value, status, remedy))

    def to_dict(self) -> dict[str, Any]:
        return {"ok": self.ok, "items": [dataclasses.asdict(item) for item in self.items]}


@dataclass(frozen=True)
class Answer:
    """What a probe said: `value`, or the reason why it said nothing."""

    value: Any = None
    failure: str = ""


def version(*distributions: str) -> str | None:
    """The version of the first of these that is installed; found without importing it."""
    for name in distributions:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


def minor(version: str | None) -> list[str]:
    """TensorFlow's C++ interface changes with every minor version: ["2", "18"] of "2.18.1"."""
    return (version or "").split(".")[:2]


def run_probe(command: list[str], seconds: float) -> Answer:
    """Runs a command that prints ANSWER and JSON; its last line of errors is the failure."""
    environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=seconds,
            env=environment,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Answer(failure=f"no answer within {seconds:.0f} s")
    except OSError as error:
        return Answer(failure=str(error))
    for line in done.stdout.splitlines():
        # A launcher puts the rank in front of what a process prints, and mpirun behind it as well.
        _, mark, text = line.partition(ANSWER)
        if mark:
            return Answer(value=json.JSONDecoder().raw_decode(text)[0])
    if done.returncode < 0:
        return Answer(failure=f"ended by signal {-done.returncode}")
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    return Answer(failure=lines[-1].strip() if lines else f"exit code {done.returncode}")


def run_python(code: str, seconds: float = PROBE_SECONDS) -> Answer:
    """Runs Python code whose variable `answer` is the answer."""
    program = f"import json\n{code}\nprint('{ANSWER}' + json.dumps(answer), flush=True)"
    return run_probe([sys.executable, "-c", program], seconds)


def read_build_info() -> dict[str, Any] | None:
    """What the build wrote down about itself, or None where there was none."""
    try:
        return json.loads((PACKAGE / "_build_info.json").read_text())
    except (OSError, ValueError):
        return None


def check_versions(report: Report) -> None:
    """Python and the packages, by what is installed."""
    group = "versions"
    report.add(group, "hvd_partial", version("hvd-partial") or "not installed (source tree)")
    python = platform.python_version()
    if sys.version_info[:2] == (3, 11):
        report.add(group, "Python", python)
    else:
        report.add(group, "Python", python, "note", "the project is tested with Python 3.11")
    tensorflow = version("tensorflow-cpu", "tensorflow")
    remedy = "pip install tensorflow-cpu==2.18.1; the engine alone works without"
    if tensorflow is None:
        report.add(group, "TensorFlow", "not installed", "problem", remedy)
    else:
        numbers = tuple(int(part) for part in tensorflow.split(".")[:2])
        low, high = TENSORFLOW_RANGE
        inside = low <= numbers < high
        report.add(
            group,
            "TensorFlow",
            tensorflow,
            "ok" if inside else "problem",
            ""
            if inside
            else f"Horovod 0.28.1 builds with TensorFlow {TENSORFLOW_RANGE_TEXT}: "
            "pip install tensorflow-cpu==2.18.1, then Horovod and this package again",
        )
    report.add(group, "Keras", version("keras") or "not installed")
    tf_keras = version("tf_keras")
    if os.environ.get("TF_USE_LEGACY_KERAS") in ("1", "true", "True") and tf_keras is None:
        report.add(
            group,
            "tf_keras",
            "not installed, but TF_USE_LEGACY_KERAS is set",
            "problem",
            "pip install --no-deps tf_keras==2.18.0, or unset TF_USE_LEGACY_KERAS",
        )
    else:
        report.add(group, "tf_keras", tf_keras or "not installed (only TF_USE_LEGACY_KERAS=1 asks)")
    horovod = version("horovod")
    if horovod is None:
        report.add(group, "Horovod", "not installed", "problem", HOROVOD_REMEDY)
    else:
        report.add(group, "Horovod", horovod)
    report.add(group, "UCX", version("libucx-cu12") or "not installed")


def check_built(report: Report) -> None:
    """The native libraries, and whether the op library is for the TensorFlow that is here."""
    group = "built"
    info = read_build_info()
    if info is None:
        report.add(group, "native libraries", "not built", "problem", BUILD_REMEDY)
        return
    report.add(group, "compiler", f"{info['compiler']}, {info['build_type']}")
    if info.get("sanitizer"):
        report.add(group, "sanitizer", info["sanitizer"], "note", "slow; for tests only")
    for name in ("libhvd_partial.so", "_engine"):
        found = [path.name for path in PACKAGE.glob(f"{name}*") if ".so" in path.name]
        if found:
            report.add(group, name.removesuffix(".so"), found[0])
        else:
            report.add(group, name.removesuffix(".so"), "missing", "problem", BUILD_REMEDY)
    installed = version("tensorflow-cpu", "tensorflow")
    name = "TensorFlow op library"
    if info["tensorflow"] is None:
        report.add(
            group,
            name,
            "left out of the build",
            "problem" if installed else "note",
            BUILD_REMEDY if installed else "install TensorFlow first if you want it",
        )
    elif not (PACKAGE / "_tensorflow_ops.so").exists():
        report.add(group, name, "missing", "problem", BUILD_REMEDY)
    elif minor(installed) != minor(info["tensorflow"]):
        report.add(
            group,
            name,
            f"built for TensorFlow {info['tensorflow']}, {installed or 'none'} is installed",
            "problem",
            f"pip install tensorflow-cpu=={info['tensorflow']}, or {BUILD_REMEDY}",
        )
    else:
        report.add(group, name, f"for TensorFlow {info['tensorflow']}, fits {installed}")


def check_engine(report: Report) -> None:
    """Does the engine load, and what can it send over?"""
    group = "engine"
    answer = run_python("from hvd_partial import engine\nanswer = engine.transports()")
    if answer.failure:
        report.add(group, "hvd_partial.engine", answer.failure, "problem", BUILD_REMEDY)
        return
    report.add(group, "hvd_partial.engine", "loads")
    transports = answer.value
    if not transports:
        report.add(
            group, "transports", "none", "problem", "see what UCX_TLS is set to in the environment"
        )
    else:
        report.add(group, "transports", ", ".join(transports))


def check_tensorflow(report: Report) -> None:
    """Do TensorFlow, Horovod and the op library load together?"""
    group = "tensorflow"
    if version("tensorflow-cpu", "tensorflow") is None or version("horovod") is None:
        return
    answer = run_python(
        "import horovod.tensorflow as hvd\n"
        "answer = {'gloo': bool(hvd.gloo_built()), 'mpi': bool(hvd.mpi_built()),"
        " 'nccl': bool(hvd.nccl_built())}"
    )
    if answer.failure:
        report.add(group, "horovod.tensorflow", answer.failure, "problem", HOROVOD_REMEDY)
        return
    controllers = [name for name in ("gloo", "mpi") if answer.value[name]]
    if controllers:
        report.add(group, "horovod.tensorflow", f"loads, built with {', '.join(controllers)}")
    else:
        report.add(group, "horovod.tensorflow", "without a controller", "problem", HOROVOD_REMEDY)
    answer = run_python("import hvd_partial.tensorflow.keras as hvd\nanswer = hvd.__name__")
    if answer.failure:
        report.add(group, "hvd_partial.tensorflow", answer.failure, "problem", BUILD_REMEDY)
    else:
        report.add(group, "hvd_partial.tensorflow", "loads")


LAUNCHED = f"""
import json
import numpy as np
import tensorflow as tf
import hvd_partial.tensorflow as hvd
hvd.init()
total = hvd.partial_allreduce([tf.constant([hvd.rank() + 1.0])], name="check", mode="sync")
if hvd.rank() == 0:
    print("{ANSWER}" + json.dumps(float(np.ravel(total[0])[0])), flush=True)
"""


def check_launcher(report: Report, quick: bool) -> None:
    """Is there a launcher, and do two processes that it starts find each other?"""
    group = "launcher"
    launcher = Path(sys.executable).parent / "horovodrun"
    if version("horovod") is None:
        return
    if not launcher.exists():
        report.add(group, "horovodrun", f"{launcher} is missing", "problem", HOROVOD_REMEDY)
        return
    report.add(group, "horovodrun", str(launcher))
    if quick or not report.ok:
        why = "not tried (--quick)" if quick else "not tried: see the problems above"
        report.add(group, "two processes", why, "note")
        return
    command = [str(launcher), "-np", "2", sys.executable, "-c", LAUNCHED]
    answer = run_probe(command, LAUNCH_SECONDS)
    # Rank 0 gives 1 and rank 1 gives 2; the mean is divided by the size.
    if answer.failure:
        report.add(
            group,
            "two processes",
            answer.failure,
            "problem",
            "see the whole output of `horovodrun -np 2 python -c 'import hvd_partial.tensorflow "
            "as hvd; hvd.init()'`; with several network interfaces, name one: "
            "horovodrun --network-interfaces lo ...",
        )
    elif answer.value != 1.5:
        report.add(
            group,
            "two processes",
            f"1 and 2 averaged to {answer.value}",
            "problem",
            "this is a bug; please report it",
        )
    else:
        report.add(group, "two processes", "started, connected and reduced")


def collect(quick: bool) -> Report:
    """Asks everything."""
    report = Report()
    check_versions(report)
    check_built(report)
    check_engine(report)
    check_tensorflow(report)
    check_launcher(report, quick)
    return report


def show(report: Report) -> None:
    """Prints the report for people."""
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() else 110)
    table = Table(show_header=False, box=None, pad_edge=False)
    marks = {"ok": "[green]ok[/]", "note": "[yellow]note[/]", "problem": "[red]PROBLEM[/]"}
    group = ""
    for item in report.items:
        title = item.group if item.group != group else ""
        group = item.group
        value = item.value.replace("[", r"\[")
        table.add_row(f"[bold]{title}[/]", item.name, marks[item.status], value)
    console.print(table)
    remedies = [item for item in report.items if item.remedy]
    if remedies:
        console.print("\nwhat to do:")
        for item in remedies:
            console.print(f"- {item.name}: {item.remedy}", markup=False, highlight=False)
    console.print(
        "\nTraining will work here." if report.ok else "\nTraining will not work here yet."
    )


def run(options: argparse.Namespace) -> int:
    """The command: 0 if training will work here, else 1."""
    report = collect(options.quick)
    if options.json:
        print(json.dumps(report.to_dict(), indent=2))
    else:
        show(report)
    return 0 if report.ok else 1


def add_parser(commands: Any) -> None:
    """Adds `check` to the command line."""
    parser = commands.add_parser(
        "check",
        help="will training work here, and if not, what to do",
        description="Versions, what was built, transports, and whether all of it fits together.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.add_argument("--quick", action="store_true", help="start no processes under horovodrun")
    parser.set_defaults(run=run)
