# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""The fixed list of tensors of a channel, and whether arrays fit it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hvd_partial import arguments
from hvd_partial.errors import InvalidArgumentError

Array = npt.NDArray[Any]
Arrays = Sequence[Array] | Mapping[str, Array]

# By dtype name, so that ml_dtypes need not be imported: the engine's hvdp_dtype.
DTYPE_CODES = {
    "float32": 0,
    "float64": 1,
    "float16": 2,
    "bfloat16": 3,
    "int32": 4,
    "int64": 5,
}


@dataclass(frozen=True)
class TensorSpec:
    """One tensor of a channel."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def code(self) -> int:
        """The dtype as the engine's hvdp_dtype."""
        return DTYPE_CODES[self.dtype.name]

    @property
    def elements(self) -> int:
        count = 1
        for length in self.shape:
            count *= length
        return count

    @property
    def is_integer(self) -> bool:
        return self.dtype.kind == "i"

    @property
    def kind(self) -> str:
        """Dtype and shape, e.g. "float32[784,10]"."""
        return _kind(self.dtype, self.shape)

    def empty(self) -> Array:
        return np.empty(self.shape, self.dtype)


class TensorList:
    """The tensors of one channel, in order.

    Args:
      like: Arrays with the shapes and dtypes (the values are not looked at), or a mapping of names
        to such arrays.
      names: Names for messages, one for each array; default: the mapping's keys, or numbers.

    Raises:
      InvalidArgumentError: if there are no arrays, or a dtype cannot be reduced.
    """

    def __init__(self, like: Arrays, names: Sequence[str] | None = None) -> None:
        if isinstance(like, Mapping):
            self._keys: list[str] | None = [str(key) for key in like]
            arrays = list(like.values())
        else:
            if isinstance(like, np.ndarray):
                raise InvalidArgumentError("like: must be a list of arrays, got one array: [array]")
            self._keys = None
            arrays = arguments.listed("like", like, "arrays")
        if not arrays:
            raise InvalidArgumentError("like: must hold at least one array")
        if names is None:
            names = self._keys or [f"tensor {i}" for i in range(len(arrays))]
        else:
            names = [str(name) for name in arguments.listed("names", names, "texts")]
        if len(names) != len(arrays):
            raise InvalidArgumentError(f"names: {len(names)} names for {len(arrays)} arrays")
        self.specs = tuple(_spec(name, array) for name, array in zip(names, arrays, strict=True))

    def __len__(self) -> int:
        return len(self.specs)

    @property
    def signature(self) -> str:
        """One line for each tensor; the ranks compare them."""
        return "\n".join(f"{spec.name} {spec.kind}".replace("\n", " ") for spec in self.specs)

    @property
    def integer_names(self) -> list[str]:
        return [spec.name for spec in self.specs if spec.is_integer]

    def empty(self) -> list[Array]:
        """New arrays for the values of a result."""
        return [spec.empty() for spec in self.specs]

    def fitted(self, arrays: Arrays) -> list[Array]:
        """The arrays in order, in memory as the engine reads it (copied only if they are not).

        Raises:
          InvalidArgumentError: if their number, names, shapes, dtypes or order differ.
        """
        values = self._in_order(arrays)
        if len(values) != len(self.specs):
            raise InvalidArgumentError(
                f"expected {len(self.specs)} arrays ({self._summary()}), got {len(values)}"
            )
        fitted = []
        for i, (value, spec) in enumerate(zip(values, self.specs, strict=True)):
            array = np.asarray(value)
            if array.dtype != spec.dtype or array.shape != spec.shape:
                raise InvalidArgumentError(self._misfit(i, array))
            flags = array.flags
            if not (flags.c_contiguous and flags.aligned):
                array = np.require(array, requirements=("C", "A"))
            fitted.append(array)
        return fitted

    def _in_order(self, arrays: Arrays) -> list[Any]:
        if not isinstance(arrays, Mapping):
            if isinstance(arrays, np.ndarray):
                raise InvalidArgumentError("expected a list of arrays, got one array: [array]")
            return arguments.listed("arrays", arrays, "arrays")
        if self._keys is None:
            raise InvalidArgumentError("expected a list of arrays, as in `like`; got a mapping")
        missing = [key for key in self._keys if key not in arrays]
        unknown = [str(key) for key in arrays if key not in self._keys]
        if missing or unknown:
            raise InvalidArgumentError(
                f"expected the names of `like`; missing: {', '.join(missing) or 'none'}; "
                f"unknown: {', '.join(unknown) or 'none'}"
            )
        return [arrays[key] for key in self._keys]

    def _misfit(self, i: int, array: Array) -> str:
        spec = self.specs[i]
        text = (
            f"array {i} ({spec.name}): expected {spec.kind}, got {_kind(array.dtype, array.shape)}"
        )
        for k, other in enumerate(self.specs):
            if k != i and (array.dtype, array.shape) == (other.dtype, other.shape):
                return f"{text}, which would be array {k} ({other.name}): is the order another one?"
        if array.shape == spec.shape:
            text += "; convert it with .astype()"
        return text

    def _summary(self) -> str:
        shown = [f"{spec.name} {spec.kind}" for spec in self.specs[:4]]
        if len(self.specs) > len(shown):
            shown.append("...")
        return ", ".join(shown)


def _kind(dtype: np.dtype[Any], shape: tuple[int, ...]) -> str:
    name = dtype.name if dtype.isnative else f"{dtype.name} in foreign byte order"
    return f"{name}[{','.join(map(str, shape))}]"


def _spec(name: str, array: Any) -> TensorSpec:
    if not hasattr(array, "dtype") or not hasattr(array, "shape"):
        array = np.asarray(array)
    dtype = np.dtype(array.dtype)
    shape = tuple(int(length) for length in array.shape)
    if dtype.name not in DTYPE_CODES or not dtype.isnative:
        raise InvalidArgumentError(
            f"like: {name} is {_kind(dtype, shape)}; what can be reduced is "
            f"{', '.join(DTYPE_CODES)}"
        )
    return TensorSpec(str(name), shape, dtype)
