# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Bad input: every public argument, a wrong value for each, and the message it gets."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from tests.engine.process_ranks import run
from tests.faults import bad_engine, bad_tensorflow
from tests.faults.bad_input import Answer, Row, complaints, uncovered
from tests.faults.bad_run import of_engine, of_tensorflow

pytestmark = pytest.mark.timeout(150)


@functools.cache
def engine_answers() -> dict[str, Answer]:
    return of_engine(run)


@functools.cache
def tensorflow_answers() -> tuple[dict[str, Answer], list[str]]:
    return of_tensorflow()


def keyed(rows: list[Row]) -> Any:
    keys = [row.key for row in rows]
    assert len(set(keys)) == len(keys)
    return pytest.mark.parametrize("row", [pytest.param(row, id=row.key) for row in rows])


@keyed(bad_engine.ROWS)
def test_a_wrong_value_for_the_engine(row: Row) -> None:
    got = engine_answers()[row.key]
    assert not list(complaints(row, got)), got


@keyed(bad_tensorflow.ROWS)
def test_a_wrong_value_for_tensorflow(row: Row) -> None:
    got = tensorflow_answers()[0][row.key]
    assert not list(complaints(row, got)), got


def test_every_public_argument_has_a_row() -> None:
    assert bad_engine.public_callables() == set(bad_engine.FUNCTIONS)
    rows, reasons = bad_engine.ROWS, bad_engine.NO_WRONG_VALUE
    assert uncovered(bad_engine.FUNCTIONS, rows, reasons) == []
    assert tensorflow_answers()[1] == []


def test_an_argument_without_row_is_noticed() -> None:
    def connect(rank: int, size: int, exchange: object, colour: str) -> None: ...

    functions = bad_engine.FUNCTIONS | {"connect": [connect]}
    found = uncovered(functions, bad_engine.ROWS, bad_engine.NO_WRONG_VALUE)
    assert found == ["connect.colour"]
    assert uncovered({}, [], {"gone.argument": "reason"}) == ["gone.argument (is not there)"]
