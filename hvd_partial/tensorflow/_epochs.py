# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Lets Keras take epochs of different lengths.

Keras remembers how many batches the first epoch had. A longer one is cut there, and after a shorter
one tf_keras ends training; neither has a switch for that. So for datasets that carry our mark, and
for no others, the end of the data is the end of the epoch and nothing is remembered. The mark also
tells between two batches that the epoch is over, before callbacks hear of a batch that never comes.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context

Due = Callable[[], bool]

_MARK = "_hvd_partial_due"
_PATCHED = "_hvd_partial_patched"


def mark_dataset(dataset: tf.data.Dataset, due: Due) -> tf.data.Dataset:
    """Marks a dataset whose iterations have different lengths; datasets made from it are too.

    Args:
      due: Whether another batch is to begin in the present iteration.
    """
    setattr(dataset, _MARK, due)
    return dataset


def find_mark(dataset: Any) -> Due | None:
    """The mark of a dataset, or of one that it was made from."""
    front = [dataset]
    while front:
        found = front.pop()
        due = getattr(found, _MARK, None)
        if due is not None:
            return due
        if isinstance(found, tf.data.Dataset):
            front.extend(found._inputs())
    return None


def allow_epochs_of_any_length() -> None:
    """Teaches the Keras behind `tf.keras`, and any other that is imported, about the mark."""
    _ = tf.keras.Model
    if "keras" in sys.modules:
        import keras.src.backend.tensorflow.trainer as trainer
        from keras.src.trainers.epoch_iterator import EpochIterator

        _patch(EpochIterator, "catch_stop_iteration", _quiet(EpochIterator, _keras_data))
        kind = trainer.TFEpochIterator
        _patch(kind, "catch_stop_iteration", _quiet(kind, _keras_data))
        _patch(kind, "__next__", _next_if_due(kind))
    if "tf_keras" in sys.modules:
        from tf_keras.src.engine.data_adapter import DataHandler

        _patch(DataHandler, "catch_stop_iteration", _quiet(DataHandler, _tf_keras_data))
        _patch(DataHandler, "steps", _steps_while_due(DataHandler))


def _keras_data(iterator: Any) -> Any:
    return getattr(iterator, "_distributed_dataset", None)


def _tf_keras_data(handler: Any) -> Any:
    return getattr(handler, "_dataset", None)


def _patch(kind: type, name: str, replacement: Any) -> None:
    done = kind.__dict__.get(_PATCHED, frozenset())
    if name not in done:
        setattr(kind, name, replacement)
        setattr(kind, _PATCHED, done | {name})


def _quiet(kind: type, data: Callable[[Any], Any]) -> Any:
    original = kind.catch_stop_iteration  # type: ignore[attr-defined]

    @contextlib.contextmanager
    def catch_stop_iteration(self: Any) -> Iterator[None]:
        if find_mark(data(self)) is None:
            with original(self):
                yield
            return
        # The end of the data is the end of the epoch; nothing is remembered.
        with contextlib.suppress(StopIteration, tf.errors.OutOfRangeError):
            yield
            context.async_wait()

    return catch_stop_iteration


def _next_if_due(kind: type) -> Any:
    original = kind.__next__  # type: ignore[attr-defined]

    def __next__(self: Any) -> Any:  # noqa: N807
        due = find_mark(_keras_data(self))
        if due is not None and not due():
            raise StopIteration
        return original(self)

    return __next__


def _steps_while_due(kind: type) -> Any:
    original = kind.steps  # type: ignore[attr-defined]

    def steps(self: Any) -> Iterator[Any]:
        due = find_mark(_tf_keras_data(self))
        for step in original(self):
            if due is not None and not due():
                return
            yield step

    return steps
