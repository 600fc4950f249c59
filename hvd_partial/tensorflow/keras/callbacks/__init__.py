# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Keras callbacks: Horovod's, which work on Keras 3 here as well as on tf_keras, and ours."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from hvd_partial.tensorflow.keras.callbacks.broadcast import BroadcastGlobalVariablesCallback
from hvd_partial.tensorflow.keras.callbacks.delays import (
    DelayInjectionCallback,
    FixedRank,
    LogNormal,
    RandomRank,
    RotatingSkew,
)
from hvd_partial.tensorflow.keras.callbacks.learning_rate import (
    LearningRateScheduleCallback,
    LearningRateWarmupCallback,
)
from hvd_partial.tensorflow.keras.callbacks.metrics import (
    MetricAverageCallback,
    StopAgreementCallback,
)
from hvd_partial.tensorflow.keras.callbacks.stragglers import StragglerCallback
from hvd_partial.tensorflow.keras.callbacks.sync import ModelAverageCallback, ReplicaSyncCallback
from hvd_partial.tensorflow.keras.callbacks.sync_switch import SyncSwitchCallback


class BestModelCheckpoint(tf.keras.callbacks.ModelCheckpoint):
    """`ModelCheckpoint(save_best_only=True)` whose `filepath` may be set after construction.

    Horovod's Spark estimators do so.
    """

    def __init__(
        self,
        monitor: str = "val_loss",
        verbose: int = 0,
        save_weights_only: bool = False,
        mode: str = "auto",
        save_freq: Any = "epoch",
        filepath: str | None = None,
    ) -> None:
        # Keras 3 looks at the name's ending here already.
        ending = ".weights.h5" if save_weights_only else ".keras"
        super().__init__(
            filepath=filepath or f"best{ending}",
            monitor=monitor,
            verbose=verbose,
            save_best_only=True,
            save_weights_only=save_weights_only,
            mode=mode,
            save_freq=save_freq,
        )
        self.filepath = filepath

    def on_train_begin(self, logs: Any = None) -> None:
        if self.filepath is None:
            raise ValueError("BestModelCheckpoint: set its filepath before training")
        super().on_train_begin(logs)


__all__ = [
    "BestModelCheckpoint",
    "BroadcastGlobalVariablesCallback",
    "DelayInjectionCallback",
    "FixedRank",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "LogNormal",
    "MetricAverageCallback",
    "ModelAverageCallback",
    "RandomRank",
    "ReplicaSyncCallback",
    "RotatingSkew",
    "StopAgreementCallback",
    "StragglerCallback",
    "SyncSwitchCallback",
]
