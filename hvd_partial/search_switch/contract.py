# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs the user's training script once: fraction and seed in, one JSON line out.

docs/search_switch.md describes the contract.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import subprocess
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hvd_partial.search_switch.bisection import Outcome, Run, SearchError

FRACTION_VARIABLE = "HVD_PARTIAL_BSP_FRACTION"
SEED_VARIABLE = "HVD_PARTIAL_SEED"
PLACEHOLDERS = ("{bsp_fraction}", "{seed}")
# What a launcher gets to end its ranks before all are killed.
PATIENCE_SECONDS = 10.0
LINE = '{"accuracy": 0.93, "seconds": 1234.5}'


class ContractError(SearchError):
    """The script ended well but did not say what it must, or said what cannot be."""


@dataclass(frozen=True)
class Script:
    """A training script and how it is run.

    Attributes:
      command: Program and arguments, with placeholders.
      first_seed: The seed of run 1 of every setting.
      timeout_seconds: A run that takes longer has failed.
      best_accuracy: An accuracy above it breaks the contract.
      logs: The folder for what the runs print.
    """

    command: tuple[str, ...]
    first_seed: int
    timeout_seconds: float
    best_accuracy: float
    logs: Path

    def seed(self, run: Run) -> int:
        """Runs of the same number have the same seed in every setting."""
        return self.first_seed + run.number - 1

    def make(self, run: Run) -> Outcome:
        """One training run, from start to end.

        Raises:
          ContractError: It ended well, without a result that can be used.
          SearchError: It could not be started.
        """
        values = (repr(run.bsp_fraction), str(self.seed(run)))
        command = [_fill(part, values) for part in self.command]
        environment = os.environ | dict(
            zip((FRACTION_VARIABLE, SEED_VARIABLE), values, strict=True)
        )
        name = f"bsp-{values[0]}-run-{run.number}"
        output, errors = (self.logs / f"{name}.{kind}" for kind in ("out", "err"))
        start = time.monotonic()
        try:
            self.logs.mkdir(parents=True, exist_ok=True)
            with output.open("wb") as out, errors.open("wb") as err:
                code = _run(command, environment, out.fileno(), err.fileno(), self.timeout_seconds)
        except OSError as error:
            raise SearchError(f"{command[0]} could not be run: {error}") from error
        seconds = time.monotonic() - start
        if code is None:
            limit = f"took longer than {self.timeout_seconds:g} s (--run-timeout)"
            return Outcome(None, seconds, failure=f"timed out: {limit}")
        if code != 0:
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            words = _last_words(errors)
            said = f": {words}" if words else f", see {errors}"
            return Outcome(None, seconds, failure=f"crashed: {how}{said}")
        with output.open(errors="replace") as lines:
            document = read_result(lines)
        if document is None:
            raise ContractError(
                f"the script ended with exit code 0 but without a result: it must print one line "
                f"like {LINE} to its standard output, which is in {output}"
            )
        return to_outcome(document, self.best_accuracy, str(output))


def read_result(lines: Iterable[str]) -> dict[str, Any] | None:
    """The last JSON object with an accuracy; a launcher may put text before and behind it."""
    decoder = json.JSONDecoder()
    found = None
    for line in lines:
        if '"accuracy"' not in line:
            continue
        position = line.find("{")
        while position >= 0:
            try:
                document, end = decoder.raw_decode(line, position)
            except ValueError:
                end = position + 1
            else:
                if "accuracy" in document:
                    found = document
            position = line.find("{", end)
    return found


def to_outcome(document: dict[str, Any], best_accuracy: float, source: str) -> Outcome:
    """Checks what a script printed."""
    accuracy = _number(document, "accuracy", source)
    seconds = _number(document, "seconds", source)
    loss = _number(document, "loss", source) if "loss" in document else 0.0
    if seconds is None or seconds <= 0:
        raise ContractError(
            f'"seconds" must be a positive number, not {document.get("seconds")!r}: how long the '
            f"training took ({source})"
        )
    if accuracy is not None and not 0 <= accuracy <= best_accuracy:
        raise ContractError(
            f'"accuracy" is {accuracy:g}, which is not between 0 and {best_accuracy:g}: it must be '
            f"a share (0.93, not 93), or --best-accuracy must be raised ({source})"
        )
    if accuracy is None or loss is None:
        what = "accuracy" if accuracy is None else "loss"
        return Outcome(accuracy, seconds, loss, failure=f"diverged: {what} is not a finite number")
    return Outcome(accuracy, seconds, loss if "loss" in document else None)


def _fill(argument: str, values: Sequence[str]) -> str:
    for placeholder, value in zip(PLACEHOLDERS, values, strict=True):
        argument = argument.replace(placeholder, value)
    return argument


def _number(document: dict[str, Any], key: str, source: str) -> float | None:
    """A number; None for null and for what is not finite, as diverged runs have it."""
    value = document.get(key)
    if key not in document or isinstance(value, bool) or not isinstance(value, int | float | None):
        raise ContractError(
            f'"{key}" must be a number, in a line like {LINE}; the script printed '
            f"{json.dumps(document)} ({source})"
        )
    return None if value is None or not math.isfinite(value) else float(value)


def _run(
    command: Sequence[str], environment: dict[str, str], out: int, err: int, timeout: float
) -> int | None:
    """The exit code, or None if it took too long; nothing of it is left running then."""
    process = subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=err,
        # A group of its own: Ctrl-C comes to the search alone, which then ends the group.
        start_new_session=True,
    )
    try:
        return process.wait(timeout)
    except subprocess.TimeoutExpired:
        return None
    finally:
        if process.returncode is None:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends a script and the processes in its group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    deadline = time.monotonic() + PATIENCE_SECONDS
    # Not reaped before the group is killed: until then its id cannot belong to somebody else.
    look = os.WEXITED | os.WNOHANG | os.WNOWAIT
    while os.waitid(os.P_PID, process.pid, look) is None and time.monotonic() < deadline:
        time.sleep(0.02)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _last_words(errors: Path) -> str:
    """The last line that was printed to the standard error, shortened."""
    with errors.open("rb") as file:
        file.seek(max(0, errors.stat().st_size - 4096))
        lines = [line.strip() for line in file.read().decode(errors="replace").splitlines()]
    last = next((line for line in reversed(lines) if line), "")
    return last if len(last) <= 160 else last[:157] + "..."
