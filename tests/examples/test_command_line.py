# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Arguments, files and exit codes of `python -m examples.digits`, with launches replaced."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from examples.digits.launch import LaunchError
from examples.digits.plan import Run

digits = importlib.import_module("examples.digits.__main__")


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[list[Run]]:
    monkeypatch.chdir(tmp_path)
    made: list[list[Run]] = []

    def fake(runs: list[Run], processes: int, on_event: Any, **rest: Any) -> list[Any]:
        made.append(list(runs))
        results = []
        for index, run in enumerate(runs):
            on_event({"event": "start", "run": index, "total": 8})
            result = {
                "event": "result",
                "run": index,
                "mode": run.mode,
                "seed": run.seed,
                "seconds": 2.0,
                "contributions": 8,
                "rounds": 2,
                "accuracy": 0.9,
                "full_share": 1.0,
                "late_share": 0.0,
                "max_lag": 0,
                "keras": "3",
                "mean_rank_steps": 2,
                "replicas_equal": run.mode != "async",
            }
            on_event(result)
            results.append(result)
        return results

    monkeypatch.setattr(digits, "launch", fake)
    return made


def test_horovod_first_and_alone_then_all_others_together(launches: list[list[Run]]) -> None:
    assert digits.main([]) == 0
    assert [[run.mode for run in runs] for runs in launches] == [
        ["horovod"],
        ["sync", "majority", "solo"],
    ]
    document = json.loads(Path("demo.json").read_text())
    assert [run["mode"] for run in document["runs"]] == ["horovod", "sync", "majority", "solo"]
    assert document["environment"]["ranks"] == 4


def test_options_reach_every_run(launches: list[list[Run]]) -> None:
    arguments = "--modes solo --seeds 3 4 --scenario last --staleness full --epochs 2"
    arguments += " --optimizer adam --time-scale 0.5 --json other.json"
    assert digits.main(arguments.split()) == 0
    assert launches == [
        [
            Run(
                mode="solo",
                seed=seed,
                scenario="last",
                epochs=2,
                optimizer="adam",
                learning_rate=0.01,
                staleness="full",
                time_scale=0.5,
            )
            for seed in (3, 4)
        ]
    ]
    assert Path("other.json").exists()


def test_unequal_replicas_have_their_own_exit_code(launches: list[list[Run]]) -> None:
    assert digits.main(["--modes", "sync", "async"]) == 3


def test_a_failed_launch_is_exit_code_1_and_leaves_no_results(
    launches: list[list[Run]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise LaunchError("rank 2 was lost")

    monkeypatch.setattr(digits, "launch", fail)
    assert digits.main([]) == 1
    assert "rank 2 was lost" in capsys.readouterr().out
    assert not Path("demo.json").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        *("--np 0", "--epochs -1", "--scenario sometimes", "--learning-rate 0"),
        *("--json no/such/folder", "--modes majorty", "--np 4 --modes quorum(5)"),
    ],
)
def test_bad_arguments_are_refused_before_anything_starts(
    arguments: str, launches: list[list[Run]]
) -> None:
    with pytest.raises(SystemExit) as stop:
        digits.main(arguments.split())
    assert stop.value.code == 2
    assert launches == []
