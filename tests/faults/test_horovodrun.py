# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Under horovodrun, with TensorFlow: the coordinator is killed, and where a job listens.

tests/tensorflow/test_lives.py kills another rank between two steps.
"""

from __future__ import annotations

import pytest

from tests.tensorflow.launch import launch


@pytest.mark.slow
@pytest.mark.timeout(250)
def test_the_coordinator_is_killed_while_it_waits_inside_an_op() -> None:
    found = launch("lives", "killed_while_waiting", ranks=3, deadline=200)
    assert found.code != 0
    for rank in (1, 2):
        failure = found.reports[rank]["failure"]
        assert failure["kinds"][0] == "PeerLostError"
        assert "HorovodInternalError" in failure["kinds"]
        assert "rank 0 was lost" in failure["text"]
        assert f"rank {rank}, channel" in failure["text"]
        # The promise is two seconds; a busy machine gets more here.
        assert found.reports[rank]["since_kill"] < 10.0


@pytest.mark.slow
@pytest.mark.timeout(150)
def test_a_job_listens_only_on_the_interfaces_that_horovodrun_was_given() -> None:
    found = launch(
        "lives", "listens", ranks=2, deadline=100, options=["--network-interfaces", "lo"]
    )
    assert found.code == 0, found.output
    for report in found.reports.values():
        assert report == {"hosts": ["127.0.0.1"], "interface": "lo"}
