# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Horovod's broadcast_variables, for Keras 3 variables as well."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import horovod.tensorflow as _hvd

from hvd_partial.tensorflow import _keras


def broadcast_variables(
    variables: Iterable[Any],
    root_rank: int,
    process_set: Any = _hvd.global_process_set,
    inplace: bool = False,
) -> Any:
    """Gives all ranks one rank's values; Horovod's function, which takes no Keras 3 variables."""
    raw = [_keras.raw(variable) for variable in variables]
    return _hvd.broadcast_variables(raw, root_rank, process_set=process_set, inplace=inplace)
