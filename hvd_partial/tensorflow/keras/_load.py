# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Loads models so that training goes on distributed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf
from horovod.tensorflow import Compression

from hvd_partial import arguments
from hvd_partial.tensorflow._errors import names_rank
from hvd_partial.tensorflow.optimizer import checked_compression, distributed_optimizer


@names_rank
def load_model(
    filepath: Any,
    custom_optimizers: Iterable[type] | None = None,
    custom_objects: dict[str, Any] | None = None,
    compression: Any = Compression.none,
    legacy_opts: bool = False,
    **options: Any,
) -> Any:
    """Loads a Keras model and makes its optimizer distributed, state included.

    The file may have been saved with a plain optimizer or with a distributed one: they look alike.

    Args:
      filepath: Of a .keras, .h5 or (tf_keras) SavedModel file.
      custom_optimizers: Optimizer classes of your own.
      custom_objects: Other classes and functions, by name.
      compression: See DistributedOptimizer.
      legacy_opts: Not needed; for Horovod's sake.
      options: More arguments of DistributedOptimizer, e.g. mode="solo".
    """
    del legacy_opts
    checked_compression(compression)
    custom_optimizers = arguments.listed("custom_optimizers", custom_optimizers or (), "classes")
    if custom_objects is not None and not isinstance(custom_objects, dict):
        raise arguments.wrong("custom_objects", custom_objects, "a dict of names to objects")
    objects = {kind.__name__: kind for kind in custom_optimizers}
    objects.update(custom_objects or {})
    model = tf.keras.models.load_model(filepath, custom_objects=objects)
    if model.optimizer is not None:
        distributed_optimizer(model.optimizer, compression=compression, **options)
    return model
