# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Two ranks: callbacks, schedules and datasets in model.fit."""

from __future__ import annotations

import warnings

from support import (
    LEGACY,
    data,
    hvd,
    hvt,
    np,
    raised,
    run_checks,
    same_on_all,
    small_model,
    start,
    tf,
    weights,
)

from hvd_partial.tensorflow import _exchange

settings_possible = start()
keras = tf.keras
callbacks = hvd.callbacks
RANK, SIZE = hvd.rank(), hvd.size()


def compiled(optimizer=None, mode="sync", model=None, **arguments):
    model = small_model() if model is None else model
    optimizer = optimizer or keras.optimizers.SGD(0.01)
    model.compile(optimizer=hvd.DistributedOptimizer(optimizer, mode=mode), loss="mse", **arguments)
    return model


def fit(model, *more, epochs=1, size=64, **arguments):
    x, y = data(RANK, size)
    arguments = {"batch_size": 16, "verbose": 0, "shuffle": False} | arguments
    return model.fit(x, y, epochs=epochs, callbacks=list(more), **arguments).history


class Count(keras.callbacks.Callback):
    """Batches of each epoch."""

    def __init__(self):
        super().__init__()
        self.batches = []

    def on_epoch_begin(self, epoch, logs=None):
        self.batches.append(0)

    def on_train_batch_end(self, batch, logs=None):
        self.batches[-1] += 1


class Rates(keras.callbacks.Callback):
    """The learning rate that each step was made with."""

    def __init__(self):
        super().__init__()
        self.rates = []

    def on_train_batch_end(self, batch, logs=None):
        self.rates.append(float(self.model.optimizer.learning_rate))


def broadcast_comes_first():
    """Ranks start with other weights, and the optimizer has been used on rank 0."""
    model = small_model(seed=10 + RANK)
    plain = keras.optimizers.SGD(0.01, momentum=0.9)
    if RANK == 0:
        plain.build(model.trainable_variables)
        plain.iterations.assign(7)
    model = compiled(plain, model=model)
    own = [np.array(w) for w in model.get_weights()]
    seen = {}

    class First(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            if batch == 0:
                seen["start"] = weights(self.model)

    fit(model, callbacks.BroadcastGlobalVariablesCallback(0), First(), batch_size=64)
    root = hvt.broadcast_object([w.ravel().tolist() for w in own], 0)
    return {
        "start": seen["start"] == root,
        "same": same_on_all(weights(model)),
        "iterations": int(plain.iterations),
    }


def local_variables_stay():
    model = small_model(seed=20 + RANK)
    local = model.layers[0].bias
    local.assign(np.full(8, RANK, np.float32))
    model = compiled(model=model)
    callback = callbacks.BroadcastGlobalVariablesCallback(0, local_variables=[local])
    callback.set_model(model)
    callback.on_train_begin()
    return {"local": float(np.mean(local)), "same": same_on_all(weights(model)[0])}


def metrics_are_averaged_over_those_who_have_them():
    model = compiled()
    x, y = data(0, 16)
    history = fit(
        model,
        callbacks.MetricAverageCallback(),
        **({"validation_data": (x, y)} if RANK == 0 else {}),
    )
    logs = {"loss": [1.0 + RANK, 2.0][0]} | ({"only": 3.0} if RANK == 1 else {})
    callbacks.MetricAverageCallback().on_epoch_end(0, logs)
    return {"keys": sorted(history), "logs": logs, "same": same_on_all(history["loss"])}


def stops_are_agreed():
    """Only rank 1 wants to stop, after its second epoch."""
    found = {}
    for rule in ("any", "all"):
        model = compiled()

        class Wish(keras.callbacks.Callback):
            def on_epoch_end(self, epoch, logs=None):
                self.model.stop_training = RANK == 1 and epoch == 1

        history = fit(model, Wish(), callbacks.StopAgreementCallback(rule), epochs=4)
        found[rule] = len(history["loss"])
    found["wrong"] = raised(lambda: callbacks.StopAgreementCallback("most"))
    return found


def batch_normalisation_is_averaged():
    found = {}
    for average in (True, False):
        layers = [keras.layers.Dense(4), keras.layers.BatchNormalization(), keras.layers.Dense(1)]
        model = compiled(model=small_model(layers=layers))
        x, y = data(RANK, 32)
        model.fit(
            x + RANK,
            y,
            batch_size=16,
            verbose=0,
            callbacks=[
                callbacks.BroadcastGlobalVariablesCallback(0),
                callbacks.ReplicaSyncCallback(average_state=average),
            ],
        )
        norm = model.layers[-2]
        found[str(average)] = [
            same_on_all(np.asarray(norm.moving_mean)),
            same_on_all(np.asarray(norm.gamma)),
        ]
    return found


def different_replicas_are_found():
    """Without the broadcast; all ranks learn it, and which ranks are alike."""
    model = compiled(model=small_model(seed=30 + RANK))
    return raised(lambda: fit(model, callbacks.ReplicaSyncCallback(check=True)))


def plain_optimizers_are_found():
    model = small_model()
    model.compile(optimizer=keras.optimizers.SGD(0.1), loss="mse")
    return raised(lambda: fit(model, callbacks.ReplicaSyncCallback()))


def updates_without_rounds_are_found():
    """A train_step that goes past the optimizer's public methods."""

    class Silent(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = keras.layers.Dense(1)

        def call(self, inputs):
            return self.dense(inputs)

        def train_step(self, batch):
            self.optimizer.iterations.assign_add(1)
            return {"loss": tf.constant(0.0)}

    model = Silent()
    model.build((None, 4))
    model = compiled(model=model)
    return raised(lambda: fit(model, callbacks.ReplicaSyncCallback()))


def synced_before_validation():
    """Rank 0 validates inside fit, rank 1 does not; both weights are equal when it does."""
    model = compiled(mode="solo")
    seen = []

    class Look(keras.callbacks.Callback):
        def on_test_begin(self, logs=None):
            seen.append(_exchange.gather_json(weights(self.model)))

        def on_epoch_end(self, epoch, logs=None):
            if RANK == 1:
                seen.append(_exchange.gather_json(weights(self.model)))

    x, y = data(0, 16)
    fit(
        model,
        callbacks.BroadcastGlobalVariablesCallback(0),
        callbacks.DelayInjectionCallback(callbacks.FixedRank(1, 0.01)),
        callbacks.ReplicaSyncCallback(),
        Look(),
        epochs=2,
        **({"validation_data": (x, y)} if RANK == 0 else {}),
    )
    return [len(found) == SIZE and found["0"] == found["1"] for found in map(_text_keys, seen)]


def _text_keys(found):
    return {str(rank): value for rank, value in found.items()}


def warm_up():
    """Two epochs of four steps from initial_lr / size: Horovod's formula at each step."""
    found = {}
    for name, optimizer in (
        ("distributed", None),
        ("plain", keras.optimizers.SGD(0.08)),
    ):
        model = small_model()
        if name == "distributed":
            model = compiled(keras.optimizers.SGD(0.08), model=model)
        else:
            model.compile(optimizer=optimizer, loss="mse")
        rates = Rates()
        history = fit(
            model,
            callbacks.LearningRateWarmupCallback(0.08, warmup_epochs=2, verbose=1),
            rates,
            epochs=3,
        )
        found[name] = rates.rates
        found[f"{name} lr"] = history["lr"]
    found["want"] = [0.08 / SIZE * ((i + 1) / 4 * (SIZE - 1) / 2 + 1) for i in range(8)] + [
        0.08
    ] * 4
    return found


def staircase():
    """Halved at each epoch from the second on; steps as in Horovod's callback."""
    model = compiled(keras.optimizers.SGD(0.08))
    rates = Rates()
    fit(model, callbacks.LearningRateScheduleCallback(0.08, 0.5, start_epoch=1), rates, epochs=4)
    return rates.rates


def momentum_correction():
    """Against NumPy: when the rate changes, the velocity is scaled with it."""
    rates = [0.1, 0.1, 0.02, 0.02, 0.1]
    variable_rate = lambda epoch: rates[int(epoch)] / 0.1  # noqa: E731
    found = {}
    for correct in (True, False):
        layers = [keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")]
        model = compiled(keras.optimizers.SGD(0.1, momentum=0.9), model=small_model(layers=layers))
        fit(
            model,
            callbacks.LearningRateScheduleCallback(0.1, variable_rate, momentum_correction=correct),
            epochs=5,
            batch_size=64,
        )
        x, y = (np.concatenate([data(rank, 64)[i] for rank in range(SIZE)]) for i in (0, 1))
        w, velocity, old = np.zeros((4, 1)), np.zeros((4, 1)), 0.1
        for rate in rates:
            gradient = 2 * x.T @ (x @ w - y) / len(x)
            if correct:
                velocity = velocity * rate / old
            velocity = 0.9 * velocity - rate * gradient
            w, old = w + velocity, rate
        found[str(correct)] = {"got": weights(model)[0], "want": w.ravel()}
    return found


def rates_are_those_of_the_round():
    """Mode solo with a late rank and a rate that changes in each step: replicas stay equal."""
    model = compiled(keras.optimizers.SGD(0.02, momentum=0.9), mode="solo")
    fit(
        model,
        callbacks.BroadcastGlobalVariablesCallback(0),
        callbacks.LearningRateScheduleCallback(
            0.02, lambda epoch: 1.0 / (1.0 + epoch), staircase=False
        ),
        callbacks.DelayInjectionCallback(callbacks.RandomRank(0.02, seed=3)),
        callbacks.ReplicaSyncCallback(check=True),
        epochs=3,
    )
    schedule = keras.optimizers.schedules.ExponentialDecay(0.02, 5, 0.5)
    counted = compiled(keras.optimizers.SGD(hvd.schedules.ByContributions(schedule)), mode="solo")
    fit(
        counted,
        callbacks.BroadcastGlobalVariablesCallback(0),
        callbacks.DelayInjectionCallback(callbacks.RandomRank(0.02, seed=4)),
        callbacks.ReplicaSyncCallback(check=True),
        epochs=2,
    )
    return [same_on_all(weights(model)), same_on_all(weights(counted))]


def latest_needs_averaging():
    """catch_up="latest": replicas part, and the callback brings them together."""
    model = small_model()
    optimizer = hvd.DistributedOptimizer(
        keras.optimizers.SGD(0.01), mode="solo", catch_up="latest", staleness="full"
    )
    model.compile(optimizer=optimizer, loss="mse")
    fit(
        model,
        callbacks.BroadcastGlobalVariablesCallback(0),
        callbacks.DelayInjectionCallback(callbacks.FixedRank(1, 0.02)),
        callbacks.ModelAverageCallback(every=2),
        epochs=3,
    )
    stats = hvd.stats(optimizer)
    return {"same": same_on_all(weights(model)), "missed": hvt.allgather_object(stats.missed)}


# ---- epochs by contributions ----------------------------------------------------


def endless(batch=4):
    x, y = data(RANK, 64)
    return tf.data.Dataset.from_tensor_slices((x, y)).repeat().batch(batch)


def sync_epochs_are_classic():
    """Exactly so many batches, however far the pipeline runs ahead, and with no warning."""
    found = {}
    for name, change in {
        "plain": lambda d: d,
        "prefetch": lambda d: d.prefetch(7),
        "finite": lambda d: d.map(lambda x, y: (x, y)),
    }.items():
        model = compiled()
        source = endless().take(3) if name == "finite" else endless()
        epochs = change(hvd.data.by_contributions(source, 5, model.optimizer))
        count = Count()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            sync = callbacks.ReplicaSyncCallback() if name == "plain" else Count()
            model.fit(epochs, epochs=3, verbose=0, callbacks=[count, sync])
        found[name] = count.batches
        found[f"{name} warnings"] = [str(w.message) for w in caught if "ran out" in str(w.message)]
    return found


def slow_ranks_make_fewer_steps():
    """Rank 1 is three times as slow. Batches per epoch, contributions, and equal replicas."""
    model = compiled(mode="solo")
    epochs = hvd.data.by_contributions(endless(), 20, model.optimizer)
    count = Count()
    totals = []

    class Total(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            totals.append(hvd.stats(self.model.optimizer).contributions)

    def pattern(rank, step, size):
        return 0.01 + 0.02 * rank

    model.fit(
        epochs,
        epochs=4,
        verbose=0,
        callbacks=[
            callbacks.BroadcastGlobalVariablesCallback(0),
            callbacks.DelayInjectionCallback(pattern),
            callbacks.ReplicaSyncCallback(check=True),
            count,
            Total(),
        ],
    )
    return {"batches": count.batches, "totals": totals}


def epochs_in_a_loop():
    """Without Keras's fit: the dataset is iterated once for each epoch."""
    variable = tf.Variable([0.0])
    optimizer = hvd.DistributedOptimizer(
        keras.optimizers.SGD(0.1), mode="sync", backward_passes_per_step=2
    )
    epochs = hvd.data.by_contributions(tf.data.Dataset.range(3).repeat(), 6, optimizer)
    found = []
    for _ in range(2):
        found.append(0)
        for _ in epochs:
            optimizer.apply_gradients([(tf.constant([1.0]), variable)])
            found[-1] += 1
    return {"batches": found, "rounds": hvd.stats(optimizer).rounds}


class Gan(keras.Model):
    """Two optimizers, each with its own part of the weights."""

    def __init__(self):
        super().__init__()
        self.first = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
        self.second = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
        self.first_optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(0.01), mode="solo")
        self.second_optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.01, momentum=0.9))

    def call(self, inputs):
        return self.first(inputs)

    def train_step(self, batch):
        x, y = batch
        for part, optimizer in (
            (self.first, self.first_optimizer),
            (self.second, self.second_optimizer),
        ):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(part(x) - y))
            variables = part.trainable_variables
            gradients = tape.gradient(loss, variables)
            optimizer.apply_gradients(list(zip(gradients, variables, strict=True)))
        return {"loss": loss}


def several_optimizers_in_a_model():
    tf.keras.utils.set_random_seed(RANK)
    model = Gan()
    model(data(RANK, 1)[0])
    model.compile()
    fit(
        model,
        callbacks.BroadcastGlobalVariablesCallback(0),
        callbacks.DelayInjectionCallback(callbacks.RandomRank(0.01)),
        callbacks.ReplicaSyncCallback(check=True),
        epochs=2,
    )
    return {
        "same": same_on_all(weights(model)),
        "deposits": [
            hvd.stats(optimizer).deposits
            for optimizer in (model.first_optimizer, model.second_optimizer)
        ],
    }


def models_without_input_shape():
    """tf_keras builds them in the first step: the broadcast comes after it, behind a flush."""
    if not LEGACY:
        return None
    tf.keras.utils.set_random_seed(RANK)
    model = compiled(mode="solo", model=keras.Sequential([keras.layers.Dense(1)]))
    fit(
        model,
        callbacks.BroadcastGlobalVariablesCallback(0),
        callbacks.ReplicaSyncCallback(check=True),
    )
    return same_on_all(weights(model))


def wrong_epochs():
    plain = keras.optimizers.SGD(0.1)
    return [
        raised(lambda: hvd.data.by_contributions(endless(), 0)),
        raised(lambda: hvd.data.by_contributions(endless(), 2.5)),
        raised(lambda: hvd.data.by_contributions(endless(), 2, plain)),
    ]


def shards_rotate():
    """Which examples this rank got in each of six iterations."""
    shards = hvd.data.shard(tf.data.Dataset.range(8), seed=5)
    return [sorted(int(i) for i in shards) for _ in range(6)]


def settings_after_init_were_possible():
    return settings_possible


CHECKS = [
    settings_after_init_were_possible,
    broadcast_comes_first,
    local_variables_stay,
    metrics_are_averaged_over_those_who_have_them,
    stops_are_agreed,
    batch_normalisation_is_averaged,
    plain_optimizers_are_found,
    updates_without_rounds_are_found,
    synced_before_validation,
    warm_up,
    staircase,
    momentum_correction,
    rates_are_those_of_the_round,
    latest_needs_averaging,
    sync_epochs_are_classic,
    slow_ranks_make_fewer_steps,
    epochs_in_a_loop,
    several_optimizers_in_a_model,
    models_without_input_shape,
    wrong_epochs,
    shards_rotate,
    different_replicas_are_found,
]

if __name__ == "__main__":
    run_checks(CHECKS)
