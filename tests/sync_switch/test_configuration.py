# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of a switch."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvd_partial.errors import InvalidArgumentError
from hvd_partial.modes import Mode
from hvd_partial.sync_switch import MOMENTUM_POLICIES, Configuration, Setting

SYNC, ASYNC = Mode("sync"), Mode("async")


def test_the_papers_rule() -> None:
    """BSP: n * eta on the mean of n. ASP: eta on each."""
    configuration = Configuration(8, momentum=0.9)
    assert configuration.setting(SYNC, 8, 0, 8.0) == Setting(1.0, 8.0, 0.9)
    assert configuration.setting(ASYNC, 1, 8, 8.0) == Setting(0.125, 1.0, 0.9)
    assert configuration.setting(ASYNC, 2, 9, 8.0) == Setting(0.25, 2.0, 0.9)
    kept = Configuration(8, momentum=0.9, rate="keep")
    assert kept.setting(ASYNC, 1, 8, 8.0) == Setting(1.0, 8.0, 0.9)


@given(st.integers(1, 64), st.data(), st.sampled_from([SYNC, ASYNC, Mode("majority")]))
def test_sgd_does_not_notice(size, data, mode) -> None:
    """rate * sum / divisor is n * eta * sum / n, whatever is in the round."""
    contributions = data.draw(st.integers(1, 4 * size))
    setting = Configuration(size).setting(mode, contributions, 0, float(size))
    assert setting.rate_factor / setting.divisor == pytest.approx(1.0 / size)


def test_momentum_policies_by_name() -> None:
    """Of 0.8 with 4 ranks, on the way of a ramp of 100 contributions."""
    want = {
        "keep": [0.8, 0.8, 0.8, 0.8],
        "zero": [0.0, 0.0, 0.0, 0.0],
        "scaled": [0.2, 0.2, 0.2, 0.2],
        "linear ramp": [0.2, 0.5, 0.8, 0.8],
        "nonlinear ramp": [0.2, 0.4, 0.8, 0.8],
    }
    assert set(want) == set(MOMENTUM_POLICIES)
    for name, values in want.items():
        configuration = Configuration(4, 0.8, momentum_policy=name, ramp=100)
        assert configuration.setting(SYNC, 4, 996, 4.0).momentum == 0.8
        found = [
            configuration.setting(ASYNC, 1, before, 4.0).momentum
            for before in (1000, 1050, 1100, 5000)
        ]
        assert found == pytest.approx(values), name
        assert configuration.setting(SYNC, 4, 5001, 4.0).momentum == 0.8


def test_a_ramp_begins_anew_with_each_switch_and_goes_on_after_a_restart() -> None:
    first = Configuration(4, 0.8, momentum_policy="linear ramp", ramp=100)
    first.setting(ASYNC, 1, 0, 4.0)
    first.setting(SYNC, 4, 60, 4.0)
    assert first.setting(ASYNC, 1, 200, 4.0).momentum == pytest.approx(0.2)
    again = Configuration(4, 0.8, momentum_policy="linear ramp", ramp=100)
    again.restore(json.loads(json.dumps(first.state())))
    assert again.setting(ASYNC, 1, 250, 4.0).momentum == pytest.approx(0.5)


def test_own_momentum_policy() -> None:
    own = Configuration(4, 0.8, momentum_policy=lambda momentum, size, done: momentum - 0.1)
    assert own.setting(ASYNC, 1, 0, 4.0).momentum == pytest.approx(0.7)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"rate": "linear"}, "rate='linear'"),
        ({"momentum_policy": "ramp"}, "momentum_policy='ramp'"),
        ({"ramp": -1}, "momentum_ramp=-1"),
    ],
)
def test_wrong_arguments(arguments, text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=text):
        Configuration(4, 0.9, **arguments)
