# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""How ranks end, and what the others see of it."""

from __future__ import annotations

import pytest

from tests.tensorflow.launch import launch
from tests.tensorflow.suite import FLAVOURS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
both_kerases = pytest.mark.parametrize("legacy_keras", FLAVOURS)


def test_an_exception_in_a_callback_ends_the_job_everywhere() -> None:
    found = launch("lives", "exception_in_a_callback", ranks=3)
    assert found.code != 0
    assert found.reports[1]["hook"] == "ValueError: the disk is full"
    for rank in (0, 2):
        failure = found.reports[rank]["failure"]
        assert "HorovodInternalError" in failure["kinds"]
        assert failure["kinds"][0] == "AbortedError"
        assert "rank 1" in failure["text"]
        assert "the disk is full" in failure["text"]


def test_without_our_callbacks_it_is_an_error_that_elastic_horovod_knows() -> None:
    found = launch("lives", "exception_without_callbacks", ranks=2)
    failure = found.reports[0]["failure"]
    assert failure["kinds"][0] == "UnknownError"
    assert "HorovodAllreduce" in failure["text"]
    assert "the disk is full" in failure["text"]


def test_a_killed_rank_is_named_to_the_others() -> None:
    found = launch("lives", "killed", ranks=3)
    assert found.code != 0
    for rank in (0, 1):
        failure = found.reports[rank]["failure"]
        assert failure["kinds"][0] == "PeerLostError"
        assert "HorovodInternalError" in failure["kinds"]
        assert "rank 2" in failure["text"]


def test_ctrl_c_reaches_a_rank_that_waits_in_an_op() -> None:
    found = launch("lives", "interrupted", ranks=2)
    assert found.reports[0]["seen"] == {"interrupted": True}
    failure = found.reports[1]["failure"]
    assert failure["kinds"][0] == "AbortedError"
    assert "rank 0" in failure["text"]
    assert "interrupted" in failure["text"]


@both_kerases
def test_uneven_ranks(legacy_keras: bool) -> None:
    found = launch("lives", "uneven", ranks=3, legacy_keras=legacy_keras, deadline=150)
    assert found.code == 0, found.output
    for rank, report in found.reports.items():
        assert report["sync same"] and report["majority same"], rank
        # A rank without a batch has applied what the others reduced.
        assert report["none"]
        assert report["deposits"] == (0 if rank == 1 else 4)
        assert report["iterations"] == 4
        assert report["evaluation"]
        assert report["epochs"] == (5 if rank == 2 else 2)
        assert report["ended"]
    assert "evaluated" in found.reports[0]


@both_kerases
def test_shutdown_and_init_again(legacy_keras: bool) -> None:
    found = launch("lives", "shutdown_and_again", ranks=2, legacy_keras=legacy_keras)
    assert found.code == 0, found.output
    for report in found.reports.values():
        assert report["deposits"] == [4, 6]
        assert "init()" in report["early"]["text"]
        assert report["same"] and report["iterations"]


def test_one_process_alone() -> None:
    # MPI, which a Horovod built with it would choose, cannot start twice.
    gloo = {"HOROVOD_CONTROLLER": "gloo", "HOROVOD_CPU_OPERATIONS": "gloo"}
    found = launch("lives", "alone", ranks=1, extra=gloo)
    assert found.code == 0, found.output
    report = found.reports[0]
    assert (report["size"], report["gathered"]) == (1, 1)
    assert len(report["difference"]) == 6
    assert all(difference < 1e-6 for difference in report["difference"].values())
    assert report["child"] == [3, 2.0]
    # Elastic: weights as of the last commit, and an engine that starts anew.
    assert report["elastic"] == {
        "deposits": 2,
        "restored": [True, True],
        "other": "ZeroDivisionError",
    }
