# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""What the workers share. Import it first: it chooses the Keras."""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

if os.environ.get("HVD_PARTIAL_TEST_LEGACY"):
    os.environ["TF_USE_LEGACY_KERAS"] = "1"

import numpy as np
import tensorflow as tf

import hvd_partial.tensorflow as hvt
import hvd_partial.tensorflow.keras as hvd

# What a shell starts in the background inherits that Ctrl-C is ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
# Who crashes or hangs says where.
faulthandler.enable()
faulthandler.dump_traceback_later(0.7 * float(os.environ["HVD_PARTIAL_TEST_DEADLINE"]))

LEGACY = bool(os.environ.get("HVD_PARTIAL_TEST_LEGACY"))
FOLDER = Path(os.environ["HVD_PARTIAL_TEST_REPORT"])

Check = Callable[[], Any]
_values: dict[str, Any] = {}


def start() -> bool:
    """init(), and what Horovod's users do after it: whether it was still possible then."""
    hvd.init()
    try:
        tf.config.set_visible_devices([], "GPU")
        tf.config.threading.set_intra_op_parallelism_threads(1)
    except RuntimeError:
        return False
    return True


def report(**values: Any) -> None:
    """Writes down what this rank found, as JSON; may be called again and again."""
    _values.update(values)
    path = FOLDER / f"rank{hvd.rank()}.json"
    partial = path.with_suffix(".new")
    partial.write_text(json.dumps(_values, default=_plain))
    partial.replace(path)


def _plain(value: Any) -> Any:
    return np.asarray(value).tolist()


def run_checks(checks: list[Check]) -> None:
    """Runs each, or those named by arguments; what it returns, or its error, is the report."""
    for check in checks:
        name = check.__name__
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        start = time.monotonic()
        try:
            outcome: Any = {"value": check()}
        except Exception:
            outcome = {"error": traceback.format_exc()}
        outcome["seconds"] = round(time.monotonic() - start, 2)
        report(**{name: outcome})
        tf.keras.backend.clear_session()


def raised(action: Callable[[], Any]) -> str:
    """Class and text of what it raises; "" if it does not."""
    try:
        action()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def wait_for_file(name: str, seconds: float = 30.0) -> None:
    """Until some rank has called touch(name)."""
    end = time.monotonic() + seconds
    while not (FOLDER / name).exists():
        if time.monotonic() > end:
            raise TimeoutError(f"{name} did not appear within {seconds} s")
        time.sleep(0.01)


def touch(name: str) -> None:
    (FOLDER / name).write_text("")


# ---- a small problem ----------------------------------------------------------


def data(rank: int, size: int = 96, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and targets, others on each rank."""
    rng = np.random.default_rng([seed, rank])
    x = rng.normal(size=(size, 4)).astype(np.float32)
    return x, (x @ np.arange(1.0, 5.0, dtype=np.float32)).reshape(-1, 1)


def small_model(seed: int = 1, layers: Any = None, dtype: Any = None) -> Any:
    """A built model, the same on all ranks for the same seed."""
    tf.keras.utils.set_random_seed(seed)
    dense = tf.keras.layers.Dense
    if layers is None:
        layers = [dense(8, activation="tanh", dtype=dtype), dense(1, dtype=dtype)]
    return tf.keras.Sequential([tf.keras.Input((4,)), *layers])


def weights(model: Any) -> list[list[float]]:
    return [np.asarray(w, np.float64).ravel().tolist() for w in model.get_weights()]


def optimizer_values(optimizer: Any) -> list[list[float]]:
    from hvd_partial.tensorflow import _keras

    variables = _keras.optimizer_variables(optimizer)
    return [np.asarray(v.numpy(), np.float64).ravel().tolist() for v in variables]


def same_on_all(value: Any) -> bool:
    """Whether all ranks have the same, to the last bit."""
    return len({json.dumps(v, default=_plain) for v in hvt.allgather_object(value)}) == 1


def train_step(model: Any, optimizer: Any, compiled: bool = True) -> Any:
    """A custom training step on mean squared error: (x, y) to the local loss."""

    def step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x, training=True) - y))
        variables = model.trainable_variables
        optimizer.apply_gradients(list(zip(tape.gradient(loss, variables), variables, strict=True)))
        return loss

    return tf.function(step) if compiled else step
