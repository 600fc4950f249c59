# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Starts an elastic job on this machine, whose hosts are names of it and change while it runs."""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from tests.tensorflow.launch import HOROVODRUN, WORKERS, environment, run

# All of them are 127.0.0.1. Horovod gives up a host on which a worker has failed.
HOSTS = ("localhost", "127.0.0.1", "127.0.1", "127.1")


@dataclass
class ElasticLaunch:
    """What came of it.

    Attributes:
      code: horovodrun's exit code.
      output: Of all workers.
      workers: By host, what its worker reported: name to value.
    """

    code: int
    output: str
    workers: dict[str, dict[str, Any]]


def launch_elastic(
    worker: str,
    *arguments: str,
    hosts: Sequence[str],
    legacy_keras: bool = False,
    deadline: float = 100.0,
    more: Sequence[str] = (),
) -> ElasticLaunch:
    """Runs a script of workers/ on these hosts, one worker each; others come when a worker writes
    them into the file `hosts` of its folder. At least two go on.

    Raises:
      TimeoutError: with the output so far, if it did not end in time.
    """
    with tempfile.TemporaryDirectory(prefix="hvd_partial-test-") as name:
        folder = Path(name)
        (folder / "hosts").write_text("\n".join(f"{host}:1" for host in hosts) + "\n")
        script = folder / "discover"
        script.write_text(f"#!/bin/sh\ncat {folder}/hosts\n")
        script.chmod(0o755)
        command = [str(HOROVODRUN), "--gloo", "--network-interface", "lo"]
        command += ["-np", str(len(hosts)), "--min-np", "2", "--max-np", "4", *more]
        command += ["--host-discovery-script", str(script), "--elastic-timeout", "60"]
        command += [sys.executable, "-u", str(WORKERS / f"{worker}.py"), *arguments]
        try:
            code, text = run(command, folder, environment(folder, legacy_keras), deadline)
        finally:
            _kill_all_of(folder)
        workers = {
            path.stem.removeprefix("worker-"): json.loads(path.read_text())
            for path in folder.glob("worker-*.json")
        }
        if code is None:
            raise TimeoutError(
                f"{worker} {arguments} did not end within {deadline} s; reported: {workers}\n{text}"
            )
        return ElasticLaunch(code, text, workers)


def _kill_all_of(folder: Path) -> None:
    """Workers whose launcher was killed; they have sessions of their own."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get("HVD_PARTIAL_TEST_REPORT") == str(folder):
                process.kill()
