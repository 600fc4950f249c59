# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""`horovod.tensorflow` with partial rounds: import this module in its place.

Everything of Horovod's is here, and its own where nothing changes. Changed: `init` and `shutdown`
(the engine with them), `DistributedOptimizer` and `DistributedGradientTape` (partial rounds),
`broadcast_variables` (Keras 3), `elastic`. New: `partial_allreduce`, `partial_flush`, `apply`,
`flush`, `set_mode`, `exclude`, `mode`, `stats`, `data`. Horovod's `PartialDistributedGradientTape`
keeps its meaning: some layers stay local.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import horovod.tensorflow as _horovod

from hvd_partial.errors import (
    AbortedError,
    HvdPartialError,
    InvalidArgumentError,
    MismatchError,
    NotConnectedError,
    PeerLostError,
)
from hvd_partial.modes import Mode
from hvd_partial.tensorflow import data, elastic
from hvd_partial.tensorflow._broadcast import broadcast_variables
from hvd_partial.tensorflow._errors import names_rank as _names_rank
from hvd_partial.tensorflow._info import exclude, mode, stats
from hvd_partial.tensorflow._runtime import init, set_mode, shutdown
from hvd_partial.tensorflow.optimizer import HorovodDefaults as _Defaults
from hvd_partial.tensorflow.optimizer import distributed_optimizer as _distributed_optimizer
from hvd_partial.tensorflow.optimizer import document as _document
from hvd_partial.tensorflow.partial import (
    Reduced,
    apply,
    flush,
    partial_allreduce,
    partial_flush,
)
from hvd_partial.tensorflow.tape import DistributedGradientTape


@_document
@_names_rank
def DistributedOptimizer(  # noqa: N802 - Horovod's name
    optimizer: Any,
    name: str | None = None,
    use_locking: bool = False,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = _Defaults.compression,
    sparse_as_dense: bool = False,
    backward_passes_per_step: int = 1,
    op: Any = _Defaults.op,
    gradient_predivide_factor: float = 1.0,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Any = None,
    process_set: Any = _Defaults.process_set,
    scale_local_gradients: bool = True,
    **options: Any,
) -> Any:
    if use_locking:
        raise InvalidArgumentError(
            f"use_locking={use_locking!r}: is for tf.compat.v1 optimizers, which are "
            "horovod.tensorflow's; leave it out"
        )
    return _distributed_optimizer(
        optimizer,
        name=name,
        device_dense=device_dense,
        device_sparse=device_sparse,
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        backward_passes_per_step=backward_passes_per_step,
        op=op,
        gradient_predivide_factor=gradient_predivide_factor,
        average_aggregated_gradients=average_aggregated_gradients,
        num_groups=num_groups,
        groups=groups,
        process_set=process_set,
        scale_local_gradients=scale_local_gradients,
        **options,
    )


_OURS = [
    "AbortedError",
    "DistributedGradientTape",
    "DistributedOptimizer",
    "HvdPartialError",
    "InvalidArgumentError",
    "MismatchError",
    "Mode",
    "NotConnectedError",
    "PeerLostError",
    "Reduced",
    "apply",
    "broadcast_variables",
    "data",
    "elastic",
    "exclude",
    "flush",
    "init",
    "mode",
    "partial_allreduce",
    "partial_flush",
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
