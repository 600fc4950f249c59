# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""What the environment tells the engine, and what it says while it runs.

That is lines about stalls and about ranks that do not answer, and flight records.

The lines come over a queue and are printed by a thread of their own through `logging`, under the
name ``hvd_partial``. So no thread of the engine ever waits for the interpreter, and the interpreter
may end at any time.
"""

from __future__ import annotations

import importlib.metadata
import logging
import math
import os
import platform
import signal
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import hvd_partial
from hvd_partial.errors import InvalidArgumentError

STALL_WARNING = "HVD_PARTIAL_STALL_WARNING_S"
LEAVE_OUT = "HVD_PARTIAL_LEAVE_OUT_S"
FLIGHT_DIRECTORY = "HVD_PARTIAL_FLIGHT_DIR"
FLIGHT_SIGNAL = "HVD_PARTIAL_FLIGHT_SIGNAL"

DEFAULT_STALL_WARNING_SECONDS = 60.0
# A process does not answer for so long only if it is stopped, or its host or network in trouble;
# and a stop that is shorter costs less than it takes to go on without.
DEFAULT_LEAVE_OUT_SECONDS = 2.0
# Others have a meaning already that users rely on.
SIGNALS = {
    "USR1": signal.SIGUSR1,
    "USR2": signal.SIGUSR2,
    "RTMIN": signal.SIGRTMIN,
    "RTMAX": signal.SIGRTMAX,
}
_NOTICE_SECONDS = 60.0
_LAST_LINES_SECONDS = 5.0

_log = logging.getLogger("hvd_partial")


@dataclass(frozen=True)
class Settings:
    """What the environment says about it.

    Attributes:
      stall_warning_seconds: A line when ranks have waited so long; 0: none.
      leave_out_seconds: Rounds that can do without a rank whose process has not answered for so
        long are made without it; 0: all wait for it.
      flight_directory: Where flight records go; a folder that can be written.
      flight_signal: The signal that writes one; 0: none does.
    """

    stall_warning_seconds: float
    leave_out_seconds: float
    flight_directory: str
    flight_signal: int

    @classmethod
    def from_environment(cls, rank: int) -> Settings:
        """Reads the variables.

        Raises:
          InvalidArgumentError: if one has a value that makes no sense.
        """
        return cls(
            _seconds(
                rank,
                STALL_WARNING,
                DEFAULT_STALL_WARNING_SECONDS,
                "must be a number of seconds, such as 60; 0 switches the warnings off",
            ),
            _seconds(
                rank,
                LEAVE_OUT,
                DEFAULT_LEAVE_OUT_SECONDS,
                "must be a number of seconds, such as 2; with 0 all wait for a process that does "
                "not answer",
            ),
            _flight_directory(rank),
            _flight_signal(rank),
        )


def _value(name: str) -> str:
    return os.environ.get(name, "").strip()


def _wrong(rank: int, name: str, remedy: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"rank {rank}: {name}={os.environ[name]!r}: {remedy}")


def _seconds(rank: int, name: str, default: float, remedy: str) -> float:
    text = _value(name)
    if not text:
        return default
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not math.isfinite(seconds):
        raise _wrong(rank, name, remedy)
    return max(0.0, seconds)


def _flight_directory(rank: int) -> str:
    text = _value(FLIGHT_DIRECTORY)
    if not text:
        # Not the current folder: it may be read-only, or somebody's source tree. The name of each
        # record is printed, so nobody has to look for it.
        return tempfile.gettempdir()
    if not Path(text).is_dir() or not os.access(text, os.W_OK | os.X_OK):
        raise _wrong(
            rank,
            FLIGHT_DIRECTORY,
            "must be a folder that exists on this host and can be written; create it, or unset the "
            f"variable to use {tempfile.gettempdir()}",
        )
    return str(Path(text).resolve())


def _flight_signal(rank: int) -> int:
    text = _value(FLIGHT_SIGNAL).upper().removeprefix("SIG")
    if not text:
        return int(signal.SIGUSR2)
    if text == "NONE":
        return 0
    if text not in SIGNALS:
        raise _wrong(rank, FLIGHT_SIGNAL, f"must be one of {', '.join(SIGNALS)}, or none")
    return int(SIGNALS[text])


def versions() -> str:
    """Of what runs here, for people who read a flight record."""
    found = [f"hvd_partial {hvd_partial.__version__}", f"Python {platform.python_version()}"]
    for name in ("libucx-cu12", "tensorflow-cpu", "tensorflow", "keras", "horovod"):
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return ", ".join(found)


class Speaker:
    """Prints the lines of one engine until it is closed."""

    def __init__(self, native: ModuleType, rank: int, settings: Settings) -> None:
        self._native = native
        if settings.flight_signal:
            name = signal.Signals(settings.flight_signal).name
            _log.info(
                "hvd_partial rank %d: `kill -%s %d` writes a flight record to %s",
                rank,
                name.removeprefix("SIG"),
                os.getpid(),
                settings.flight_directory,
            )
        self._thread = threading.Thread(target=self._run, name="hvd_partial-notices", daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """After the engine was closed: waits until its last lines are out."""
        self._thread.join(_LAST_LINES_SECONDS)

    def _run(self) -> None:
        while (notice := self._native.next_notice(_NOTICE_SECONDS)) is not None:
            level, text = notice
            if level:
                _log.log(level, "hvd_partial %s", text)
