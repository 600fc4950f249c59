# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""hvd_partial's optimizer under Keras 3, in any of its modes."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import tensorflow as tf

import hvd_partial.tensorflow as hvd_tensorflow
import hvd_partial.tensorflow.keras as hvd
from examples.digits.dataset import ImageSet
from examples.digits.delays import delay_callback
from examples.digits.pipeline import local_batches
from examples.digits.plan import Run

# Steps of the demo are few: stragglers are to be found within some of them.
DETECTOR = {"window": 6, "in_row": 2, "stride": 2}


class PartialSide:
    """See `side.Side`."""

    def __init__(self) -> None:
        hvd.init()
        self._optimizer: Any = None
        self._steps = 1
        self._switch: Any = None
        self._before: Any = None  # statistics of the optimizer's channel after the warm-up

    def rank(self) -> int:
        return hvd.rank()

    def size(self) -> int:
        return hvd.size()

    def keras_version(self) -> str:
        return f"keras {tf.keras.__version__}"

    def allgather(self, value: Any) -> list[Any]:
        return hvd_tensorflow.allgather_object(value)

    def barrier(self) -> None:
        hvd_tensorflow.allgather_object(None)

    def wrap(self, optimizer: Any, run: Run) -> Any:
        self._run = run
        self._switch = None
        # Tracing takes some ranks longer than others: in sync mode that makes nobody late.
        hvd.set_mode("sync")
        self._optimizer = hvd.DistributedOptimizer(
            optimizer, mode=run.mode, staleness=run.staleness
        )
        return self._optimizer

    def batches(self, images: ImageSet, run: Run, steps: int) -> Any:
        self._steps = steps
        # An epoch is over when all ranks together have made steps * size() contributions.
        return hvd.data.by_contributions(local_batches(images, run), steps, self._optimizer)

    def callbacks(self, run: Run) -> list[Any]:
        callbacks = [*self._common(), delay_callback(run)]
        if run.bsp_fraction is not None:
            self._switch = hvd.callbacks.SyncSwitchCallback(
                bsp_fraction=run.bsp_fraction,
                policy=run.policy,
                detector=DETECTOR,
                steps_per_epoch=self._steps,
            )
            callbacks.append(self._switch)
        return callbacks

    def warm_up_callbacks(self) -> list[Any]:
        callbacks = self._common()
        if self._run.bsp_fraction is not None:
            # So that what is traced here asks for the settings of each round, as it will later.
            callbacks.append(hvd.callbacks.SyncSwitchCallback([("sync", 1)], steps_per_epoch=1))
        return callbacks

    def _common(self) -> list[Any]:
        return [
            hvd.callbacks.BroadcastGlobalVariablesCallback(0),
            hvd.callbacks.ReplicaSyncCallback(),
        ]

    def start_counting(self) -> None:
        hvd.set_mode(self._run.mode)
        self._before = hvd.stats(self._optimizer)

    def contributions(self) -> int:
        return hvd.stats(self._optimizer).contributions - self._before.contributions

    def facts(self) -> dict[str, Any]:
        now, before = hvd.stats(self._optimizer), self._before
        rounds = now.rounds - before.rounds
        own = (
            now.deposits - before.deposits,
            now.late_deposits - before.late_deposits,
            now.largest_lag,
        )
        of_ranks = self.allgather(own)
        deposits = [deposits for deposits, _, _ in of_ranks]
        return {
            "contributions": now.contributions - before.contributions,
            "rounds": rounds,
            # The rounds that end an epoch hold what was left over.
            "full_share": (now.full_rounds - before.full_rounds)
            / max(1, rounds - (now.flushes - before.flushes)),
            "late_share": sum(late for _, late, _ in of_ranks) / sum(deposits),
            "max_lag": max(lag for _, _, lag in of_ranks),
            "steps_of_ranks": deposits,
            "switches": [asdict(s) for s in self._switch.switches] if self._switch else [],
        }
