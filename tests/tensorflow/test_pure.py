# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""What needs no ranks: delay patterns, module contents, messages of the loader."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tensorflow.launch import ROOT

PACKAGE = ROOT / "hvd_partial"


def run_python(code: str, *, path: Path = ROOT) -> subprocess.CompletedProcess[str]:
    variables = dict(os.environ, PYTHONPATH=str(path), TF_CPP_MIN_LOG_LEVEL="3")
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=variables,
        cwd=path,  # python -c looks here first
        timeout=100,
    )


NAMES = """
import importlib, inspect, json
missing = {}
not_api = {"is_version_greater_equal_than"}  # what a module imports for its own use
for module in ("horovod.tensorflow", "horovod.tensorflow.keras", "horovod.tensorflow.elastic",
               "horovod.tensorflow.keras.callbacks", "horovod.tensorflow.keras.elastic"):
    theirs = importlib.import_module(module)
    ours = importlib.import_module(module.replace("horovod", "hvd_partial", 1))
    public = getattr(theirs, "__all__", None) or [
        n for n in dir(theirs) if not n.startswith("_") and not inspect.ismodule(getattr(theirs, n))
    ]
    missing[module] = [n for n in public if n not in not_api and not hasattr(ours, n)]
    for name in getattr(ours, "__all__", []):
        getattr(ours, name)
import horovod.tensorflow, hvd_partial.tensorflow as hvt, hvd_partial.tensorflow.keras as hvd
facts = {
    "same": hvt.allreduce is horovod.tensorflow.allreduce,
    "layers": hvt.PartialDistributedGradientTape
    is horovod.tensorflow.PartialDistributedGradientTape,
    "ours": [m.DistributedOptimizer.__module__ for m in (hvt, hvd)],
    "no clash": hasattr(hvd, "PartialDistributedOptimizer"),
}

from hvd_partial.tensorflow.keras.callbacks import FixedRank, LogNormal, RandomRank, RotatingSkew
def grid(pattern, size=4, steps=400):
    return [[pattern(rank, step, size) for rank in range(size)] for step in range(steps)]
delays = {
    "fixed": grid(FixedRank(-1, 0.3), steps=3), "random": grid(RandomRank(0.2, seed=7)),
    "again": grid(RandomRank(0.2, seed=7)), "other": grid(RandomRank(0.2, seed=8)),
    "skew": grid(RotatingSkew(0.05, 0.4), steps=8), "normal": grid(LogNormal(0.05, 1.0, seed=1)),
    "normal again": grid(LogNormal(0.05, 1.0, seed=1)), "alone": RotatingSkew(0.1, 0.2)(0, 5, 1),
}

from hvd_partial.tensorflow.keras.callbacks import DelayInjectionCallback
import horovod.tensorflow as hvd0
hvd0.init()
slept = []
callback = DelayInjectionCallback(lambda rank, step, size: float(step), sleep=slept.append)
for batch in range(2):
    callback.on_train_batch_begin(batch)
    callback.on_train_batch_end(batch)
callback.on_train_batch_begin(2)  # Keras begins one more and finds that there is none
callback.on_train_batch_begin(0)

import tensorflow as tf
def options_of_epochs(autotune=None):
    given = tf.data.Options()
    given.threading.private_threadpool_size = 3
    if autotune is not None:
        given.autotune.enabled = autotune
    epochs = hvd.data.by_contributions(tf.data.Dataset.range(3).with_options(given), 2)
    return [epochs.options().autotune.enabled, epochs.options().threading.private_threadpool_size]
options = [options_of_epochs(), options_of_epochs(True)]

from types import SimpleNamespace
from unittest import mock
import numpy as np
from hvd_partial.tensorflow import _exchange
def exchanged(size, text):
    def summed(channel, arrays):  # with what rank 1 gives
        total = arrays[0].copy()
        if total.dtype == np.int64:
            total[1] = size
        else:
            total.view(np.uint8).reshape(2, -1)[1, : len(text)] = np.frombuffer(text, np.uint8)
        return [total]
    ranks = SimpleNamespace(connect=lambda: SimpleNamespace(rank=0, size=2))
    with mock.patch.multiple(_exchange, _summed=summed, _channel=mock.Mock(), _runtime=ranks):
        try:
            return _exchange.gather_json("a")
        except RuntimeError as error:
            return f"{type(error).__name__}: {error}"
exchanges = [exchanged(4, b'"b"'), exchanged(-5, b""), exchanged(1 << 40, b""),
             exchanged(4, b"{{{"), exchanged(2, bytes([255]))]
print("ANSWER" + json.dumps([missing, facts, delays, slept, options, exchanges]))
"""


@pytest.fixture(scope="module")
def answer() -> list[dict]:  # type: ignore[type-arg]
    done = run_python(NAMES)
    lines = [line for line in done.stdout.splitlines() if line.startswith("ANSWER")]
    assert lines, done.stderr
    return json.loads(lines[0].removeprefix("ANSWER"))


def test_everything_of_horovods_is_there(answer: list) -> None:  # type: ignore[type-arg]
    assert not any(answer[0].values()), answer[0]
    assert len(answer[0]) == 5


def test_what_is_horovods_own_stays_its_own(answer: list) -> None:  # type: ignore[type-arg]
    facts = answer[1]
    assert facts["same"] and facts["layers"]
    assert facts["ours"] == ["hvd_partial.tensorflow", "hvd_partial.tensorflow.keras"]
    # "Partial" means local layers in Horovod; ours is DistributedOptimizer(mode=...).
    assert not facts["no clash"]


def test_delay_patterns(answer: list) -> None:  # type: ignore[type-arg]
    delays = answer[2]
    assert delays["fixed"] == [[0, 0, 0, 0.3]] * 3
    assert all(sorted(step) == [0, 0, 0, 0.2] for step in delays["random"])
    assert delays["random"] == delays["again"] != delays["other"]
    hit = [sum(step[rank] > 0 for step in delays["random"]) for rank in range(4)]
    assert all(60 < count < 140 for count in hit)
    for step, values in enumerate(delays["skew"]):
        assert sorted(values) == pytest.approx([0.05, 0.05 + 0.35 / 3, 0.05 + 0.7 / 3, 0.4])
        assert values[(-step) % 4] == pytest.approx(0.05)
    assert delays["alone"] == 0.1
    assert delays["normal"] == delays["normal again"]
    flat = sorted(value for step in delays["normal"] for value in step)
    assert flat[len(flat) // 2] == pytest.approx(0.05, rel=0.1)
    # One standard deviation up is a factor of e.
    assert flat[int(0.8413 * len(flat))] == pytest.approx(0.05 * 2.718, rel=0.1)


def test_delays_are_slept_once_for_each_batch(answer: list) -> None:  # type: ignore[type-arg]
    assert answer[3] == [1.0, 2.0]


def test_epochs_keep_the_options_of_their_dataset(answer: list) -> None:  # type: ignore[type-arg]
    # tf.data's tuning thread can hold up the end of an epoch: only who wants it has it.
    assert answer[4] == [[False, 3], [True, 3]]


def test_what_a_rank_gives_to_an_exchange_is_checked(answer: list) -> None:  # type: ignore[type-arg]
    good, *bad = answer[5]
    assert good == {"0": "a", "1": "b"}
    for text, part in zip(
        bad,
        ["announced -6 bytes", "announced 1099511627775 bytes", "cannot be read", "utf-8"],
        strict=True,
    ):
        assert text.startswith("HvdPartialError: ")
        assert "rank 1" in text
        assert part in text


@pytest.fixture
def copied_package(tmp_path: Path) -> Path:
    """A copy of the package, to be spoiled."""
    target = tmp_path / "hvd_partial"
    shutil.copytree(PACKAGE, target, ignore=shutil.ignore_patterns("native", "__pycache__"))
    return target


def test_a_library_for_another_tensorflow_is_refused(copied_package: Path) -> None:
    info = copied_package / "_build_info.json"
    info.write_text(json.dumps(json.loads(info.read_text()) | {"tensorflow": "2.16.2"}))
    done = run_python("import hvd_partial.tensorflow", path=copied_package.parent)
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: hvd_partial was built for TensorFlow 2.16.2, but")
    assert "pip install --no-build-isolation" in last


def test_a_missing_library_is_named(copied_package: Path) -> None:
    (copied_package / "_tensorflow_ops.so").unlink()
    done = run_python("import hvd_partial.tensorflow.keras", path=copied_package.parent)
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: The TensorFlow op library of hvd_partial")
    assert "make build" in last


def test_a_broken_library_is_named(copied_package: Path) -> None:
    (copied_package / "_tensorflow_ops.so").write_bytes(b"not a library")
    done = run_python("import hvd_partial.tensorflow", path=copied_package.parent)
    last = [line for line in done.stderr.splitlines() if line.startswith("ImportError")]
    assert last and "does not load with TensorFlow" in last[0]
