# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""The same start on all ranks."""

from __future__ import annotations

from typing import Any

import horovod.tensorflow as _hvd
import tensorflow as tf

from hvd_partial import arguments
from hvd_partial.tensorflow import _distributed, _keras, _runtime
from hvd_partial.tensorflow._broadcast import checked_root_rank
from hvd_partial.tensorflow._errors import names_rank
from hvd_partial.tensorflow.keras.callbacks._base import PartialCallback, states_of


class BroadcastGlobalVariablesCallback(PartialCallback):
    """Gives all ranks the weights and the optimizer's variables of one rank, before the first step.

    (Horovod's comes after the first step; with partial rounds, gradients of differing weights would
    then still be on their way.) A model that is not built yet, which tf_keras allows, gets them
    after its first step, when everything on its way has been flushed.

    Args:
      root_rank: Whose.
      device: As Horovod's.
      local_variables: A variable, or a list of them, that stay as they are.
    """

    @names_rank
    def __init__(self, root_rank: int = 0, device: str = "", local_variables: Any = None) -> None:
        super().__init__()
        self.root_rank = checked_root_rank(root_rank)
        self.device = device
        self.broadcast_done = False
        self._generation = 0  # of the engine under which it was done
        if local_variables is None:
            local_variables = []
        elif not isinstance(local_variables, list | tuple | set):
            local_variables = [local_variables]
        self._local: set[Any] = set()
        for variable in local_variables:
            self.register_local_var(variable)

    def register_local_var(self, var: Any) -> None:
        """Leaves this variable as it is on each rank."""
        raw = _keras.raw(var)
        if not isinstance(raw, tf.Variable):
            raise arguments.wrong("local_variables", var, "a variable, or a list of variables")
        self._local.add(raw.ref())

    def on_train_begin(self, logs: Any = None) -> None:
        super().on_train_begin(logs)
        # In an elastic job ranks may have joined, which wait for this.
        self.broadcast_done &= self._generation == _runtime.generation()
        if not self.broadcast_done and self.model.built and self.model.weights:
            self._broadcast()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        del batch, logs
        if self.broadcast_done:
            return
        _distributed.flush(states_of(self.model))
        self._broadcast()

    def _broadcast(self) -> None:
        _runtime.connect()
        variables = [_keras.raw(variable) for variable in self.model.weights]
        for optimizer in _optimizers(self.model):
            _keras.build(optimizer, self.model.trainable_variables)
            variables += _keras.optimizer_variables(optimizer)
        chosen: dict[Any, tf.Variable] = {}
        for variable in variables:
            if variable.ref() not in self._local:
                chosen.setdefault(variable.ref(), variable)
        with tf.device(self.device):
            _hvd.broadcast_variables(list(chosen.values()), root_rank=self.root_rank)
        self.broadcast_done = True
        self._generation = _runtime.generation()


def _optimizers(model: Any) -> list[Any]:
    optimizer = getattr(model, "optimizer", None)
    if optimizer is not None:
        return [optimizer]
    # Several optimizers, each for some variables: those that exist have been built.
    return [state.optimizer for state in states_of(model) if state.variables]
