# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Four ranks with other data each and random delays: replicas are equal after every epoch."""

from __future__ import annotations

from support import LEGACY, data, hvd, hvt, np, optimizer_values, report, small_model, start, tf

start()
keras = tf.keras
callbacks = hvd.callbacks
RANK, SIZE = hvd.rank(), hvd.size()
MODES = ["sync", "majority", "solo", "quorum(3)", "designated(5)", "async"]
STEPS = 6


def optimizers():
    sgd, adam = keras.optimizers.SGD, keras.optimizers.Adam
    found = {
        "sgd": lambda: sgd(0.01, momentum=0.9),
        "adam": lambda: adam(0.01),
        "everything": lambda: keras.mixed_precision.LossScaleOptimizer(
            keras.optimizers.AdamW(
                0.01, weight_decay=0.1, global_clipnorm=0.5, use_ema=True, ema_momentum=0.5
            ),
            initial_scale=4.0,
        ),
    }
    if LEGACY:
        found["legacy"] = lambda: keras.optimizers.legacy.SGD(0.01, momentum=0.9, clipnorm=1.0)
    return found


class NextMode(keras.callbacks.Callback):
    """Each epoch in another mode, which another rank sets."""

    def on_epoch_begin(self, epoch, logs=None):
        if epoch % SIZE == RANK:
            hvd.set_mode(MODES[epoch % len(MODES)])


class Record(keras.callbacks.Callback):
    """All weights and optimizer variables after each epoch, compared over the ranks."""

    def __init__(self):
        super().__init__()
        self.equal = []
        self.start = None

    def on_epoch_end(self, epoch, logs=None):
        values = [w.tolist() for w in map(np.asarray, self.model.get_weights())]
        values += optimizer_values(self.model.optimizer)
        everybody = hvt.allgather_object(values)
        self.equal.append(all(found == everybody[0] for found in everybody))
        moved = everybody[0] != self.start
        self.start = everybody[0]
        self.equal[-1] = self.equal[-1] and moved


def train(optimizer, mode, epochs, *more):
    model = small_model(seed=1 + RANK)
    model.compile(optimizer=hvd.DistributedOptimizer(optimizer, mode=mode), loss="mse")
    record = Record()
    x, y = data(RANK, 4 * STEPS)
    model.fit(
        x,
        y,
        batch_size=4,
        epochs=epochs,
        verbose=0,
        callbacks=[
            callbacks.BroadcastGlobalVariablesCallback(0),
            callbacks.DelayInjectionCallback(callbacks.RandomRank(0.02, seed=epochs)),
            callbacks.ReplicaSyncCallback(check=True),
            record,
            *more,
        ],
    )
    stats = hvd.stats(model.optimizer if mode is None else None)
    return {
        "equal": record.equal,
        "contributions": stats.contributions,
        "rounds": stats.rounds,
        "late": hvt.allgather_object(stats.late_deposits),
    }


if __name__ == "__main__":
    found = {}
    opened = MODES if not LEGACY else ["sync", "majority", "solo"]
    for index, mode in enumerate(opened):
        name = ["sgd", "adam"][index % 2]
        found[f"{mode} {name}"] = train(optimizers()[name](), mode, 2)
    # set_mode is for everything, so it comes last.
    for name, make in optimizers().items():
        found[f"changing {name}"] = train(make(), "majority", len(MODES), NextMode())
    report(**found)
