# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Wrong arguments: a clear error at once, on the rank that gave them, and the job goes on."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from hvd_partial.engine import connect
from hvd_partial.errors import InvalidArgumentError, NotConnectedError
from tests.engine.process_ranks import Ranks, run

W, B = np.zeros((3, 2), np.float32), np.zeros(2)

WRONG_OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"name": ""}, "name=''"),
    ({"name": None}, "name=None"),
    ({"name": "a\0b"}, "must be a text"),
    ({"like": []}, "like: must hold at least one array"),
    ({"like": [np.zeros(2, np.int8)]}, "tensor 0 is int8[2]; what can be reduced is"),
    ({"mode": "majorty"}, "mode='majorty': there is no such mode; did you mean 'majority'?"),
    ({"mode": "quorum(4)"}, "mode='quorum(4)': k must be 1 to 3"),
    ({"mode": "quorum(0)"}, "k must be at least 1"),
    ({"average": "mean"}, "average='mean'"),
    ({"staleness": "old"}, "staleness='old'"),
    ({"staleness": lambda tau: 2.0}, "weights must be 0 to 1"),
    ({"grace": -1.0}, "grace=-1.0"),
    ({"max_lag": 0}, "max_lag=0"),
    ({"max_lag": 2.5}, "max_lag=2.5"),
    ({"catch_up": "newest"}, "catch_up='newest'"),
    ({"names": ["w"]}, "names: 1 names for 2 arrays"),
    ({"process_set": [0, 1]}, "process sets are not supported yet"),
    ({"like": [np.zeros(2, np.int64)]}, "holds integers; average='size' would make fractions"),
    ({"like": [np.zeros(2, np.int32)], "average": None}, "pass staleness='full'"),
]
WRONG_ARRAYS: list[tuple[Any, str]] = [
    ([W], "expected 2 arrays"),
    ([B, W], "is the order another one?"),
    ([W, B.astype(np.float32)], "array 1 (bias): expected float64[2], got float32[2]"),
    ([W.T, B], "array 0 (kernel): expected float32[3,2], got float32[2,3]"),
    (W, "got one array"),
]


def wrong_on_rank_1(ranks: Ranks) -> float:
    with ranks.connect() as engine:
        options: dict[str, Any] = {
            "name": "g",
            "like": [W, B],
            "mode": "sync",
            "names": ["kernel", "bias"],
        }
        if ranks.rank == 1:
            for wrong, expected in WRONG_OPTIONS:
                names = {"names": None} if "like" in wrong else {}
                with pytest.raises(InvalidArgumentError, match=re.escape(expected)) as raised:
                    engine.channel(**{**options, **names, **wrong})
                assert "rank 1" in str(raised.value)
            with pytest.raises(InvalidArgumentError, match="rank 1: mode='bulk'"):
                engine.set_mode("bulk")
            with pytest.raises(InvalidArgumentError, match=r"rank 1: mode='quorum\(9\)'"):
                engine.set_mode("quorum(9)")
        channel = engine.channel(**options)
        if ranks.rank == 1:
            for arrays, expected in WRONG_ARRAYS:
                with pytest.raises(InvalidArgumentError, match=re.escape(expected)) as raised:
                    channel.allreduce(arrays)
                assert "rank 1, channel 'g'" in str(raised.value)
            with pytest.raises(InvalidArgumentError, match="rank 1, channel 'g': mode='sinc'"):
                channel.set_mode("sinc")
        (result,) = channel.allreduce([W + 1, B])
        assert result.contributions == 3
        return float(result.values[0].sum())


def test_a_wrong_argument_is_that_ranks_error_and_the_others_do_not_notice() -> None:
    assert run(wrong_on_rank_1, 3) == [6.0] * 3


def use_before_and_after(ranks: Ranks) -> None:
    with ranks.connect() as engine:
        channel = engine.channel("g", [B], "sync")
        channel.allreduce([B])
        with pytest.raises(InvalidArgumentError, match="connected already"):
            connect(ranks.rank, ranks.size, ranks.exchange)
    for use in (
        lambda: channel.allreduce([B]),
        channel.flush,
        channel.leave,
        channel.stats,
        lambda: channel.set_mode("solo"),
        lambda: engine.channel("h", [B]),
        lambda: engine.set_mode("solo"),
        engine.stats,
        lambda: engine.abort("too late"),
    ):
        with pytest.raises(NotConnectedError, match="not connected"):
            use()
    engine.close()  # again: nothing happens

    # A new engine in the same process; what the old one made stays closed.
    with ranks.connect() as engine:
        with pytest.raises(NotConnectedError):
            channel.allreduce([B])
        assert len(engine.channel("g", [B, B], "sync").allreduce([B, B])) == 1


def test_nothing_works_after_close_but_connecting_anew() -> None:
    run(use_before_and_after, 2)


def wrong_connects(ranks: Ranks) -> None:
    for rank, size in ((-1, 2), (2, 2), (0, 0), (0.0, 2), (True, 2), (0, "2")):
        with pytest.raises(InvalidArgumentError, match="connect: "):
            connect(rank, size, lambda address: [address])  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="exchange returned 1 addresses for 2 ranks"):
        connect(0, 2, lambda address: [address])
    with pytest.raises(InvalidArgumentError, match="must be in the order of ranks"):
        connect(1, 2, lambda address: [address, b"other"])
    with pytest.raises(OSError, match="no such file"):
        connect(0, 1, raise_os_error)
    engine = connect(0, 1, lambda address: [address])
    engine.close()


def raise_os_error(address: bytes) -> list[bytes]:
    raise OSError("no such file")


def test_wrong_arguments_of_connect_leave_nothing_behind() -> None:
    run(wrong_connects, 1)
