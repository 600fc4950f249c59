# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Horovod's elastic state and callbacks, for Keras 3 as well as tf_keras; see docs/elastic.md."""

from __future__ import annotations

from typing import Any

from horovod.tensorflow.keras import elastic as _elastic

from hvd_partial.errors import InvalidArgumentError
from hvd_partial.tensorflow import _exchange
from hvd_partial.tensorflow.elastic import TensorFlowKerasState, run
from hvd_partial.tensorflow.keras.callbacks._base import PartialCallback


class KerasState(TensorFlowKerasState):
    """State of a Keras model and its optimizer, for elastic training.

    Args:
      model: A built model.
      optimizer: By default the model's.
      kwargs: More values to keep, as attributes, e.g. epoch=0 and batch=0.
    """

    def __init__(self, model: Any, optimizer: Any = None, **kwargs: Any) -> None:
        super().__init__(model, optimizer=optimizer, **kwargs)


class CommitStateCallback(PartialCallback):
    """Commits at each epoch's end, and every few batches.

    A commit is a meeting of all ranks. Where they make different numbers of batches, or Keras does
    not know how many (as with `data.by_contributions`), they meet at each epoch's end only, and
    every few batches each keeps its own state, without looking for new hosts: `state.save()`.

    Put it behind the callbacks that change what is kept, UpdateBatchStateCallback and
    UpdateEpochStateCallback among them.

    Args:
      state: What to commit.
      batches_per_commit: Batches of this rank between two commits.
    """

    def __init__(self, state: Any, batches_per_commit: int = 1) -> None:
        super().__init__()
        whole = isinstance(batches_per_commit, int) and not isinstance(batches_per_commit, bool)
        if not whole or batches_per_commit < 1:
            raise InvalidArgumentError(
                f"batches_per_commit={batches_per_commit!r}: must be a whole number from 1"
            )
        self.state = state
        self.batches_per_commit = batches_per_commit
        self._next = batches_per_commit
        self._alike = False

    def on_train_begin(self, logs: Any = None) -> None:
        super().on_train_begin(logs)
        steps = (self.params or {}).get("steps")
        known = _exchange.gather_json(None if steps is None else int(steps)).values()
        self._alike = None not in known and len(set(known)) == 1

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        del epoch, logs
        self._next = self.batches_per_commit

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        del logs
        if batch + 1 < self._next:
            return
        self._next = batch + 1 + self.batches_per_commit
        if self._alike:
            self.state.commit()
        else:
            self.state.save()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        del epoch, logs
        self.state.commit()


class UpdateBatchStateCallback(PartialCallback):
    """Keeps in `state.batch` how many batches of the present epoch this rank has made; 0 at its
    end. An epoch that goes on after a restart counts on:

        model.fit(..., steps_per_epoch=steps - state.batch, epochs=1)

    (Horovod's keeps the index of the last batch, which would be made again, and Keras does not take
    the number of steps that it sets.)

    Args:
      state: Has `batch`.
    """

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state
        self._before = 0

    def on_train_begin(self, logs: Any = None) -> None:
        super().on_train_begin(logs)
        self._before = self.state.batch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        del logs
        self.state.batch = self._before + batch + 1

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        del epoch, logs
        self.state.batch = self._before = 0


class UpdateEpochStateCallback(PartialCallback):
    """Keeps in `state.epoch` how many epochs are done, over all restarts, whether `fit` is called
    with `initial_epoch=state.epoch` or counts from 0 again.

    Args:
      state: Has `epoch`.
    """

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state
        self.initial_epoch = state.epoch
        self._first: int | None = None  # as Keras counts

    def on_train_begin(self, logs: Any = None) -> None:
        super().on_train_begin(logs)
        self.initial_epoch = self.state.epoch
        self._first = None

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        del logs
        if self._first is None:
            self._first = epoch

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        del logs
        self.state.epoch = self.initial_epoch + epoch - (self._first or 0) + 1


_THEIRS = [name for name in dir(_elastic) if not name.startswith("_") and name not in globals()]
globals().update({name: getattr(_elastic, name) for name in _THEIRS})

__all__ = [
    "CommitStateCallback",
    "KerasState",
    "UpdateBatchStateCallback",
    "UpdateEpochStateCallback",
    "run",
]
