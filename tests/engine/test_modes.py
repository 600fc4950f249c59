# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Modes as text."""

from __future__ import annotations

import re

import pytest

from hvd_partial.errors import HvdPartialError, InvalidArgumentError
from hvd_partial.modes import VALID_MODES, Mode


@pytest.mark.parametrize(
    ("text", "mode", "native"),
    [
        ("sync", Mode("sync"), (0, 0, 0)),
        ("majority", Mode("majority"), (1, 0, 0)),
        ("solo", Mode("solo"), (2, 0, 0)),
        ("quorum(3)", Mode("quorum", k=3), (3, 3, 0)),
        ("designated(7)", Mode("designated", seed=7), (4, 0, 7)),
        (f"designated({2**64 - 1})", Mode("designated", seed=2**64 - 1), (4, 0, 2**64 - 1)),
        ("async", Mode("async"), (5, 0, 0)),
    ],
)
def test_text_mode_and_native_form_are_the_same(
    text: str, mode: Mode, native: tuple[int, int, int]
) -> None:
    assert Mode.parse(text, size=4) == mode
    assert Mode.parse(mode, size=4) == mode
    assert str(mode) == text
    assert mode.to_native() == native
    assert Mode.from_native(*native) == mode


def test_spaces_and_capitals_do_not_matter() -> None:
    assert Mode.parse(" Quorum( 2 ) ") == Mode("quorum", k=2)
    assert Mode.parse("SYNC") == Mode("sync")


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("majorty", "did you mean 'majority'?"),
        ("synch", "did you mean 'sync'?"),
        ("quorun(3)", "did you mean 'quorum'?"),
        ("banana", "there is no such mode; valid modes are"),
        ("", "there is no such mode"),
        ("quorum", "how many? As in 'quorum(3)'"),
        ("quorum()", "there is no such mode"),
        ("quorum(1.5)", "there is no such mode"),
        ("quorum(0)", "k must be at least 1"),
        ("quorum(-2)", "k must be at least 1"),
        ("quorum(5)", "k must be 1 to 4, the number of ranks"),
        (Mode("quorum", k=5), "k must be 1 to 4, the number of ranks"),
        ("designated", "with which seed? As in 'designated(7)'"),
        ("designated(-1)", "seed must be 0 to"),
        (f"designated({2**64})", "seed must be 0 to"),
        ("solo(2)", "'solo' takes no number"),
        (3, "must be a text or a Mode; valid modes are"),
        (None, "must be a text or a Mode"),
    ],
)
def test_an_error_names_argument_rank_and_remedy(mode: object, expected: str) -> None:
    with pytest.raises(InvalidArgumentError, match=re.escape(expected)) as raised:
        Mode.parse(mode, size=4, rank=2)  # type: ignore[arg-type]
    assert str(raised.value).startswith("rank 2: mode=")
    if "no such mode" in expected or "did you mean" in expected:
        assert VALID_MODES in str(raised.value)


def test_errors_are_also_value_errors_and_ours() -> None:
    for kind in (ValueError, HvdPartialError):
        with pytest.raises(kind):
            Mode.parse("banana")


@pytest.mark.parametrize(
    "arguments",
    [
        {"kind": "sync", "k": 1},
        {"kind": "quorum"},
        {"kind": "quorum", "k": 2, "seed": 1},
        {"kind": "quorum", "k": True},
        {"kind": "quorum", "k": 2.0},
        {"kind": "designated", "k": 1},
        {"kind": "banana"},
    ],
)
def test_a_mode_that_makes_no_sense_cannot_be_made(arguments: dict[str, object]) -> None:
    with pytest.raises(InvalidArgumentError, match="mode"):
        Mode(**arguments)  # type: ignore[arg-type]


def test_a_quorum_is_checked_against_the_size_only_where_that_is_known() -> None:
    assert Mode.parse("quorum(100)").k == 100
    with pytest.raises(InvalidArgumentError, match="k must be 1 to 8"):
        Mode.parse("quorum(100)", size=8)
