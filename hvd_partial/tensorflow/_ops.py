# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""The ops, with names for the fields of their vectors."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from hvd_partial.tensorflow._library import load

_ops, _native = load()

# As in DESIGN: what a channel can carry.
DTYPES = (tf.float32, tf.float64, tf.float16, tf.bfloat16, tf.int32, tf.int64)

for _name in (
    "Deposit",
    "Next",
    "BeginFlush",
    "Wait",
    "Progress",
    "EpochBegin",
    "EpochOpen",
    "EpochDue",
):
    tf.no_gradient(f"HvdPartial{_name}")


class Header(NamedTuple):
    """What is known of a round, each a float64 scalar (tensor in a graph, number outside); but
    `ranks` is a matrix: for each rank its contributions, its dropped ones, its seconds."""

    round: Any
    mode: Any
    quorum: Any
    contributions: Any
    contributors: Any
    skipped: Any
    included: Any
    flush: Any
    weight: Any
    divisor: Any
    total_contributions: Any
    own: Any
    size: Any
    dropped: Any
    ranks: Any


class Progress(NamedTuple):
    """What this rank's ops put into a channel and took out of it; results not taken yet do not
    count."""

    deposits: int
    own_skipped: int
    own_included: int
    contributions: int
    skipped: int
    results: int
    flushes: int


def deposit(channel: str, tensors: list[tf.Tensor]) -> tf.Tensor:
    """Deposits and waits; how many results there are, int32."""
    shapes = [tensor.shape for tensor in tensors]
    return _ops.hvd_partial_deposit(tensors, channel=channel, shapes=shapes)


def take(
    channel: str,
    shapes: list[tf.TensorShape],
    dtypes: list[tf.DType],
    after: tf.Tensor,
    latest: bool,
) -> tuple[list[tf.Tensor], Header]:
    """The oldest result."""
    tensors, header, ranks = _ops.hvd_partial_next(
        after, channel=channel, shapes=shapes, T=dtypes, latest=latest
    )
    return list(tensors), Header(*[*tf.unstack(header), ranks])


def begin_flush(channel: str) -> None:
    """Starts a flush; wait() and take() until it has ended."""
    _ops.hvd_partial_begin_flush(channel=channel)


def wait(channel: str, block: bool = True) -> tuple[tf.Tensor, tf.Tensor]:
    """How many results there are, and whether a flush has ended; without blocking maybe neither."""
    return _ops.hvd_partial_wait(channel=channel, block=block)


def progress(channel: str) -> Progress:
    """Reads the counters; eager only."""
    return Progress(*np.asarray(_ops.hvd_partial_progress(channel=channel)).tolist())


def epoch_begin(channel: str, gate: int, steps: int, passes: int) -> tf.Tensor:
    """Where an epoch begins, int64[3]."""
    return _ops.hvd_partial_epoch_begin(channel=channel, gate=gate, steps=steps, passes=passes)


def epoch_open(
    epoch: tf.Tensor, handed_out: tf.Tensor, channel: str, gate: int, steps: int, passes: int
) -> tf.Tensor:
    """Whether another batch is due, bool."""
    return _ops.hvd_partial_epoch_open(
        epoch, handed_out, channel=channel, gate=gate, steps=steps, passes=passes
    )


def epoch_due(channel: str, gate: int) -> bool:
    """Whether the training loop is to begin another batch; eager only."""
    return bool(_ops.hvd_partial_epoch_due(channel=channel, gate=gate))


def reset() -> None:
    """Forgets the counters: a new engine has started."""
    _native.hvdp_tensorflow_reset()


def library_version() -> str:
    """The TensorFlow that the library was built for."""
    return _native.hvdp_tensorflow_version().decode()
