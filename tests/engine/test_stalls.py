# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Whoever waits can find out why: one line for each stall, with the right ranks."""

from __future__ import annotations

import os
import re
import signal
import time

import numpy as np
import pytest

from hvd_partial.diagnosis import Settings
from hvd_partial.errors import InvalidArgumentError
from tests.engine.lines import Lines
from tests.engine.process_ranks import Ranks, run

ONE = [np.ones(4, np.float32)]
WARNING_SECONDS = 0.4


def rank_2_does_not_call(ranks: Ranks) -> list[str]:
    os.environ["HVD_PARTIAL_STALL_WARNING_S"] = str(WARNING_SECONDS)
    lines = Lines()
    if ranks.rank == 0:
        lines.when("have waited", lambda: ranks.set("warned"))
    with ranks.connect() as engine:
        channel = engine.channel("g", ONE, "sync")
        channel.allreduce(ONE)
        if ranks.rank == 2:
            ranks.wait_for("warned")
            time.sleep(3 * WARNING_SECONDS)  # in which nothing more may be said
        channel.allreduce(ONE)
        channel.flush()
    return lines.warnings()


def test_a_rank_that_does_not_call_gives_exactly_one_line_and_its_end_another() -> None:
    said = run(rank_2_does_not_call, 3, deadline=30)
    assert len(said[0]) == 2, said
    assert re.fullmatch(
        r"hvd_partial rank 0: channel 'g', round 1 \(sync\): ranks 0 and 1 have waited 0\.\d s for "
        r"rank 2 \(last called \d\.\d s ago\)",
        said[0][0],
    ), said
    assert re.fullmatch(
        r"hvd_partial rank 0: channel 'g', round 1 \(sync\): goes on after \d\.\d s; the last that "
        r"was waited for: rank 2",
        said[0][1],
    ), said
    # Rank 0 has said it; the others' output would be the same line once more.
    assert said[1:] == [[], []]


def rank_1_does_not_open(ranks: Ranks) -> list[str]:
    os.environ["HVD_PARTIAL_STALL_WARNING_S"] = str(WARNING_SECONDS)
    lines = Lines()
    if ranks.rank == 0:
        lines.when("has waited", lambda: ranks.set("warned"))
    with ranks.connect() as engine:
        if ranks.rank == 1:
            ranks.wait_for("warned")
        channel = engine.channel("g", ONE, "solo")
        if ranks.rank == 0:
            channel.allreduce(ONE)
        channel.flush()
    return lines.warnings()


def test_a_rank_that_has_not_opened_the_channel_is_named() -> None:
    said = run(rank_1_does_not_open, 2, deadline=30)
    assert "round 0 (solo): rank 0 has waited" in said[0][0]
    assert "for rank 1 (has not opened the channel)" in said[0][0]


def stopped(ranks: Ranks, victim: int, watcher: int) -> list[str]:
    os.environ["HVD_PARTIAL_STALL_WARNING_S"] = str(WARNING_SECONDS)
    lines = Lines()
    pid = ranks.exchange(os.getpid())[victim]
    if ranks.rank == watcher:
        lines.when("waited", lambda: os.kill(pid, signal.SIGCONT))
    with ranks.connect() as engine:
        channel = engine.channel("g", ONE, "solo")
        channel.allreduce(ONE)
        channel.flush()
        ranks.barrier()
        if ranks.rank == victim:
            os.kill(pid, signal.SIGSTOP)
        else:
            # The round starts, if rank 0 lives, and cannot end without the victim.
            for _ in range(3):
                channel.allreduce(ONE)
        channel.flush()
    return lines.warnings()


def test_a_stopped_rank_is_named() -> None:
    said = run(stopped, 3, 2, 0, deadline=30)
    assert re.search(
        r"ranks? .* waited \d\.\d s for the end of the round, held by rank 2", said[0][0]
    )
    assert "rank 2 (does not answer: stopped" in said[0][0]


def test_others_speak_where_rank_0_cannot() -> None:
    said = run(stopped, 2, 0, 1, deadline=30)
    assert re.match(
        r"hvd_partial rank 1: channel 'g', round \d \(solo\): this rank has", said[1][0]
    )
    assert "rank 0, which knows why, has said nothing: it is stopped" in said[1][0]
    assert len([line for line in said[1] if "this rank has" in line]) == 1


def late_without_warnings(ranks: Ranks) -> list[str]:
    os.environ["HVD_PARTIAL_STALL_WARNING_S"] = "0"
    lines = Lines()
    with ranks.connect() as engine:
        channel = engine.channel("g", ONE, "sync")
        if ranks.rank == 1:
            time.sleep(2 * WARNING_SECONDS)
        channel.allreduce(ONE)
    return lines.warnings()


def test_0_switches_the_warnings_off() -> None:
    assert run(late_without_warnings, 2, deadline=30) == [[], []]


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        (
            "HVD_PARTIAL_STALL_WARNING_S",
            "soon",
            "must be a number of seconds, such as 60; 0 switch",
        ),
        ("HVD_PARTIAL_STALL_WARNING_S", "nan", "must be a number of seconds"),
        ("HVD_PARTIAL_LEAVE_OUT_S", "never", "must be a number of seconds, such as 2; with 0 all"),
        ("HVD_PARTIAL_STALL_WARNING_S", "inf", "must be a number of seconds"),
        ("HVD_PARTIAL_FLIGHT_DIR", "/proc/nowhere", "must be a folder that exists on this host"),
        ("HVD_PARTIAL_FLIGHT_SIGNAL", "KILL", "must be one of USR1, USR2, RTMIN, RTMAX, or none"),
    ],
)
def test_wrong_variables_are_an_error_that_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, remedy: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(InvalidArgumentError) as raised:
        Settings.from_environment(3)
    assert str(raised.value).startswith(f"rank 3: {name}={value!r}: ")
    assert remedy in str(raised.value)


def connect_with_a_wrong_variable(ranks: Ranks) -> str:
    os.environ["HVD_PARTIAL_STALL_WARNING_S"] = "soon"
    with pytest.raises(InvalidArgumentError) as raised:
        ranks.connect()
    # It can be put right, and then it works.
    os.environ["HVD_PARTIAL_STALL_WARNING_S"] = "-1"
    with ranks.connect() as engine:
        engine.channel("g", ONE, "sync").allreduce(ONE)
    return str(raised.value)


def test_connect_says_it_before_it_waits_for_anybody() -> None:
    for rank, message in enumerate(run(connect_with_a_wrong_variable, 2, deadline=30)):
        assert f"rank {rank}: HVD_PARTIAL_STALL_WARNING_S='soon'" in message
