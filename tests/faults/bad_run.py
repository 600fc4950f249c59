# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs the tables of wrong values, each in a process of its own kind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.faults import bad_engine
from tests.faults.bad_input import Answer

ROOT = Path(__file__).resolve().parents[2]


def of_engine(run: Callable[..., list[Any]]) -> dict[str, Answer]:
    """By key; `run` starts one rank."""
    (answers,) = run(bad_engine.try_all, 1)
    return _by_key(answers)


def of_tensorflow(deadline: float = 120.0) -> tuple[dict[str, Answer], list[str]]:
    """By key, and the public arguments without a row.

    Raises:
      RuntimeError: with the output, if the process failed.
    """
    variables = dict(
        os.environ,
        PYTHONPATH=str(ROOT),
        TF_CPP_MIN_LOG_LEVEL="3",
        CUDA_VISIBLE_DEVICES="-1",
        # MPI, which a Horovod built with it would choose, wants a launcher.
        HOROVOD_CONTROLLER="gloo",
        HOROVOD_CPU_OPERATIONS="gloo",
    )
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.bad_tensorflow"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=variables,
        timeout=deadline,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}")
    found = json.loads(done.stdout.splitlines()[-1])
    return _by_key(found["answers"]), found["missing"]


def _by_key(answers: list[dict[str, Any]]) -> dict[str, Answer]:
    return {
        found["key"]: Answer(**(found | {"errors": tuple(found["errors"])})) for found in answers
    }
