# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Trains the runs of a plan on one rank and has rank 0 report them."""

from __future__ import annotations

import gc
import json
import math
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from examples.digits import dataset
from examples.digits.callbacks import ReplicaCheck, Reporter
from examples.digits.plan import Run
from examples.digits.side import Side

WARM_UP_STEPS = 2

Report = Callable[[dict[str, Any]], None]


def open_side(legacy_keras: bool) -> Side:
    """Horovod's own optimizer, or hvd_partial's."""
    if legacy_keras:
        from examples.digits.horovod_side import HorovodSide

        return HorovodSide()
    from examples.digits.partial_side import PartialSide

    return PartialSide()


def train_all(plan: dict[str, Any]) -> None:
    """Trains each run of the plan in turn; see `launch` for the plan."""
    tf.config.threading.set_intra_op_parallelism_threads(1)
    side = open_side(plan["legacy_keras"])
    events = Path(plan["events"])

    def report(event: dict[str, Any]) -> None:
        if side.rank() == 0:
            with events.open("a") as file:
                file.write(json.dumps(event) + "\n")

    def read() -> dataset.ImageSet:
        return dataset.load(plan["dataset"], plan["data_dir"], plan["image_size"])

    # One rank prepares the set on disk, then all read it.
    if side.rank() == 0:
        read()
    side.barrier()
    images = dataset.in_memory(read())
    for index, values in enumerate(plan["runs"]):
        train(side, Run.from_dict(values), images, partial(report_run, report, index))


def report_run(report: Report, index: int, event: dict[str, Any]) -> None:
    """Passes an event on with the number of its run."""
    report({"run": index} | event)


def build_model(images: dataset.ImageSet) -> Any:
    """Two strided convolutions and a dense layer: a few milliseconds a step."""
    layers = tf.keras.layers
    return tf.keras.Sequential(
        [
            layers.Input(images.shape),
            layers.Conv2D(8, 3, strides=2, activation="relu"),
            layers.Conv2D(16, 3, strides=2, activation="relu"),
            layers.Flatten(),
            layers.Dense(images.classes),
        ]
    )


def build_optimizer(run: Run) -> Any:
    if run.optimizer == "sgd":
        return tf.keras.optimizers.SGD(run.learning_rate, momentum=0.9)
    return tf.keras.optimizers.Adam(run.learning_rate)


def train(side: Side, run: Run, images: dataset.ImageSet, report: Report) -> None:
    """One run, from the same initial weights on all ranks to the result's report."""
    tf.keras.utils.set_random_seed(run.seed)
    steps = images.train_size // (run.batch_size * side.size())
    model = build_model(images)
    model.compile(
        optimizer=side.wrap(build_optimizer(run), run),
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    warm_up(model, side, run, images)
    # A full garbage collection over all that TensorFlow has made by now takes a rank a second or
    # two where four of them share two cores; what is there now is left alone from here on.
    gc.collect()
    gc.freeze()

    check = ReplicaCheck(side.allgather)
    data = side.batches(images, run, steps)
    callbacks = [*side.callbacks(run), check]
    if side.rank() == 0:
        callbacks.append(Reporter(side.contributions, lambda e: report({"event": "progress"} | e)))
    report({"event": "start", "total": run.epochs * steps * side.size()})
    side.barrier()
    start = time.monotonic()
    model.fit(data, epochs=run.epochs, callbacks=callbacks, shuffle=False, verbose=0)
    seconds = max(side.allgather(check.ended - start))

    accuracy = evaluate(model, images) if side.rank() == 0 else math.nan
    facts = side.facts()
    report(
        {
            "event": "result",
            **run.to_dict(),
            **facts,
            "seconds": seconds,
            "accuracy": accuracy,
            "replicas_equal": check.equal and check.epochs == run.epochs,
            "keras": side.keras_version(),
        }
    )
    side.barrier()


def warm_up(model: Any, side: Side, run: Run, images: dataset.ImageSet) -> None:
    """Has everything traced before the clock runs, and leaves all variables as they were."""
    model.optimizer.build(model.trainable_variables)
    variables = [*model.variables, *model.optimizer.variables]
    before = [np.array(v) for v in variables]
    batch = images.train.batch(run.batch_size, drop_remainder=True).take(1).repeat(WARM_UP_STEPS)
    model.fit(batch, epochs=1, callbacks=side.warm_up_callbacks(), shuffle=False, verbose=0)
    for variable, value in zip(variables, before, strict=True):
        variable.assign(value)
    side.start_counting()


def evaluate(model: Any, images: dataset.ImageSet) -> float:
    """The share of the test images that the model classifies rightly."""
    right = total = 0
    for batch, labels in images.test.batch(500).as_numpy_iterator():
        found = np.argmax(model(batch, training=False), axis=1)
        right += int((found == labels).sum())
        total += len(labels)
    return right / total
