# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""The baseline: Horovod's own optimizer, as its users write it, under tf_keras.

Under Keras 3 Horovod 0.28.1 wraps the optimizer, trains, and reduces nothing.
"""

from __future__ import annotations

from typing import Any

import horovod.tensorflow as horovod
import horovod.tensorflow.keras as hvd
import tensorflow as tf

from examples.digits.dataset import ImageSet
from examples.digits.delays import delay_callback
from examples.digits.pipeline import local_batches
from examples.digits.plan import Run
from hvd_partial.check import version


class HorovodSide:
    """See `side.Side`."""

    def __init__(self) -> None:
        hvd.init()
        self._reduced = 0
        self._steps: CountSteps | None = None

    def rank(self) -> int:
        return hvd.rank()

    def size(self) -> int:
        return hvd.size()

    def keras_version(self) -> str:
        return f"tf_keras {version('tf_keras')}"

    def allgather(self, value: Any) -> list[Any]:
        return horovod.allgather_object(value)

    def barrier(self) -> None:
        horovod.allgather_object(None)

    def wrap(self, optimizer: Any, run: Run) -> Any:
        return hvd.DistributedOptimizer(optimizer)

    def batches(self, images: ImageSet, run: Run, steps: int) -> Any:
        # As many on every rank: Horovod's optimizer waits for all of them in each step.
        return local_batches(images, run).take(steps)

    def callbacks(self, run: Run) -> list[Any]:
        self._steps = CountSteps()
        return [*self.warm_up_callbacks(), delay_callback(run), self._steps]

    def warm_up_callbacks(self) -> list[Any]:
        return [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]

    def start_counting(self) -> None:
        self._steps = None

    def contributions(self) -> int:
        return 0 if self._steps is None else self._steps.steps * hvd.size()

    def facts(self) -> dict[str, Any]:
        rounds = 0 if self._steps is None else self._steps.steps
        return {
            "contributions": rounds * hvd.size(),
            "rounds": rounds,
            "full_share": 1.0,
            "late_share": 0.0,
            "max_lag": 0,
        }


class CountSteps(tf.keras.callbacks.Callback):
    """Each step of Horovod's optimizer is one allreduce of all ranks' gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.steps += 1
