# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""The soak in small, and that it would notice what it looks for."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks import soak, soak_rank
from benchmarks.soak_rank import Part, Resources


def test_a_short_soak_finds_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "soak.json"
    code = soak.main(["--minutes", "0.2", "--seed", "3", "--json", str(target)])
    found = json.loads(target.read_text())
    # A run of some seconds may have too few jobs to see growth; sums it always sees.
    assert not [text for text in found["problems"] if "too few" not in text], found["problems"]
    assert code == (1 if found["problems"] else 0)
    assert found["checks"] >= 4
    assert found["episodes"] > 0
    (line,) = capsys.readouterr().out.strip().splitlines()
    assert "sums exact" in line


def samples(rss: list[int], threads: list[int]) -> list[tuple[float, Resources]]:
    pairs = zip(rss, threads, strict=True)
    return [(float(i), Resources(memory, count, 20)) for i, (memory, count) in enumerate(pairs)]


def test_growth_is_noticed() -> None:
    flat = samples([10**8] * 20, [5] * 20)
    assert soak.complaints("a rank", soak.growth(flat), 1) == []
    leaking = samples([10**8 + i * 10**6 for i in range(20)], [5] * 20)
    assert "rss grew" in soak.complaints("a rank", soak.growth(leaking), 1)[0]
    more_threads = samples([10**8] * 20, [5] * 10 + [6] * 10)
    assert "threads grew" in soak.complaints("a rank", soak.growth(more_threads), 1)[0]


def test_what_is_expected_of_an_episode() -> None:
    parts = [
        Part("c", {}, 3, epochs=((0.0, 0.0), (0.0,))),
        Part("c", {}, 3, epochs=((), (0.0, 0.0))),
    ]
    values = [soak_rank.contribution(0, 1, 0, 3)]
    values += [soak_rank.contribution(1, 1, call, 3) for call in range(2)]
    assert soak_rank.expected(parts, 1) == (soak_rank.digest(np.sum(values, axis=0)), 3)
    # A contribution too many, too few, or of another is another sum.
    assert soak_rank.expected(parts, 0) != soak_rank.expected(parts, 1)


@pytest.mark.parametrize(
    "arguments", [["--minutes", "0"], ["--np", "1"], ["--minutes", "x"], ["--colour", "red"]]
)
def test_wrong_arguments(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        soak.main(arguments)
    assert ended.value.code == 2
    assert arguments[0] in capsys.readouterr().err
