# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""`python -m examples.sync_switch`: what it plans and writes, and one run with real processes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import sync_switch as benchmark
from examples import sync_switch
from examples.digits.delays import Pattern
from examples.digits.launch import LaunchError
from examples.digits.plan import Run
from tests.examples.test_digits_demo import run as run_command


def result_of(run: Run) -> dict[str, Any]:
    switches = []
    if run.bsp_fraction is not None:
        switches = [{"round": 9, "step": 9.0, "before": "sync", "after": "async", "seconds": 0.5}]
    return run.to_dict() | {
        "event": "result",
        "seconds": 1.0 if run.mode == "async" else 2.0,
        "accuracy": 0.9,
        "rounds": 20,
        "contributions": 80,
        "max_lag": 1,
        "late_share": 0.0,
        "replicas_equal": True,
        "switches": switches,
    }


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[list[Run]]:
    made: list[list[Run]] = []

    def fake(runs: list[Run], processes: int, on_event: Any, **rest: Any) -> list[Any]:
        made.append(list(runs))
        results = []
        for index, run in enumerate(runs):
            on_event({"event": "start", "run": index, "total": 80})
            for loss in (2.0, 1.0):
                progress = {"epoch": 0, "contributions": 40, "loss": loss}
                on_event({"event": "progress", "run": index} | progress)
            results.append(result_of(run) | {"run": index})
            on_event(results[-1])
        return results

    monkeypatch.setattr(sync_switch, "launch", fake)
    return made


def test_everything_is_trained_in_every_scenario(launches: list[list[Run]], tmp_path: Path) -> None:
    document, picture = tmp_path / "all.json", tmp_path / "all.png"
    arguments = ["--json", str(document), "--picture", str(picture)]
    assert sync_switch.main([*arguments, "--policies", "baseline", "elastic"]) == 0
    (runs,) = launches
    kinds = [(run.mode, run.bsp_fraction, run.policy) for run in runs]
    of_one_scenario = [
        ("sync", None, "baseline"),
        ("async", None, "baseline"),
        ("solo", None, "baseline"),
        ("sync", 0.25, "baseline"),
        ("sync", 0.25, "elastic"),
    ]
    assert kinds == of_one_scenario * 2
    assert [run.scenario for run in runs] == ["balanced"] * 5 + ["last"] * 5
    entries = json.loads(document.read_text())["runs"]
    assert [entry["kind"] for entry in entries[:5]] == [
        "BSP",
        "ASP",
        "ASP, inverse",
        "Sync-Switch",
        "Sync-Switch, elastic",
    ]
    assert entries[0]["curve"]["losses"] == [2.0, 1.0]
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_the_transient_straggler_is_late_for_a_third_of_the_share() -> None:
    options = sync_switch.parse(
        ["--scenarios", "transient", "--bsp-fraction", "0.6", "--epochs", "4", "--only-policies"]
    )
    ((run,),) = sync_switch.plan(options).values()
    # 4 epochs of 31 steps, 74 of them in sync mode.
    assert run.late_steps == (12, 37)
    pattern = Pattern(run)
    late = [step for step in range(124) if pattern(3, step, 4) > 0.1]
    assert late == list(range(12, 37))
    assert not any(pattern(2, step, 4) > 0.1 for step in range(124))
    assert Run.from_dict(json.loads(json.dumps(run.to_dict()))) == run


def test_failed_launches_are_told(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    def fake(*arguments: Any, **rest: Any) -> list[Any]:
        raise LaunchError("no")

    monkeypatch.setattr(sync_switch, "launch", fake)
    assert sync_switch.main([]) == 1
    assert "error: no" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--bsp-fraction", "1.5"], "0 to 1"),
        (["--np", "0"], "--np must be positive"),
        (["--json", "/no/such/folder/x.json"], "no such folder"),
        (["--policies", "lazy"], "invalid choice"),
    ],
)
def test_wrong_arguments(arguments: list[str], text: str, capsys: Any) -> None:
    with pytest.raises(SystemExit):
        sync_switch.parse(arguments)
    assert text in capsys.readouterr().err


def test_the_benchmark_writes_its_tables(launches: list[list[Run]], tmp_path: Path) -> None:
    tables, results = tmp_path / "tables.md", tmp_path / "results.json"
    tables.write_text(f"above\n{benchmark.BEGIN}\nold\n{benchmark.END}\nbelow\n")
    arguments = ["--results", str(results), "--tables", str(tables), "--seeds", "0", "1"]
    assert benchmark.main(["policies", "accuracy", *arguments]) == 0
    text = tables.read_text()
    assert text.startswith("above\n")
    assert text.endswith("below\n")
    assert "old" not in text
    assert "| Sync-Switch, elastic | 2 | 2.0 ± 0.0 | 1.00x | 90.0 ± 0.0 | 90.0 | 1 | 0 % |" in text
    assert "| ASP | 2 | 1.0 ± 0.0 | 2.00x |" in text
    before = results.read_text()
    assert benchmark.main(["--only-tables", *arguments]) == 0
    assert (tables.read_text(), results.read_text()) == (text, before)


@pytest.mark.slow
def test_it_trains(tmp_path: Path) -> None:
    import sys

    document = tmp_path / "runs.json"
    done = run_command(
        *(sys.executable, "-m", "examples.sync_switch", "--np", "2", "--epochs", "1"),
        *("--time-scale", "0.2", "--scenarios", "transient", "--only-policies"),
        *("--policies", "baseline", "elastic", "--bsp-fraction", "0.5"),
        *("--data-dir", str(tmp_path / "data"), "--json", str(document)),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    runs = {run["kind"]: run for run in json.loads(document.read_text())["runs"]}
    assert list(runs) == ["Sync-Switch", "Sync-Switch, elastic"]
    for run in runs.values():
        assert run["replicas_equal"]
        assert [switch["after"] for switch in run["switches"]] == ["async"]
        assert 31 <= run["switches"][0]["step"] <= 33
        # Chance is 0.1; half an epoch of asynchronous steps with full weights is noisy.
        assert run["accuracy"] > 0.2
