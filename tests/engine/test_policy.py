# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Options of a channel besides its mode."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from hvd_partial import policy
from hvd_partial.errors import InvalidArgumentError


def test_named_staleness_rules() -> None:
    assert policy.staleness_weights("inverse", 8)[:4] == [1, 1 / 2, 1 / 3, 1 / 4]
    assert policy.staleness_weights("inverse_squared", 8)[:3] == [1, 1 / 4, 1 / 9]
    assert set(policy.staleness_weights("full", 8)) == {1.0}


def test_a_staleness_function_becomes_a_table_that_reaches_beyond_max_lag() -> None:
    assert policy.staleness_weights(lambda tau: 0.5**tau, 8) == [0.5**tau for tau in range(64)]
    assert len(policy.staleness_weights("inverse", 1000)) == 1002
    # Dropping late contributions altogether is a rule too.
    assert policy.staleness_weights(lambda tau: tau == 0, 1)[:2] == [1.0, 0.0]


@pytest.mark.parametrize(
    ("staleness", "expected"),
    [
        ("invers", "did you mean 'inverse'?"),
        ("", "must be 'inverse', 'inverse_squared', 'full' or a function"),
        (None, "must be 'inverse'"),
        (0.5, "must be 'inverse'"),
        (lambda tau: 1.5 if tau == 3 else 1.0, r"\(3\) gave 1.5; weights must be 0 to 1"),
        (lambda tau: -0.1 if tau == 2 else 1.0, r"\(2\) gave -0.1; weights must be 0 to 1"),
        (lambda tau: math.nan if tau else 1.0, r"\(1\) gave nan; weights must be 0 to 1"),
        (lambda tau: "much", r"\(0\) gave 'much', not a number"),
        (lambda tau: 0.5, r"\(0\) gave 0.5; a contribution that is not late has weight 1"),
    ],
)
def test_wrong_staleness(staleness: object, expected: str) -> None:
    with pytest.raises(InvalidArgumentError, match=expected) as raised:
        policy.staleness_weights(staleness, 8)  # type: ignore[arg-type]
    assert str(raised.value).startswith("staleness")


def test_average() -> None:
    assert [policy.average_code(a) for a in (None, "size", "contributions")] == [0, 1, 2]
    for wrong in ("mean", "", 0, True):
        with pytest.raises(InvalidArgumentError, match=r"average=.*must be 'size'"):
            policy.average_code(wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="did you mean 'contributions'"):
        policy.average_code("contribution")


def test_catch_up() -> None:
    assert [policy.catch_up_code(c) for c in ("replay", "latest")] == [0, 1]
    with pytest.raises(InvalidArgumentError, match=r"catch_up='last'.*did you mean 'latest'"):
        policy.catch_up_code("last")


def test_max_lag() -> None:
    assert policy.checked_max_lag(1) == 1
    for wrong in (0, -1, 1.5, True, "8", None, 65537, 2**31):
        with pytest.raises(InvalidArgumentError, match=r"max_lag=.*1 to 65536"):
            policy.checked_max_lag(wrong)  # type: ignore[arg-type]


def test_grace() -> None:
    assert policy.grace_seconds("auto") < 0
    assert policy.grace_seconds(0) == 0.0
    assert policy.grace_seconds(0.25) == 0.25
    for wrong in (-1, -0.1, math.nan, math.inf, True, None, "automatic"):
        with pytest.raises(InvalidArgumentError, match=r"grace=.*'auto' or a number of seconds"):
            policy.grace_seconds(wrong)  # type: ignore[arg-type]


def test_integers_are_summed_only() -> None:
    full = policy.staleness_weights("full", 8)
    inverse = policy.staleness_weights("inverse", 8)
    policy.check_integers(["count"], None, full)
    policy.check_integers([], "size", inverse)
    with pytest.raises(InvalidArgumentError, match=r"count holds integers; .*pass average=None"):
        policy.check_integers(["count"], "size", full)
    with pytest.raises(InvalidArgumentError, match="pass staleness='full'"):
        policy.check_integers(["count"], None, inverse)
    with pytest.raises(InvalidArgumentError, match=r"average=None.*staleness='full'"):
        policy.check_integers(["count"], "contributions", inverse)


def test_process_sets_are_refused_but_for_the_global_one() -> None:
    class ProcessSet:
        def __init__(self, number: int) -> None:
            self.process_set_id = number

    policy.check_process_set(None)
    policy.check_process_set(ProcessSet(0))
    for other in (ProcessSet(1), [0, 1]):
        with pytest.raises(InvalidArgumentError, match="process sets are not supported yet"):
            policy.check_process_set(other)


@pytest.mark.parametrize("rule", policy.STALENESS_RULES.values())
def test_no_named_rule_ever_grows(rule: Callable[[int], float]) -> None:
    weights = [rule(tau) for tau in range(100)]
    assert weights == sorted(weights, reverse=True)
    assert weights[0] == 1
