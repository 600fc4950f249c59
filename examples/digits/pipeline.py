# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""This rank's batches, the same for both libraries under comparison."""

from __future__ import annotations

import tensorflow as tf

from examples.digits.dataset import ImageSet
from examples.digits.plan import Run
from hvd_partial.tensorflow import data

SHUFFLE_EXAMPLES = 1024


def local_batches(images: ImageSet, run: Run) -> tf.data.Dataset:
    """One pass over this rank's share, shuffled, in full batches; each pass over another share."""
    shares = data.shard(images.train, seed=run.seed)
    batches = shares.shuffle(SHUFFLE_EXAMPLES, seed=run.seed)
    options = tf.data.Options()
    # The thread that tunes a pipeline sleeps ever longer between its looks, up to a minute, and
    # sometimes misses that its iterator is being deleted: then the end of an epoch waits for it,
    # for seconds (seen with TensorFlow 2.18.1). There is nothing to tune here.
    options.autotune.enabled = False
    return batches.batch(run.batch_size, drop_remainder=True).with_options(options)
