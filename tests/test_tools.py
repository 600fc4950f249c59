# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""The small shell tools that the Makefile is made of."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TOOLS = ROOT / "tools"


def run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | environment,
        cwd=ROOT,
    )


def test_a_stage_that_works_is_one_line(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "stage.log"
    done = run(str(TOOLS / "stage"), str(log), "greeting", "echo", "much to say")
    assert done.returncode == 0
    assert re.fullmatch(r"\s*\d+ s  greeting\n", done.stdout)
    assert log.read_text() == "much to say\n"


def test_a_stage_that_fails_shows_the_end_of_its_log_and_keeps_the_exit_code(
    tmp_path: Path,
) -> None:
    code = "import sys\nfor i in range(100): print('line', i)\nprint('why')\nsys.exit(5)"
    done = run(str(TOOLS / "stage"), str(tmp_path / "log"), "doomed", sys.executable, "-c", code)
    assert done.returncode == 5
    assert "doomed: failed with exit code 5" in done.stdout
    assert "why" in done.stdout
    assert "line 99" in done.stdout
    assert "line 5\n" not in done.stdout


def test_this_machine_passes_the_check_of_the_host() -> None:
    done = run(str(TOOLS / "check_host"), sys.executable)
    assert (done.returncode, done.stderr) == (0, "")


def tool(folder: Path, name: str, body: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def test_all_that_a_machine_lacks_is_said_at_once(tmp_path: Path) -> None:
    # A Python of another version, an old cmake, no compiler.
    tool(tmp_path, "python", 'case "$1" in -V) echo Python 3.8.0;; *) exit 1;; esac')
    tool(tmp_path, "cmake", "echo cmake version 3.10.2")
    done = run(
        str(TOOLS / "check_host"),
        str(tmp_path / "python"),
        PATH=f"{tmp_path}:/usr/bin:/bin",
        CXX="no-such-compiler",
    )
    assert done.returncode == 1
    for words in ("Python 3.8.0", "3.11", "python3-venv", "no-such-compiler", "cmake 3.10 is too"):
        assert words in done.stderr


def test_a_missing_python_is_named() -> None:
    done = run(str(TOOLS / "check_host"), "/no/such/python")
    assert done.returncode == 1
    assert "make PYTHON=" in done.stderr


@pytest.mark.parametrize(
    "target", ["demo", "test", "env", "build", "lint", "tsan", "asan", "clean"]
)
def test_help_lists_the_targets(target: str) -> None:
    assert re.search(rf"^  make {target} +\S", run("make", "help").stdout, re.MULTILINE)


def test_readme_shows_both_commands_on_lines_of_their_own() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    assert "make demo" in lines
    assert "make test" in lines


def test_every_requirement_is_pinned_by_the_constraints() -> None:
    def names(path: Path) -> set[str]:
        lines = (line.split("#")[0].strip() for line in path.read_text().splitlines())
        return {
            re.split(r"[=<>\[]", line)[0].lower().replace("_", "-")
            for line in lines
            if line and not line.startswith("-")
        }

    folder = ROOT / "requirements"
    pinned = names(folder / "constraints.txt")
    for path in sorted(folder.glob("*.txt")):
        assert names(path) <= pinned, path.name
