# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Lets Keras take epochs of different lengths.

Keras remembers how many batches the first epoch had. A longer one is cut there, and after a shorter
one tf_keras ends training; neither has a switch for that. So for datasets that carry our mark, and
for no others, the end of the data is the end of the epoch and nothing is remembered.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context

_MARK = "_hvd_partial_epochs"
_PATCHED = "_hvd_partial_patched"


def mark_dataset(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Marks a dataset whose iterations have different lengths; datasets made from it are too."""
    setattr(dataset, _MARK, True)
    return dataset


def is_marked(dataset: Any) -> bool:
    """Whether a dataset, or one that it was made from, has the mark."""
    front = [dataset]
    while front:
        found = front.pop()
        if getattr(found, _MARK, False):
            return True
        if isinstance(found, tf.data.Dataset):
            front.extend(found._inputs())
    return False


def allow_epochs_of_any_length() -> None:
    """Teaches the Kerases that are imported, or will be by `tf.keras`, about the mark."""
    _ = tf.keras.Model
    if "keras" in sys.modules:
        from keras.src.trainers.epoch_iterator import EpochIterator

        _patch(EpochIterator, "_distributed_dataset", _end_keras)
    if "tf_keras" in sys.modules:
        from tf_keras.src.engine.data_adapter import DataHandler

        _patch(DataHandler, "_dataset", _end_tf_keras)


def _patch(kind: type, attribute: str, end: Any) -> None:
    if kind.__dict__.get(_PATCHED):
        return
    for owner in [kind, *_subclasses(kind)]:
        original = owner.__dict__.get("catch_stop_iteration")
        if original is not None:
            owner.catch_stop_iteration = _wrapped(original, attribute, end)  # type: ignore[attr-defined]
    setattr(kind, _PATCHED, True)


def _subclasses(kind: type) -> list[type]:
    found = []
    for child in kind.__subclasses__():
        found += [child, *_subclasses(child)]
    return found


def _wrapped(original: Any, attribute: str, end: Any) -> Any:
    @contextlib.contextmanager
    def catch_stop_iteration(self: Any) -> Iterator[None]:
        if not is_marked(getattr(self, attribute, None)):
            with original(self):
                yield
            return
        try:
            yield
            context.async_wait()
        except (StopIteration, tf.errors.OutOfRangeError):
            end(self)

    return catch_stop_iteration


def _end_keras(iterator: Any) -> None:
    iterator._current_iterator = None
    iterator.data_adapter.on_epoch_end()


def _end_tf_keras(handler: Any) -> None:
    del handler  # what it would remember is what must not be remembered
