# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""partial_allreduce, DistributedGradientTape and apply on two ranks."""

from __future__ import annotations

import functools

import pytest

from tests.tensorflow.suite import FLAVOURS, outcomes

pytestmark = [pytest.mark.slow, pytest.mark.timeout(450)]
both_kerases = pytest.mark.parametrize("legacy_keras", FLAVOURS)
of = functools.partial(outcomes, "loops")


def test_before_init_is_an_error() -> None:
    for found in of("before_init_is_an_error", False):
        assert all(text.startswith("NotConnectedError") and "init()" in text for text in found)


def test_tensors_of_all_kinds() -> None:
    for found in of("tensors_of_all_kinds", False):
        assert found["floats"] == [[1.5]] * 4
        assert found["dtypes"] == ["float32", "float64", "float16", "bfloat16"]
        assert found["facts"] == [1, 2, 1, 2.0]
        assert found["integers"] == [[2**41 + 1], [[2, 1]]]
        assert found["sparse"] == [[3.0], [3.0], [0.0]]


def test_nothing_is_lost() -> None:
    steps = [30, 40]
    want = [sum(steps), sum(i * (rank + 1) for rank in (0, 1) for i in range(steps[rank]))]
    for found in of("nothing_is_lost", False):
        assert found["total"] == want


def test_inside_a_function() -> None:
    assert of("in_a_function", False) == [[[1.0], 2] * 3] * 2


def test_the_newest_result() -> None:
    assert of("newest_result", False) == [[1.0, 2.0]] * 2


@both_kerases
def test_the_tape_gives_the_mean(legacy_keras: bool) -> None:
    for found in of("tape_is_the_mean", legacy_keras):
        assert found["difference"] < 1e-5
        assert 0 < found["fp16"] < 0.1


@both_kerases
def test_reducing_twice_is_an_error(legacy_keras: bool) -> None:
    for found in of("reducing_twice_is_an_error", legacy_keras):
        for way in ("eager", "graph", "apply"):
            assert found[way].startswith("InvalidArgumentError"), found[way]
            assert "reduced twice" in found[way]


@both_kerases
def test_custom_loops_replay(legacy_keras: bool) -> None:
    for rank, found in enumerate(of("loops_replay", legacy_keras)):
        for way in ("optimizer", "function"):
            assert found[way]["same"]
            assert found[way]["deposits"] == [20, 10][rank]
            assert found[way]["contributions"] == 30
        assert found["distributed"] == 1
        assert "name: must be given" in found["no name"]
        assert "must be a Keras optimizer or a function" in found["no optimizer"]


def test_a_failed_job_is_a_horovod_internal_error() -> None:
    for found in of("errors_are_horovods", False):
        assert all("HorovodInternalError" in bases for bases in found.values())


WRONG = {
    "not a list": "tensors: must be a list",
    "combine": "combine='mean'",
    "mode": "there is no such mode",
    "taken": "is open already, with other tensors or options",
    "complex": "complex64",
    "shape": "must be fully known",
    "flush": "name='never'",
    "stats": "no channel of that name",
    "k": "k must be 1 to 2",
    "xla": "cannot run inside XLA",
}


@pytest.mark.parametrize("call", WRONG)
def test_wrong_calls_are_refused(call: str) -> None:
    for found in of("wrong_calls", False):
        assert found[call].startswith("InvalidArgumentError"), found[call]
        assert WRONG[call] in found[call]


DISAGREEMENTS = {
    "shape": ("float32[2]", "float32[3]"),
    "number": ("1 tensors", "2 tensors"),
    "dtype": ("float32", "float64"),
    "options": ("max_lag 3", "max_lag 4"),
}


@pytest.mark.parametrize("what", DISAGREEMENTS)
def test_disagreement_is_an_error_on_all_ranks(what: str) -> None:
    for found in of("disagreement_is_an_error_on_both", False):
        assert found[what].startswith("MismatchError"), found[what]
        assert all(text in found[what] for text in DISAGREEMENTS[what])
        # Other channels go on.
        assert found["after"] == 1.0
