# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Input pipelines for ranks that are not equally fast."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterator
from typing import Any

import horovod.tensorflow as _hvd
import tensorflow as tf

from hvd_partial import arguments
from hvd_partial.errors import InvalidArgumentError, NotConnectedError
from hvd_partial.tensorflow import _distributed, _ops, _runtime
from hvd_partial.tensorflow._epochs import allow_epochs_of_any_length, mark_dataset
from hvd_partial.tensorflow._errors import names_rank

_gates: Iterator[int] = itertools.count()
_numbers: Iterator[int] = itertools.count()  # of sharded datasets


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
def measured(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """The same batches; how long training waits for each is added up, for `StragglerCallback`.

    It belongs at the end of the pipeline, behind prefetching: what is prefetched in time costs
    nothing.
    """
    _check_dataset(dataset)
    with tf.init_scope():
        waited = tf.Variable(0.0, dtype=tf.float64, trainable=False, name="hvd_partial_input")

    def note(started: tf.Tensor, *batch: Any) -> Any:
        with tf.control_dependencies(tf.nest.flatten(batch)):
            waited.assign_add(tf.timestamp() - started)
        return batch[0] if len(batch) == 1 else batch

    # zip asks them in order: when the batch was asked for, then the batch.
    asked = tf.data.Dataset.range(2**62).map(lambda _: tf.timestamp())
    timed = tf.data.Dataset.zip((asked, dataset)).map(
        lambda started, batch: note(started, *(batch if isinstance(batch, tuple) else (batch,)))
    )
    options = tf.data.Options()
    # A prefetch behind it, which tf.data adds by itself, would measure its own thread.
    options.experimental_optimization.inject_prefetch = False
    timed = timed.with_options(dataset.options().merge(options))
    timed._hvd_partial_input = waited
    return timed


@names_rank
def input_seconds(dataset: tf.data.Dataset) -> float:
    """Seconds that training on this rank has waited for batches of a `measured` dataset.

    Raises:
      InvalidArgumentError: if it is not one.
    """
    waited = getattr(dataset, "_hvd_partial_input", None)
    if waited is None:
        raise InvalidArgumentError(
            "input_seconds: the dataset does not measure; give what hvd.data.measured(dataset) "
            "returned, with nothing behind it"
        )
    return float(waited.numpy())


@names_rank
def shard(dataset: tf.data.Dataset, seed: int = 0) -> tf.data.Dataset:
    """This rank's share of the examples, another one each time the dataset is iterated.

    The examples are dealt into as many shards as there are ranks. In every `size` iterations each
    rank gets each shard once, in an order drawn anew; at the same iteration the ranks have
    different ones. So the data of a rank that is always late, and contributes less, are not always
    the same. In an elastic job the shares are dealt anew when ranks come or go, from the next
    iteration on.

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
    place = _Place(_hvd.rank(), _hvd.size())

    def one_iteration(_: tf.Tensor) -> tf.data.Dataset:
        number = place.iteration.assign_add(1) - 1
        size = place.size.read_value()
        return dataset.shard(size, _shard_of(place.rank.read_value(), size, seed, number))

    shares = tf.data.Dataset.from_tensors(0).flat_map(one_iteration)
    # The dataset reads the variables, but does not keep them alive.
    shares._hvd_partial_place = place
    return shares


def _check_dataset(dataset: Any) -> None:
    if not isinstance(dataset, tf.data.Dataset):
        raise arguments.wrong(
            "dataset", dataset, "a tf.data.Dataset", "make one with Dataset.from_tensor_slices"
        )


class _Place:
    """Which share of a dataset is next; in an elastic job, rank and size change."""

    def __init__(self, rank: int, size: int) -> None:
        self.number = next(_numbers)

        def variable(value: int) -> tf.Variable:
            return tf.Variable(value, dtype=tf.int64, trainable=False, name="hvd_partial_shard")

        with tf.init_scope():
            self.rank, self.size, self.iteration = variable(rank), variable(size), variable(0)
        _places.add(self)


_places: weakref.WeakSet[_Place] = weakref.WeakSet()


def _move(engine: Any) -> None:
    for place in list(_places):
        place.rank.assign(engine.rank)
        place.size.assign(engine.size)


_runtime.on_connect(_move)


def iterations() -> list[int]:
    """How often each sharded dataset has been iterated, in the order in which they were made."""
    return [int(p.iteration) for p in sorted(_places, key=lambda place: place.number)]


def go_to(numbers: list[int]) -> None:
    """Goes on from there, as another rank, which has made the same datasets."""
    ordered = sorted(_places, key=lambda place: place.number)
    for place, number in zip(ordered, numbers, strict=False):
        place.iteration.assign(number)


def _shard_of(rank: tf.Tensor, size: tf.Tensor, seed: int, iteration: tf.Tensor) -> tf.Tensor:
    """Which shard a rank reads: a Latin square of ranks and iterations, its rows and columns in
    random order, another one for every `size` iterations."""
    block, position = iteration // size, iteration % size
    rows = tf.random.experimental.stateless_shuffle(tf.range(size), seed=[seed, 2 * block])
    columns = tf.random.experimental.stateless_shuffle(tf.range(size), seed=[seed, 2 * block + 1])
    return tf.cast(rows[(columns[position] + rank) % size], tf.int64)
