# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Elastic states and callbacks on both Kerases; elastic jobs are in test_elastic.py."""

from __future__ import annotations

from typing import Any

import pytest

from tests.tensorflow.suite import FLAVOURS, outcomes

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]
both_kerases = pytest.mark.parametrize("legacy_keras", FLAVOURS)


def outcome(name: str, legacy_keras: bool) -> Any:
    (value,) = outcomes("elastic_states", name, legacy_keras, ranks=1)
    return value


@both_kerases
def test_a_state_goes_back_to_its_commit(legacy_keras: bool) -> None:
    assert outcome("goes_back", legacy_keras) == {
        "slots from the start": True,
        "moved": True,
        "back": [True, True, 1],
        "iterations": 6,
        "position": [6, 6.0],
    }


@both_kerases
def test_synchronising_keeps_what_is_there(legacy_keras: bool) -> None:
    assert outcome("synchronises", legacy_keras) == [True, True, 7]


@both_kerases
def test_variables_that_are_created_later(legacy_keras: bool) -> None:
    assert outcome("later_variables", legacy_keras) == [2, [3.0], [3.0]]


@both_kerases
def test_a_state_of_variables(legacy_keras: bool) -> None:
    assert outcome("list_of_variables", legacy_keras) == [1.0, [2, 3], 5]


@both_kerases
def test_callbacks_commit_with_the_counters(legacy_keras: bool) -> None:
    goes_on = [["commit", 3, 4], ["commit", 4, 0]]
    epochs = [["commit", 0, 2], ["commit", 0, 4], ["commit", 1, 0]]
    epochs += [["commit", 1, 2], ["commit", 1, 4], ["commit", 2, 0]]
    assert outcome("callbacks", legacy_keras) == [goes_on, goes_on, epochs]


@both_kerases
def test_ranks_with_different_numbers_of_batches_meet_at_the_end(legacy_keras: bool) -> None:
    epochs = [["save", 0, 2], ["save", 0, 4], ["commit", 1, 0]]
    epochs += [["save", 1, 2], ["save", 1, 4], ["commit", 2, 0]]
    assert outcome("uneven_epochs", legacy_keras) == epochs


@both_kerases
def test_steps_keep_the_number_of_ranks_they_were_made_with(legacy_keras: bool) -> None:
    assert outcome("steps_keep_their_ranks", legacy_keras) == [8.0, [18, 8.0, 0.0]]


@both_kerases
def test_quorums_of_elastic_jobs(legacy_keras: bool) -> None:
    plain, elastic = outcome("quorums", legacy_keras)
    assert plain == ["quorum(3)", "majority"]
    assert elastic == ["quorum(2)", "quorum(3)", "majority", "majority"]


@both_kerases
def test_wrong_arguments(legacy_keras: bool) -> None:
    found = outcome("wrong_arguments", legacy_keras)
    expected = {
        "unbuilt": "model: is not built",
        "no optimizer": "optimizer: give one",
        "batches": "batches_per_commit=0",
        "variables": "variables: must be given",
        "session": "session: ",
    }
    for name, text in expected.items():
        assert found[name].startswith(f"InvalidArgumentError: {text}"), found


@both_kerases
def test_horovods_own_run_leads_to_ours(legacy_keras: bool) -> None:
    text, entries = outcome("wrong_run", legacy_keras)
    assert text.startswith("HvdPartialError") and "hvd_partial.tensorflow.elastic.run" in text
    assert entries == 1


@both_kerases
def test_a_restart_leaves_no_names_behind(legacy_keras: bool) -> None:
    names = ["optimizer/SGD/1", "optimizer/mine"]
    assert outcome("starts_anew", legacy_keras) == 2 * [[*names, "solo", True, True, [0, 1, 2, 3]]]
