# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""What a measurement was made on."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from hvd_partial.check import version


def processor() -> str:
    """The processor's name as Linux gives it, or the architecture."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.machine()


def describe() -> dict[str, object]:
    """Versions and machine, for the "environment" of demo.json."""
    return {
        "python": platform.python_version(),
        "tensorflow": version("tensorflow-cpu", "tensorflow"),
        "keras": version("keras"),
        "tf_keras": version("tf_keras"),
        "horovod": version("horovod"),
        "ucx": version("libucx-cu12"),
        "hvd_partial": version("hvd-partial"),
        "system": platform.platform(),
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)),
    }
