# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Marks gradients that have been reduced already, so that they are not reduced twice."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from hvd_partial.errors import InvalidArgumentError

_MARK = "_hvd_partial_reduced"
# What users do to a gradient before they apply it; further up it is another matter.
_ELEMENTWISE = frozenset(
    {"Identity", "IdentityN", "Cast", "Reshape", "Neg", "Mul", "RealDiv", "Div", "DivNoNan"}
    | {"AddV2", "Sub", "ClipByValue", "Minimum", "Maximum", "Select", "SelectV2"}
)


def mark(gradient: Any) -> Any:
    """Notes that this gradient is the result of a reduction."""
    target = gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient
    if target is not None:
        setattr(target, _MARK, True)
    return gradient


def refuse_reduced(gradients: Iterable[Any], who: str) -> None:
    """Finds marked gradients, in a graph also behind scaling and clipping.

    Raises:
      InvalidArgumentError: if there is one.
    """
    for gradient in gradients:
        if gradient is not None and _is_reduced(gradient):
            raise InvalidArgumentError(
                f"{who} got gradients that DistributedGradientTape has reduced already; they would "
                "be reduced twice. Use either the distributed optimizer with a plain "
                "tf.GradientTape, or DistributedGradientTape with a plain optimizer."
            )


def _is_reduced(gradient: Any) -> bool:
    target = gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient
    if getattr(target, _MARK, False):
        return True
    if not isinstance(target, tf.Tensor) or not hasattr(target, "graph"):
        return False
    seen: set[int] = set()
    front = [target]
    while front:
        tensor = front.pop()
        if getattr(tensor, _MARK, False):
            return True
        if id(tensor) in seen or tensor.op.type not in _ELEMENTWISE:
            continue
        seen.add(id(tensor))
        front.extend(tensor.op.inputs)
    return False
