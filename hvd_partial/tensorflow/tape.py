# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""DistributedGradientTape: Horovod's, with partial rounds."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from horovod.tensorflow import Average, Compression, global_process_set

from hvd_partial import arguments
from hvd_partial.errors import InvalidArgumentError
from hvd_partial.modes import Mode
from hvd_partial.tensorflow import _keras
from hvd_partial.tensorflow._channels import Options, Staleness
from hvd_partial.tensorflow._errors import names_rank
from hvd_partial.tensorflow._reduced import mark
from hvd_partial.tensorflow._replay import densified
from hvd_partial.tensorflow.optimizer import checked_compression, reduction_options
from hvd_partial.tensorflow.partial import reduce_dense

# A tape lives for one step, the channel for all: it belongs to the variables.
_names: dict[tuple[Any, ...], str] = {}
_numbers: Iterator[int] = itertools.count()


class _PartialTape(tf.GradientTape):
    """See `DistributedGradientTape`."""

    def __init__(
        self, tape: tf.GradientTape, name: str | None, options: Options, predivide: float, half: Any
    ) -> None:
        super().__init__(tape._persistent, tape._watch_accessed_variables)
        self._tape = tape._tape
        self._name = name
        self._options = options
        self._predivide = predivide
        self._compression = half

    @names_rank
    def gradient(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        unconnected_gradients: Any = tf.UnconnectedGradients.NONE,
        use_generic_names: bool = False,
    ) -> Any:
        """The gradients, reduced; a structure like `sources`."""
        del use_generic_names  # the channel has a name of its own
        local = super().gradient(target, sources, output_gradients, unconnected_gradients)
        flat_sources = tf.nest.flatten(sources)
        flat = tf.nest.flatten(local)
        if len(flat) != len(flat_sources):
            raise InvalidArgumentError(
                "sources: must be variables or a structure of variables; the gradient has another "
                "structure"
            )
        reduced = self._reduce(flat, flat_sources)
        return tf.nest.pack_sequence_as(sources, reduced)

    def register_local_source(self, source: Any) -> None:
        """Not supported: take a plain tf.GradientTape for local variables."""
        raise NotImplementedError(
            "register_local_source: all sources are reduced; use a plain tf.GradientTape (made "
            "with persistent=True if need be) for variables that stay local"
        )

    def get_local_and_global_gradients(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        use_generic_names: bool = False,
    ) -> tuple[list[Any], list[Any]]:
        """No local ones, and (source, reduced gradient) for all sources."""
        gradients = self.gradient(
            target, sources, output_gradients, use_generic_names=use_generic_names
        )
        return [], list(zip(sources, gradients, strict=True))

    def _reduce(self, gradients: list[Any], sources: list[Any]) -> list[Any]:
        specs = _keras.tensor_specs(sources)
        values, dtypes = [], []
        for gradient, spec in zip(gradients, specs, strict=True):
            dtype = spec.dtype if gradient is None else gradient.dtype
            dtypes.append(dtype)
            if gradient is None:
                value = tf.zeros(spec.shape, dtype)
            else:
                value = densified(gradient, dtype)
                value.set_shape(spec.shape)
            if self._predivide != 1.0:
                value = value / tf.cast(self._predivide, dtype)
            if self._compression is not None:
                value, _ = self._compression.compress(value)
            values.append(value)
        names = [spec.name for spec in specs]
        reduced = reduce_dense(self._channel_name(sources), values, names, self._options, add=True)
        out: list[Any] = []
        for gradient, value, dtype in zip(gradients, reduced, dtypes, strict=True):
            value = tf.cast(value, dtype)
            if self._predivide != 1.0:
                value = value * tf.cast(self._predivide, dtype)
            out.append(None if gradient is None else mark(value))
        return out

    def _channel_name(self, sources: list[Any]) -> str:
        if self._name is not None:
            return f"tape/{self._name}"
        raw = [_keras.raw(source) for source in sources]
        if not all(isinstance(source, tf.Variable) for source in raw):
            raise InvalidArgumentError(
                "name: must be given when the sources are not all variables; the channel belongs "
                "to them"
            )
        key = tuple(source.ref() for source in raw)
        if key not in _names:
            _names[key] = f"tape/{next(_numbers)}"
        return _names[key]


@names_rank
def DistributedGradientTape(  # noqa: N802 - Horovod's name
    gradtape: tf.GradientTape,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    op: Any = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Any = None,
    process_set: Any = global_process_set,
    scale_local_gradients: bool = True,
    *,
    name: str | None = None,
    mode: str | Mode = "majority",
    catch_up: str = "replay",
    max_lag: int = 8,
    average: str | None = "size",
    staleness: Staleness = "inverse",
    grace: str | float = "auto",
    skip_nonfinite: bool = True,
) -> Any:
    """A tape whose `gradient` reduces over the ranks that are there in time.

    A late rank gets the sum of all results that it missed, so no gradient is lost; but its
    optimizer then makes one step where the others made several. Replicas that must be equal need
    `hvd_partial.tensorflow.apply` or a distributed optimizer, with a plain `tf.GradientTape`; or
    mode "sync". Sparse gradients come back dense. A source without gradient gets None; on other
    ranks' side it counts as zeros.

    Args:
      gradtape: A `tf.GradientTape`, before or after recording.
      name: Of the channel. By default a number for each list of source variables, in the order of
        their first use, which must be the same on all ranks.
      mode, catch_up, max_lag, average, staleness, grace, skip_nonfinite: As DistributedOptimizer's.
      others: Horovod's.

    Raises:
      InvalidArgumentError: for an argument that cannot be, and why.
    """
    del sparse_as_dense, scale_local_gradients
    if not isinstance(gradtape, tf.GradientTape):
        raise arguments.wrong("gradtape", gradtape, "a tf.GradientTape")
    if name is not None:
        arguments.text("name", name, "the channel's, the same on all ranks")
    options, predivide = reduction_options(
        op=op,
        average=average,
        gradient_predivide_factor=gradient_predivide_factor,
        device_dense=device_dense,
        device_sparse=device_sparse,
        process_set=process_set,
        num_groups=num_groups,
        groups=groups,
        mode=mode,
        catch_up=catch_up,
        max_lag=max_lag,
        staleness=staleness,
        grace=grace,
        skip_nonfinite=skip_nonfinite,
    )
    return _PartialTape(gradtape, name, options, predivide, checked_compression(compression))
