# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""The journal: what was measured, in JSON lines, so that no run is ever made twice.

The first line holds the settings; each further one a run, written with one write and synced before
the next run starts; further lines of settings follow where runs are judged by other ones later. A
last line that was torn by a crash is cut off: its run is made again. One search at a time holds the
file locked.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from hvd_partial.search_switch.bisection import Outcome, Run, SearchError

FORMAT = 1
_START = b'{"journal": "hvd_partial search-switch", '
# Only failures that may be the machine's: a run that diverged would diverge again.
_OF_THE_MACHINE = ("crashed", "timed out")


class Journal:
    """An open journal.

    Attributes:
      path: Its file.
      made: The runs in it.
      wasted_seconds: Of failed runs that are made again.
    """

    def __init__(
        self,
        path: Path,
        runs_of: Mapping[str, Any],
        judged_by: Mapping[str, Any],
        *,
        rejudge: bool = False,
        retry_failed: bool = False,
    ) -> None:
        """Opens a journal or starts one.

        Args:
          path: Its file.
          runs_of: What a run depends on besides fraction and number. A journal with another one
            is of no use.
          judged_by: What is made of the runs.
          rejudge: Use the runs of a journal that were judged by other settings.
          retry_failed: Forget runs that crashed or timed out.

        Raises:
          SearchError: It cannot be used; the message says why and what to do.
        """
        self.path = path
        self.made: dict[Run, Outcome] = {}
        self.wasted_seconds = 0.0
        settings = {"runs_of": dict(runs_of), "judged_by": dict(judged_by)}
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise SearchError(f"--journal {path}: {error.strerror}") from error
        try:
            self._lock()
            written = self._read(retry_failed)
            if written is None:
                self._append({"journal": "hvd_partial search-switch", "format": FORMAT, **settings})
                self._sync_folder()
            else:
                self._compare(written, settings, rejudge)
        except BaseException:
            os.close(self._file)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        os.close(self._file)

    def add(self, run: Run, seed: int, outcome: Outcome) -> None:
        """Writes down a run; it is on the disk when this returns."""
        self._append(
            {
                "bsp_fraction": run.bsp_fraction,
                "run": run.number,
                "seed": seed,
                "accuracy": outcome.accuracy,
                "seconds": outcome.seconds,
                "loss": outcome.loss,
                "failure": outcome.failure,
            }
        )
        self.made[run] = outcome

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise SearchError(
                f"--journal {self.path}: another search is writing it; wait for its end, or give "
                "another --journal"
            ) from error

    def _append(self, record: Mapping[str, Any]) -> None:
        line = json.dumps(record, allow_nan=False).encode() + b"\n"
        size = os.fstat(self._file).st_size
        try:
            written = os.write(self._file, line)
            if written != len(line):
                os.ftruncate(self._file, size)
                raise SearchError(f"--journal {self.path}: the disk is full")
            os.fsync(self._file)
        except OSError as error:
            raise SearchError(f"--journal {self.path}: {error.strerror}") from error

    def _sync_folder(self) -> None:
        folder = os.open(self.path.parent, os.O_RDONLY)
        # Some file systems have no such thing.
        with contextlib.suppress(OSError):
            os.fsync(folder)
        os.close(folder)

    def _read(self, retry_failed: bool) -> dict[str, Any] | None:
        """The settings in force and, in `made`, the runs; None of a journal without a line."""
        content = self.path.read_bytes()
        # Before anything is cut off: somebody may have named a file that is none of ours.
        if not content.startswith(_START) and not _START.startswith(content):
            raise SearchError(
                f"--journal {self.path}: exists and is no journal of search-switch; give another "
                "name"
            )
        whole = content.rfind(b"\n") + 1
        if whole != len(content):
            os.ftruncate(self._file, whole)
        settings = None
        for number, line in enumerate(content[:whole].splitlines(), 1):
            try:
                record = json.loads(line)
                if "journal" in record:
                    settings = self._settings(record)
                    continue
                run = Run(float(record["bsp_fraction"]), int(record["run"]))
                outcome = Outcome(
                    record["accuracy"], record["seconds"], record["loss"], record["failure"]
                )
            except (ValueError, KeyError, TypeError) as error:
                raise SearchError(
                    f"--journal {self.path}: line {number} is damaged ({error!r}); delete that "
                    "line, its run is made again"
                ) from error
            before = self.made.pop(run, None)
            if before is not None:
                self.wasted_seconds += before.seconds
            self.made[run] = outcome
        if retry_failed:
            for run, outcome in list(self.made.items()):
                if outcome.failure.startswith(_OF_THE_MACHINE):
                    self.wasted_seconds += self.made.pop(run).seconds
        return settings

    def _settings(self, record: dict[str, Any]) -> dict[str, Any]:
        if record["format"] != FORMAT:
            raise SearchError(
                f"--journal {self.path}: written by another version (format {record['format']}, "
                f"this one reads {FORMAT}); give another name"
            )
        return {"runs_of": record["runs_of"], "judged_by": record["judged_by"]}

    def _compare(self, written: dict[str, Any], settings: dict[str, Any], rejudge: bool) -> None:
        """Refuses runs of another kind, and other settings unless they are wanted."""
        # As they come back from a file: tuples are lists there.
        settings = json.loads(json.dumps(settings))
        other = _differences(written["runs_of"], settings["runs_of"])
        if other:
            raise SearchError(
                f"--journal {self.path}: its runs are of another job ({other}); give another "
                "--journal, or delete it"
            )
        other = _differences(written["judged_by"], settings["judged_by"])
        if other and not rejudge:
            raise SearchError(
                f"--journal {self.path}: its search had other settings ({other}); give those, or "
                "--rejudge to use its runs with the new ones, or another --journal"
            )
        if other:
            self._append({"journal": "hvd_partial search-switch", "format": FORMAT, **settings})


def _differences(written: Mapping[str, Any], given: Mapping[str, Any]) -> str:
    found = [
        f"{name.replace('_', '-')}: {written.get(name)!r} there, {given.get(name)!r} now"
        for name in sorted({*written, *given})
        if written.get(name) != given.get(name)
    ]
    return "; ".join(found)
