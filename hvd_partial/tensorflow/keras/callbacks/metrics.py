# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""What ranks agree about at the end of an epoch."""

from __future__ import annotations

from typing import Any

import numpy as np

from hvd_partial.errors import InvalidArgumentError
from hvd_partial.tensorflow import _exchange
from hvd_partial.tensorflow._errors import names_rank
from hvd_partial.tensorflow.keras.callbacks._base import PartialCallback


class MetricAverageCallback(PartialCallback):
    """Averages the logs over the ranks at the end of each epoch, in place.

    Put it before callbacks that use the logs. Each value is averaged over the ranks that have it:
    a rank that alone evaluates does not keep the others waiting, and ranks that have ended are left
    out. It is a meeting of all ranks.

    Args:
      device: Not used; for Horovod's sake.
    """

    def __init__(self, device: str = "") -> None:
        super().__init__()
        del device

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        del epoch
        own = {key: float(value) for key, value in (logs or {}).items() if np.ndim(value) == 0}
        everybody = _exchange.gather_json(own)
        if logs is None:
            return
        for key in own:
            values = [found[key] for _, found in sorted(everybody.items()) if key in found]
            logs[key] = float(np.mean(values))


class StopAgreementCallback(PartialCallback):
    """Makes the ranks stop together when EarlyStopping, or anything else, wants to stop some.

    Put it behind the callbacks that decide. Without it a rank that stops alone ends: the others go
    on without it.

    Args:
      rule: "any": all stop as soon as one wants to; "all": as soon as all want to.
    """

    @names_rank
    def __init__(self, rule: str = "any") -> None:
        super().__init__()
        if rule not in ("any", "all"):
            raise InvalidArgumentError(
                f"rule={rule!r}: must be 'any' (stop when one wants to) or 'all' (when all do)"
            )
        self.rule = rule

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        del epoch, logs
        wishes = _exchange.gather_json(bool(self.model.stop_training)).values()
        self.model.stop_training = any(wishes) if self.rule == "any" else all(wishes)
