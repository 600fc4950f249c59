# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""The C++ tests, each a subtest here: built into build/native and run by ctest."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "native"
BUILD_SECONDS = 900
RUN_SECONDS = 600


@pytest.mark.timeout(BUILD_SECONDS + RUN_SECONDS)
def test_native(subtests: pytest.Subtests, tmp_path: Path) -> None:
    assert shutil.which("ctest"), "the native tests need cmake (Debian: apt-get install cmake)"
    jobs = str(os.cpu_count() or 1)
    build = subprocess.run(
        [str(ROOT / "tools" / "build_native_tests"), sys.executable, str(BUILD), "", jobs],
        capture_output=True,
        text=True,
        timeout=BUILD_SECONDS,
        check=False,
    )
    assert build.returncode == 0, build.stdout[-4000:] + build.stderr[-4000:]

    junit = tmp_path / "native.xml"
    run = subprocess.run(
        [
            *("ctest", "--test-dir", str(BUILD), "--parallel", jobs, "--output-junit", str(junit)),
            "--output-on-failure",
        ],
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        check=False,
    )
    cases = ElementTree.parse(junit).getroot().findall("testcase")
    assert cases, f"ctest ran no test:\n{run.stdout}{run.stderr}"
    for case in cases:
        with subtests.test(case.get("name")):
            skipped = case.find("skipped")
            if case.get("status") == "disabled" or (
                skipped is not None and "SKIP" in skipped.get("message", "")
            ):
                pytest.skip("GTEST_SKIP")
            # "fail", and "notrun" for an executable that is missing.
            if case.get("status") != "run":
                pytest.fail(case.findtext("system-out") or "no output", pytrace=False)
    assert run.returncode == 0, run.stdout[-4000:]
