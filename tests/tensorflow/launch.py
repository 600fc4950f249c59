# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Starts real ranks under horovodrun, with a deadline, and collects what they report."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
WORKERS = Path(__file__).resolve().parent / "workers"
HOROVODRUN = Path(sys.executable).parent / "horovodrun"


@dataclass
class Launch:
    """What came of it.

    Attributes:
      code: horovodrun's exit code.
      output: All ranks' output.
      reports: By rank, what it reported: name to value.
      seconds: From start to end.
    """

    code: int
    output: str
    reports: dict[int, dict[str, Any]] = field(default_factory=dict)
    seconds: float = 0.0


def environment(report: Path, legacy_keras: bool = False) -> dict[str, str]:
    """For a rank. The launcher itself does without TF_USE_LEGACY_KERAS, which confuses it."""
    variables = dict(os.environ)
    variables.pop("TF_USE_LEGACY_KERAS", None)
    variables.update(
        PYTHONPATH=str(ROOT),
        TF_CPP_MIN_LOG_LEVEL="3",
        CUDA_VISIBLE_DEVICES="-1",
        HVD_PARTIAL_TEST_REPORT=str(report),
        HVD_PARTIAL_TEST_LEGACY="1" if legacy_keras else "",
        # Several ranks share few cores.
        TF_NUM_INTRAOP_THREADS="1",
        TF_NUM_INTEROP_THREADS="2",
        # A rank that waits for one that died must not spoil the next test.
        HOROVOD_STALL_SHUTDOWN_TIME_SECONDS="30",
        HOROVOD_STALL_CHECK_TIME_SECONDS="10",
    )
    return variables


def launch(
    worker: str,
    *arguments: str,
    ranks: int,
    legacy_keras: bool = False,
    deadline: float = 100.0,
    extra: dict[str, str] | None = None,
    options: Sequence[str] = (),
) -> Launch:
    """Runs a script of workers/ on so many ranks; kills everything at the deadline.

    `options` are horovodrun's.

    Raises:
      TimeoutError: with the output so far, if it did not end in time.
    """
    with tempfile.TemporaryDirectory(prefix="hvd_partial-test-") as folder:
        command = [str(HOROVODRUN), "--gloo", "-np", str(ranks), *options] if ranks > 1 else []
        command += [sys.executable, "-u", str(WORKERS / f"{worker}.py"), *arguments]
        variables = environment(Path(folder), legacy_keras) | (extra or {})
        start = time.monotonic()
        code, text = run(command, Path(folder), variables, deadline)
        reports = {
            int(path.stem.removeprefix("rank")): json.loads(path.read_text())
            for path in Path(folder).glob("rank*.json")
        }
        if code is None:
            done = {rank: list(found) for rank, found in reports.items()}
            raise TimeoutError(
                f"{worker} {arguments} did not end within {deadline} s; reported: {done}\n{text}"
            )
        return Launch(code, text, reports, time.monotonic() - start)


def run(
    command: list[str], folder: Path, variables: dict[str, str], deadline: float
) -> tuple[int | None, str]:
    """Exit code, None at the deadline, and output. Nothing of it runs any more afterwards."""
    with (folder / "output").open("w+") as output:
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=variables | {"HVD_PARTIAL_TEST_DEADLINE": str(deadline)},
            cwd=ROOT,
            start_new_session=True,
        )
        try:
            code = process.wait(deadline)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            _kill_group(process)
    return code, (folder / "output").read_text(errors="replace")


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """Whatever the launcher left behind."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(10)
