# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Horovod's elastic callbacks, with our state and our `run`."""

from __future__ import annotations

from typing import Any

from horovod.tensorflow.keras import elastic as _elastic
from horovod.tensorflow.keras.elastic import (
    CommitStateCallback,
    UpdateBatchStateCallback,
    UpdateEpochStateCallback,
)

from hvd_partial.tensorflow.elastic import TensorFlowKerasState, run


class KerasState(TensorFlowKerasState):
    """State of a Keras model and its optimizer, for elastic training.

    Args:
      model: A built model.
      optimizer: By default the model's.
      kwargs: More values to keep, as attributes.
    """

    def __init__(self, model: Any, optimizer: Any = None, **kwargs: Any) -> None:
        super().__init__(model, optimizer=optimizer, **kwargs)


_THEIRS = [name for name in dir(_elastic) if not name.startswith("_") and name not in globals()]
globals().update({name: getattr(_elastic, name) for name in _THEIRS})

__all__ = [
    "CommitStateCallback",
    "KerasState",
    "UpdateBatchStateCallback",
    "UpdateEpochStateCallback",
    "run",
]
