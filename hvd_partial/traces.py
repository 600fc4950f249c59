# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Traces: how long each rank computes in each step, by name or from a file.

A trace is written as ``NAME:NUMBER,NUMBER``, or ``file:PATH``; several, with ``+`` between them,
add up. The draws are made in the engine (native/simulation/trace.h), the same for every mode.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hvd_partial.errors import InvalidArgumentError


@dataclass(frozen=True)
class Kind:
    """One kind of delay.

    Attributes:
      number: Of DelaySource::Kind in native/simulation/trace.h.
      parameters: Their names.
      meaning: For --help.
      complaint: What is wrong with these parameters, or "".
    """

    number: int
    parameters: tuple[str, ...]
    meaning: str
    complaint: Callable[[tuple[float, ...]], str]


def _no_negative(values: tuple[float, ...]) -> str:
    return "" if min(values) >= 0 else "no number may be negative"


def _pareto(values: tuple[float, ...]) -> str:
    if values[1] <= 1:
        return "tail must be above 1 (at or below it the mean delay is infinite)"
    return _no_negative(values)


def _one_slow(values: tuple[float, ...]) -> str:
    if values[0] != int(values[0]):
        return f"rank {values[0]:g} must be a whole number"
    return _no_negative(values[1:])


def _rotating(values: tuple[float, ...]) -> str:
    return "shortest must not be above longest" if values[0] > values[1] else _no_negative(values)


def _pauses(values: tuple[float, ...]) -> str:
    return _no_negative(values) if values[0] <= 1 else "a probability is at most 1"


KINDS = {
    "constant": Kind(0, ("seconds",), "every rank is late by the same time", _no_negative),
    "lognormal": Kind(
        1, ("median", "sigma"), "each rank in each step, log-normally distributed", _no_negative
    ),
    "pareto": Kind(
        2, ("minimum", "tail"), "each rank in each step, with rare long delays", _pareto
    ),
    "one-slow": Kind(3, ("rank", "seconds"), "always the same rank (-1: the last one)", _one_slow),
    "one-random": Kind(4, ("seconds",), "one rank, drawn anew in each step", _no_negative),
    "rotating": Kind(
        5,
        ("shortest", "longest"),
        "all ranks by different times, moving on by one rank in each step",
        _rotating,
    ),
    "pauses": Kind(
        6, ("probability", "seconds"), "each rank in each step, with that probability", _pauses
    ),
}
FORMS = tuple(f"{name}:{','.join(kind.parameters)}" for name, kind in KINDS.items())


@dataclass(frozen=True)
class Trace:
    """What the simulation takes.

    Attributes:
      text: As it was given.
      delays: (number of the kind, first and second parameter), on top of the computation.
      recorded: Seconds of whole steps by rank, from files; empty if there is none.
    """

    text: str
    delays: tuple[tuple[int, float, float], ...]
    recorded: tuple[tuple[float, ...], ...]

    @classmethod
    def parse(cls, text: str) -> Trace:
        """A trace from its text.

        Raises:
          InvalidArgumentError: if it has no meaning, or its file cannot be read.
        """
        delays: list[tuple[int, float, float]] = []
        recorded: tuple[tuple[float, ...], ...] = ()
        # A path may have a plus sign in it.
        for part in re.split(r"\+(?=[a-z-]+:)", text.strip()):
            name, colon, rest = part.partition(":")
            if name == "file":
                if recorded:
                    raise InvalidArgumentError(f"trace {text!r}: only one file may be in it")
                recorded = read_steps(Path(rest))
            elif name in KINDS and colon:
                delays.append(_parse_delay(name, rest, part))
            else:
                raise InvalidArgumentError(
                    f"trace {part!r}: there is no such trace; valid are "
                    f"{', '.join(FORMS)} and file:PATH"
                )
        return cls(text, tuple(delays), recorded)

    def rank_outside(self, ranks: int) -> str:
        """What is wrong with the trace in a job of so many ranks, or ""."""
        for number, rank, _ in self.delays:
            if number == KINDS["one-slow"].number and not -ranks <= rank < ranks:
                return f"one-slow: there is no rank {rank:g} of {ranks}"
        return ""


def _parse_delay(name: str, rest: str, part: str) -> tuple[int, float, float]:
    kind = KINDS[name]
    form = f"{name}:{','.join(kind.parameters)}"
    try:
        values = tuple(float(value) for value in rest.split(","))
    except ValueError:
        raise InvalidArgumentError(f"trace {part!r}: expected numbers, as in {form}") from None
    if len(values) != len(kind.parameters):
        raise InvalidArgumentError(
            f"trace {part!r}: expected {len(kind.parameters)} numbers, as in {form}, "
            f"got {len(values)}"
        )
    if not all(math.isfinite(value) for value in values):
        raise InvalidArgumentError(f"trace {part!r}: every number must be finite")
    if complaint := kind.complaint(values):
        raise InvalidArgumentError(f"trace {part!r}: {complaint}")
    return kind.number, values[0], values[1] if len(values) > 1 else 0.0


def read_steps(path: Path) -> tuple[tuple[float, ...], ...]:
    """Seconds of each step by rank, from a CSV file.

    Either a column for each rank and a line for each step, with or without a line of names; or the
    columns ``rank`` and ``seconds``, in any order and among others, a line for each step of a rank.

    Raises:
      InvalidArgumentError: naming file and line.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            lines = [(n, row) for n, row in enumerate(csv.reader(file), 1) if any(row)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InvalidArgumentError(f"trace file {str(path)!r} cannot be read: {error}") from None
    names = [name.strip().lower() for name in lines[0][1]] if lines else []
    if "rank" in names and "seconds" in names:
        columns = _by_rank(path, lines[1:], names.index("rank"), names.index("seconds"))
    else:
        if names and not all(_is_number(name) for name in names):
            lines = lines[1:]
        columns = _by_column(path, lines)
    if not columns:
        raise InvalidArgumentError(
            f"trace file {str(path)!r} has no step in it; expected a column of seconds for each "
            "rank, or the columns rank,seconds"
        )
    return columns


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _seconds(path: Path, line: int, text: str) -> float:
    if not _is_number(text) or not math.isfinite(float(text)) or float(text) < 0:
        raise InvalidArgumentError(
            f"trace file {str(path)!r}, line {line}: {text!r} is no number of seconds"
        )
    return float(text)


def _by_rank(
    path: Path, lines: list[tuple[int, list[str]]], rank_at: int, seconds_at: int
) -> tuple[tuple[float, ...], ...]:
    steps: dict[int, list[float]] = {}
    for line, row in lines:
        if len(row) <= max(rank_at, seconds_at) or not row[rank_at].strip().isdecimal():
            raise InvalidArgumentError(
                f"trace file {str(path)!r}, line {line}: expected a rank (0, 1, ...) and seconds, "
                f"got {','.join(row)!r}"
            )
        steps.setdefault(int(row[rank_at]), []).append(_seconds(path, line, row[seconds_at]))
    for rank in range(len(steps)):
        if rank not in steps:
            raise InvalidArgumentError(
                f"trace file {str(path)!r}: there is no line of rank {rank}, but of rank "
                f"{max(steps)}; ranks are numbered from 0"
            )
    return tuple(tuple(steps[rank]) for rank in range(len(steps)))


def _by_column(path: Path, lines: list[tuple[int, list[str]]]) -> tuple[tuple[float, ...], ...]:
    for line, row in lines:
        if len(row) != len(lines[0][1]):
            raise InvalidArgumentError(
                f"trace file {str(path)!r}, line {line}: {len(row)} columns, but "
                f"{len(lines[0][1])} above"
            )
    rows = [[_seconds(path, line, text) for text in row] for line, row in lines]
    return tuple(zip(*rows, strict=True))
