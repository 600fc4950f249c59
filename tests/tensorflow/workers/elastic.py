# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Elastic jobs: one scenario for each launch, named by the argument.

Hosts are named in the file `hosts` of the report's folder. Whether something has happened already
is told by files too, because workers come and go.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time

from horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt
from support import FOLDER, data, hvd, hvt, np, small_model, tf, touch, train_step

from hvd_partial.tensorflow import _exchange, _keras

keras = tf.keras
BEGUN = time.monotonic()
HOST = os.environ["HOROVOD_HOSTNAME"]
NEW_HOST = "127.1"
found = {"entries": [], "segments": [], "lost": [], "host": HOST}


def tell(**values):
    """This worker's report."""
    found.update(values)
    found.setdefault("seconds", []).append(round(time.monotonic() - BEGUN, 1))
    path = FOLDER / f"worker-{HOST}.json"
    partial = path.with_suffix(".new")
    partial.write_text(json.dumps(found, default=lambda value: np.asarray(value).tolist()))
    partial.replace(path)


def happened(name):
    return (FOLDER / name).exists()


def add_host():
    new = FOLDER / "hosts.new"
    new.write_text((FOLDER / "hosts").read_text() + f"{NEW_HOST}:1\n")
    new.replace(FOLDER / "hosts")
    touch("added")


def die():
    tell()
    (FOLDER / "killed.new").write_text(str(time.time()))
    (FOLDER / "killed.new").replace(FOLDER / "killed")
    os.kill(os.getpid(), signal.SIGKILL)


def same(value):
    """Whether all ranks have the same, to the last bit."""
    return len({json.dumps(theirs) for theirs in hvt.allgather_object(value)}) == 1


def bits(variables):
    return [_keras.raw(variable).numpy().tobytes().hex() for variable in variables]


def note_loss(error):
    """How a survivor learns of the loss, and how soon."""
    found["lost"].append(
        {
            "kinds": [kind.__name__ for kind in type(error).__mro__],
            "text": str(error),
            "seconds": time.time() - float((FOLDER / "killed").read_text()),
        }
    )


class Counter(keras.layers.Layer):
    """Its weight has the gradient -1, whatever the input: with SGD at rate 1, on sums with full
    weights, it is the number of contributions applied."""

    def build(self, shape):
        self.count = self.add_weight(shape=(), initializer="zeros", name="count")

    def call(self, x):
        return 0.0 * x + self.count


class Audited(hvd.elastic.KerasState):
    """With each commit, whether every contribution since the last was applied exactly once."""

    begun = None

    def begin(self):
        """After a restart: a new engine, whose counters are 0."""
        self.begun = (float(self.model.count), hvd.stats(self.optimizer).deposits)

    def save(self):
        if self.begun is not None:
            weight, deposits = float(self.model.count), hvd.stats(self.optimizer).deposits
            own = deposits - self.begun[1]
            made = sum(_exchange.gather_json(own).values())
            found["segments"].append([weight - self.begun[0], made])
            self.begun = (weight, deposits)
            self.counted = weight
        super().save()


# ---- scenarios ------------------------------------------------------------------

STEPS = 12


def fit():
    """model.fit. Three workers; one is killed in the middle of an epoch, another one comes."""
    hvd.init()
    layer = Counter()
    model = keras.Sequential([keras.Input((1,)), layer])
    model.count = layer.count
    optimizer = hvd.DistributedOptimizer(
        keras.optimizers.SGD(1.0), mode="majority", op=hvd.Sum, staleness="full", grace=0.0
    )
    model.compile(optimizer=optimizer, loss=lambda _, output: -tf.reduce_mean(output))
    examples = tf.data.Dataset.range(240).map(lambda i: (tf.ones([1]), tf.ones([1])))
    batches = hvd.data.shard(examples).repeat().batch(1)
    state = Audited(model, epoch=0, batch=0, counted=0.0, remaining=2)

    class Fate(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if happened("killed") or hvd.rank() != 1:
                return
            if (state.epoch, batch) == (0, 3):
                hvd.set_mode("solo")  # stays in force without the rank that has set it
            if (state.epoch, batch) == (1, 7):
                die()

        def on_epoch_end(self, epoch, logs=None):
            if hvd.size() == 2 and hvd.rank() == 0 and not happened("added"):
                add_host()

    callbacks = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.DelayInjectionCallback(hvd.callbacks.RandomRank(0.02)),
        hvd.callbacks.ReplicaSyncCallback(check=True),
        hvd.elastic.UpdateBatchStateCallback(state),
        hvd.elastic.UpdateEpochStateCallback(state),
        hvd.elastic.CommitStateCallback(state, batches_per_commit=5),
        Fate(),
    ]

    @hvd.elastic.run
    def train(state):
        enter(state)
        state.begin()
        while state.remaining > 0:
            try:
                model.fit(
                    batches,
                    steps_per_epoch=STEPS - state.batch,
                    initial_epoch=state.epoch,
                    epochs=state.epoch + 1,
                    callbacks=callbacks,
                    verbose=0,
                )
            except HorovodInternalError as error:
                note_loss(error)
                raise
            if hvd.size() == 3 and happened("added"):
                state.remaining -= 1

    def enter(state):
        found["entries"].append(
            {
                "size": hvd.size(),
                "rank": hvd.rank(),
                "weight": float(model.count),
                "counted": state.counted,
                "epoch": state.epoch,
                "batch": state.batch,
                "iterations": int(optimizer.iterations),
            }
        )
        tell()

    train(state)
    tell(
        equal=same(bits([*model.weights, *_keras.optimizer_variables(optimizer)])),
        weight=float(model.count),
        size=hvd.size(),
        mode=str(hvd.mode(optimizer)),
        ended=True,
    )


def loop():
    """A custom loop, with a quorum of three and a tape. Two workers; a third one comes, then
    rank 0 is killed."""
    hvd.init()
    model = small_model()
    optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(0.01), mode="quorum(3)")
    optimizer.build(model.trainable_variables)
    counter = tf.Variable(0.0)
    plain = keras.optimizers.SGD(1.0)
    plain.build([counter])
    kept = [counter, *model.weights, *_keras.optimizer_variables(optimizer)]
    state = hvt.elastic.TensorFlowState(kept, step=0, after=0)
    local_step = train_step(model, optimizer)

    @tf.function
    def count():
        with hvt.DistributedGradientTape(tf.GradientTape(), op=hvd.Sum, mode="sync") as tape:
            loss = -counter
        plain.apply_gradients(list(zip(tape.gradient(loss, [counter]), [counter], strict=True)))

    def entry():
        return {
            "size": hvd.size(),
            "rank": hvd.rank(),
            "count": float(counter),
            "step": state.step,
            "iterations": int(optimizer.iterations),
            "equal": same(bits(kept)),
        }

    @hvt.elastic.run
    def train(state):
        found["entries"].append(entry())
        tell()
        x, y = data(hvd.rank(), 8)
        while state.after < 4:
            try:
                for number in range(3):
                    local_step(x, y)
                    count()
                    state.step += 1
                    here = number == 1 and state.after == 1 and hvd.rank() == 0
                    if here and not happened("killed"):
                        die()
                if hvd.rank() == 0 and not happened("added"):
                    add_host()
                if hvd.size() == 3 or happened("killed"):
                    state.after += 1
                before = float(counter)
                state.commit()
                found["segments"].append([float(counter) - before, 0])
            except HostsUpdatedInterrupt:
                found["interrupted"] = [float(counter), state.step, int(optimizer.iterations)]
                raise
            except tf.errors.OpError as error:
                note_loss(error)
                raise

    train(state)
    tell(**{f"final {key}": value for key, value in entry().items()}, ended=True)


if __name__ == "__main__":
    {action.__name__: action for action in (fit, loop)}[sys.argv[1]]()
