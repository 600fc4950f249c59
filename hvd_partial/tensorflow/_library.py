# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Loads the TensorFlow op library, or says what is wrong with it."""

from __future__ import annotations

import ctypes
import json
from pathlib import Path
from typing import Any

import libucx
import tensorflow as tf

PACKAGE = Path(__file__).resolve().parent.parent
LIBRARY = PACKAGE / "_tensorflow_ops.so"
BUILD_INFO = PACKAGE / "_build_info.json"
REMEDY = (
    "Build the package where that TensorFlow is installed: `make build` in its source folder, or "
    "`pip install --no-build-isolation --no-deps --force-reinstall .`; "
    "`python -m hvd_partial check` shows what fits together."
)


def built_for() -> str | None:
    """The TensorFlow version that the build wrote down, e.g. "2.18.1"; None if it did not."""
    try:
        return json.loads(BUILD_INFO.read_text())["tensorflow"]
    except (OSError, ValueError, KeyError):
        return None


def check_version(built: str | None, installed: str) -> None:
    """TensorFlow's C++ interface changes with every minor version.

    Raises:
      ImportError: if the library was built for another one than is installed.
    """
    if built is None or built.split(".")[:2] == installed.split(".")[:2]:
        return
    raise ImportError(
        f"hvd_partial was built for TensorFlow {built}, but TensorFlow {installed} is installed. "
        + REMEDY
    )


def load() -> tuple[Any, ctypes.CDLL]:
    """The op library as a module of ops, and as a C library.

    Raises:
      ImportError: if it is missing, for another TensorFlow, or cannot be loaded; with the remedy.
    """
    if not LIBRARY.exists():
        raise ImportError(
            f"The TensorFlow op library of hvd_partial ({LIBRARY}) is missing: the package was "
            f"built without TensorFlow, or not at all. {REMEDY}"
        )
    check_version(built_for(), tf.__version__)
    libucx.load_library()
    try:
        ops = tf.load_op_library(str(LIBRARY))
    except (tf.errors.NotFoundError, tf.errors.InvalidArgumentError, RuntimeError) as error:
        raise ImportError(
            f"The TensorFlow op library of hvd_partial does not load with TensorFlow "
            f"{tf.__version__}: {error}. {REMEDY}"
        ) from error
    native = ctypes.CDLL(str(LIBRARY))
    native.hvdp_tensorflow_version.restype = ctypes.c_char_p
    native.hvdp_tensorflow_reset.restype = None
    check_version(native.hvdp_tensorflow_version().decode(), tf.__version__)
    return ops, native
