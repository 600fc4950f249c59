# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Two ranks: what a distributed optimizer must do, each check in turn."""

from __future__ import annotations

import subprocess
import sys

from support import (
    FOLDER,
    LEGACY,
    data,
    hvd,
    hvt,
    np,
    optimizer_values,
    raised,
    run_checks,
    same_on_all,
    small_model,
    start,
    tf,
    touch,
    train_step,
    wait_for_file,
    weights,
)

start()
keras = tf.keras
RANK, SIZE = hvd.rank(), hvd.size()
STEPS, BATCH = 20, 8


def batches(rank, steps=STEPS):
    x, y = data(rank, steps * BATCH)
    return [(x[i : i + BATCH], y[i : i + BATCH]) for i in range(0, steps * BATCH, BATCH)]


def global_batches(steps=STEPS):
    """What all ranks have, put together: the mean gradient over it is the mean of their means."""
    parts = [batches(rank, steps) for rank in range(SIZE)]
    return [
        (np.concatenate([p[i][0] for p in parts]), np.concatenate([p[i][1] for p in parts]))
        for i in range(steps)
    ]


def distance(a, b):
    """Largest difference of two lists of lists, relative to the largest value."""
    flat_a = np.concatenate([np.ravel(x) for x in a])
    flat_b = np.concatenate([np.ravel(x) for x in b])
    return float(np.max(np.abs(flat_a - flat_b)) / np.max(np.abs(flat_b)))


def against_plain(make, steps=STEPS, compiled=True, feed=lambda step, i, batch: step(*batch)):
    """Distance of the weights after sync training from those of a plain optimizer on all data."""
    ours, plain = small_model(), small_model()
    step = train_step(ours, hvd.DistributedOptimizer(make(), mode="sync"), compiled)
    for i, batch in enumerate(batches(RANK, steps)):
        feed(step, i, batch)
    step = train_step(plain, make(), compiled)
    for i, batch in enumerate(global_batches(steps)):
        feed(step, i, batch)
    return distance(weights(ours), weights(plain))


def optimizers():
    """Those that Keras compiles into different things."""
    found = {
        "sgd": lambda: keras.optimizers.SGD(0.05),
        "momentum": lambda: keras.optimizers.SGD(0.02, momentum=0.9, nesterov=True),
        "adam": lambda: keras.optimizers.Adam(0.01),
        "adamw_ema": lambda: keras.optimizers.AdamW(
            0.01, weight_decay=0.05, use_ema=True, ema_momentum=0.9, ema_overwrite_frequency=5
        ),
        "clipnorm": lambda: keras.optimizers.SGD(0.05, clipnorm=0.5),
        "global_clipnorm": lambda: keras.optimizers.SGD(0.05, global_clipnorm=0.5),
        "clipvalue": lambda: keras.optimizers.SGD(0.05, clipvalue=0.1),
        "schedule": lambda: keras.optimizers.SGD(
            keras.optimizers.schedules.ExponentialDecay(0.05, 3, 0.7)
        ),
    }
    if LEGACY:
        found["legacy_momentum"] = lambda: keras.optimizers.legacy.SGD(0.02, momentum=0.9)
        found["legacy_adam_clip"] = lambda: keras.optimizers.legacy.Adam(0.01, clipnorm=0.5)
        found["legacy_schedule"] = lambda: keras.optimizers.legacy.SGD(
            keras.optimizers.schedules.ExponentialDecay(0.05, 3, 0.7)
        )
    return found


def sync_is_training_on_all_data():
    return {name: against_plain(make) for name, make in optimizers().items()}


def eager_is_training_on_all_data():
    return against_plain(optimizers()["momentum"], 6, compiled=False)


def losses_are_horovods():
    """20 steps with Horovod's allreduce on each gradient (and under tf_keras its optimizer)."""
    import horovod.tensorflow as horovod
    import horovod.tensorflow.keras as horovod_keras

    def run(reduce, optimizer):
        model = small_model()
        losses = []
        for x, y in batches(RANK):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(model(x) - y))
            variables = model.trainable_variables
            gradients = [reduce(g, i) for i, g in enumerate(tape.gradient(loss, variables))]
            optimizer.apply_gradients(list(zip(gradients, variables, strict=True)))
            losses.append(float(loss))
        return losses

    def make():
        return keras.optimizers.SGD(0.05, momentum=0.9)

    ours = run(lambda g, i: g, hvd.DistributedOptimizer(make(), mode="sync"))
    theirs = run(lambda g, i: horovod.allreduce(g, op=horovod.Average, name=f"g{i}"), make())
    found = {"allreduce": [ours, theirs]}
    if LEGACY:
        compiled = []
        for wrap in (
            lambda o: hvd.DistributedOptimizer(o, mode="sync"),
            horovod_keras.DistributedOptimizer,
        ):
            model = small_model()
            model.compile(optimizer=wrap(make()), loss="mse")
            compiled.append([float(model.train_on_batch(x, y)) for x, y in batches(RANK)])
        found["optimizer"] = compiled
    return found


def clipping_acts_on_the_reduced_gradient():
    """Large opposite gradients: clipped first they would cancel to something else."""
    variable = tf.Variable([0.0, 0.0])
    local = np.array([[30.0, 0.0], [-10.0, 8.0]], np.float32)[RANK]
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0, clipnorm=0.5), mode="sync")
    optimizer.apply_gradients([(tf.constant(local), variable)])
    mean = np.array([10.0, 4.0])
    return {"got": variable.numpy(), "want": -mean * 0.5 / np.linalg.norm(mean)}


def each_step_is_a_deposit():
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), mode="sync")
    step = train_step(small_model(), optimizer)
    for batch in batches(RANK, 5):
        step(*batch)
    found = hvd.stats(optimizer)
    return {"deposits": found.deposits, "rounds": found.rounds, "mode": str(hvd.mode(optimizer))}


def accumulation():
    """Rounds, and the distance from plain training on the mean of the passes."""
    passes, steps = 3, 12
    found = {}
    for average in (False, True):
        optimizer = hvd.DistributedOptimizer(
            keras.optimizers.SGD(0.02, momentum=0.9),
            mode="sync",
            backward_passes_per_step=passes,
            average_aggregated_gradients=average,
        )
        model = small_model()
        step = train_step(model, optimizer, compiled=average)
        for batch in batches(RANK, steps):
            step(*batch)
        plain = small_model()
        rate = 0.02 if average else 0.02 * passes
        step = train_step(plain, keras.optimizers.SGD(rate, momentum=0.9))
        joined = global_batches(steps)
        for i in range(0, steps, passes):
            part = joined[i : i + passes]
            step(np.concatenate([p[0] for p in part]), np.concatenate([p[1] for p in part]))
        found[str(average)] = {
            "distance": distance(weights(model), weights(plain)),
            "rounds": hvd.stats(optimizer).rounds,
            "iterations": int(optimizer.iterations),
        }
    return found


def keras_accumulation():
    """gradient_accumulation_steps of Keras 3: one round for three passes, Keras's own result."""
    if LEGACY:
        return None

    def make():
        return keras.optimizers.Adam(0.01, gradient_accumulation_steps=3, global_clipnorm=1.0)

    ours, plain = small_model(), small_model()
    distributed, local = hvd.DistributedOptimizer(make(), mode="sync"), make()
    step = train_step(ours, distributed)
    for batch in batches(RANK, 12):
        step(*batch)
    step = train_step(plain, local)
    for batch in global_batches(12):
        step(*batch)
    return {
        "distance": distance(weights(ours), weights(plain)),
        "rounds": hvd.stats(distributed).rounds,
        "iterations": [int(distributed.iterations), int(local.iterations)],
        "counted": [int(distributed._iterations), int(local._iterations)],
        "variables": [len(distributed.variables), len(local.variables)],
        "config": distributed.get_config() | {"name": ""} == local.get_config() | {"name": ""},
        "both": raised(lambda: hvd.DistributedOptimizer(make(), backward_passes_per_step=2)),
    }


def scaled(optimizer):
    return keras.mixed_precision.LossScaleOptimizer(optimizer, initial_scale=1024.0)


def loss_scale_of(optimizer):
    return float(optimizer.loss_scale if LEGACY else optimizer.dynamic_scale)


def loss_scaled_step(model, optimizer):
    """A step whose loss this rank makes infinite where it is told to."""

    @tf.function
    def step(x, y, factor):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x) - y)) * factor
            big = optimizer.get_scaled_loss(loss) if LEGACY else optimizer.scale_loss(loss)
        gradients = tape.gradient(big, model.trainable_variables)
        if LEGACY:
            gradients = optimizer.get_unscaled_gradients(gradients)
        optimizer.apply_gradients(list(zip(gradients, model.trainable_variables, strict=True)))

    return step


def loss_scaling(inside):
    """Rank 1 overflows in step 2, everybody in step 4; rates and scale as with one process."""
    outer = "inner" if inside else "outer"
    plain = keras.optimizers.SGD(0.02, momentum=0.9)
    if inside:
        optimizer = scaled(hvd.DistributedOptimizer(plain, mode="sync"))
    else:
        optimizer = hvd.DistributedOptimizer(scaled(plain), mode="sync")
    model = small_model()
    step = loss_scaled_step(model, optimizer)
    for i, (x, y) in enumerate(batches(RANK, 8)):
        bad = (i == 2 and RANK == 1) or i == 4
        step(x, y, np.float32(np.inf if bad else 1.0))
    hvt.flush(optimizer)
    return {
        "place": outer,
        "same": same_on_all(weights(model)),
        "finite": bool(np.all(np.isfinite(np.concatenate([np.ravel(w) for w in weights(model)])))),
        "scale": loss_scale_of(optimizer),
        "scales": hvt.allgather_object(loss_scale_of(optimizer)),
        "iterations": int(optimizer.iterations),
        "stats": hvd.stats(optimizer).contributions,
        "learned": float(np.mean((model.predict_on_batch(data(RANK)[0]) - data(RANK)[1]) ** 2)),
    }


def loss_scale_outside_the_distributed_optimizer():
    return loss_scaling(inside=True)


def loss_scale_inside_the_distributed_optimizer():
    return loss_scaling(inside=False)


def loss_scale_changes_nothing_else():
    """Finite throughout: the same weights as without a loss scale."""
    found = []
    for wrap in (lambda o: o, scaled):
        model = small_model()
        optimizer = hvd.DistributedOptimizer(wrap(keras.optimizers.SGD(0.05)), mode="sync")
        if wrap is scaled:
            step = loss_scaled_step(model, optimizer)
        else:
            plain = train_step(model, optimizer)
            step = lambda x, y, _, plain=plain: plain(x, y)  # noqa: E731
        for x, y in batches(RANK, 6):
            step(x, y, np.float32(1.0))
        found.append(weights(model))
    return distance(*found)


def mixed_float16_by_compile():
    """compile() puts the loss scale around our optimizer, or finds it inside."""
    keras.mixed_precision.set_global_policy("mixed_float16")
    found = {}
    try:
        for name in ("around", "inside"):
            plain = keras.optimizers.SGD(0.01, momentum=0.9)
            optimizer = hvd.DistributedOptimizer(scaled(plain) if name == "inside" else plain)
            model = small_model()
            model.compile(optimizer=optimizer, loss="mse")
            x, y = data(RANK)
            model.fit(x, y, batch_size=16, epochs=2, verbose=0, callbacks=callbacks())
            found[name] = {
                "same": same_on_all(weights(model)),
                "scaled": type(model.optimizer).__name__,
                "finite": bool(np.isfinite(np.sum([np.sum(w) for w in weights(model)]))),
                "contributions": hvd.stats(optimizer).contributions,
            }
    finally:
        keras.mixed_precision.set_global_policy("float32")
    return found


def callbacks():
    return [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.ReplicaSyncCallback(check=True),
    ]


def nonfinite_gradients_stay_out():
    """Rank 1's second gradient is infinite, all third ones are."""
    variable = tf.Variable([1.0])
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), mode="sync")
    apply = tf.function(lambda g: optimizer.apply_gradients([(g, variable)]))
    found = []
    for i in range(4):
        bad = (i == 1 and RANK == 1) or i == 2
        apply(tf.constant([np.inf if bad else 1.0]))
        found.append(float(variable[0]))
    return {"values": found, "skipped": hvd.stats(optimizer).skipped, "rank": RANK}


def variables_without_gradient():
    used, unused = tf.Variable([1.0]), tf.Variable([1.0])
    if LEGACY:
        plain = keras.optimizers.AdamW(0.1, weight_decay=0.5)
    else:
        plain = keras.optimizers.AdamW(0.1, weight_decay=0.5)
    optimizer = hvd.DistributedOptimizer(plain, mode="sync")
    optimizer.apply_gradients([(tf.constant([1.0]), used), (None, unused)])
    return {"used": used.numpy(), "unused": unused.numpy()}


def gradients_on_some_ranks_only():
    """Both ranks learn of it instead of parting."""
    a, b = tf.Variable([1.0]), tf.Variable([1.0])
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), mode="sync")
    gradient = tf.constant([1.0])
    return raised(
        lambda: optimizer.apply_gradients([(gradient, a), (None if RANK == 1 else gradient, b)])
    )


def sparse_gradients():
    """An embedding with repeated indices, against the dense sum."""
    table = tf.Variable(np.zeros((5, 2), np.float32))
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), mode="sync")

    @tf.function
    def step(indices):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.gather(table, indices) * [[1.0, 2.0]])
        gradient = tape.gradient(loss, table)
        optimizer.apply_gradients([(gradient, table)])
        return isinstance(gradient, tf.IndexedSlices)

    sparse = step(tf.constant([[0, 0, 3], [1, 3, 3]][RANK]))
    want = np.zeros((5, 2))
    for index in (0, 0, 3, 1, 3, 3):
        want[index] -= np.array([1.0, 2.0]) / SIZE
    return {"sparse": bool(sparse), "got": table.numpy(), "want": want}


def schedule_by_contributions():
    """In sync mode the schedule itself; its file loads without this package."""

    def decay():
        return keras.optimizers.schedules.ExponentialDecay(0.05, 3, 0.7)

    def make(schedule):
        return hvd.DistributedOptimizer(keras.optimizers.SGD(schedule), mode="sync")

    found = []
    for schedule in (decay(), hvd.schedules.ByContributions(decay())):
        model = small_model()
        optimizer = make(schedule)
        step = train_step(model, optimizer)
        for batch in batches(RANK, 8):
            step(*batch)
        found.append(weights(model))
    config = optimizer.get_config()["learning_rate"]
    return {
        "distance": distance(*found),
        "class": config["class_name"],
        "rate": float(optimizer.learning_rate if not LEGACY else schedule(0)),
        "want": 0.05 * 0.7 ** (8 / 3),
    }


def optimizer_in_use_keeps_its_state():
    model = small_model()
    plain = keras.optimizers.SGD(0.02, momentum=0.9)
    step = train_step(model, plain)
    for batch in global_batches(3):
        step(*batch)
    before = optimizer_values(plain)
    wrapped = hvd.DistributedOptimizer(plain, mode="sync")
    kept = optimizer_values(wrapped) == before
    step = train_step(model, wrapped)
    for batch in batches(RANK, 6)[3:]:
        step(*batch)
    reference = small_model()
    step = train_step(reference, keras.optimizers.SGD(0.02, momentum=0.9))
    for batch in global_batches(6):
        step(*batch)
    return {
        "object": wrapped is plain,
        "class": isinstance(wrapped, keras.optimizers.SGD),
        "kept": kept,
        "iterations": int(wrapped.iterations),
        "distance": distance(weights(model), weights(reference)),
    }


RELOAD = """
import os, sys
if {legacy}: os.environ["TF_USE_LEGACY_KERAS"] = "1"
import tensorflow as tf
model = tf.keras.models.load_model({path!r})
own = model.optimizer
print(type(own).__module__, int(own.iterations), len(own.variables), "hvd_partial" in sys.modules,
      sep="|")
"""


def files_load_anywhere():
    path = str(FOLDER / "model.keras")
    model = small_model()
    optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(0.01), mode="sync")
    model.compile(optimizer=optimizer, loss="mse")
    x, y = data(RANK)
    model.fit(x, y, batch_size=16, epochs=1, verbose=0, callbacks=callbacks())
    found = {"iterations": int(optimizer.iterations), "variables": len(optimizer.variables)}
    if RANK == 0:
        model.save(path)
        code = RELOAD.format(legacy=LEGACY, path=path)
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        found["elsewhere"] = done.stdout.strip() or done.stderr[-500:]
        touch("saved")
    wait_for_file("saved")
    again = hvd.load_model(path, mode="sync")
    found["kept"] = optimizer_values(again.optimizer) == optimizer_values(optimizer)
    again.fit(x, y, batch_size=16, epochs=1, verbose=0, callbacks=callbacks())
    found["after"] = int(again.optimizer.iterations)
    found["deposits"] = hvd.stats(again.optimizer).deposits
    found["same"] = same_on_all(weights(again))
    copy = type(optimizer).from_config(optimizer.get_config())
    found["copy"] = raised(lambda: hvd.DistributedOptimizer(copy))
    return found


def two_optimizers():
    """As in a GAN: each has its own variables and its own rounds, in one compiled step."""
    first, second = tf.Variable([0.0]), tf.Variable([0.0, 0.0])
    a = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), mode="sync")
    b = hvd.DistributedOptimizer(keras.optimizers.SGD(10.0), mode="sync")

    @tf.function
    def step():
        a.apply_gradients([(tf.constant([1.0 + RANK]), first)])
        b.apply_gradients([(tf.constant([1.0, 2.0 * RANK]), second)])

    for _ in range(3):
        step()
    hvt.flush()
    return {"first": first.numpy(), "second": second.numpy()}


def two_optimizers_unevenly():
    """Rank 0 stops early; the others go on with both, by more rounds than a ring holds."""
    first, second = tf.Variable([0.0]), tf.Variable([0.0])
    a = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), mode="sync", max_lag=2)
    b = hvd.DistributedOptimizer(keras.optimizers.SGD(10.0), mode="sync", max_lag=2)

    @tf.function
    def step():
        a.apply_gradients([(tf.constant([1.0]), first)])
        b.apply_gradients([(tf.constant([1.0]), second)])

    for _ in range(3 if RANK == 0 else 12):
        step()
    hvt.flush()
    return {"first": first.numpy(), "second": second.numpy()}


def one_step_for_several():
    """A linear loss: gradients do not depend on the weights, so only we keep deposits in order."""
    variable = tf.Variable([0.0])
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), mode="sync")

    @tf.function
    def steps(values):
        for i in range(5):
            optimizer.apply_gradients([(values[i : i + 1], variable)])

    steps(tf.constant([1.0, 2.0, 3.0, 4.0, 5.0]))
    return {"value": variable.numpy(), "deposits": hvd.stats(optimizer).deposits}


def ways_of_fitting():
    """run_eagerly and steps_per_execution train as fit does without."""
    found = {}
    x, y = data(RANK, 96)
    ways = {"graph": {}, "eager": {"run_eagerly": True}, "several": {"steps_per_execution": 3}}
    for name, arguments in ways.items():
        model = small_model()
        optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(0.01), mode="sync")
        model.compile(optimizer=optimizer, loss="mse", **arguments)
        model.fit(x, y, batch_size=16, epochs=2, verbose=0, shuffle=False, callbacks=callbacks())
        found[name] = weights(model)
        found[f"{name} deposits"] = hvd.stats(optimizer).deposits
    return {
        "eager": distance(found["eager"], found["graph"]),
        "several": distance(found["several"], found["graph"]),
        "deposits": [found[f"{name} deposits"] for name in ways],
    }


def xla_is_refused():
    model = small_model()
    model.compile(
        optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss="mse", jit_compile=True
    )
    x, y = data(RANK, 16)
    return raised(lambda: model.fit(x, y, verbose=0, callbacks=callbacks()))


def mode_changes_without_retracing():
    traces = []
    variable = tf.Variable([0.0])
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), mode="sync")

    @tf.function
    def step():
        traces.append(1)
        optimizer.apply_gradients([(tf.constant([1.0]), variable)])

    step()
    before = len(traces)
    modes = [str(hvd.mode(optimizer))]
    hvt.flush()
    if RANK == 0:
        hvd.set_mode("solo")
    for _ in range(40):
        step()
    modes.append(str(hvd.mode(optimizer)))
    hvt.flush()
    if RANK == 1:
        hvd.set_mode("sync")
    for _ in range(40):
        step()
    hvt.flush()
    modes.append(str(hvd.mode(optimizer)))
    return {"traces": len(traces) - before, "modes": modes, "same": same_on_all(variable.numpy())}


def compression_and_predivision():
    """Half precision in the channel; and the same mean, however it is divided."""
    found = {}
    for name, arguments in {
        "fp16": {"compression": hvd.Compression.fp16},
        "predivide": {"gradient_predivide_factor": 2.0},
        "sum": {"op": hvd.Sum},
        "hvt_sum": None,
    }.items():
        variable = tf.Variable([0.0, 0.0])
        if arguments is None:
            optimizer = hvt.DistributedOptimizer(keras.optimizers.SGD(1.0), op=hvt.Sum, mode="sync")
        else:
            optimizer = hvd.DistributedOptimizer(
                keras.optimizers.SGD(1.0), mode="sync", **arguments
            )
        optimizer.apply_gradients([(tf.constant([1.0 + RANK, 0.1]), variable)])
        found[name] = variable.numpy()
    return found


def refused_arguments():
    """What cannot be says which argument and why."""
    sgd = keras.optimizers.SGD

    def wrap(**arguments):
        return raised(lambda: hvd.DistributedOptimizer(sgd(0.1), **arguments))

    twice = hvd.DistributedOptimizer(sgd(0.1), name="twice")
    subset = hvd.ProcessSet([0])
    return {
        "mode": wrap(mode="majorty"),
        "quorum": raised(lambda: use(hvd.DistributedOptimizer(sgd(0.1), mode="quorum(9)"))),
        "max_lag": wrap(max_lag=0),
        "average": wrap(average="mean"),
        "catch_up": wrap(catch_up="never"),
        "op": wrap(op=hvt.Adasum),
        "op and average": wrap(op=hvd.Sum, average="contributions"),
        "device_dense": wrap(device_dense="/gpu:0"),
        "device_sparse": wrap(device_sparse="/gpu:0"),
        "process_set": wrap(process_set=subset),
        "compression": wrap(compression=object()),
        "groups": wrap(groups=-1),
        "backward_passes_per_step": wrap(backward_passes_per_step=0),
        "gradient_predivide_factor": wrap(gradient_predivide_factor=2.0, op=hvd.Sum),
        "staleness": raised(lambda: use(hvd.DistributedOptimizer(sgd(0.1), staleness="ancient"))),
        "name": wrap(name="twice"),
        "optimizer": raised(lambda: hvd.DistributedOptimizer("sgd")),
        "wrapped twice": raised(lambda: hvd.DistributedOptimizer(twice)),
        "use_locking": raised(lambda: hvt.DistributedOptimizer(sgd(0.1), use_locking=True)),
        "accepted": raised(
            lambda: hvd.DistributedOptimizer(
                sgd(0.1), sparse_as_dense=True, groups=2, scale_local_gradients=False
            )
        ),
        "local": raised(lambda: twice.register_local_var(tf.Variable(1.0))),
    }


def use(optimizer):
    optimizer.apply_gradients([(tf.constant([1.0]), tf.Variable([1.0]))])


CHECKS = [
    sync_is_training_on_all_data,
    eager_is_training_on_all_data,
    losses_are_horovods,
    clipping_acts_on_the_reduced_gradient,
    each_step_is_a_deposit,
    accumulation,
    keras_accumulation,
    loss_scale_outside_the_distributed_optimizer,
    loss_scale_inside_the_distributed_optimizer,
    loss_scale_changes_nothing_else,
    mixed_float16_by_compile,
    nonfinite_gradients_stay_out,
    variables_without_gradient,
    sparse_gradients,
    schedule_by_contributions,
    optimizer_in_use_keeps_its_state,
    files_load_anywhere,
    two_optimizers,
    two_optimizers_unevenly,
    one_step_for_several,
    ways_of_fitting,
    xla_is_refused,
    mode_changes_without_retracing,
    compression_and_predivision,
    refused_arguments,
    gradients_on_some_ranks_only,
]

if __name__ == "__main__":
    run_checks(CHECKS)
