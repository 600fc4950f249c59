# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""The report about faults: what is still to be measured, and what it says of what was."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from benchmarks import faults, faults_report
from tests.faults.kill_points import POINTS
from tests.faults.kills import MODES, VICTIMS, Killed

CELLS = len(MODES) * len(VICTIMS)


def kill_of(cell: tuple[str, str, int], **facts: Any) -> dict[str, Any]:
    point, mode, victim = cell
    return {"point": point, "mode": mode, "victim": victim, "seconds": 0.01} | facts


def found_with(kills: list[dict[str, Any]]) -> dict[str, Any]:
    return {"kills": kills, "command": "python -m benchmarks.faults", "environment": {"cores": 2}}


def test_kills_are_spread_over_modes_and_victims() -> None:
    wanted = list(faults.missing_kills([], 2 * CELLS + 1))
    per_point = Counter(point for point, _, _ in wanted)
    assert per_point == dict.fromkeys(POINTS, 2 * CELLS + 1)
    assert set(Counter(wanted).values()) == {2, 3}
    # Every point has its first before any has its second.
    assert {point for point, _, _ in wanted[: len(POINTS)]} == set(POINTS)


def test_what_was_measured_is_not_measured_again() -> None:
    wanted = list(faults.missing_kills([], CELLS))
    done = [kill_of(cell) for cell in wanted[:20]]
    assert list(faults.missing_kills(done, CELLS)) == wanted[20:]
    assert list(faults.missing_kills([kill_of(cell) for cell in wanted], CELLS)) == []


def test_a_run_that_ends_early_keeps_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fake(point: str, mode: str, victim: int, deadline: float) -> Killed:
        if (point, mode, victim) == ("flush", "sync", 0):
            raise AssertionError("no end after 60 s")
        return Killed(point, mode, victim, "error", 0.25, {1: 0.25})

    monkeypatch.setattr(faults, "kill", fake)
    results, page = tmp_path / "faults.json", tmp_path / "reliability.md"
    arguments = ["--only", "kills", "--json", str(results), "--soak", str(tmp_path / "none.json")]
    arguments += ["--parallel", "1"]  # in this process, where it is replaced
    assert faults.main([*arguments, "--seconds", "0"]) == 0  # begins nothing
    # A kill that hung is in the report, and the exit code.
    assert faults.main([*arguments, "--write", str(page)]) == 1
    text = page.read_text()
    assert "1 hung or ended wrongly, 0 took longer than 2 s" in text
    assert "1, 1 WRONG" in text
    assert "250, 250" in text
    assert f"{len(POINTS) * CELLS} kills in all, {CELLS} or more at each point" in text


def test_a_slow_kill_is_counted() -> None:
    cells = list(faults.missing_kills([], CELLS))
    kills = [kill_of(cell, seconds=3.0 if i == 0 else 0.01) for i, cell in enumerate(cells)]
    assert "1 took longer than 2 s" in faults_report.markdown(found_with(kills), None)
    assert "1 known after more than 2 s (slowest 3.00 s)" in faults_report.summary(
        found_with(kills)
    )


def test_texts_fit_into_a_table() -> None:
    head, rule, row = faults_report.table(["a", "b"], [["x | y", "two\nlines"]])
    assert (head, rule) == ("| a | b |", "|---|---|")
    assert row == "| x \\| y | two lines |"


@pytest.mark.parametrize("wrong", [["--repetitions", "0"], ["--parallel", "0"], ["--only", "x"]])
def test_wrong_arguments(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        faults.main(wrong)
    assert ended.value.code == 2
    assert wrong[0] in capsys.readouterr().err
