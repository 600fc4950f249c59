# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Equal replicas at the end of each epoch."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from hvd_partial import arguments
from hvd_partial.errors import HvdPartialError, InvalidArgumentError
from hvd_partial.tensorflow import _distributed, _exchange, _keras
from hvd_partial.tensorflow._distributed import Distributed
from hvd_partial.tensorflow._errors import names_rank
from hvd_partial.tensorflow.keras.callbacks._base import PartialCallback, open_early, require_states


class ReplicaSyncCallback(PartialCallback):
    """Flushes at the end of each epoch and of training: all ranks meet, what is left is reduced and
    applied, and the replicas are equal to the last bit.

    It acts before Keras's own validation where there is one on this rank, else with on_epoch_end:
    put it before callbacks that save or evaluate the model. Ranks may have made different numbers
    of steps, or none.

    Args:
      average_state: Take the mean over the ranks of what is not trained, such as the moving
        statistics of batch normalisation; else each rank keeps its own.
      check: Compare checksums of all weights and optimizer variables, and raise if they differ.
    """

    @names_rank
    def __init__(self, average_state: bool = True, check: bool = False) -> None:
        super().__init__()
        self.average_state = arguments.flag("average_state", average_state)
        self.check = arguments.flag("check", check)
        self._states: list[Distributed] = []
        self._pending = False
        self._steps: list[tuple[int, int]] = []

    def on_train_begin(self, logs: Any = None) -> None:
        super().on_train_begin(logs)
        self._states = require_states(self.model, type(self).__name__)
        self._pending = False
        for state in self._states:
            open_early(self.model, state)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        del epoch, logs
        self._pending = True
        self._steps = self._count()

    def on_test_begin(self, logs: Any = None) -> None:
        del logs
        if self._pending:
            self._sync()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        del epoch, logs
        if self._pending:
            self._sync()

    def on_train_end(self, logs: Any = None) -> None:
        if self._pending:
            self._sync()
        super().on_train_end(logs)

    def _sync(self) -> None:
        self._pending = False
        self._refuse_silence()
        for state in self._states:
            if not state.variables:
                raise InvalidArgumentError(
                    f"{type(self).__name__}: {state.name!r} has made no step on this rank and the "
                    "model is not built, so its variables are not known here; build the model "
                    "before fit"
                )
        _distributed.flush(self._states)
        if self.average_state:
            self._average_state()
        if self.check:
            refuse_different_replicas(self.model, self._states)

    def _count(self) -> list[tuple[int, int]]:
        return [
            (int(state.optimizer.iterations), state.progress().deposits) for state in self._states
        ]

    def _refuse_silence(self) -> None:
        """Updates without a single deposit: something goes past the distributed optimizer."""
        if not self._steps:
            return
        for state, (iterations, deposits), before in zip(
            self._states, self._count(), self._steps, strict=True
        ):
            if iterations > before[0] and deposits == before[1]:
                raise HvdPartialError(
                    f"{state.name!r} made {iterations - before[0]} updates in this epoch and "
                    "deposited no gradient: the ranks do not train together. Does the model's "
                    "train_step go past optimizer.apply_gradients?"
                )

    def _average_state(self) -> None:
        variables = [_keras.raw(variable) for variable in self.model.non_trainable_weights]
        variables = [variable for variable in variables if variable.dtype.is_floating]
        means = _exchange.mean([variable.numpy() for variable in variables], "state")
        for variable, value in zip(variables, means, strict=True):
            variable.assign(value)


class ModelAverageCallback(PartialCallback):
    """Averages the weights over the ranks every few epochs, as the eager-SGD paper does.

    For catch_up="latest", where a rank that was late has missed results, so that replicas part.

    Args:
      every: Epochs between averages; training ends with one in any case.
      slots: Average the optimizer's floating point variables too (momentum).
    """

    @names_rank
    def __init__(self, every: int = 1, slots: bool = False) -> None:
        super().__init__()
        self.every = arguments.whole("every", every, least=1, hint="epochs between averages")
        self.slots = arguments.flag("slots", slots)
        self._due = False

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        del logs
        self._due = (epoch + 1) % self.every != 0
        if not self._due:
            self._average()

    def on_train_end(self, logs: Any = None) -> None:
        if self._due:
            self._average()
            self._due = False
        super().on_train_end(logs)

    def _average(self) -> None:
        states = require_states(self.model, type(self).__name__)
        _distributed.flush(states)
        variables = [_keras.raw(variable) for variable in self.model.weights]
        if self.slots:
            for state in states:
                variables += _keras.optimizer_variables(state.optimizer)
        variables = [variable for variable in variables if variable.dtype.is_floating]
        means = _exchange.mean([variable.numpy() for variable in variables], "model")
        for variable, value in zip(variables, means, strict=True):
            variable.assign(value)


def checksum(model: Any, states: list[Distributed]) -> str:
    """Of all weights and all optimizer variables, bit by bit."""
    digest = hashlib.sha256()
    variables = [_keras.raw(variable) for variable in model.trainable_weights]
    for state in states:
        variables += _keras.optimizer_variables(state.optimizer)
    for variable in variables:
        digest.update(np.ascontiguousarray(variable.numpy()).tobytes())
    return digest.hexdigest()


def refuse_different_replicas(model: Any, states: list[Distributed]) -> None:
    """Compares the checksums of all ranks.

    Raises:
      HvdPartialError: if they are not the same.
    """
    sums = _exchange.gather_json(checksum(model, states))
    if len(set(sums.values())) == 1:
        return
    groups: dict[str, list[int]] = {}
    for rank, value in sums.items():
        groups.setdefault(value, []).append(rank)
    raise HvdPartialError(
        "the replicas differ: ranks with equal weights are "
        + " / ".join(str(ranks) for ranks in groups.values())
        + ". Did they start equal (BroadcastGlobalVariablesCallback), with the same learning rate "
        "at the same round, and catch_up='replay'?"
    )
