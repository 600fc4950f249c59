# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Sync-Switch, its policies and stragglers in model.fit on two ranks, under both Kerases."""

from __future__ import annotations

import functools

import pytest

from tests.tensorflow.suite import FLAVOURS, outcomes

pytestmark = [pytest.mark.slow, pytest.mark.timeout(450)]
both_kerases = pytest.mark.parametrize("legacy_keras", FLAVOURS)
of = functools.partial(outcomes, "switching")


@both_kerases
def test_momentum_policies_are_numpys(legacy_keras: bool) -> None:
    for found in of("momentum_policies", legacy_keras):
        for policy, part in found.items():
            assert part["modes"] == ["sync", "async"], policy
            assert part["got"] == pytest.approx(part["want"], rel=1e-4, abs=1e-6), policy
            assert (part["changed"] >= 3) == (policy != "keep")
            assert part["same"]
            assert part["traced again"] == 0
            assert part["left"] == [0.9, "0.9"]
        ends = {name: round(part["want"][0], 6) for name, part in found.items()}
        assert ends["zero"] != ends["keep"] != ends["scaled"]


def test_legacy_optimizers_have_momentum_policies_too() -> None:
    for found in of("legacy_momentum", True):
        for policy, part in found.items():
            assert part["got"] == pytest.approx(part["want"], rel=1e-4, abs=1e-6), policy


@both_kerases
def test_rates(legacy_keras: bool) -> None:
    for found in of("rates", legacy_keras):
        assert found["rounds"] > found["contributions"] / 2
        assert found["got"] == pytest.approx(found["want"], rel=1e-3)
        assert found["rate"] == pytest.approx(0.01)


@both_kerases
def test_a_switch_does_not_move_a_schedules_boundary(legacy_keras: bool) -> None:
    for found in of("schedules_follow_contributions", legacy_keras):
        assert found["got"] == pytest.approx(found["want"], rel=1e-4)
        assert found["switched before"]


@both_kerases
def test_all_ranks_switch_at_the_same_round(legacy_keras: bool) -> None:
    first, second = of("switches_at_the_same_round", legacy_keras)
    for found in (first, second):
        assert found["modes"] == ["sync", "solo", "sync", "async"]
        assert found["same"]
        assert [after for _, _, after in found["switches"]] == ["solo", "sync", "async"]
        # Of 32 steps; the first in force is the one after the boundary was reached.
        for step, boundary in zip(found["steps"], (8, 16, 24), strict=True):
            assert boundary <= step <= boundary + 2
        assert found["logged"][-1] == 3.0
        assert all(0.2 < share < 0.8 for share in found["asynchronous"])
    assert first["tags"] == ["sync_switch/mode", "sync_switch/switch"]


@both_kerases
def test_online_policies_act_and_undo_themselves(legacy_keras: bool) -> None:
    for found in of("online_policies", legacy_keras):
        modes = {policy: part["modes"] for policy, part in found.items()}
        assert modes["elastic"] == ["sync", "async"]
        # On a busy machine somebody else may be slow for a while, too.
        for policy, detour in (("greedy", "async"), ("adaptive", "quorum(1)")):
            assert modes[policy][:3] == ["sync", detour, "sync"]
            assert modes[policy][-1] == "async"
            assert set(modes[policy]) == {"sync", detour, "async"}
        assert found["greedy"]["excluded"] == found["adaptive"]["excluded"] == []
        # Only one of two can be.
        assert found["elastic"]["excluded"] == [1]
        assert all(part["afterwards"] == [] for part in found.values())


@both_kerases
def test_stragglers_are_reported(legacy_keras: bool) -> None:
    for rank, found in enumerate(of("stragglers_are_reported", legacy_keras)):
        for cause, part in found.items():
            # On a busy machine there may be others, and one episode may be seen as two.
            episodes = [episode for episode in part["episodes"] if episode[0] == 1]
            assert episodes, cause
            _, since, until, slowdown, rounds, seconds, said = episodes[0]
            assert 4 <= since <= 20
            assert until is None or until > since
            assert slowdown > 1.5
            assert rounds >= 3
            assert seconds >= 0.04 * rounds * 0.5
            assert said == cause
            total = sum(episode[5] for episode in part["episodes"])
            assert part["logged"][1][-1] == pytest.approx(total)
        assert (found["input"]["input"] > 0.8) == (rank == 1)


@both_kerases
def test_restarted_jobs_go_on_in_the_right_mode(legacy_keras: bool) -> None:
    for found in of("restarts_go_on_where_they_were", legacy_keras):
        crashed = found["crashed"]
        assert crashed["error"] == "RuntimeError: crash"
        assert crashed["modes"] == ["sync", "solo"]
        assert found["error"] == ""
        # No round in sync: the plateau was before the crash.
        assert found["modes"] == ["solo"]
        assert found["first"] == found["rounds before"]
        assert found["switches"] == ["solo"]
        assert crashed["position"] == 3 * 12
        assert found["position"] == 5 * 12
        assert found["ramp began"] is not None and found["ramp began"] < crashed["position"]
        assert found["same"]
        # What was written down before the checkpoint is there still.
        assert found["older"] == {
            "error": "",
            "iterations": 6,
            "modes": ["sync"],
            "position": 2 * 12,
            "best": True,
        }


@both_kerases
def test_ranks_are_excluded_by_hand(legacy_keras: bool) -> None:
    for found in of("excluded_by_hand", legacy_keras):
        assert found["excluded"] == [1]
        assert found["afterwards"] == []
        assert found["rounds without rank 1"] >= 3
        assert found["same"]
        assert "0 to 1" in found["wrong"]


@both_kerases
def test_wrong_arguments(legacy_keras: bool) -> None:
    for found in of("wrong_arguments", legacy_keras):
        for text, expected in zip(
            found,
            (
                "bsp_fraction=2",
                "give one of the two",
                "needs a schedule",
                "momentum_policy='none'",
                "rule='x'",
                "steps_per_epoch=0",
                "ByContributions",
                "has no momentum",
                "not distributed",
                "does not measure",
            ),
            strict=True,
        ):
            assert text.startswith("InvalidArgumentError")
            assert expected in text
