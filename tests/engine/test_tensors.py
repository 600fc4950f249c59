# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""The tensors of a channel: what is accepted, and what is said of the rest."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from hvd_partial.errors import InvalidArgumentError
from hvd_partial.tensors import Array, Arrays, TensorList

W, B = np.zeros((3, 2), np.float32), np.zeros(2, np.float64)


def test_names_shapes_and_dtypes_make_the_signature() -> None:
    half = np.zeros((), ml_dtypes.bfloat16)
    assert TensorList([W, half]).signature == "tensor 0 float32[3,2]\ntensor 1 bfloat16[]"
    assert TensorList({"w": W, "b": B}).signature == "w float32[3,2]\nb float64[2]"
    assert TensorList([W], names=["dense/kernel"]).signature == "dense/kernel float32[3,2]"
    assert TensorList([W], names=["two\nlines"]).signature.count("\n") == 0


def test_all_dtypes() -> None:
    dtypes = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16, np.int32, np.int64]
    tensors = TensorList([np.zeros((2, 3), dtype) for dtype in dtypes])
    assert [spec.code for spec in tensors.specs] == [0, 1, 2, 3, 4, 5]
    assert [spec.elements for spec in tensors.specs] == [6] * 6
    assert tensors.integer_names == ["tensor 4", "tensor 5"]
    assert [array.dtype for array in tensors.empty()] == [np.dtype(dtype) for dtype in dtypes]


@pytest.mark.parametrize("dtype", [np.int8, np.uint32, np.bool_, np.complex64, object, ">f4"])
def test_other_dtypes_are_refused(dtype: object) -> None:
    with pytest.raises(InvalidArgumentError, match=r"like: tensor 1 is .*what can be reduced is"):
        TensorList([W, np.zeros(2, dtype)])  # type: ignore[call-overload]


def test_what_is_no_list_of_arrays() -> None:
    with pytest.raises(InvalidArgumentError, match="at least one array"):
        TensorList([])
    with pytest.raises(InvalidArgumentError, match=r"got one array: \[array\]"):
        TensorList(W)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="names: 1 names for 2 arrays"):
        TensorList([W, B], names=["w"])


def test_arrays_that_fit_are_not_copied() -> None:
    tensors = TensorList([W, B])
    arrays = [np.ones((3, 2), np.float32), np.ones(2)]
    assert all(a is b for a, b in zip(tensors.fitted(arrays), arrays, strict=True))
    assert tensors.fitted(tuple(arrays))[0] is arrays[0]


def test_other_orders_in_memory_are_copied() -> None:
    tensors = TensorList([W])
    fortran = np.asfortranarray(np.arange(6, dtype=np.float32).reshape(3, 2))
    strided = np.arange(12, dtype=np.float32).reshape(3, 4)[:, ::2]
    raw = np.zeros(25, np.uint8)
    odd = raw[1:].view(np.float32).reshape(3, 2)
    odd[:] = 7
    assert not odd.flags.aligned
    for array in (fortran, strided, odd):
        (fitted,) = tensors.fitted([array])
        assert fitted.flags.c_contiguous
        assert fitted.flags.aligned
        np.testing.assert_array_equal(fitted, array)


def test_a_mapping_is_taken_by_its_names() -> None:
    tensors = TensorList({"w": W, "b": B})
    w, b = np.ones((3, 2), np.float32), np.ones(2)
    assert tensors.fitted({"b": b, "w": w})[0] is w
    assert tensors.fitted([w, b])[1] is b


@pytest.mark.parametrize(
    ("arrays", "expected"),
    [
        ([W], r"expected 2 arrays \(w float32\[3,2\], b float64\[2\]\), got 1"),
        ([W, B, B], "expected 2 arrays .*, got 3"),
        ([], "expected 2 arrays .*, got 0"),
        ([W, np.zeros(3)], r"array 1 \(b\): expected float64\[2\], got float64\[3\]"),
        ([W, np.zeros((2, 1))], r"array 1 \(b\): expected float64\[2\], got float64\[2,1\]"),
        (
            [W, np.zeros(2, np.float32)],
            r"array 1 \(b\): expected float64\[2\], got float32\[2\]; convert it with .astype",
        ),
        (
            [W, np.zeros(2, ">f8")],
            r"array 1 \(b\): expected float64\[2\], got float64 in foreign byte order\[2\]",
        ),
        ([B, W], r"array 0 \(w\): .*would be array 1 \(b\): is the order another one\?"),
        (W, r"got one array: \[array\]"),
        ({"w": W}, "missing: b; unknown: none"),
        ({"w": W, "c": B}, "missing: b; unknown: c"),
    ],
)
def test_what_does_not_fit(arrays: Arrays, expected: str) -> None:
    with pytest.raises(InvalidArgumentError, match=expected):
        TensorList({"w": W, "b": B}).fitted(arrays)


def test_a_mapping_where_a_list_was_declared() -> None:
    with pytest.raises(InvalidArgumentError, match="expected a list of arrays"):
        TensorList([W]).fitted({"w": W})


def test_scalars_and_empty_tensors() -> None:
    like: list[Array] = [np.zeros((), np.float32), np.zeros((0, 3), np.float32)]
    tensors = TensorList(like)
    assert [spec.elements for spec in tensors.specs] == [1, 0]
    fitted = tensors.fitted([np.float32(3), np.zeros((0, 3), np.float32)])  # type: ignore[list-item]
    assert fitted[0] == 3
