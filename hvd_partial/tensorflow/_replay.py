# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Deposit a gradient, apply every result that waits, in order: the step of a rank.

All that the ranks must do alike happens here: the layout of the channel, what stands for a missing
gradient, in which order results are applied. How one result is applied is the caller's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import ops as tf_ops
from tensorflow.python.ops import control_flow_util

from hvd_partial.errors import InvalidArgumentError
from hvd_partial.tensorflow import _channels, _ops, _runtime
from hvd_partial.tensorflow._channels import Channel, Options, TensorSpec
from hvd_partial.tensorflow._errors import translated
from hvd_partial.tensorflow._ops import Header

# Values (None where nobody has a gradient), whether all contributions were non-finite, whether any
# was, the round's header.
Apply = Callable[[list[tf.Tensor | None], tf.Tensor, tf.Tensor, Header], None]

# Seconds between two looks at channels that flush together: at first, and when nothing comes.
_FLUSH_INTERVALS = (0.001, 0.01)


def refuse_xla(what: str) -> None:
    """Raises where XLA compiles what is being traced: it knows none of our ops.

    Raises:
      InvalidArgumentError: with the remedy.
    """
    graph = None if tf.executing_eagerly() else tf_ops.get_default_graph()
    if graph is not None and control_flow_util.GraphOrParentsInXlaContext(graph):
        raise InvalidArgumentError(
            f"{what} cannot run inside XLA (jit_compile=True): a rank has to wait for others and "
            "to apply as many results as there are, which XLA cannot compile. Use "
            "model.compile(..., jit_compile=False), or tf.function without jit_compile."
        )


def densified(gradient: Any, dtype: tf.DType) -> tf.Tensor:
    """A gradient as a dense tensor of that dtype. A round has one layout on all ranks, so
    IndexedSlices (of embeddings) become dense, with repeated indices added up."""
    return tf.cast(tf.convert_to_tensor(gradient), dtype)


class Replay:
    """A channel for the gradients of a list of variables.

    Its last tensor, the marks, is ours: float32, for each variable whether the contribution has a
    gradient for it, then whether it was not finite (where `screen` looked). Sums of them tell each
    rank what the others had.

    Args:
      name: The channel's.
      options: The channel's.
      screen: Non-finite contributions are replaced by zeros and marked, so that all ranks see them
        in the same round (a loss scale depends on that). Without it the engine leaves them out.
    """

    def __init__(self, name: str, options: Options, screen: bool = False) -> None:
        self.name = name
        self.options = options
        self.screen = screen
        self.channel: Channel | None = None
        # Orders a deposit behind the updates before it, also where the gradient does not depend on
        # the weights and nothing else would.
        with tf.init_scope():
            self._order = tf.Variable(0, dtype=tf.int64, trainable=False, name="hvd_partial")
        self._compiled: dict[tuple[bool, ...], Callable[..., None]] = {}
        self._graph = True

    def open(self, tensors: Sequence[TensorSpec]) -> Channel:
        """Opens the channel for these variables; again with the same is fine."""
        marks = TensorSpec("hvd_partial/marks", (len(tensors) + 1,), tf.float32)
        channel = _channels.open_channel(self.name, [*tensors, marks], self.options)
        self.channel = channel
        return channel

    def step(self, gradients: Sequence[Any], apply: Apply) -> tf.Tensor:
        """Deposits and applies; in a graph or eagerly. How many results were applied, int32.

        Args:
          gradients: One for each variable of the channel, None where there is none.
          apply: Applies one result.
        """
        refuse_xla(f"channel {self.name!r}: hvd_partial")
        channel = self._opened()
        self._graph = not tf.executing_eagerly()
        mask = tuple(gradient is not None for gradient in gradients)
        with translated(), tf.control_dependencies([self._order.read_value()]):
            count = _ops.deposit(channel.name, self._contribution(channel, gradients, mask))
        if tf.executing_eagerly():
            for _ in range(int(count)):
                self._take(channel, count, mask, apply)
            return count

        def body(index: tf.Tensor) -> tf.Tensor:
            self._take(channel, index, mask, apply)
            return index + 1

        tf.while_loop(
            lambda index: index < count,
            body,
            [tf.constant(0)],
            parallel_iterations=1,
            name="hvd_partial_replay",
        )
        return count

    def begin_flush(self) -> None:
        """All ranks meet; leftovers are reduced. `go_on_flushing` until it has ended."""
        channel = self._opened()
        with translated():
            _ops.begin_flush(channel.name)

    def go_on_flushing(self, apply: Apply, block: bool) -> tuple[bool, bool]:
        """Applies the results that are there; whether there were any, and whether it has ended.

        They are applied by the same compiled code as in a step, so that replicas are equal to the
        last bit whichever way a result came.
        """
        channel = self._opened()
        with translated():
            count, flushed = _ops.wait(channel.name, block)
            for _ in range(int(count)):
                self._take_compiled(channel, apply)
        return int(count) > 0, bool(flushed)

    def progress(self) -> _ops.Progress:
        """Counters of this rank."""
        return _ops.progress(self.name)

    def opened_channel(self) -> Any:
        """The engine's own object."""
        return self._opened().engine_channel()

    def use_graph(self, graph: bool) -> None:
        """How a flush applies results on a rank that has made no step itself."""
        self._graph = graph

    # ---- inside ---------------------------------------------------------------

    def _opened(self) -> Channel:
        if self.channel is None:
            raise InvalidArgumentError(f"channel {self.name!r} is not open yet")
        if not _runtime.connected():
            _runtime.connect()
        return self.channel

    def _contribution(
        self, channel: Channel, gradients: Sequence[Any], mask: tuple[bool, ...]
    ) -> list[tf.Tensor]:
        specs = channel.tensors[:-1]
        if len(gradients) != len(specs):
            raise InvalidArgumentError(
                f"channel {self.name!r}: {len(gradients)} gradients for {len(specs)} variables"
            )
        values = []
        for gradient, spec in zip(gradients, specs, strict=True):
            if gradient is None:
                values.append(tf.zeros(spec.shape, spec.dtype))
                continue
            value = densified(gradient, spec.dtype)
            if not value.shape.is_compatible_with(spec.shape):
                raise InvalidArgumentError(
                    f"channel {self.name!r}: the gradient of {spec.name} has shape {value.shape}, "
                    f"the variable has {tf.TensorShape(spec.shape)}"
                )
            value.set_shape(spec.shape)
            values.append(value)
        present = tf.constant([float(there) for there in mask])
        if not self.screen:
            return [*values, tf.concat([present, [0.0]], axis=0)]
        tests = [
            tf.reduce_all(tf.math.is_finite(value))
            for value, there in zip(values, mask, strict=True)
            if there and value.dtype.is_floating
        ]
        finite = tf.reduce_all(tf.stack(tests)) if tests else tf.constant(True)
        values = [tf.where(finite, value, tf.zeros_like(value)) for value in values]
        bad = tf.where(finite, [0.0], [1.0])
        return [*values, tf.concat([present, bad], axis=0)]

    def _take(
        self, channel: Channel, after: tf.Tensor, mask: tuple[bool, ...], apply: Apply
    ) -> None:
        with translated():
            tensors, header = _ops.take(
                channel.name, channel.shapes, channel.dtypes, after, channel.latest
            )
            self._apply(channel, tensors, header, mask, apply)

    def _take_compiled(self, channel: Channel, apply: Apply) -> None:
        tensors, header = _ops.take(
            channel.name, channel.shapes, channel.dtypes, tf.constant(0), channel.latest
        )
        mask = tuple(bool(there) for there in np.asarray(tensors[-1])[:-1] > 0)
        if not self._graph:
            self._apply(channel, tensors, header, mask, apply)
            return
        if mask not in self._compiled:

            def apply_one(tensors: list[tf.Tensor], header: Header) -> None:
                self._apply(channel, tensors, header, mask, apply)

            self._compiled[mask] = tf.function(apply_one, autograph=False)
        self._compiled[mask](tensors, header)

    def _apply(
        self,
        channel: Channel,
        tensors: list[tf.Tensor],
        header: Header,
        mask: tuple[bool, ...],
        apply: Apply,
    ) -> None:
        *values, marks = tensors
        weight = tf.cast(header.weight / header.divisor, tf.float32)
        _check_marks(channel, marks, weight, mask)
        any_bad = marks[-1] > 0
        all_bad = marks[-1] > 0.999 * weight
        kept = [value if there else None for value, there in zip(values, mask, strict=True)]
        apply(kept, all_bad, any_bad, header)
        self._order.assign_add(1)


def _check_marks(
    channel: Channel, marks: tf.Tensor, weight: tf.Tensor, mask: tuple[bool, ...]
) -> None:
    """All contributions of a round have gradients for the same variables, those that this rank
    has them for: else some ranks would update a variable and others not, and the replicas would
    part without a word. The marks tell it to all ranks in the same round."""
    expected = tf.where(tf.constant(mask, dtype=tf.bool), weight, 0.0)
    same = tf.reduce_all(tf.abs(marks[:-1] - expected) <= 1e-3 * weight)
    names = ", ".join(
        f"{spec.name} {'yes' if there else 'no'}"
        for spec, there in zip(channel.tensors[:-1], mask, strict=True)
    )
    text = (
        f"hvd_partial [MISMATCH]: channel '{channel.name}': the ranks have gradients for different "
        "variables in the same round. Compute the loss of the same variables on all ranks, and "
        "use an optimizer for each set of variables that is trained by turns. Gradients here: "
        f"{names}"
    )
    tf.debugging.Assert(same, [text], summarize=1)


def flush(flushes: Sequence[tuple[Replay, Apply]]) -> None:
    """Flushes these channels together. Eager only.

    One after the other would not do: a rank that is still training with several channels waits in
    each of them for the ranks that are not flushing that one.
    """
    for replay, _ in flushes:
        replay.begin_flush()
    pending = list(flushes)
    shortest, longest = _FLUSH_INTERVALS
    interval = shortest
    while pending:
        moved = False
        for replay, apply in list(pending):
            took, ended = replay.go_on_flushing(apply, block=len(pending) == 1)
            if ended:
                pending.remove((replay, apply))
            moved |= took or ended
        if moved:
            interval = shortest
        else:
            time.sleep(interval)
            interval = min(2 * interval, longest)
