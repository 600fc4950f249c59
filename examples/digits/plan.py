# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""What is to be trained, one `Run` for each line of the table, and the delays that all meet."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

HOROVOD = "horovod"
SCENARIOS = {
    "random": "one random rank late by 200 ms in each step",
    "last": "the last rank late by 300 ms in each step",
    "balanced": "nobody late",
}
# As "last", in some steps only (`Run.late_steps`).
TRANSIENT = "transient"
LATE_SECONDS = {"random": 0.2, "last": 0.3, "balanced": 0.0, TRANSIENT: 0.3}


@dataclass(frozen=True)
class Run:
    """One training run.

    Attributes:
      mode: "horovod" for Horovod's own optimizer, else a mode of hvd_partial.
      seed: Of the initial weights, the order of the data and the delays.
      scenario: One of SCENARIOS, or TRANSIENT.
      epochs: Passes over the training data, counted in contributions of all ranks together.
      batch_size: Examples in a local batch.
      optimizer: "sgd" (momentum 0.9) or "adam".
      learning_rate: The optimizer's.
      staleness: Weight of late contributions: "inverse", "full" or another that hvd_partial knows.
      step_seconds: What a step of a rank that is not late takes; the small model's own step is
        padded to it by sleeping.
      time_scale: Factor on `step_seconds` and on the delays.
      bsp_fraction: Share of the workload in sync mode before async, for `SyncSwitchCallback`; None:
        one mode all the time.
      policy: Of that callback.
      late_steps: With scenario TRANSIENT: which steps of the last rank are late, (first, last + 1).
    """

    mode: str
    seed: int = 0
    scenario: str = "random"
    epochs: int = 5
    batch_size: int = 32
    optimizer: str = "sgd"
    learning_rate: float = 0.05
    staleness: str = "inverse"
    step_seconds: float = 0.1
    time_scale: float = 1.0
    bsp_fraction: float | None = None
    policy: str = "baseline"
    late_steps: tuple[int, int] = (0, 0)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Run:
        known = {f.name for f in fields(cls)}
        found = {key: value for key, value in values.items() if key in known}
        if "late_steps" in found:  # JSON has no tuples
            found["late_steps"] = tuple(found["late_steps"])
        return cls(**found)
