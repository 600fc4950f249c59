# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Loads the native engine, or says what is missing and what to do about it."""

from __future__ import annotations

from types import ModuleType

UCX_REMEDY = "install it: pip install libucx-cu12==1.22.0"
BUILD_REMEDY = (
    "build the package: `make build` in its source folder, or "
    "`pip install --no-build-isolation .` there"
)


def load() -> ModuleType:
    """The module `hvd_partial._engine`.

    UCX comes as shared libraries inside a Python package; they must be in the process before the
    engine, which finds them by their names then.

    Raises:
      ImportError: with the remedy.
    """
    try:
        import libucx
    except ImportError as error:
        raise ImportError(
            f"hvd_partial sends over UCX, and the package libucx-cu12 cannot be imported "
            f"({error}); {UCX_REMEDY}"
        ) from error
    try:
        found = libucx.load_library()
    except OSError as error:
        raise ImportError(
            f"hvd_partial sends over UCX, and its libraries do not load ({error}); {UCX_REMEDY}"
        ) from error
    if any(library is None for library in found):
        raise ImportError(
            f"hvd_partial sends over UCX, and the package libucx-cu12 has no libraries in it; "
            f"{UCX_REMEDY}"
        )
    try:
        from hvd_partial import _engine
    except ImportError as error:
        raise ImportError(
            f"hvd_partial's native engine does not load ({error}); {BUILD_REMEDY}"
        ) from error
    return _engine
