# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Horovod's elastic training, with the engine restarted along with Horovod."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from horovod.common.elastic import run_fn as _run_fn
from horovod.common.exceptions import HorovodInternalError
from horovod.tensorflow import elastic as _elastic
from horovod.tensorflow.elastic import *  # noqa: F403 - Horovod's own where unchanged
from horovod.tensorflow.elastic import TensorFlowState

from hvd_partial.tensorflow import _keras, _runtime
from hvd_partial.tensorflow._broadcast import broadcast_variables
from hvd_partial.tensorflow._errors import translate

_HOROVOD = ("HorovodAllreduce", "HorovodAllgather", "HorovodBroadcast")


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Horovod's decorator: recovers from lost and new workers.

    Errors of our ops inside traced functions count as Horovod's. Gradients that were on their way
    when a worker was lost are dropped with the steps since the last commit. Without `name`, new
    workers and old ones number their optimizers differently: give DistributedOptimizer a `name`.

    Args:
      func: Takes a `State` first.
    """

    @functools.wraps(func)
    def translating(state: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return func(state, *args, **kwargs)
        except tf.errors.OpError as error:
            ours = translate(error)
            if isinstance(ours, HorovodInternalError):
                raise ours from error
            if isinstance(error, tf.errors.UnknownError) and any(n in str(error) for n in _HOROVOD):
                raise HorovodInternalError(error) from error
            raise

    return _run_fn(translating, _reset)


def _reset() -> None:
    _runtime.shutdown()
    _runtime.init()


class TensorFlowKerasState(_elastic.TensorFlowKerasState):
    """Horovod's state of a Keras model and its optimizer, for Keras 3 as well."""

    def __init__(
        self, model: Any, optimizer: Any = None, backend: Any = None, **kwargs: Any
    ) -> None:
        super().__init__(model, optimizer=optimizer, backend=backend, **kwargs)
        self._bcast_model = self._broadcast

    def _all(self) -> list[tf.Variable]:
        variables = [_keras.raw(variable) for variable in self.model.variables]
        return variables + _keras.optimizer_variables(self.optimizer)

    def _broadcast(self) -> None:
        broadcast_variables(self._all(), root_rank=0)

    def _save_model(self) -> None:
        self._saved_model_state = [tf.identity(variable) for variable in self._all()]

    def _load_model(self) -> None:
        for variable, saved in zip(self._all(), self._saved_model_state, strict=True):
            variable.assign(saved)


__all__ = ["TensorFlowKerasState", "TensorFlowState", "run"]
