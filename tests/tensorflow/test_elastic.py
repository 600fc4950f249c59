# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Elastic jobs under horovodrun: workers are killed and others come, training goes on."""

from __future__ import annotations

from typing import Any

import pytest

from tests.tensorflow.elastic_launch import HOSTS, launch_elastic
from tests.tensorflow.suite import FLAVOURS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
both_kerases = pytest.mark.parametrize("legacy_keras", FLAVOURS)
DEADLINE = 220.0
PEER_LOST_SECONDS = 2.0  # until every survivor has its error


def job(scenario: str, ranks: int, **options: Any) -> dict[str, Any]:
    """What the workers report that were not killed, by host; one is."""
    found = launch_elastic("elastic", scenario, hosts=HOSTS[:ranks], deadline=DEADLINE, **options)
    assert found.code == 0, found.output
    ended = {host: report for host, report in found.workers.items() if "ended" in report}
    assert len(found.workers) == len(ended) + 1, found.output
    return ended


def learns_of_the_loss(report: dict[str, Any]) -> None:
    (lost,) = report["lost"]
    assert lost["seconds"] < PEER_LOST_SECONDS
    assert "was lost" in lost["text"]


@both_kerases
def test_fit_goes_on_with_other_workers(legacy_keras: bool) -> None:
    """Three workers train; one is killed between two commits, then another one comes."""
    ended = job("fit", 3, legacy_keras=legacy_keras)
    assert len(ended) == 3
    for host, report in ended.items():
        assert report["equal"], host
        assert (report["size"], report["mode"]) == (3, "solo")  # set by the one that was killed
        # Between two commits, and from a restart to the next: as much as was deposited.
        assert report["segments"]
        assert all(applied == made for applied, made in report["segments"]), report["segments"]
        for entry in report["entries"]:
            # What was committed, and nothing of what came after.
            assert entry["weight"] == entry["counted"]
    assert len({report["weight"] for report in ended.values()}) == 1

    survivors = [report for report in ended.values() if len(report["entries"]) > 1]
    assert len(survivors) == 2
    for report in survivors:
        learns_of_the_loss(report)
        assert "PeerLostError" in report["lost"][0]["kinds"]
        assert "HorovodInternalError" in report["lost"][0]["kinds"]
        first, second, *_, last = report["entries"]
        assert [entry["size"] for entry in (first, second, last)] == [3, 2, 3]
        # Back to the commit after 5 batches of the second epoch.
        assert (second["epoch"], second["batch"]) == (1, 5)
        assert last["weight"] > second["weight"] > 0
        assert last["iterations"] > second["iterations"] > 0
    (joined,) = [report for report in ended.values() if len(report["entries"]) == 1]
    # It has got the others' state, optimizer and counters included.
    assert joined["entries"][0] == survivors[0]["entries"][-1] | {
        "rank": joined["entries"][0]["rank"]
    }


def test_a_custom_loop_grows_without_loss_and_survives_its_first_rank() -> None:
    """Two workers, a third one comes; then rank 0 is killed. A quorum of three all the time."""
    ended = job("loop", 2)
    assert len(ended) == 2
    for report in ended.values():
        assert report["final equal"] and report["final size"] == 2
        for entry in report["entries"]:
            assert entry["equal"]
        # The tape's rounds are synchronous: nothing is on its way at a commit.
        assert all(applied == 0 for applied, _ in report["segments"])
        learns_of_the_loss(report)
        assert "UnknownError" in report["lost"][0]["kinds"]
    (old,) = [report for report in ended.values() if "interrupted" in report]
    start, grown, shrunk = (old["entries"][i] for i in (0, 1, -1))
    assert [start["size"], grown["size"], shrunk["size"]] == [2, 3, 2]
    # Nothing was lost or undone when the third one came.
    assert [grown["count"], grown["step"], grown["iterations"]] == old["interrupted"]
    assert grown["count"] == 2 * grown["step"]
    # The three steps that were committed since; the two before the kill are undone.
    assert shrunk["step"] == grown["step"] + 3
    assert shrunk["count"] == grown["count"] + 3 * 3
    assert old["final count"] == shrunk["count"] + 2 * (old["final step"] - shrunk["step"])
