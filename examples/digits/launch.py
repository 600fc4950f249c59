# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Starts `horovodrun` for a list of runs and passes on what its rank 0 reports meanwhile."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from examples.digits.plan import HOROVOD, Run

Event = dict[str, Any]
ROOT = Path(__file__).resolve().parents[2]
LOG_TAIL_LINES = 40
# By default Horovod's background thread looks for work a thousand times a second, which takes a
# fifth of a core in each process. Where four of them share two cores, all runs are better off so.
LAUNCHER = ("--cycle-time-ms", "5")


class LaunchError(RuntimeError):
    """The processes could not be started, failed, or took too long."""


def horovodrun_path() -> Path:
    """The launcher of this Python's own environment."""
    path = Path(sys.executable).parent / "horovodrun"
    if not path.exists():
        raise LaunchError(f"{path} is missing: Horovod is not installed beside {sys.executable}")
    return path


def launch(
    runs: Sequence[Run],
    processes: int,
    on_event: Callable[[Event], None],
    *,
    dataset: str,
    data_dir: str,
    image_size: int = 0,
    timeout_seconds: float = 900.0,
    launcher_args: Sequence[str] = (),
) -> list[Event]:
    """Trains `runs`, one after the other, in `processes` processes under one `horovodrun`.

    Runs of Horovod's optimizer and of others need different Keras versions: a launch for each.

    Args:
      runs: What to train.
      processes: Number of ranks.
      on_event: Called for each report of rank 0: {"event": "start" | "progress" | "result", ...}.
      dataset: TFDS name.
      data_dir: Where TFDS keeps what it prepares.
      image_size: See `dataset.load`.
      timeout_seconds: For the launch as a whole; then it is killed.
      launcher_args: Which launcher, such as ["--mpi"]; Gloo by default.

    Returns:
      The "result" events, one for each run, in order.

    Raises:
      LaunchError: Anything but a complete set of results; the text holds the end of the log.
    """
    legacy = {run.mode == HOROVOD for run in runs}
    if len(legacy) != 1:
        raise ValueError("runs of Horovod's optimizer need a launch of their own")
    with tempfile.TemporaryDirectory(prefix="hvd_partial-digits-") as folder:
        plan, events, log = (Path(folder) / name for name in ("plan.json", "events", "log"))
        plan.write_text(
            json.dumps(
                {
                    "runs": [run.to_dict() for run in runs],
                    "dataset": dataset,
                    "data_dir": str(Path(data_dir).resolve()),
                    "image_size": image_size,
                    "events": str(events),
                    "legacy_keras": legacy.pop(),
                }
            )
        )
        command = [
            *(str(horovodrun_path()), *LAUNCHER, *(launcher_args or ["--gloo"])),
            *("-np", str(processes)),
            *(sys.executable, "-m", "examples.digits.worker", str(plan)),
        ]
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
            "TF_CPP_MIN_LOG_LEVEL": os.environ.get("TF_CPP_MIN_LOG_LEVEL", "3"),
            "PYTHONUNBUFFERED": "1",
        }
        results: list[Event] = []
        with log.open("w") as log_file:
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log_file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                read = _follow(process, events, on_event, results, timeout_seconds)
            finally:
                _end(process)
        if process.returncode != 0 or not read or len(results) != len(runs):
            reason = (
                f"took longer than {timeout_seconds:.0f} s"
                if not read
                else f"ended with exit code {process.returncode} and "
                f"{len(results)} of {len(runs)} results"
            )
            tail = "\n".join(_ranks_words(log)[-LOG_TAIL_LINES:])
            raise LaunchError(f"{' '.join(command[:4])} ... {reason}; its last lines:\n{tail}")
        return results


def _ranks_words(log: Path) -> list[str]:
    """The log without the traceback of the launcher itself, which says nothing about the cause."""
    lines = log.read_text(errors="replace").splitlines()
    own = [i for i, line in enumerate(lines) if line.startswith("Traceback ")]
    return lines[: own[0]] if own and own[0] > 0 else lines


def _follow(
    process: subprocess.Popen[bytes],
    events: Path,
    on_event: Callable[[Event], None],
    results: list[Event],
    timeout_seconds: float,
) -> bool:
    """Reads events as they are written until the process ends; False if that took too long."""
    deadline = time.monotonic() + timeout_seconds
    position, rest = 0, ""
    while True:
        # Asked before the file is read: what an ended process wrote is complete by then.
        ended = process.poll() is not None
        if events.exists():
            with events.open() as file:
                file.seek(position)
                text = file.read()
                position = file.tell()
            *lines, rest = (rest + text).split("\n")
            for line in lines:
                event = json.loads(line)
                if event["event"] == "result":
                    results.append(event)
                on_event(event)
        if ended:
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends the launcher and all that it started, whatever state they are in."""
    for sent, patience in ((signal.SIGTERM, 10.0), (signal.SIGKILL, 10.0)):
        if process.poll() is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, sent)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience)
