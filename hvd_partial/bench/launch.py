# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Starts the processes of a task: light ones for ours, `horovodrun` or `mpirun` for the others."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import multiprocessing
import multiprocessing.connection
import os
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from hvd_partial.bench.cells import HOROVOD_SYSTEMS, MPI_SYSTEM, OTHER_SYSTEMS, Launch, Sample, Task

_context = multiprocessing.get_context("forkserver")


class LaunchError(RuntimeError):
    """A benchmark's processes failed; the text says which, and how."""


def missing(system: str) -> str:
    """Why a system cannot run here, or an empty text."""
    if system in HOROVOD_SYSTEMS:
        if importlib.util.find_spec("horovod") is None or shutil.which(_horovodrun()) is None:
            return "Horovod is not installed here"
        if system == "horovod-mpi" and shutil.which("mpirun") is None:
            return "there is no mpirun here (Debian: apt-get install openmpi-bin)"
    if system == MPI_SYSTEM:
        if shutil.which("mpirun") is None:
            return "there is no mpirun here (Debian: apt-get install openmpi-bin)"
        if importlib.util.find_spec("mpi4py") is None:
            return "mpi4py is not installed here (pip install mpi4py)"
    return ""


def launch(task: Task, ranks: int, deadline: float) -> Launch:
    """Runs the task in `ranks` processes.

    Args:
      deadline: Seconds until everything is killed.

    Raises:
      LaunchError: if a process failed or there was no end before the deadline.
    """
    if task.mode in OTHER_SYSTEMS:
        return Launch(task, _launch_other(task, ranks, deadline))
    return Launch(task, _launch_ours(task, ranks, deadline))


def describe_command(system: str, ranks: int) -> str:
    """How a system's processes are started, for the report."""
    if system not in OTHER_SYSTEMS:
        return f"{ranks} processes by multiprocessing, numpy level"
    return " ".join([*_command(system, ranks), "python -m hvd_partial.bench.worker"])


def _horovodrun() -> str:
    # Beside the interpreter, where a virtual environment has it.
    beside = Path(sys.executable).with_name("horovodrun")
    return str(beside) if beside.exists() else "horovodrun"


def _command(system: str, ranks: int) -> list[str]:
    if system == "horovod-gloo":
        return [_horovodrun(), "--gloo", "-np", str(ranks)]
    if system == "horovod-mpi":
        return [_horovodrun(), "--mpi", "-np", str(ranks), "--mpi-args=--oversubscribe"]
    # Without the yield more ranks than cores wait for whole time slices.
    return ["mpirun", "--oversubscribe", "--mca", "mpi_yield_when_idle", "1", "-np", str(ranks)]


def _launch_other(task: Task, ranks: int, deadline: float) -> list[list[Sample]]:
    environment = os.environ | {
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "CUDA_VISIBLE_DEVICES": "-1",
        "OMP_NUM_THREADS": "1",
    }
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "samples.json"
        command = [
            *_command(task.mode, ranks),
            *(sys.executable, "-m", "hvd_partial.bench.worker", task.mode),
            *(json.dumps(dataclasses.asdict(task)), str(output)),
        ]
        try:
            done = subprocess.run(
                command,
                env=environment,
                capture_output=True,
                text=True,
                timeout=deadline,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise LaunchError(f"{task.mode}, {ranks} ranks: no end after {deadline:g} s") from None
        if done.returncode != 0 or not output.exists():
            tail = "\n".join((done.stdout + done.stderr).splitlines()[-15:])
            raise LaunchError(f"{task.mode}, {ranks} ranks: exit code {done.returncode}\n{tail}")
        return [
            [
                Sample(**{**s, "seconds": tuple(s["seconds"]), "slept": tuple(s["slept"])})
                for s in of
            ]
            for of in json.loads(output.read_text())
        ]


def _launch_ours(task: Task, ranks: int, deadline: float) -> list[list[Sample]]:
    pipes: list[Connection] = []
    processes = []
    for rank in range(ranks):
        ours, theirs = _context.Pipe()
        process = _context.Process(target=_rank_main, args=(theirs, rank, ranks, task), daemon=True)
        process.start()
        theirs.close()
        pipes.append(ours)
        processes.append(process)
    end = time.monotonic() + deadline
    try:
        while True:
            answers = [_receive(pipe, rank, task, end) for rank, pipe in enumerate(pipes)]
            if all(kind == "exchange" for kind, _ in answers):
                for pipe in pipes:
                    pipe.send([item for _, item in answers])
                continue
            for rank, (kind, item) in enumerate(answers):
                if kind == "error":
                    raise LaunchError(f"{task.mode}, {ranks} ranks: rank {rank} failed:\n{item}")
            for process in processes:
                process.join(max(0.0, end - time.monotonic()))
            return [samples for _, samples in answers]
    finally:
        for process in processes:
            if process.is_alive():
                process.kill()
            process.join()


def _receive(pipe: Connection, rank: int, task: Task, end: float) -> tuple[str, Any]:
    if not pipe.poll(max(0.0, end - time.monotonic())):
        raise LaunchError(f"{task.mode}: no sign of rank {rank} before the deadline")
    try:
        answer: tuple[str, Any] = pipe.recv()
    except EOFError:
        raise LaunchError(f"{task.mode}: rank {rank} died") from None
    return answer


def _rank_main(pipe: Connection, rank: int, size: int, task: Task) -> None:
    from hvd_partial.bench.measure import run
    from hvd_partial.bench.systems import OurSystem

    def exchange(item: Any) -> list[Any]:
        pipe.send(("exchange", item))
        items: list[Any] = pipe.recv()
        return items

    try:
        system = OurSystem(rank, size, exchange, task.mode, task.max_lag)
        samples = run(task, system)
        system.close()
        pipe.send(("samples", samples))
    except BaseException:
        pipe.send(("error", traceback.format_exc()))
