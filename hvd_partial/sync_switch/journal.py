# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""How training stood after each update, so that a job can go on from any of its checkpoints.

A checkpoint of Keras holds the optimizer's count of updates, and nothing of ours: its files load
without this package. The journal says what belongs to that count.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TextIO


class Journal:
    """A line of JSON for each update, flushed as it is written.

    Args:
      path: The file; its folder is made.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: TextIO | None = None

    def resume(self, iterations: int) -> dict[str, Any] | None:
        """What was written for that count of updates, or for the last one below it; what lies
        behind is forgotten, because training goes on from here. None: nothing fits.

        A line that was cut off in a crash is passed over.
        """
        kept: list[dict[str, Any]] = []
        if iterations > 0 and self._path.exists():
            for line in self._path.read_text().splitlines():
                try:
                    entry = json.loads(line)
                    count = int(entry["iterations"])
                except (ValueError, KeyError, TypeError):
                    continue
                if count <= iterations:
                    kept.append(entry)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        partial = self._path.with_name(self._path.name + ".new")
        partial.write_text("".join(json.dumps(entry) + "\n" for entry in kept))
        partial.replace(self._path)
        return kept[-1] if kept else None

    def write(self, iterations: int, state: dict[str, Any]) -> None:
        """After this many updates training stands so."""
        if self._file is None:
            self._file = self._path.open("a")
        self._file.write(json.dumps({"iterations": iterations} | state) + "\n")
        self._file.flush()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
