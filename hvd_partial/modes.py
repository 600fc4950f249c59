# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Modes: which ranks a round waits for."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass

from hvd_partial.errors import InvalidArgumentError

# In the order of hvdp_mode_kind in native/capi/hvd_partial.h.
KINDS = ("sync", "majority", "solo", "quorum", "designated", "async")
VALID_MODES = "'sync', 'majority', 'solo', 'quorum(k)', 'designated(seed)', 'async'"

_TEXT = re.compile(r"\s*([a-z_]+)\s*(?:\(\s*([+-]?\d+)\s*\))?\s*", re.IGNORECASE)
_LARGEST_SEED = 2**64 - 1


@dataclass(frozen=True)
class Mode:
    """Which ranks must be waiting before a round starts.

    Attributes:
      kind: "sync" (all ranks), "majority" (at least half), "solo" (any one), "quorum" (any k),
        "designated" (one that a seeded generator draws for each round, the same on all ranks) or
        "async" (as solo, with full weights and without grace: asynchronous SGD).
      k: For "quorum": how many, 1 to size. Else None.
      seed: For "designated": of the generator, 0 to 2**64 - 1. Else None.

    Written as text: "majority", "quorum(3)", "designated(7)".
    """

    kind: str
    k: int | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InvalidArgumentError(f"mode={self.kind!r}: {_unknown(str(self.kind))}")
        for name, value, owner in (("k", self.k, "quorum"), ("seed", self.seed, "designated")):
            if (value is not None) != (self.kind == owner):
                raise InvalidArgumentError(
                    f"mode={self.kind!r}: {name}={value!r}; quorum needs k, as in 'quorum(3)', "
                    f"designated needs seed, as in 'designated(7)', and no other mode has either"
                )
            if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
                raise InvalidArgumentError(f"mode: {name}={value!r} must be a whole number")
        if self.k is not None and self.k < 1:
            raise InvalidArgumentError(f"mode='{self}': k must be at least 1")
        if self.seed is not None and not 0 <= self.seed <= _LARGEST_SEED:
            raise InvalidArgumentError(f"mode='{self}': seed must be 0 to 2**64 - 1")

    def __str__(self) -> str:
        if self.kind == "quorum":
            return f"quorum({self.k})"
        if self.kind == "designated":
            return f"designated({self.seed})"
        return self.kind

    @classmethod
    def parse(cls, mode: str | Mode, size: int | None = None, rank: int | None = None) -> Mode:
        """A mode from its text.

        Args:
          mode: E.g. "quorum(3)", or a Mode.
          size: Number of ranks, to check a quorum against; None if not known yet.
          rank: This rank, for the message of an error.

        Raises:
          InvalidArgumentError: if there is no such mode, or its k is out of range.
        """
        where = "" if rank is None else f"rank {rank}: "
        parsed = mode if isinstance(mode, Mode) else _parse_text(mode, where)
        if size is not None and parsed.k is not None and parsed.k > size:
            raise InvalidArgumentError(
                f"{where}mode='{parsed}': k must be 1 to {size}, the number of ranks; "
                f"all of them is 'sync'"
            )
        return parsed

    def to_native(self) -> tuple[int, int, int]:
        """(kind, quorum, seed) as in the engine's hvdp_mode."""
        return KINDS.index(self.kind), self.k or 0, self.seed or 0

    @classmethod
    def from_native(cls, kind: int, quorum: int, seed: int) -> Mode:
        """From the engine's hvdp_mode."""
        name = KINDS[kind]
        return cls(
            name,
            k=quorum if name == "quorum" else None,
            seed=seed if name == "designated" else None,
        )


def _parse_text(text: object, where: str) -> Mode:
    if not isinstance(text, str):
        raise InvalidArgumentError(f"{where}mode={text!r}: must be a text or a Mode; {_valid()}")
    found = _TEXT.fullmatch(text)
    kind = found[1].lower() if found else text
    if found is None or kind not in KINDS:
        raise InvalidArgumentError(f"{where}mode={text!r}: {_unknown(kind)}")
    number = None if found[2] is None else int(found[2])
    if kind == "quorum" and number is None:
        raise InvalidArgumentError(f"{where}mode={text!r}: how many? As in 'quorum(3)'")
    if kind == "designated" and number is None:
        raise InvalidArgumentError(f"{where}mode={text!r}: with which seed? As in 'designated(7)'")
    if kind not in ("quorum", "designated") and number is not None:
        raise InvalidArgumentError(f"{where}mode={text!r}: {kind!r} takes no number")
    try:
        return Mode(
            kind,
            k=number if kind == "quorum" else None,
            seed=number if kind == "designated" else None,
        )
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{where}{error}") from None


def _valid() -> str:
    return f"valid modes are {VALID_MODES}"


def _unknown(kind: str) -> str:
    word = re.sub(r"[^a-z]", "", kind.lower())
    close = difflib.get_close_matches(word, KINDS, n=1, cutoff=0.5)
    guess = f"did you mean {close[0]!r}? " if close else ""
    return f"there is no such mode; {guess}{_valid()}"
