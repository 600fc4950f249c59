# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Callbacks, schedules and datasets in model.fit on two ranks, under both Kerases."""

from __future__ import annotations

import functools
import itertools

import pytest

from tests.tensorflow.suite import FLAVOURS, outcomes

pytestmark = [pytest.mark.slow, pytest.mark.timeout(450)]
both_kerases = pytest.mark.parametrize("legacy_keras", FLAVOURS)
of = functools.partial(outcomes, "fitting")


def test_init_leaves_tensorflow_to_be_configured() -> None:
    assert of("settings_after_init_were_possible", False) == [True, True]


@both_kerases
def test_broadcast_comes_before_the_first_step(legacy_keras: bool) -> None:
    for found in of("broadcast_comes_first", legacy_keras):
        assert found == {"start": True, "same": True, "iterations": 8}


@both_kerases
def test_local_variables_are_not_broadcast(legacy_keras: bool) -> None:
    found = of("local_variables_stay", legacy_keras)
    assert [part["local"] for part in found] == [0.0, 1.0]
    assert all(part["same"] for part in found)


@both_kerases
def test_metrics_are_averaged_over_those_who_have_them(legacy_keras: bool) -> None:
    first, second = of("metrics_are_averaged_over_those_who_have_them", legacy_keras)
    assert first["keys"] == ["loss", "val_loss"]
    assert second["keys"] == ["loss"]
    assert first["same"] and second["same"]
    assert first["logs"] == {"loss": 1.5}
    assert second["logs"] == {"loss": 1.5, "only": 3.0}


@both_kerases
def test_stops_are_agreed(legacy_keras: bool) -> None:
    for found in of("stops_are_agreed", legacy_keras):
        assert (found["any"], found["all"]) == (2, 4)
        assert "rule='most'" in found["wrong"]


@both_kerases
def test_batch_normalisation_is_averaged(legacy_keras: bool) -> None:
    for found in of("batch_normalisation_is_averaged", legacy_keras):
        assert found == {"True": [True, True], "False": [False, True]}


@both_kerases
def test_different_replicas_are_found(legacy_keras: bool) -> None:
    for found in of("different_replicas_are_found", legacy_keras):
        assert found.startswith("HvdPartialError: the replicas differ")
        assert "[0] / [1]" in found


@both_kerases
def test_plain_optimizers_are_found(legacy_keras: bool) -> None:
    for found in of("plain_optimizers_are_found", legacy_keras):
        assert "not distributed" in found


@both_kerases
def test_updates_without_rounds_are_found(legacy_keras: bool) -> None:
    for found in of("updates_without_rounds_are_found", legacy_keras):
        assert "made 4 updates in this epoch and deposited no gradient" in found


@both_kerases
def test_replicas_are_equal_before_validation(legacy_keras: bool) -> None:
    for found in of("synced_before_validation", legacy_keras):
        assert found == [True, True]


@both_kerases
def test_warm_up_is_horovods(legacy_keras: bool) -> None:
    for found in of("warm_up", legacy_keras):
        for kind in ("distributed", "plain"):
            assert found[kind] == pytest.approx(found["want"], rel=1e-6)
            assert found[f"{kind} lr"] == pytest.approx([0.06, 0.08, 0.08], rel=1e-6)


@both_kerases
def test_staircase_is_horovods(legacy_keras: bool) -> None:
    want = [0.08] * 8 + [0.04] * 4 + [0.02] * 4
    for found in of("staircase", legacy_keras):
        assert found == pytest.approx(want, rel=1e-6)


@both_kerases
def test_momentum_correction(legacy_keras: bool) -> None:
    for found in of("momentum_correction", legacy_keras):
        for part in found.values():
            assert part["got"] == pytest.approx(part["want"], rel=1e-5)
        assert found["True"]["want"] != pytest.approx(found["False"]["want"], rel=1e-3)


@both_kerases
def test_rates_are_those_of_the_round(legacy_keras: bool) -> None:
    assert of("rates_are_those_of_the_round", legacy_keras) == [[True, True]] * 2


@both_kerases
def test_models_are_averaged_with_the_latest_result_only(legacy_keras: bool) -> None:
    assert all(found["same"] for found in of("latest_needs_averaging", legacy_keras))


@both_kerases
@pytest.mark.parametrize("pipeline", ["plain", "prefetch", "finite"])
def test_sync_epochs_are_classic(legacy_keras: bool, pipeline: str) -> None:
    for found in of("sync_epochs_are_classic", legacy_keras):
        assert found[pipeline] == [5, 5, 5]
        assert found[f"{pipeline} warnings"] == []


@both_kerases
def test_slow_ranks_make_fewer_steps(legacy_keras: bool) -> None:
    fast, slow = of("slow_ranks_make_fewer_steps", legacy_keras)
    assert fast["totals"] == slow["totals"]
    ends = [0, *fast["totals"]]
    sizes = [after - before for before, after in itertools.pairwise(ends)]
    # An epoch is 40 contributions, give or take those in flight when it ends.
    assert all(36 <= size <= 46 for size in sizes)
    assert len(fast["batches"]) == len(slow["batches"]) == 4
    for i, size in enumerate(sizes):
        assert fast["batches"][i] + slow["batches"][i] == size
    assert sum(fast["batches"]) > 1.5 * sum(slow["batches"])


@both_kerases
def test_epochs_in_a_custom_loop(legacy_keras: bool) -> None:
    for found in of("epochs_in_a_loop", legacy_keras):
        assert found == {"batches": [6, 6], "rounds": 6}


@both_kerases
def test_several_optimizers_in_a_model(legacy_keras: bool) -> None:
    for found in of("several_optimizers_in_a_model", legacy_keras):
        assert found == {"same": True, "deposits": [8, 8]}


def test_models_without_input_shape() -> None:
    assert of("models_without_input_shape", True) == [True, True]


def test_wrong_epochs_are_refused() -> None:
    for found in of("wrong_epochs", False):
        assert all(text.startswith("InvalidArgumentError") for text in found)


def test_shards_rotate_over_the_ranks() -> None:
    first, second = of("shards_rotate", False)
    for a, b in zip(first, second, strict=True):
        assert sorted(a + b) == list(range(8))
    # In every two iterations a rank has seen everything.
    for found in (first, second):
        for i in (0, 2, 4):
            assert sorted(found[i] + found[i + 1]) == list(range(8))
    # And not always in the same order.
    assert len({tuple(part) for part in first[::2]}) == 2
