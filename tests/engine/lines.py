# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""The lines that the engine says in a rank's process, through `logging`."""

from __future__ import annotations

import logging
from collections.abc import Callable


class Lines(logging.Handler):
    """Collects them, and acts as soon as one holds a text."""

    def __init__(self) -> None:
        super().__init__()
        self.all: list[str] = []
        self._actions: dict[str, Callable[[], None]] = {}
        logger = logging.getLogger("hvd_partial")
        logger.addHandler(self)
        logger.setLevel(logging.INFO)
        logger.propagate = False

    def when(self, text: str, action: Callable[[], None]) -> None:
        self._actions[text] = action

    def emit(self, record: logging.LogRecord) -> None:
        line = record.getMessage()
        self.all.append(line)
        for text in [text for text in self._actions if text in line]:
            self._actions.pop(text)()

    def warnings(self) -> list[str]:
        """Those about stalls."""
        return [line for line in self.all if " waited " in line or "goes on after" in line]
