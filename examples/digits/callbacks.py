# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Callbacks of the demo itself; they work under Keras 3 and tf_keras alike."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf


class Reporter(tf.keras.callbacks.Callback):
    """Passes on, at most ten times a second, how far the training is.

    Args:
      contributions: Gives the number of contributions of all ranks so far.
      report: Takes {"epoch", "contributions", "loss"}.
    """

    def __init__(
        self, contributions: Callable[[], int], report: Callable[[dict[str, Any]], None]
    ) -> None:
        super().__init__()
        self._contributions = contributions
        self._report = report
        self._epoch = 0
        self._next = 0.0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._epoch = epoch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + 0.1
        self._report(
            {
                "epoch": self._epoch,
                "contributions": self._contributions(),
                "loss": float((logs or {}).get("loss", float("nan"))),
            }
        )


class ReplicaCheck(tf.keras.callbacks.Callback):
    """Compares all ranks' weights, bit by bit, after each epoch.

    It belongs behind the callback that makes replicas equal. All ranks must have as many epochs.

    Args:
      allgather: Horovod's `allgather_object`.
    """

    def __init__(self, allgather: Callable[[Any], list[Any]]) -> None:
        super().__init__()
        self._allgather = allgather
        self.equal = True
        self.epochs = 0
        self.ended = 0.0  # time.monotonic() after the last epoch

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        digest = hashlib.sha256()
        for weight in self.model.get_weights():
            digest.update(weight.tobytes())
        self.equal &= len(set(self._allgather(digest.hexdigest()))) == 1
        self.epochs += 1
        self.ended = time.monotonic()
