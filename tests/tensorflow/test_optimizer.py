# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""The distributed optimizer on two ranks, under both Kerases."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from tests.tensorflow.suite import FLAVOURS, outcomes

pytestmark = [pytest.mark.slow, pytest.mark.timeout(450)]
both_kerases = pytest.mark.parametrize("legacy_keras", FLAVOURS)
of = functools.partial(outcomes, "optimizers")


@both_kerases
def test_sync_mode_is_training_on_all_data(legacy_keras: bool) -> None:
    # A mean over the ranks' batches and one over all of it differ by rounding only.
    for found in of("sync_is_training_on_all_data", legacy_keras):
        assert len(found) >= 8
        assert all(distance < 2e-6 for distance in found.values()), found


@both_kerases
def test_eager_steps(legacy_keras: bool) -> None:
    assert all(distance < 2e-6 for distance in of("eager_is_training_on_all_data", legacy_keras))


@both_kerases
def test_losses_are_those_of_horovod(legacy_keras: bool) -> None:
    for found in of("losses_are_horovods", legacy_keras):
        assert ("optimizer" in found) == legacy_keras
        for ours, theirs in found.values():
            assert len(ours) == 20
            assert ours[0] != ours[-1]
            assert ours == pytest.approx(theirs, rel=1e-6, abs=0)


@both_kerases
def test_clipping_acts_on_the_reduced_gradient(legacy_keras: bool) -> None:
    for found in of("clipping_acts_on_the_reduced_gradient", legacy_keras):
        assert found["got"] == pytest.approx(found["want"], rel=1e-6)


@both_kerases
def test_each_step_is_a_deposit(legacy_keras: bool) -> None:
    for found in of("each_step_is_a_deposit", legacy_keras):
        assert found == {"deposits": 5, "rounds": 5, "mode": "sync"}


@both_kerases
def test_backward_passes_are_reduced_once(legacy_keras: bool) -> None:
    for found in of("accumulation", legacy_keras):
        for part in found.values():
            assert part["distance"] < 2e-6
            assert part["rounds"] == 4
            assert part["iterations"] == 4


def test_gradient_accumulation_of_keras_is_reduced_once() -> None:
    for found in of("keras_accumulation", False):
        assert found["distance"] < 2e-6
        assert found["rounds"] == 4
        # Counters, variables and configuration are those of plain Keras, so its files are too.
        assert found["iterations"][0] == found["iterations"][1]
        assert found["counted"][0] == found["counted"][1]
        assert found["variables"][0] == found["variables"][1]
        assert found["config"]
        assert "backward_passes_per_step=2" in found["both"]


@both_kerases
def test_loss_scale_around_the_distributed_optimizer(legacy_keras: bool) -> None:
    for found in of("loss_scale_outside_the_distributed_optimizer", legacy_keras):
        assert found["same"] and found["finite"]
        # The rank that overflowed twice has halved twice; scales are each rank's own here.
        assert found["scales"] == [512.0, 256.0]
        # 16 steps less three that overflowed.
        assert found["stats"] == 13


@both_kerases
def test_loss_scale_inside_the_distributed_optimizer(legacy_keras: bool) -> None:
    for found in of("loss_scale_inside_the_distributed_optimizer", legacy_keras):
        assert found["same"] and found["finite"]
        # Halved in the two rounds with an overflow, on both ranks alike.
        assert found["scales"] == [256.0, 256.0]
        assert found["stats"] == 16
        # The round in which everybody overflowed is no update.
        assert found["iterations"] == 7


@both_kerases
def test_a_loss_scale_changes_no_weight(legacy_keras: bool) -> None:
    assert all(found < 1e-6 for found in of("loss_scale_changes_nothing_else", legacy_keras))


@both_kerases
def test_mixed_float16(legacy_keras: bool) -> None:
    for found in of("mixed_float16_by_compile", legacy_keras):
        for part in found.values():
            assert part["same"] and part["finite"]
            assert part["scaled"].startswith("LossScaleOptimizer")
            assert part["contributions"] > 0


@both_kerases
def test_nonfinite_gradients_stay_out(legacy_keras: bool) -> None:
    for found in of("nonfinite_gradients_stay_out", legacy_keras):
        assert found["values"] == [0.0, -0.5, -0.5, -1.5]
        assert found["skipped"] == (2 if found["rank"] == 1 else 1)


@both_kerases
def test_variables_without_gradient_are_left_alone(legacy_keras: bool) -> None:
    for found in of("variables_without_gradient", legacy_keras):
        assert found["unused"] == [1.0]
        assert found["used"][0] < 1.0


@both_kerases
def test_gradients_on_some_ranks_only_are_an_error_on_all(legacy_keras: bool) -> None:
    for found in of("gradients_on_some_ranks_only", legacy_keras):
        assert found.startswith("MismatchError")
        assert "gradients for different variables" in found


@both_kerases
def test_sparse_gradients_become_dense(legacy_keras: bool) -> None:
    for found in of("sparse_gradients", legacy_keras):
        assert found["sparse"]
        assert found["got"] == found["want"]


@both_kerases
def test_schedules_by_contributions(legacy_keras: bool) -> None:
    for found in of("schedule_by_contributions", legacy_keras):
        assert found["distance"] == 0.0
        assert found["class"] == "ExponentialDecay"
        assert found["rate"] == pytest.approx(found["want"], rel=1e-5)


@both_kerases
def test_an_optimizer_in_use_keeps_its_state(legacy_keras: bool) -> None:
    for found in of("optimizer_in_use_keeps_its_state", legacy_keras):
        assert found["object"] and found["class"] and found["kept"]
        assert found["iterations"] == 6
        assert found["distance"] < 2e-6


@both_kerases
def test_files_load_without_the_package(legacy_keras: bool) -> None:
    found = of("files_load_anywhere", legacy_keras)
    module, iterations, variables, imported = found[0]["elsewhere"].split("|")
    assert module.startswith("tf_keras." if legacy_keras else "keras.")
    assert int(iterations) == found[0]["iterations"] == 6
    assert int(variables) == found[0]["variables"]
    assert imported == "False"
    for part in found:
        # Loaded with our load_model it goes on distributed, where it was.
        assert part["kept"] and part["same"]
        assert part["after"] == 12
        assert part["deposits"] == 6
        assert "distributed already" in part["copy"]


@both_kerases
def test_two_optimizers_in_one_step(legacy_keras: bool) -> None:
    for found in of("two_optimizers", legacy_keras):
        assert found == {"first": [-4.5], "second": [-30.0, -30.0]}


@both_kerases
def test_two_optimizers_flush_together(legacy_keras: bool) -> None:
    for found in of("two_optimizers_unevenly", legacy_keras):
        assert found == {"first": [-7.5], "second": [-75.0]}


@both_kerases
def test_deposits_stay_in_order_within_a_graph(legacy_keras: bool) -> None:
    for found in of("one_step_for_several", legacy_keras):
        assert found == {"value": [-15.0], "deposits": 5}


@both_kerases
def test_eager_fits_and_several_steps_per_execution(legacy_keras: bool) -> None:
    for found in of("ways_of_fitting", legacy_keras):
        assert found["eager"] < 1e-6
        assert found["several"] < 1e-6
        assert found["deposits"] == [12, 12, 12]


@both_kerases
def test_xla_is_refused(legacy_keras: bool) -> None:
    for found in of("xla_is_refused", legacy_keras):
        assert "cannot run inside XLA (jit_compile=True)" in found
        assert "jit_compile=False" in found


@both_kerases
def test_modes_change_without_retracing(legacy_keras: bool) -> None:
    for found in of("mode_changes_without_retracing", legacy_keras):
        assert found == {"traces": 0, "modes": ["sync", "solo", "sync"], "same": True}


@both_kerases
def test_compression_predivision_and_sums(legacy_keras: bool) -> None:
    for found in of("compression_and_predivision", legacy_keras):
        assert found["fp16"] == pytest.approx([-1.5, -0.1], abs=1e-4)
        assert found["fp16"][1] != pytest.approx(-0.1, abs=1e-7)
        assert found["predivide"] == pytest.approx([-1.5, -0.1])
        assert found["sum"] == pytest.approx([-3.0, -0.2])
        assert found["hvt_sum"] == pytest.approx([-3.0, -0.2])


REFUSED = {
    "mode": "did you mean 'majority'",
    "quorum": "k must be 1 to 2",
    "max_lag": "max_lag=0",
    "average": "average='mean'",
    "catch_up": "catch_up='never'",
    "op": "op: must be Average or Sum",
    "op and average": "contradicts op=Sum",
    "device_dense": "device_dense='/gpu:0'",
    "device_sparse": "device_sparse='/gpu:0'",
    "process_set": "process_set: only the global one",
    "compression": "Compression.fp16",
    "groups": "groups=-1: must be",
    "backward_passes_per_step": "backward_passes_per_step=0",
    "gradient_predivide_factor": "gradient_predivide_factor: needs op=Average",
    "staleness": "staleness",
    "name": "name='twice'",
    "optimizer": "optimizer='sgd'",
    "wrapped twice": "distributed already",
    "use_locking": "use_locking",
    "local": "register_local_var",
}


@both_kerases
@pytest.mark.parametrize("argument", REFUSED)
def test_what_cannot_be_is_refused_by_name(legacy_keras: bool, argument: str) -> None:
    for found in of("refused_arguments", legacy_keras):
        kind = "NotImplementedError" if argument == "local" else "InvalidArgumentError"
        assert found[argument].startswith(kind), found[argument]
        assert REFUSED[argument] in found[argument]


@both_kerases
def test_hints_of_horovods_are_accepted(legacy_keras: bool) -> None:
    found: list[Any] = of("refused_arguments", legacy_keras)
    assert [part["accepted"] for part in found] == ["", ""]
