# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""``python -m hvd_partial bench``: what it prints, and what it refuses. How fast is no test."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys

import numpy as np
import pytest

from hvd_partial.bench import size_in_bytes
from hvd_partial.bench.cells import Launch, Sample, Task, percentile, summarize
from hvd_partial.bench.skew import PATTERNS, delays


def bench(*arguments: str, seconds: float = 100) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hvd_partial", "bench", *arguments],
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )


@pytest.mark.parametrize(
    ("text", "size"), [("4", 4), ("64K", 65536), ("16m", 2**24), ("1GB", 2**30)]
)
def test_sizes(text: str, size: int) -> None:
    assert size_in_bytes(text) == size


@pytest.mark.parametrize("text", ["", "0", "6", "-4", "4T", "1.5K"])
def test_wrong_sizes(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="multiple of 4 bytes"):
        size_in_bytes(text)


def test_larger_sizes_get_fewer_calls() -> None:
    task = Task("latency", "sync", (4,), calls=200, least_calls=10)
    assert [task.calls_of(size) for size in (4, 2**20, 2**22, 2**30)] == [200, 200, 50, 10]


def test_percentile() -> None:
    assert percentile(list(range(100)), 0.95) == 95
    assert percentile([3.0, 1.0], 0.95) == 3


def test_latency_is_that_of_the_slowest_rank_of_each_call() -> None:
    task = Task("latency", "sync", (2000,))
    ranks = [
        [Sample(2000, seconds=(1.0, 5.0, 2.0), slept=(0, 0, 0), cpu_seconds=0.3)],
        [Sample(2000, seconds=(4.0, 1.0, 3.0), slept=(0, 0, 0), cpu_seconds=0.6)],
    ]
    (cell,) = summarize([Launch(task, ranks)])
    assert cell.median_us == 4e6
    assert cell.p95_us == 5e6
    assert cell.cpu_s == pytest.approx(0.3)
    assert cell.gbytes_per_s == pytest.approx(2000 / 4e9)


def test_skew_is_the_mean_over_ranks_and_names_those_who_had_not_slept() -> None:
    task = Task("skew", "solo", (64,), skew="rotating")
    ranks = [
        [Sample(64, seconds=(1.0, 3.0), slept=(0.0, 0.5))],
        [Sample(64, seconds=(5.0, 9.0), slept=(0.5, 0.0))],
    ]
    (cell,) = summarize([Launch(task, ranks)])
    assert cell.median_us == 4.5e6
    assert cell.fast_median_us == 5e6
    assert cell.as_json()["skew"] == "rotating"


@pytest.mark.parametrize("pattern", PATTERNS)
def test_skew_patterns_are_the_same_for_all_systems(pattern: str) -> None:
    table = delays(pattern, 4, 50, 0.01)
    assert table.shape == (50, 4)
    assert np.array_equal(table, delays(pattern, 4, 50, 0.01))
    assert table.max() > 0
    if pattern in ("rotating", "random"):
        assert np.array_equal((table > 0).sum(axis=1), np.ones(50))
    if pattern == "linear":
        assert np.allclose(table[7], [0, 0.01, 0.02, 0.03])


@pytest.mark.timeout(110)
def test_latency_prints_cells() -> None:
    done = bench(
        "latency",
        "--ranks",
        "2",
        "--sizes",
        "4",
        "64K",
        "--modes",
        "sync",
        "solo",
        "--calls",
        "5",
        "--repeats",
        "2",
        "--json",
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    cells = {(cell["mode"], cell["bytes"]): cell for cell in answer["cells"]}
    assert set(cells) == {(mode, size) for mode in ("sync", "solo") for size in (4, 65536)}
    for cell in cells.values():
        assert cell["ranks"] == 2
        assert cell["calls"] == 10
        assert 0 < cell["median_us"] <= cell["p95_us"]
    assert answer["machine"]["cores"] > 0
    assert "bench latency" in answer["command"]


@pytest.mark.timeout(110)
def test_horovod_runs_in_turn_with_ours() -> None:
    done = bench(
        "latency",
        "--ranks",
        "2",
        "--sizes",
        "4",
        "--modes",
        "sync",
        "--calls",
        "3",
        "--against",
        "horovod-gloo",
    )
    assert done.returncode == 0, done.stderr
    assert "horovod-gloo / sync" in " ".join(done.stdout.split())


@pytest.mark.timeout(110)
@pytest.mark.parametrize("what", ["skew", "idle", "memory"])
def test_the_other_measures(what: str) -> None:
    done = bench(
        what,
        "--ranks",
        "2",
        "--sizes",
        "64K",
        "--modes",
        "majority",
        "--calls",
        "3",
        "--seconds",
        "0.2",
        "--max-lag",
        "2",
        "--json",
    )
    assert done.returncode == 0, done.stderr
    (cell,) = json.loads(done.stdout)["cells"]
    assert cell["what"] == what
    assert ("median_us" in cell) == (what == "skew")
    assert ("value" in cell) == (what != "skew")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["latency", "--sizes", "5"], "--sizes"),
        (["latency", "--ranks", "1"], "--ranks"),
        (["latency", "--modes", "fast"], "--modes"),
        (["latency", "--modes", "quorum(3)", "--ranks", "2"], "--modes"),
        (["latency", "--against", "nccl"], "--against"),
        (["latency", "--calls", "0"], "--calls"),
        (["skew", "--pattern", "zigzag"], "--pattern"),
        (["idle", "--seconds", "-1"], "--seconds"),
        (["nothing"], "what"),
    ],
)
def test_wrong_arguments_are_named(arguments: list[str], named: str) -> None:
    done = bench(*arguments)
    assert done.returncode == 2
    assert named in done.stderr
