# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""A rank of another system: ``python -m hvd_partial.bench.worker SYSTEM TASK OUTPUT``.

Started by `horovodrun` or `mpirun`; rank 0 writes the samples of all ranks to the file OUTPUT.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

from hvd_partial.bench.cells import HOROVOD_SYSTEMS, Task
from hvd_partial.bench.measure import run
from hvd_partial.bench.systems import HorovodSystem, MpiSystem, System


def main(system_name: str, task_json: str, output: str) -> None:
    fields = json.loads(task_json)
    task = Task(**{**fields, "sizes": tuple(fields["sizes"])})
    system: System = HorovodSystem() if system_name in HOROVOD_SYSTEMS else MpiSystem()
    samples = run(task, system)
    of_ranks = system.gather([dataclasses.asdict(sample) for sample in samples])
    if system.rank == 0:
        Path(output).write_text(json.dumps(of_ranks))
    system.close()


if __name__ == "__main__":
    main(*sys.argv[1:4])
