# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Two ranks: partial_allreduce, the tape and apply, for custom loops."""

from __future__ import annotations

from support import (
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

import hvd_partial.errors

keras = tf.keras
before_init = raised(lambda: hvt.partial_allreduce([tf.constant([1.0])], "early"))
before_init_step = raised(
    lambda: hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)).apply_gradients(
        [(tf.constant([1.0]), tf.Variable([1.0]))]
    )
)
before_init_mode = raised(lambda: hvd.set_mode("solo"))
start()
RANK, SIZE = hvd.rank(), hvd.size()


def before_init_is_an_error():
    return [before_init, before_init_step, before_init_mode]


def tensors_of_all_kinds():
    """Several dtypes in one channel, and the facts of the round."""
    found = {}
    floats = [
        tf.constant([1.0 + RANK], dtype)
        for dtype in (tf.float32, tf.float64, tf.float16, tf.bfloat16)
    ]
    reduced = hvt.partial_allreduce(floats, "floats", mode="sync")
    found["floats"] = [np.asarray(tf.cast(v, tf.float64)) for v in reduced]
    found["dtypes"] = [v.dtype.name for v in reduced]
    found["facts"] = [
        int(reduced.rounds),
        int(reduced.contributions),
        int(reduced.own),
        float(reduced.weight),
    ]
    whole = [tf.constant([2**40 + RANK], tf.int64), tf.constant([[1, RANK]], tf.int32)]
    reduced = hvt.partial_allreduce(whole, "integers", mode="sync", average=None, staleness="full")
    found["integers"] = [v.numpy() for v in reduced]
    slices = tf.IndexedSlices(tf.constant([[2.0], [4.0]]), tf.constant([RANK, RANK]), [3, 1])
    found["sparse"] = hvt.partial_allreduce([slices], "sparse", mode="sync")[0].numpy()
    return found


def nothing_is_lost():
    """The results of all calls and of the flush add up to all that was given, on every rank."""
    total, rounds = np.zeros(2, np.int64), 0
    for i in range(30 + 10 * RANK):
        part = hvt.partial_allreduce(
            [tf.constant([1, i * (RANK + 1)], tf.int64)],
            "sums",
            mode="solo",
            average=None,
            staleness="full",
        )
        total += part[0].numpy()
        rounds += int(part.rounds)
    rest = hvt.partial_flush("sums")
    total += rest[0].numpy()
    return {"total": total, "rounds": rounds + int(rest.rounds)}


def in_a_function():
    @tf.function
    def reduce(x):
        reduced = hvt.partial_allreduce([x], "traced", mode="sync")
        return reduced[0], reduced.contributions

    return [np.asarray(v) for _ in range(3) for v in reduce(tf.constant([2.0 * RANK]))]


def newest_result():
    return [
        float(hvt.partial_allreduce([tf.constant(i)], "newest", "sync", combine="latest")[0])
        for i in (1.0, 2.0)
    ]


def disagreement_is_an_error_on_both():
    """Other shapes under one name; then other channels still work."""
    shape = [2, 3][RANK]
    first = raised(lambda: hvt.partial_allreduce([tf.zeros(shape)], "shapes"))
    more = raised(lambda: hvt.partial_allreduce([tf.zeros(2)] * (1 + RANK), "numbers"))
    kind = [tf.float32, tf.float64][RANK]
    dtype = raised(lambda: hvt.partial_allreduce([tf.zeros(2, kind)], "dtypes"))
    lag = raised(lambda: hvt.partial_allreduce([tf.zeros(2)], "options", max_lag=3 + RANK))
    fine = float(hvt.partial_allreduce([tf.constant(1.0)], "after", "sync")[0])
    return {"shape": first, "number": more, "dtype": dtype, "options": lag, "after": fine}


def wrong_calls():
    hvt.partial_allreduce([tf.zeros(2)], "taken", "sync")
    unknown = tf.function(
        lambda x: hvt.partial_allreduce([x], "unknown")[0],
        input_signature=[tf.TensorSpec([None])],
    )
    return {
        "not a list": raised(lambda: hvt.partial_allreduce(tf.zeros(2), "x")),
        "combine": raised(lambda: hvt.partial_allreduce([tf.zeros(2)], "x", combine="mean")),
        "mode": raised(lambda: hvt.partial_allreduce([tf.zeros(2)], "x", "all")),
        "taken": raised(lambda: hvt.partial_allreduce([tf.zeros(3)], "taken", "sync")),
        "complex": raised(lambda: hvt.partial_allreduce([tf.zeros(2, tf.complex64)], "x")),
        "shape": raised(lambda: unknown(tf.zeros(2))),
        "flush": raised(lambda: hvt.partial_flush("never")),
        "stats": raised(lambda: hvd.stats("never")),
        "k": raised(lambda: hvt.partial_allreduce([tf.zeros(2)], "x", "quorum(3)")),
        "xla": raised(
            lambda: tf.function(lambda x: hvt.partial_allreduce([x], "xla")[0], jit_compile=True)(
                tf.zeros(2)
            )
        ),
    }


def gradients_of(model, tape_of=lambda tape: tape):
    x, y = data(RANK, 8)
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(x) - y))
    return tape_of(tape).gradient(loss, model.trainable_variables)


def tape_is_the_mean():
    model = small_model()
    local = gradients_of(model)
    reduced = gradients_of(model, lambda tape: hvd_tape(tape, mode="sync"))
    everybody = hvt.allgather_object([g.numpy() for g in local])
    want = [np.mean(parts, axis=0) for parts in zip(*everybody, strict=True)]
    halved = gradients_of(
        model, lambda tape: hvd_tape(tape, mode="sync", compression=hvt.Compression.fp16, name="h")
    )

    def largest(values):
        return max(float(np.max(np.abs(a - b))) for a, b in zip(values, want, strict=True))

    return {"difference": largest(reduced), "fp16": largest(halved)}


def hvd_tape(tape, **arguments):
    return hvt.DistributedGradientTape(tape, **arguments)


def reducing_twice_is_an_error():
    model = small_model()
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), mode="sync")
    found = {}
    reduced = gradients_of(model, lambda tape: hvd_tape(tape, mode="sync"))
    pairs = list(zip(reduced, model.trainable_variables, strict=True))
    found["eager"] = raised(lambda: optimizer.apply_gradients(pairs))

    @tf.function
    def step():
        tape_gradients = gradients_of(model, lambda tape: hvd_tape(tape, mode="sync"))
        clipped = [tf.clip_by_value(2.0 * g, -1.0, 1.0) for g in tape_gradients]
        optimizer.apply_gradients(list(zip(clipped, model.trainable_variables, strict=True)))

    found["graph"] = raised(step)
    plain = keras.optimizers.SGD(0.1)
    found["apply"] = raised(lambda: hvt.apply(plain, reduced, model.trainable_variables))
    return found


def loops_replay():
    """apply with a plain optimizer and with a function: replicas equal, mode solo, rank 1 late."""
    found = {}
    for name in ("optimizer", "function"):
        model = small_model()
        optimizer = keras.optimizers.Adam(0.01)

        def update(values, variables):
            for value, variable in zip(values, variables, strict=True):
                variable.assign_sub(0.01 * value)

        target = optimizer if name == "optimizer" else update
        key = None if name == "optimizer" else "mine"

        @tf.function
        def step(x, y, model=model, target=target, key=key):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(model(x) - y))
            variables = model.trainable_variables
            gradients = tape.gradient(loss, variables)
            hvt.apply(target, gradients, variables, name=key, mode="solo")

        x, y = data(RANK, 40 * 4)
        for i in range(0, 40 * (2 - RANK), 4):
            step(x[i : i + 4], y[i : i + 4])
        hvt.flush(target if name == "optimizer" else key)
        stats = hvd.stats(target if name == "optimizer" else key)
        found[name] = {
            "same": same_on_all(weights(model)),
            "deposits": stats.deposits,
            "contributions": stats.contributions,
        }
    model = small_model()
    distributed = hvd.DistributedOptimizer(keras.optimizers.SGD(0.01))
    hvt.apply(distributed, gradients_of(model), model.trainable_variables)
    found["distributed"] = hvd.stats(distributed).deposits
    found["no name"] = raised(lambda: hvt.apply(update, [], []))
    found["no optimizer"] = raised(lambda: hvt.apply(3, [], []))
    return found


def errors_are_horovods():
    return {
        name: [base.__name__ for base in getattr(hvd_partial.errors, name).__mro__]
        for name in ("PeerLostError", "AbortedError")
    }


CHECKS = [
    before_init_is_an_error,
    tensors_of_all_kinds,
    nothing_is_lost,
    in_a_function,
    newest_result,
    tape_is_the_mean,
    reducing_twice_is_an_error,
    loops_replay,
    errors_are_horovods,
    wrong_calls,
    disagreement_is_an_error_on_both,
]

if __name__ == "__main__":
    run_checks(CHECKS)
