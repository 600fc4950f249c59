# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""How ranks end: one scenario for each launch, named by the argument."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import time

from support import (
    FOLDER,
    LEGACY,
    data,
    hvd,
    hvt,
    np,
    report,
    same_on_all,
    small_model,
    start,
    tf,
    touch,
    train_step,
    wait_for_file,
    weights,
)

from tests.engine.test_strangers import listening

keras = tf.keras
callbacks = hvd.callbacks
SCENARIO = sys.argv[1]


def compiled(mode="majority", optimizer=None):
    model = small_model()
    optimizer = hvd.DistributedOptimizer(optimizer or keras.optimizers.SGD(0.01), mode=mode)
    model.compile(optimizer=optimizer, loss="mse")
    return model


def batches(count, size=4):
    """A dataset of so many batches whose number Keras does not know."""
    x, y = data(hvd.rank(), 64)
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).repeat().batch(size).take(count)
    return dataset.filter(lambda x, y: True)


def usual():
    return [callbacks.BroadcastGlobalVariablesCallback(0), callbacks.ReplicaSyncCallback()]


def failure(action):
    """Class names and text of what it raises."""
    begun = time.monotonic()
    try:
        action()
    except Exception as error:
        kinds = [kind.__name__ for kind in type(error).__mro__]
        return {"kinds": kinds, "text": str(error), "seconds": time.monotonic() - begun}
    return None


def wait_for_the_others_first():
    """The launcher ends all ranks when one has failed: whoever fails waits for the reports."""

    def hook(kind, value, traceback):
        report(hook=f"{kind.__name__}: {value}")
        for rank in range(hvd.size()):
            if rank != hvd.rank():
                wait_for_file(f"told{rank}")
        sys.__excepthook__(kind, value, traceback)

    sys.excepthook = hook


def survive(action):
    """Reports how the others' end is seen here, also when the launcher wants to end this rank."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    report(failure=failure(action))
    touch(f"told{hvd.rank()}")


# ---- scenarios ------------------------------------------------------------------


def exception_in_a_callback():
    wait_for_the_others_first()
    start()

    class Boom(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if hvd.rank() == 1 and batch == 3:
                raise ValueError("the disk is full")

    model = compiled(mode="sync")

    def train():
        model.fit(batches(1000), epochs=5, verbose=0, callbacks=[*usual(), Boom()])

    if hvd.rank() == 1:
        train()
    else:
        survive(train)


def exception_without_callbacks():
    """A loop in a tf.function, no callback of ours: TensorFlow's error with Horovod's mark."""
    wait_for_the_others_first()
    start()
    model = small_model()
    step = train_step(model, hvd.DistributedOptimizer(keras.optimizers.SGD(0.01), mode="sync"))
    x, y = data(hvd.rank(), 8)

    def train():
        for i in range(1000):
            if hvd.rank() == 1 and i == 3:
                raise ValueError("the disk is full")
            step(x, y)

    if hvd.rank() == 1:
        train()
    else:
        survive(train)


def killed():
    start()

    class Die(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if hvd.rank() == 2 and batch == 3:
                os.kill(os.getpid(), signal.SIGKILL)

    model = compiled()
    survive(lambda: model.fit(batches(10**6), verbose=0, callbacks=[*usual(), Die()]))


def killed_while_waiting():
    """Rank 0, the coordinator, is killed inside an op in which it waits for rank 1."""
    start()
    model = compiled(mode="sync")

    class Hold(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            if hvd.rank() == 1 and batch == 3:
                wait_for_file("killed")

    def strike():
        while hvd.stats(model.optimizer).deposits < 4:
            time.sleep(0.001)
        (FOLDER / "killing").write_text(str(time.monotonic()))
        (FOLDER / "killing").replace(FOLDER / "killed")
        os.kill(os.getpid(), signal.SIGKILL)

    def train():
        model.fit(batches(10**6), verbose=0, callbacks=[*usual(), Hold()])

    if hvd.rank() == 0:
        threading.Thread(target=wait_then, args=(model, strike), daemon=True).start()
        train()
        return
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    found = failure(train)
    ended = time.monotonic()
    report(failure=found, since_kill=ended - float((FOLDER / "killed").read_text()))


def listens():
    """Trains a little, and says where it listens meanwhile: this engine's ports and Horovod's."""
    start()
    model = compiled(mode="sync")
    places = []

    class Look(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            places.extend(host for host, port in listening())

    model.fit(batches(2), verbose=0, callbacks=[*usual(), Look()])
    report(hosts=sorted(set(places)), interface=os.environ.get("HOROVOD_GLOO_IFACE", ""))


def interrupted():
    """Rank 0 gets Ctrl-C while it waits inside a TensorFlow op for rank 1."""
    start()
    model = compiled(mode="sync")
    seen = {}

    class Pause(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            if hvd.rank() == 1 and batch == 3:
                wait_for_file("interrupted")

    def press():
        while hvd.stats(model.optimizer).deposits < 4:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    def train():
        model.fit(batches(1000), verbose=0, callbacks=[*usual(), Pause()])

    if hvd.rank() == 0:
        threading.Thread(target=wait_then, args=(model, press), daemon=True).start()
        try:
            train()
        except KeyboardInterrupt:
            seen["interrupted"] = True
        finally:
            touch("interrupted")
        report(seen=seen)
    else:
        survive(train)


def wait_then(model, action):
    from hvd_partial.tensorflow import _distributed

    state = _distributed.state_of(model.optimizer)
    while state.replay.channel is None:
        time.sleep(0.01)
    action()


def uneven():
    """Other numbers of batches, none at all, validation on one rank, more epochs on another."""
    start()
    rank = hvd.rank()
    for mode in ("sync", "majority"):
        model = compiled(mode)
        model.fit(batches(2 + 3 * rank), epochs=2, verbose=0, callbacks=usual())
        report(**{f"{mode} same": same_on_all(weights(model))})

    # tf_keras itself does not take an empty dataset.
    model = compiled("sync")
    if LEGACY and rank == 1:
        sync = callbacks.ReplicaSyncCallback()
        broadcast = callbacks.BroadcastGlobalVariablesCallback(0)
        for callback in (broadcast, sync):
            callback.set_model(model)
            callback.on_train_begin()
        sync.on_epoch_begin(0)
        sync.on_epoch_end(0)
        sync.on_train_end()
    else:
        model.fit(batches(4 if rank != 1 else 0), verbose=0, callbacks=usual())
    report(
        none=same_on_all(weights(model)),
        deposits=hvd.stats(model.optimizer).deposits,
        iterations=int(model.optimizer.iterations),
    )

    # Rank 0 evaluates in the middle of an epoch, with nobody's help.
    class Evaluate(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if rank == 0 and batch == 2:
                x, y = data(9, 16)
                report(evaluated=float(self.model.evaluate(x, y, verbose=0)))

    model = compiled("majority")
    model.fit(
        batches(6),
        verbose=0,
        callbacks=[*usual(), Evaluate(), callbacks.MetricAverageCallback()],
    )
    report(evaluation=same_on_all(weights(model)))

    # Rank 2 trains on when the others have returned and ended.
    model = compiled("sync")
    history = model.fit(
        batches(3),
        epochs=5 if rank == 2 else 2,
        verbose=0,
        callbacks=[*usual(), callbacks.MetricAverageCallback()],
    )
    report(epochs=len(history.history["loss"]), ended=True)


def shutdown_and_again():
    """The same compiled step after shutdown() and init(); modes and counters start anew."""
    start()
    model = compiled("solo")
    model.fit(batches(4), verbose=0, callbacks=usual())
    first = hvd.stats(model.optimizer).deposits
    hvd.shutdown()
    early = failure(lambda: model.train_on_batch(*data(0, 4)))
    hvd.init()
    model.fit(batches(6), verbose=0, callbacks=usual())
    report(
        deposits=[first, hvd.stats(model.optimizer).deposits],
        early=early,
        same=same_on_all(weights(model)),
        iterations=same_on_all(int(model.optimizer.iterations)),
    )
    hvd.shutdown()


def alone():
    """One process without a launcher: every mode, every callback."""
    start()
    found = {}
    for mode in ("sync", "majority", "solo", "quorum(1)", "designated(1)", "async"):
        model = compiled(mode, keras.optimizers.SGD(0.01, momentum=0.9))
        plain = small_model()
        plain.compile(optimizer=keras.optimizers.SGD(0.01, momentum=0.9), loss="mse")
        data_here = hvd.data.shard(batches(8, 1).unbatch()).batch(1)
        model.fit(
            hvd.data.by_contributions(data_here, 8, model.optimizer),
            verbose=0,
            callbacks=[
                *usual(),
                callbacks.MetricAverageCallback(),
                callbacks.StopAgreementCallback(),
                callbacks.DelayInjectionCallback(callbacks.RotatingSkew(0.0, 0.001)),
            ],
        )
        plain.fit(batches(8, 1), verbose=0)
        found[mode] = float(
            max(
                np.max(np.abs(a - b))
                for a, b in zip(model.get_weights(), plain.get_weights(), strict=True)
            )
        )
    report(difference=found, size=hvd.size(), gathered=len(hvt.allgather_object(1)))
    report(elastic=recover(model), child=forked_child())


def forked_child():
    """A child that ends by an exception and runs exit handlers does no harm to the rank."""
    child = os.fork()
    if child == 0:
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(10)
        except KeyboardInterrupt as error:
            sys.excepthook(type(error), error, None)
        finally:
            atexit._run_exitfuncs()
            os._exit(3)
    _, status = os.waitpid(child, 0)
    value = hvt.partial_allreduce([tf.constant(2.0)], "after the child")[0]
    return [os.waitstatus_to_exitcode(status), float(value)]


def recover(model):
    """Horovod's elastic loop after a lost peer, with the real restart of both libraries."""
    lost = "hvd_partial [PEER_LOST]: rank 1 was lost (HorovodAllreduce)"
    state = hvd.elastic.KerasState(model, batch=0)
    kept = weights(model)
    tries = []

    @hvd.elastic.run
    def train(state):
        tries.append(weights(state.model) == kept)
        model.fit(batches(2), verbose=0, callbacks=usual())
        if len(tries) == 1:
            raise tf.errors.UnknownError(None, None, lost)
        return hvd.stats(model.optimizer).deposits

    deposits = train(state)
    other = failure(lambda: hvd.elastic.run(lambda state: 1 / 0)(state))
    return {"deposits": deposits, "restored": tries, "other": other["kinds"][0]}


if __name__ == "__main__":
    {
        action.__name__: action
        for action in (
            exception_in_a_callback,
            exception_without_callbacks,
            killed,
            killed_while_waiting,
            listens,
            interrupted,
            uneven,
            shutdown_and_again,
            alone,
        )
    }[SCENARIO]()
