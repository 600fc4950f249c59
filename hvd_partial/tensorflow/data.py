# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Input pipelines for ranks that are not equally fast."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import horovod.tensorflow as _hvd
import tensorflow as tf

from hvd_partial import arguments
from hvd_partial.errors import NotConnectedError
from hvd_partial.tensorflow import _distributed, _ops
from hvd_partial.tensorflow._epochs import allow_epochs_of_any_length, mark_dataset
from hvd_partial.tensorflow._errors import names_rank

_gates: Iterator[int] = itertools.count()


@names_rank
def by_contributions(
    dataset: tf.data.Dataset, steps_per_epoch: int, optimizer: Any = None
) -> tf.data.Dataset:
    """Epochs that end when the ranks together have contributed `steps_per_epoch` batches each.

    A slow rank makes fewer steps in such an epoch and a fast one more, and a batch that would end
    after the epoch is not begun: nobody waits at its end. In sync mode it is the classic epoch,
    exactly `steps_per_epoch` batches on every rank. Prefetching behind it is fine: batches that are
    on their way are counted as what they will bring. Give it to `model.fit` without
    `steps_per_epoch`; with Keras's `steps_per_execution` above 1 only Keras 3 takes it.
    `ReplicaSyncCallback` makes the replicas equal at the epoch's end.

    It switches off tf.data's autotuning, which can hold up a rank for seconds at each epoch's end:
    give parallel maps and prefetches a number instead of `tf.data.AUTOTUNE`. To keep it, set
    `autotune.enabled = True` in the dataset's options.

    Args:
      dataset: Batches of this rank; repeated as often as needed.
      steps_per_epoch: Batches per rank in an epoch, if all were equally fast.
      optimizer: The distributed optimizer that counts. By default the one made last, or the first
        that trains, if there is none yet.

    Returns:
      The dataset of one epoch, to be iterated once for each.

    Raises:
      InvalidArgumentError: for a number below 1 or an optimizer that is not distributed.
    """
    _check_dataset(dataset)
    arguments.whole("steps_per_epoch", steps_per_epoch, least=1, hint="batches of one rank")
    channel, passes = _counter(optimizer)
    gate = next(_gates)
    plan = (channel, gate, steps_per_epoch, passes)
    # A dataset without end has no end to repeat at.
    endless = dataset if dataset.cardinality() == tf.data.INFINITE_CARDINALITY else dataset.repeat()

    def one_epoch(_: tf.Tensor) -> tf.data.Dataset:
        epoch = _ops.epoch_begin(*plan)
        # Asked before a batch is made, not after.
        tickets = tf.data.Dataset.range(2**62).take_while(
            lambda handed_out: _ops.epoch_open(epoch, handed_out, *plan)
        )
        return tf.data.Dataset.zip((tickets, endless)).map(lambda _, batch: batch)

    epochs = tf.data.Dataset.from_tensors(0).flat_map(one_epoch)
    options = tf.data.Options()
    # The end of an iterator waits for tf.data's tuning thread, which sleeps up to a minute and can
    # miss that it should end: a rank would stand still that long at an epoch's end.
    options.autotune.enabled = False
    # flat_map does not hand on the options of what it flattens.
    options = options.merge(dataset.options())
    # tf.data puts a prefetch behind datasets by itself; here it would only blur the end.
    options.experimental_optimization.inject_prefetch = False
    allow_epochs_of_any_length()
    return mark_dataset(epochs.with_options(options), lambda: _ops.epoch_due(channel, gate))


def _counter(optimizer: Any) -> tuple[str, int]:
    """Name of the channel that counts, and batches in a contribution."""
    if optimizer is not None:
        state = _distributed.state_of(optimizer)
        if state is None:
            raise arguments.wrong("optimizer", optimizer, "a DistributedOptimizer of hvd_partial")
    else:
        state = _distributed.newest_state()
    return ("", 1) if state is None else (state.name, state.settings.passes)


@names_rank
def shard(dataset: tf.data.Dataset, seed: int = 0) -> tf.data.Dataset:
    """This rank's share of the examples, another one each time the dataset is iterated.

    The examples are dealt into as many shards as there are ranks. In every `size` iterations each
    rank gets each shard once, in an order drawn anew; at the same iteration the ranks have
    different ones. So the data of a rank that is always late, and contributes less, are not always
    the same.

    Args:
      dataset: Examples, in the same order on all ranks: shuffle behind it, or with a fixed seed and
        `reshuffle_each_iteration=False`.
      seed: The same on all ranks.

    Raises:
      NotConnectedError: before `init()`.
    """
    if not _hvd.is_initialized():
        raise NotConnectedError("data.shard: call hvd_partial.tensorflow.init() first")
    _check_dataset(dataset)
    arguments.whole("seed", seed, least=None, hint="the same on all ranks")
    rank, size = _hvd.rank(), _hvd.size()
    with tf.init_scope():
        iteration = tf.Variable(0, dtype=tf.int64, trainable=False, name="hvd_partial_iteration")

    def one_iteration(_: tf.Tensor) -> tf.data.Dataset:
        number = iteration.assign_add(1) - 1
        return dataset.shard(size, _shard_of(rank, size, seed, number))

    shares = tf.data.Dataset.from_tensors(0).flat_map(one_iteration)
    # The dataset reads the variable, but does not keep it alive.
    shares._hvd_partial_iteration = iteration
    return shares


def _check_dataset(dataset: Any) -> None:
    if not isinstance(dataset, tf.data.Dataset):
        raise arguments.wrong(
            "dataset", dataset, "a tf.data.Dataset", "make one with Dataset.from_tensor_slices"
        )


def _shard_of(rank: int, size: int, seed: int, iteration: tf.Tensor) -> tf.Tensor:
    """Which shard a rank reads: a Latin square of ranks and iterations, its rows and columns in
    random order, another one for every `size` iterations."""
    block, position = iteration // size, tf.cast(iteration % size, tf.int32)
    rows = tf.random.experimental.stateless_shuffle(tf.range(size), seed=[seed, 2 * block])
    columns = tf.random.experimental.stateless_shuffle(tf.range(size), seed=[seed, 2 * block + 1])
    return tf.cast(rows[(columns[position] + rank) % size], tf.int64)
