# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""`horovod.tensorflow.keras` with partial rounds: import this module in its place.

Everything of Horovod's is here, and its own where nothing changes. Changed: `init` and `shutdown`,
`DistributedOptimizer`, `load_model`, `callbacks` (they work on Keras 3 as well), `elastic`. New:
`set_mode`, `exclude`, `mode`, `stats`, `flush`, `data`, `schedules`. Both Kerases work: Keras 3,
and tf_keras with `TF_USE_LEGACY_KERAS=1`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import horovod.tensorflow.keras as _horovod

from hvd_partial.modes import Mode
from hvd_partial.tensorflow import (
    data,
    exclude,
    flush,
    init,
    mode,
    set_mode,
    shutdown,
    stats,
)
from hvd_partial.tensorflow.keras import callbacks, elastic, schedules
from hvd_partial.tensorflow.keras._load import load_model
from hvd_partial.tensorflow.optimizer import HorovodDefaults as _Defaults
from hvd_partial.tensorflow.optimizer import distributed_optimizer as _distributed_optimizer
from hvd_partial.tensorflow.optimizer import document as _document


@_document
def DistributedOptimizer(  # noqa: N802 - Horovod's name
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = _Defaults.compression,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: Any = _Defaults.op,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Any = None,
    process_set: Any = _Defaults.process_set,
    scale_local_gradients: bool = True,
    **options: Any,
) -> Any:
    return _distributed_optimizer(
        optimizer,
        name=name,
        device_dense=device_dense,
        device_sparse=device_sparse,
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        gradient_predivide_factor=gradient_predivide_factor,
        op=op,
        backward_passes_per_step=backward_passes_per_step,
        average_aggregated_gradients=average_aggregated_gradients,
        num_groups=num_groups,
        groups=groups,
        process_set=process_set,
        scale_local_gradients=scale_local_gradients,
        **options,
    )


_OURS = [
    "DistributedOptimizer",
    "Mode",
    "callbacks",
    "data",
    "elastic",
    "exclude",
    "flush",
    "init",
    "load_model",
    "mode",
    "schedules",
    "set_mode",
    "shutdown",
    "stats",
]
# The rest of Horovod's names, whatever its version has.
_THEIRS = [name for name in dir(_horovod) if not name.startswith("_") and name not in _OURS]
globals().update({name: getattr(_horovod, name) for name in _THEIRS if name not in globals()})

__all__ = sorted(_OURS + _THEIRS)

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Horovod's names, for type checkers."""
