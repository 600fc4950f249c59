# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Checks of arguments that many functions share.

Each returns the value, or raises `InvalidArgumentError` with a message that names the argument,
what it is and what it can be; callers put rank and channel in front.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from hvd_partial.errors import InvalidArgumentError


def whole(
    name: str, value: Any, least: int | None = 0, most: int | None = None, hint: str = ""
) -> int:
    """A whole number from `least` to `most`; None: any."""
    fits = not isinstance(value, bool) and isinstance(value, int)
    if fits and least is not None:
        fits = value >= least
    if fits and most is not None:
        fits = value <= most
    if not fits:
        limits = "" if least is None else f", at least {least}"
        if most is not None:
            limits = f", {least} to {most}"
        raise wrong(name, value, f"a whole number{limits}", hint)
    return value


def number(name: str, value: Any, least: float = -math.inf, hint: str = "") -> float:
    """A finite number, at least `least`."""
    if isinstance(value, bool) or not hasattr(type(value), "__float__"):
        raise wrong(name, value, _number_from(least), hint)
    found = float(value)
    if not math.isfinite(found) or found < least:
        raise wrong(name, value, _number_from(least), hint)
    return found


def flag(name: str, value: Any) -> bool:
    """True or False, and not a text that happens to be true."""
    if value is True or value is False or type(value).__name__ in ("bool", "bool_"):
        return bool(value)
    raise wrong(name, value, "True or False")


def text(name: str, value: Any, hint: str = "") -> str:
    """A text that is not empty and can be a C string."""
    if not isinstance(value, str) or not value or "\0" in value:
        raise wrong(name, value, "a text that is not empty", hint)
    return value


def function(name: str, value: Any, takes: str, hint: str = "") -> Callable[..., Any]:
    """Something that can be called."""
    if not callable(value):
        raise wrong(name, value, f"a function of {takes}", hint)
    return value


def listed(name: str, value: Any, what: str) -> list[Any]:
    """A list (or anything else to iterate over) of something."""
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise wrong(name, value, f"a list of {what}")
    return list(value)


def wrong(name: str, value: Any, expected: str, hint: str = "") -> InvalidArgumentError:
    """The error for a value that is not what is expected."""
    shown = repr(value)
    if " object at 0x" in shown:
        shown = f"an object of class {type(value).__name__}"
    elif len(shown) > 80:
        shown = f"{shown[:77]}..."
    return InvalidArgumentError(f"{name}={shown}: must be {expected}{hint and f'; {hint}'}")


def _number_from(least: float) -> str:
    return "a number" if least == -math.inf else f"a number, at least {least:g}"
