# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Elastic states and callbacks in one process; nothing is lost here."""

from __future__ import annotations

import os

# MPI, which a Horovod built with it would choose, cannot start twice.
os.environ |= {"HOROVOD_CONTROLLER": "gloo", "HOROVOD_CPU_OPERATIONS": "gloo"}

from horovod.common.exceptions import HorovodInternalError
from support import data, hvd, hvt, raised, run_checks, small_model, start, tf

from hvd_partial.modes import Mode
from hvd_partial.tensorflow import _distributed, _keras, _runtime

keras = tf.keras


def compiled(optimizer=None, **options):
    model = small_model()
    optimizer = hvd.DistributedOptimizer(optimizer or keras.optimizers.Adam(0.01), **options)
    model.compile(optimizer=optimizer, loss="mse")
    return model


def train(model, steps=3):
    x, y = data(0, 4 * steps)
    model.fit(x, y, batch_size=4, shuffle=False, verbose=0)


def bits(state):
    return [variable.numpy().tobytes() for variable in state._variables()]


def goes_back():
    """Weights, slots, iterations and position are those of the commit; the copies are copies."""
    model = compiled()
    state = hvd.elastic.KerasState(model, epoch=0)
    variables = len(state._variables())
    position = _distributed.state_of(model.optimizer).position
    train(model)
    state.epoch = 1
    state.commit()
    committed, at = bits(state), position()
    train(model)
    state.epoch = 2
    moved = bits(state) != committed and position() != at
    state.restore()
    back = [bits(state) == committed, position() == at, state.epoch]
    train(model)
    return {
        "slots from the start": variables == len(state._variables()),
        "moved": moved,
        "back": back,
        "iterations": int(model.optimizer.iterations),
        "position": position()[:2],
    }


def synchronises():
    """sync() alone changes nothing, and keeps what is there now."""
    model = compiled()
    state = hvd.elastic.KerasState(model, epoch=7)
    train(model)
    before = bits(state)
    state.sync()
    unchanged = bits(state) == before
    train(model)
    state.restore()
    return [unchanged, bits(state) == before, state.epoch]


def later_variables():
    """Variables that come into being after a commit do not disturb the way back."""
    model = compiled()
    state = hvd.elastic.KerasState(model)
    committed = bits(state)
    model.add(keras.layers.Dense(1))
    late = _keras.raw(model.weights[-1])
    number = len(state._variables()) - len(committed)
    late.assign([3.0])
    state.restore()
    kept = late.numpy().tolist()
    state.save()
    late.assign([5.0])
    state.restore()
    return [number, kept, late.numpy().tolist()]


def list_of_variables():
    kept = [tf.Variable(1.0), tf.Variable([2, 3])]
    state = hvt.elastic.TensorFlowState(kept, step=5)
    state.sync()
    kept[0].assign_add(1.0)
    kept[1].assign_add([1, 1])
    state.step = 6
    state.restore()
    return [float(kept[0]), kept[1].numpy().tolist(), state.step]


class Recorder:
    """A state that only notes what is asked of it."""

    def __init__(self, **values):
        self.calls = []
        vars(self).update(values)

    def commit(self):
        self.calls.append(["commit", self.epoch, self.batch])

    def save(self):
        self.calls.append(["save", self.epoch, self.batch])


def callbacks_of(state):
    return [
        hvd.elastic.UpdateBatchStateCallback(state),
        hvd.elastic.UpdateEpochStateCallback(state),
        hvd.elastic.CommitStateCallback(state, batches_per_commit=2),
    ]


def callbacks():
    """Commits with the counters, also in an epoch that goes on; both ways to number epochs."""
    model = compiled()
    x, y = data(0, 20)
    batches = tf.data.Dataset.from_tensor_slices((x, y)).batch(4).repeat()
    found = []
    for first in (0, 3):
        state = Recorder(epoch=3, batch=2)
        model.fit(
            batches,
            steps_per_epoch=5 - state.batch,
            initial_epoch=first,
            epochs=first + 1,
            callbacks=callbacks_of(state),
            verbose=0,
        )
        found.append(state.calls)
    state = Recorder(epoch=0, batch=0)
    model.fit(batches, steps_per_epoch=5, epochs=2, callbacks=callbacks_of(state), verbose=0)
    return [*found, state.calls]


def uneven_epochs():
    """Where ranks may make different numbers of batches they meet at the epoch's end only."""
    model = compiled(mode="sync")
    x, y = data(0, 20)
    batches = tf.data.Dataset.from_tensor_slices((x, y)).batch(4).repeat()
    epochs = hvd.data.by_contributions(batches, 5, model.optimizer)
    state = Recorder(epoch=0, batch=0)
    model.fit(epochs, epochs=2, callbacks=callbacks_of(state), verbose=0)
    return state.calls


def steps_keep_their_ranks():
    """A schedule's position does not jump when the number of ranks changes."""
    state = _distributed.state_of(compiled(name="position").optimizer)
    state.go_to((12, 6.0, 0.0))
    state.ranks.assign(3.0)
    state.contributions.assign(18)
    return [float(state.steps()), state.position()]


def quorums():
    """An elastic job makes do with the ranks that there are; others do not."""
    modes = [Mode.parse("quorum(3)"), Mode.parse("majority")]
    plain = [str(_runtime.capped(mode, 2)) for mode in modes]
    os.environ["HOROVOD_ELASTIC"] = "1"
    elastic = [str(_runtime.capped(mode, size)) for mode in modes for size in (2, 4)]
    del os.environ["HOROVOD_ELASTIC"]
    return [plain, elastic]


def wrong_arguments():
    unbuilt = keras.Sequential([keras.layers.Dense(1)])
    uncompiled = small_model()
    return {
        "unbuilt": raised(lambda: hvd.elastic.KerasState(unbuilt)),
        "no optimizer": raised(lambda: hvd.elastic.KerasState(uncompiled)),
        "batches": raised(lambda: hvd.elastic.CommitStateCallback(None, batches_per_commit=0)),
        "variables": raised(lambda: hvt.elastic.TensorFlowState()),
        "session": raised(lambda: hvt.elastic.TensorFlowState([tf.Variable(1)], session=1)),
    }


def wrong_run():
    """Wrapped by Horovod's own run: an error that leads to ours, not an endless loop."""
    import horovod.tensorflow as horovod  # not before `support` has chosen the Keras

    model = compiled()
    state = hvd.elastic.KerasState(model)
    entries = []

    @horovod.elastic.run
    def train(state):
        entries.append(1)
        model.fit(*data(0, 8), verbose=0)
        raise HorovodInternalError("a collective has failed")

    return [raised(lambda: train(state)), len(entries)]


def starts_anew():
    """After a restart: the mode stays, numbers and names of optimizers that are no more are free,
    shares of data go on, and the callback that broadcasts does so again."""
    shares = hvd.data.shard(tf.data.Dataset.range(4))
    kept = compiled(keras.optimizers.SGD(0.1))
    names = []
    for _ in range(2):
        optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1))
        named = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), name="mine")
        names.append([_distributed.state_of(o).name for o in (optimizer, named)])
        del optimizer, named
        hvd.set_mode("solo")
        broadcast = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
        x, y = data(0, 8)
        kept.fit(x, y, callbacks=[broadcast], verbose=0)
        done = [broadcast.broadcast_done]
        seen = sorted(int(i) for i in shares)
        _runtime.restart()
        broadcast.set_model(kept)
        broadcast.model.stop_training = False
        generation = broadcast._generation
        broadcast.on_train_begin()
        done.append(broadcast._generation == generation + 1)
        kept.fit(x, y, verbose=0)
        names[-1] += [str(hvd.mode(kept.optimizer)), *done, seen]
    return names


if __name__ == "__main__":
    start()
    run_checks(
        [
            goes_back,
            synchronises,
            later_variables,
            list_of_variables,
            callbacks,
            uneven_epochs,
            steps_keep_their_ranks,
            quorums,
            wrong_arguments,
            wrong_run,
            starts_anew,
        ]
    )
