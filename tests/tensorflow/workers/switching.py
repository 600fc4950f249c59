# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Two ranks: Sync-Switch, its policies and stragglers in model.fit."""

from __future__ import annotations

import json

from support import (
    FOLDER,
    LEGACY,
    hvd,
    hvt,
    np,
    raised,
    run_checks,
    same_on_all,
    start,
    tf,
    weights,
)

from hvd_partial.sync_switch import OnPlateau
from hvd_partial.tensorflow import _distributed

start()
keras = tf.keras
callbacks = hvd.callbacks
RANK, SIZE = hvd.rank(), hvd.size()
SOON = {"window": 4, "in_row": 2, "stride": 2}


class Rounds:
    """What every round was, as the optimizer applied it."""

    def __init__(self, optimizer):
        self.seen = []
        _distributed.state_of(optimizer).applying.add(self)

    def __call__(self, seen):
        self.seen.append(seen)

    @property
    def modes(self):
        """Each once, in the order in which they were in force."""
        found = []
        for seen in self.seen:
            if not found or found[-1] != str(seen.mode):
                found.append(str(seen.mode))
        return found


def linear(optimizer, gradient, mode="sync"):
    """A weight whose gradient is a constant of this rank, whatever the weight is; and how often its
    loss was traced."""
    traces = []

    def loss(y, prediction):
        del y
        traces.append(1)
        return gradient * tf.squeeze(prediction, -1)

    layer = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")
    model = keras.Sequential([keras.Input((1,)), layer])
    model.compile(optimizer=hvd.DistributedOptimizer(optimizer, mode=mode), loss=loss)
    loss.traces = traces
    return model, loss


def fit(model, *more, epochs=2, steps=10, delay=None, data=None, **arguments):
    if data is None:
        x = np.ones((4 * steps, 1), np.float32)
        data = tf.data.Dataset.from_tensor_slices((x, x)).batch(4)
    # Some ranks are late now and then, so that rounds differ from each other.
    delay = delay or callbacks.RandomRank(0.01, seed=5)
    return model.fit(
        data,
        epochs=epochs,
        verbose=0,
        shuffle=False,
        callbacks=[
            callbacks.BroadcastGlobalVariablesCallback(0),
            callbacks.ReplicaSyncCallback(check=True),
            callbacks.DelayInjectionCallback(delay),
            *more,
        ],
        **arguments,
    ).history


GRADIENTS = (0.5, -0.25)


def momentum_reference(seen, policy, rate, ramp, nesterov=False):
    """Plain NumPy: the weight after these rounds, and how often the coefficient was another."""
    weight = velocity = 0.0
    changed = 0
    began = None
    for found in seen:
        count = sum(found.contributions_of)
        mean = sum(n * g for n, g in zip(found.contributions_of, GRADIENTS, strict=True)) / count
        momentum = 0.9
        if str(found.mode) == "async":
            began = found.before if began is None else began
            done = min(1.0, (found.before - began) / ramp)
            momentum = {
                "keep": 0.9,
                "zero": 0.0,
                "scaled": 0.9 / SIZE,
                "linear ramp": 0.9 / SIZE + (0.9 - 0.9 / SIZE) * done,
                "nonlinear ramp": 0.9 * SIZE ** (done - 1.0),
            }[policy]
        changed += momentum != 0.9
        eta = rate(found.before) / SIZE
        velocity = momentum * velocity - eta * count * mean
        weight += momentum * velocity - eta * count * mean if nesterov else velocity
    return weight, changed


def momentum_policies():
    """Twenty steps of each rank, half of the workload in sync and half in async."""
    found = {}
    for policy in ("keep", "zero", "scaled", "linear ramp", "nonlinear ramp", "nesterov zero"):
        nesterov, name = policy.startswith("nesterov"), policy.removeprefix("nesterov ")
        optimizer = keras.optimizers.SGD(0.1, momentum=0.9, nesterov=nesterov)
        model, loss = linear(optimizer, GRADIENTS[RANK])
        rounds = Rounds(model.optimizer)
        counts = []

        class Count(keras.callbacks.Callback):
            def on_train_batch_end(self, batch, logs=None):
                counts.append(len(loss.traces))  # noqa: B023

        switch = callbacks.SyncSwitchCallback(
            bsp_fraction=0.5, momentum_policy=name, momentum_ramp=5
        )
        fit(model, switch, Count())
        want, changed = momentum_reference(
            rounds.seen, name, lambda before: 0.1, 5 * SIZE, nesterov
        )
        found[policy] = {
            "got": weights(model)[0],
            "want": [want],
            "changed": changed,
            "modes": rounds.modes,
            "same": same_on_all(weights(model)),
            "traced again": counts[-1] - counts[0],
            "left": [
                float(model.optimizer.momentum),
                json.dumps(model.optimizer.get_config()["momentum"]),
            ],
        }
    return found


def legacy_momentum():
    """tf_keras's legacy SGD has a variable for it already."""
    import tf_keras

    found = {}
    for policy in ("keep", "zero", "linear ramp"):
        optimizer = tf_keras.optimizers.legacy.SGD(0.1, momentum=0.9)
        model, _ = linear(optimizer, GRADIENTS[RANK])
        rounds = Rounds(model.optimizer)
        fit(
            model,
            callbacks.SyncSwitchCallback(bsp_fraction=0.5, momentum_policy=policy, momentum_ramp=5),
        )
        want, _ = momentum_reference(rounds.seen, policy, lambda before: 0.1, 5 * SIZE)
        found[policy] = {"got": weights(model)[0], "want": [want]}
    return found


def rates():
    """Adam with equal gradients moves by the learning rate in each update: by the paper's rule that
    is c / P of it in a round of c contributions."""
    model, _ = linear(keras.optimizers.Adam(0.01, epsilon=1e-12), 1.0)
    rounds = Rounds(model.optimizer)
    fit(model, callbacks.SyncSwitchCallback(bsp_fraction=0.25))
    contributions = sum(sum(seen.contributions_of) for seen in rounds.seen)
    return {
        "got": weights(model)[0],
        "want": [-0.01 * contributions / SIZE],
        "rounds": len(rounds.seen),
        "contributions": contributions,
        "rate": float(model.optimizer.learning_rate),
    }


def schedules_follow_contributions():
    """The boundary of the schedule lies at ten steps' contributions, behind the switch."""
    decay = keras.optimizers.schedules.PiecewiseConstantDecay([9.5], [0.1, 0.01])
    model, _ = linear(
        keras.optimizers.SGD(hvd.schedules.ByContributions(decay), momentum=0.9),
        GRADIENTS[RANK],
    )
    rounds = Rounds(model.optimizer)
    fit(model, callbacks.SyncSwitchCallback(bsp_fraction=0.25))
    want, _ = momentum_reference(
        rounds.seen, "keep", lambda before: 0.1 if before / SIZE <= 9.5 else 0.01, 1
    )
    late = {seen.before for seen in rounds.seen if str(seen.mode) == "async"}
    return {"got": weights(model)[0], "want": [want], "switched before": min(late) / SIZE < 9.5}


def switches_at_the_same_round():
    """On both ranks, however late they are; in logs, on paper and for TensorBoard."""
    folder = FOLDER / "tensorboard"
    model, _ = linear(keras.optimizers.SGD(0.01), GRADIENTS[RANK])
    switch = callbacks.SyncSwitchCallback(
        [("sync", 0.25), ("solo", 0.25), ("sync", 0.25), ("async", None)],
        log_dir=folder,
        verbose=1,
    )
    rounds = Rounds(model.optimizer)
    history = fit(model, switch, epochs=2, steps=16)
    tags = set()
    if RANK == 0:
        from tensorflow.core.util import event_pb2

        for path in folder.glob("*"):
            for record in tf.data.TFRecordDataset(str(path)):
                event = event_pb2.Event.FromString(record.numpy())
                tags |= {value.tag for value in event.summary.value}
    return {
        "modes": rounds.modes,
        "switches": [(s.round, s.before, s.after) for s in switch.switches],
        "steps": [s.step for s in switch.switches],
        "same": same_on_all([(s.round, s.step, s.before, s.after) for s in switch.switches]),
        "logged": history["switches"],
        "asynchronous": history["asynchronous"],
        "tags": sorted(tags),
    }


def slow_rank(first, last, seconds=0.05):
    """Rank 1 is slow in these steps of its own."""

    def pattern(rank, step, size):
        return 0.01 + (seconds if rank == 1 and first <= step < last else 0.0)

    return pattern


def online_policies():
    """Rank 1 is six times as slow for a while; the sync share is half of the workload."""
    found = {}
    for policy in ("greedy", "elastic", "adaptive"):
        model, _ = linear(keras.optimizers.SGD(0.01), GRADIENTS[RANK])
        excluded = set()

        class Look(keras.callbacks.Callback):
            def on_train_batch_end(self, batch, logs=None):
                excluded.update(hvd.stats(self.model.optimizer).excluded)  # noqa: B023

        rounds = Rounds(model.optimizer)
        steps = 90
        data = hvd.data.by_contributions(
            tf.data.Dataset.from_tensors((tf.ones((4, 1)), tf.ones((4, 1)))).repeat(),
            steps,
            model.optimizer,
        )
        fit(
            model,
            callbacks.SyncSwitchCallback(
                bsp_fraction=0.5, policy=policy, detector=SOON, steps_per_epoch=steps
            ),
            Look(),
            epochs=2,
            delay=slow_rank(10, 22),
            data=data,
        )
        found[policy] = {
            "modes": rounds.modes,
            "excluded": sorted(excluded),
            "afterwards": hvd.stats(model.optimizer).excluded,
            "contributions": sum(seen.contributions for seen in rounds.seen),
        }
    return found


def stragglers_are_reported():
    """Rank 1 computes long in the first fit, and waits for its input in the second."""
    found = {}
    for cause in ("compute", "input"):
        model, _ = linear(keras.optimizers.SGD(0.01), GRADIENTS[RANK])

        def batch(number, cause=cause):
            if cause == "input" and RANK == 1:
                import time

                time.sleep(0.05 if 10 <= int(number) % 40 < 30 else 0.0)
            return np.ones((4, 1), np.float32)

        def load(number, batch=batch):
            x = tf.py_function(batch, [number], tf.float32)
            x.set_shape((4, 1))
            return x, x

        data = hvd.data.measured(tf.data.Dataset.range(40).map(load))
        reporter = callbacks.StragglerCallback(detector=SOON, dataset=data, verbose=1)
        delay = slow_rank(10, 30) if cause == "compute" else slow_rank(0, 0)
        history = fit(model, reporter, epochs=1, data=data, delay=delay)
        found[cause] = {
            "episodes": [
                [e.rank, e.since_step, e.until_step, e.slowdown, e.rounds, e.job_seconds, e.cause]
                for e in reporter.episodes
            ],
            "logged": [history["stragglers"], history["straggler_seconds"]],
            "input": hvd.data.input_seconds(data),
        }
    return found


class Crash(keras.callbacks.Callback):
    def __init__(self, epoch):
        super().__init__()
        self.epoch = epoch

    def on_epoch_begin(self, epoch, logs=None):
        if epoch == self.epoch:
            raise RuntimeError("crash")


def restarts_go_on_where_they_were():
    """A crash in the asynchronous phase; the job goes on from Keras's backup with what was written
    beside it, though it has another plan for position and mode from the epoch's number alone."""
    folder = FOLDER / f"backup-{RANK}"
    state_file = FOLDER / "state" / "sync_switch.jsonl"
    (folder / "checkpoints").mkdir(parents=True)

    def train(crash=None, model=None, **arguments):
        if model is None:
            model, _ = linear(keras.optimizers.SGD(0.01, momentum=0.9), GRADIENTS[RANK])
        rounds = Rounds(model.optimizer)
        switch = callbacks.SyncSwitchCallback(
            policy=OnPlateau("sync", "solo", patience=1, min_delta=10.0),
            momentum_policy="linear ramp",
            momentum_ramp=30,
            state_file=state_file,
        )

        backup = keras.callbacks.BackupAndRestore(str(folder / "backup"))

        def run():
            checkpoint = keras.callbacks.ModelCheckpoint(
                str(folder / "checkpoints" / "epoch{epoch}.keras")
            )
            model.fit(
                *[np.ones((24, 1), np.float32)] * 2,
                batch_size=4,
                verbose=0,
                callbacks=[
                    callbacks.ReplicaSyncCallback(check=True),
                    *([] if "initial_epoch" in arguments else [backup]),
                    callbacks.BroadcastGlobalVariablesCallback(0),
                    switch,
                    checkpoint,
                    *([Crash(crash)] if crash else []),
                ],
                **({"epochs": 5} | arguments),
            )

        error = raised(run)
        return model, rounds, switch, error

    _, rounds, switch, error = train(crash=3)
    crashed = {"error": error, "modes": rounds.modes, "position": switch._position}
    second, again, resumed, error = train()
    result = {
        "crashed": crashed,
        "error": error,
        "modes": again.modes,
        "first": again.seen[0].iterations,
        "rounds before": len(rounds.seen),
        "position": resumed._position,
        "switches": [s.after for s in resumed.switches],
        "ramp began": resumed._configuration.switched_at,
        "same": same_on_all(weights(second)),
    }
    # From an older file of ModelCheckpoint: before the switch.
    _, loss = linear(keras.optimizers.SGD(0.01), GRADIENTS[RANK])
    older = hvd.load_model(
        str(folder / "checkpoints" / "epoch1.keras"), custom_objects={"loss": loss}
    )
    iterations = int(older.optimizer.iterations)
    _, rounds, switch, error = train(model=older, initial_epoch=1, epochs=2)
    result["older"] = {
        "error": error,
        "iterations": iterations,
        "modes": rounds.modes,
        "position": switch._position,
        "best": switch.policy.best is not None,
    }
    return result


def excluded_by_hand():
    """hvd.exclude, one rank's call, in sync mode."""
    model, _ = linear(keras.optimizers.SGD(0.01), GRADIENTS[RANK])
    rounds = Rounds(model.optimizer)

    class Exclude(keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            if RANK == 0:
                hvd.exclude([1], optimizer=self.model.optimizer)

    fit(model, Exclude(), epochs=1, delay=slow_rank(0, 100, 0.03))
    seen = hvd.stats(model.optimizer).excluded
    hvt.allgather_object(None)
    if RANK == 0:
        hvd.exclude([], optimizer=model.optimizer)
    fit(model, epochs=1, delay=slow_rank(0, 100, 0.03))
    without = sum(found.contributions_of[1] == 0 for found in rounds.seen)
    return {
        "excluded": seen,
        "afterwards": hvd.stats(model.optimizer).excluded,
        "rounds without rank 1": without,
        "same": same_on_all(weights(model)),
        "wrong": raised(lambda: hvd.exclude([SIZE], optimizer=model.optimizer)),
    }


def wrong_arguments():
    make = callbacks.SyncSwitchCallback
    plain = keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.5)

    def fitted(optimizer, **arguments):
        model, _ = linear(optimizer, 1.0)
        arguments = {"bsp_fraction": 0.5} | arguments
        return raised(lambda: fit(model, make(**arguments), epochs=1))

    undistributed = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    undistributed.compile(optimizer="sgd", loss="mse")
    x = np.ones((4, 1))
    return [
        raised(lambda: make(bsp_fraction=2)),
        raised(lambda: make([("sync", 1)], bsp_fraction=0.5)),
        raised(lambda: make(policy="elastic")),
        raised(lambda: make(bsp_fraction=0.5, momentum_policy="none")),
        raised(lambda: make(bsp_fraction=0.5, detector={"rule": "x"})),
        raised(lambda: make(bsp_fraction=0.5, steps_per_epoch=0)),
        fitted(keras.optimizers.SGD(plain)),
        fitted(keras.optimizers.Adam(0.1), momentum_policy="zero"),
        raised(lambda: undistributed.fit(x, x, verbose=0, callbacks=[make(bsp_fraction=0.5)])),
        raised(lambda: callbacks.StragglerCallback(dataset=tf.data.Dataset.range(3))),
    ]


CHECKS = [
    momentum_policies,
    rates,
    schedules_follow_contributions,
    switches_at_the_same_round,
    online_policies,
    stragglers_are_reported,
    restarts_go_on_where_they_were,
    excluded_by_hand,
    wrong_arguments,
]
if LEGACY:
    CHECKS.insert(1, legacy_momentum)

if __name__ == "__main__":
    run_checks(CHECKS)
