# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""The demo itself and the minimal example, with real processes under horovodrun."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("tensorflow_datasets")
pytest.importorskip("horovod")

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent


def run(*command: str, seconds: float = 280.0) -> subprocess.CompletedProcess[str]:
    # No terminal, as in a batch job.
    return subprocess.run(
        command,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
        env=os.environ | {"TERM": "dumb"},
    )


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_demo_compares_horovod_with_the_modes(tmp_path: Path) -> None:
    document = tmp_path / "demo.json"
    done = run(
        *(sys.executable, "-m", "examples.digits", "--np", "2", "--epochs", "1"),
        *("--time-scale", "0.2", "--modes", "horovod", "sync", "solo"),
        *("--data-dir", str(tmp_path / "data"), "--json", str(document)),
        seconds=580.0,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Horovod's own DistributedOptimizer under tf_keras" in done.stdout

    runs = {run["mode"]: run for run in json.loads(document.read_text())["runs"]}
    assert list(runs) == ["horovod", "sync", "solo"]
    assert all(run["replicas_equal"] for run in runs.values())
    # 4,000 digits, 2 ranks, batches of 32: 62 steps each. What a round has too much is less than
    # one contribution of each rank.
    for run_ in runs.values():
        assert 124 <= run_["contributions"] <= 126
        assert run_["accuracy"] > 0.6, "one epoch gives about 0.85; chance is 0.1"
    assert runs["horovod"]["rounds"] == 62
    assert runs["horovod"]["speedup"] == 1.0
    assert runs["horovod"]["keras"].startswith("tf_keras")
    # The same model, data and arithmetic under two Kerases.
    assert runs["sync"]["accuracy"] == pytest.approx(runs["horovod"]["accuracy"], abs=0.03)
    assert runs["sync"]["late_share"] == 0.0
    assert runs["solo"]["late_share"] > 0.0
    assert runs["solo"]["rounds"] > runs["sync"]["rounds"]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_minimal_example(tmp_path: Path) -> None:
    script = str(ROOT / "examples" / "minimal.py")
    done = run(
        *(str(BIN / "horovodrun"), "-np", "2", sys.executable, script),
        *("--steps", "60", "--mode", "majority"),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 ranks, mode majority: accuracy" in done.stdout
    assert "replicas equal" in done.stdout


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_what_a_rank_died_of_is_the_last_word_of_the_demo(tmp_path: Path) -> None:
    done = run(
        *(sys.executable, "-m", "examples.digits", "--np", "2", "--modes", "sync"),
        *("--staleness", "invers"),
        *("--data-dir", str(tmp_path / "data"), "--json", str(tmp_path / "demo.json")),
    )
    assert done.returncode == 1
    assert "staleness='invers': must be 'inverse'" in done.stdout
    assert not (tmp_path / "demo.json").exists()
