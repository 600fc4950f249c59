# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Every public argument with a wrong value: how it is called, and what must come of it.

Rows are in `bad_engine` and `bad_tensorflow`; each runs in a process of its own kind and hands back
`Answer`s, which the test judges and the report prints.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Row:
    """A wrong value of one argument.

    Attributes:
      call: The function, as people write it.
      argument: Its name.
      value: The wrong value, as text.
      act: Makes the call; gets what it needs for it, such as an open channel.
      remedy: Words that the message must have, which tell what to do instead.
      error: Class of the exception.
      says: How the message calls the argument, if not by its name.
      has_rank: The process is a rank by then, and the message must name it.
    """

    call: str
    argument: str
    value: str
    act: Callable[[Any], object]
    remedy: str
    error: str = "InvalidArgumentError"
    says: str = ""
    has_rank: bool = True

    @property
    def key(self) -> str:
        return f"{self.call}({self.argument}={self.value})"


@dataclass(frozen=True)
class Answer:
    """What a wrong value got: the class of the exception and its bases, and its text."""

    key: str
    call: str
    argument: str
    value: str
    errors: tuple[str, ...]
    message: str


def answer(row: Row, things: Any) -> Answer:
    """Makes the call of a row."""
    errors: tuple[str, ...] = ()
    message = ""
    try:
        row.act(things)
    except Exception as error:
        errors = tuple(kind.__name__ for kind in type(error).__mro__)
        message = str(error)
    return Answer(row.key, row.call, row.argument, row.value, errors, message)


def complaints(row: Row, got: Answer) -> Iterator[str]:
    """What is wrong with the answer to a wrong value."""
    if not got.errors:
        yield "was accepted"
        return
    if got.errors[0] != row.error:
        yield f"raised {got.errors[0]}, not {row.error}"
    if row.error == "InvalidArgumentError" and "ValueError" not in got.errors:
        yield "is no ValueError"
    for what, words in (("argument", row.says or row.argument), ("remedy", row.remedy)):
        if words not in got.message:
            yield f"does not name the {what} ({words!r})"
    if row.has_rank and "rank 0" not in got.message:
        yield "does not name the rank"


def parameters(function: Any) -> list[str]:
    """Names of its arguments, but for self and those collected by * and **."""
    collected = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [
        name
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind not in collected and name not in ("self", "cls")
    ]


def uncovered(
    functions: dict[str, Iterable[Any]], rows: Iterable[Row], exempt: dict[str, str]
) -> list[str]:
    """Public arguments that have neither a row nor a reason why no value of theirs is wrong.

    Args:
      functions: By the name that rows use: whatever it passes its arguments to.
      rows: All rows.
      exempt: "call.argument" to the reason.
    """
    wanted = {
        f"{call}.{name}"
        for call, found in functions.items()
        for function in found
        for name in parameters(function)
    }
    known = {f"{row.call}.{row.argument}" for row in rows}
    stale = sorted(set(exempt) - wanted | {key for key in known if key not in wanted})
    return sorted(wanted - known - set(exempt)) + [f"{name} (is not there)" for name in stale]


def plain(answers: Iterable[Answer]) -> list[dict[str, Any]]:
    """For JSON."""
    return [asdict(found) for found in answers]
