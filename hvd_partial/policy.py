# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""The options of a channel besides its mode: checked, and in the form that the engine takes.

Each function raises `InvalidArgumentError` with a message that names the argument and the remedy;
callers put rank and channel in front.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable
from typing import Any

from hvd_partial.errors import InvalidArgumentError

Staleness = str | Callable[[int], float]

# In the order of hvdp_average and hvdp_catch_up in native/capi/hvd_partial.h.
AVERAGES = (None, "size", "contributions")
CATCH_UPS = ("replay", "latest")

STALENESS_RULES: dict[str, Callable[[int], float]] = {
    "inverse": lambda tau: 1.0 / (1.0 + tau),
    "inverse_squared": lambda tau: 1.0 / (1.0 + tau) ** 2,
    "full": lambda tau: 1.0,
}
# With replay no contribution is later than max_lag + 1 rounds. With catch_up="latest" there is no
# such bound: then the last weight of the table holds for all later ones.
LEAST_WEIGHTS = 64

# kLargestMaxLag in native/capi/hvd_partial.cc.
LARGEST_MAX_LAG = 65536

LEARNED_GRACE = -1.0


def average_code(average: str | None) -> int:
    """What the sum is divided by, as the engine's hvdp_average."""
    if average not in AVERAGES:
        raise InvalidArgumentError(
            f"average={average!r}: must be 'size' (the number of ranks), 'contributions' (of the "
            f"round) or None (the sum as it is){_guess(average, AVERAGES)}"
        )
    return AVERAGES.index(average)


def catch_up_code(catch_up: str) -> int:
    """How a late rank catches up, as the engine's hvdp_catch_up."""
    if catch_up not in CATCH_UPS:
        raise InvalidArgumentError(
            f"catch_up={catch_up!r}: must be 'replay' (apply every result) or 'latest' (only the "
            f"newest){_guess(catch_up, CATCH_UPS)}"
        )
    return CATCH_UPS.index(catch_up)


def checked_max_lag(max_lag: int) -> int:
    """How many results may wait to be applied."""
    if (
        isinstance(max_lag, bool)
        or not isinstance(max_lag, int)
        or not 1 <= max_lag <= LARGEST_MAX_LAG
    ):
        raise InvalidArgumentError(
            f"max_lag={max_lag!r}: must be a whole number of rounds, 1 to {LARGEST_MAX_LAG} "
            f"(8 is usual)"
        )
    return max_lag


def grace_seconds(grace: str | float) -> float:
    """How long a round that has its quorum waits for the other ranks; negative: learned.

    Args:
      grace: Seconds, at least 0, or "auto": learned from recent arrivals in majority and quorum,
        0 in the other modes.
    """
    if grace == "auto":
        return LEARNED_GRACE
    if (
        isinstance(grace, bool)
        or not isinstance(grace, int | float)
        or not math.isfinite(grace)
        or grace < 0
    ):
        raise InvalidArgumentError(
            f"grace={grace!r}: must be 'auto' or a number of seconds, at least 0 (to wait for "
            f"everybody, use mode='sync')"
        )
    return float(grace)


def staleness_weights(staleness: Staleness, max_lag: int) -> list[float]:
    """The weight of a contribution by how many rounds late (tau) it is.

    Args:
      staleness: "inverse" (1 / (1 + tau)), "inverse_squared", "full" (1), or a function of tau.
        Weights are 0 to 1: above 1 a late gradient would count more than a punctual one, below 0
        it would undo what was learned. Tau 0 has weight 1, or sync mode would not give the mean.
      max_lag: Of the channel.

    Returns:
      Weights of tau = 0, 1, ..., at least `max_lag + 2` of them; the last one holds beyond.
    """
    if callable(staleness):
        rule, name = staleness, getattr(staleness, "__name__", "the function")
    elif isinstance(staleness, str) and staleness in STALENESS_RULES:
        rule, name = STALENESS_RULES[staleness], staleness
    else:
        raise InvalidArgumentError(
            f"staleness={staleness!r}: must be 'inverse', 'inverse_squared', 'full' or a function "
            f"from rounds late to weight{_guess(staleness, tuple(STALENESS_RULES))}"
        )
    weights = []
    for tau in range(max(LEAST_WEIGHTS, max_lag + 2)):
        value: Any = rule(tau)
        try:
            weight = float(value)
        except (TypeError, ValueError):
            raise InvalidArgumentError(
                f"staleness: {name}({tau}) gave {value!r}, not a number"
            ) from None
        if not 0.0 <= weight <= 1.0:  # also false for nan
            raise InvalidArgumentError(
                f"staleness: {name}({tau}) gave {weight}; weights must be 0 to 1"
            )
        weights.append(weight)
    if weights[0] != 1.0:
        raise InvalidArgumentError(
            f"staleness: {name}(0) gave {weights[0]}; a contribution that is not late has weight 1"
        )
    return weights


def check_integers(names: list[str], average: str | None, weights: list[float]) -> None:
    """Integers can only be summed, each contribution with its full weight.

    Args:
      names: Of the integer tensors, as messages call them.
      average: As given for the channel.
      weights: From `staleness_weights`.
    """
    if not names:
        return
    remedies = []
    if average is not None:
        remedies.append(f"average={average!r} would make fractions: pass average=None and divide")
    if any(weight != 1.0 for weight in weights):
        remedies.append("weights by staleness would make fractions: pass staleness='full'")
    if remedies:
        raise InvalidArgumentError(f"{names[0]} holds integers; " + "; ".join(remedies))


def check_process_set(process_set: object) -> None:
    """Only all ranks together, so far."""
    if process_set is not None and getattr(process_set, "process_set_id", None) != 0:
        raise InvalidArgumentError(
            f"process_set={process_set!r}: process sets are not supported yet; leave it out, and "
            f"all ranks take part"
        )


def _guess(value: object, valid: tuple[str | None, ...]) -> str:
    if not isinstance(value, str):
        return ""
    close = difflib.get_close_matches(value.lower(), [v for v in valid if v], n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else ""
