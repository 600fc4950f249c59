# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Horovod's broadcast_variables, for Keras 3 variables as well."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import horovod.tensorflow as _hvd

from hvd_partial import arguments
from hvd_partial.tensorflow import _keras
from hvd_partial.tensorflow._errors import names_rank


@names_rank
def broadcast_variables(
    variables: Iterable[Any],
    root_rank: int,
    process_set: Any = _hvd.global_process_set,
    inplace: bool = False,
) -> Any:
    """Gives all ranks one rank's values; Horovod's function, which takes no Keras 3 variables."""
    variables = arguments.listed("variables", variables, "variables")
    checked_root_rank(root_rank)
    raw = [_keras.raw(variable) for variable in variables]
    return _hvd.broadcast_variables(raw, root_rank, process_set=process_set, inplace=inplace)


def checked_root_rank(root_rank: Any) -> int:
    """Whose values; one that does not exist would leave all ranks waiting for it."""
    last = _hvd.size() - 1 if _hvd.is_initialized() else None
    return arguments.whole(
        "root_rank", root_rank, most=last, hint="one of the ranks that there are"
    )
