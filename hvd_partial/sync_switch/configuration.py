# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""The configuration policy: learning rate, momentum and divisor of each round.

With P ranks and a rate eta for a single local batch, BSP takes P * eta on the mean of P gradients,
ASP takes eta on each gradient. Both are one rule, and a round of c contributions with sum S follows
it whatever the mode is: rate c * eta, gradient S / c. The optimizer's own rate is that of BSP,
P * eta, so the factor on it is c / P.

For SGD that changes nothing (c * eta * S / c = P * eta * S / P): a divisor P and a rate P * eta do
the same, which is why a switch needs nothing but another mode. It matters for optimizers that do
not care how large a gradient is (Adam), and where gradients are clipped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hvd_partial.errors import InvalidArgumentError
from hvd_partial.modes import Mode

RATES = ("paper", "keep")
ASYNCHRONOUS = ("async", "solo")

# From the momentum of BSP, the number of ranks and how much of the ramp is over (0 to 1) to the
# momentum in ASP. The alternatives are those that the authors of Sync-Switch tried; all were worse
# than leaving it alone.
MomentumPolicy = Callable[[float, int, float], float]
MOMENTUM_POLICIES: dict[str, MomentumPolicy] = {
    "keep": lambda momentum, size, done: momentum,
    "zero": lambda momentum, size, done: 0.0,
    "scaled": lambda momentum, size, done: momentum / size,
    "linear ramp": lambda momentum, size, done: momentum * (1 / size + (1 - 1 / size) * done),
    "nonlinear ramp": lambda momentum, size, done: momentum * float(size) ** (done - 1),
}


@dataclass(frozen=True)
class Setting:
    """Of one round.

    Attributes:
      rate_factor: On the optimizer's learning rate.
      divisor: Of the sum of the contributions.
      momentum: The coefficient.
    """

    rate_factor: float
    divisor: float
    momentum: float


class Configuration:
    """Pure: the same rounds give the same settings.

    Args:
      size: Number of ranks.
      momentum: The optimizer's.
      rate: "paper", or "keep" to leave learning rate and divisor as they are.
      momentum_policy: "keep" (the paper's), "zero", "scaled" (1 / P), "linear ramp" and "nonlinear
        ramp" (from 1 / P of it back to all of it, in equal differences or equal ratios), or a
        function of (momentum, size, share of the ramp that is over). It holds in asynchronous
        rounds: modes async and solo.
      ramp: Contributions that a ramp takes, from each switch on.

    Raises:
      InvalidArgumentError: naming the argument.
    """

    def __init__(
        self,
        size: int,
        momentum: float = 0.0,
        rate: str = "paper",
        momentum_policy: str | MomentumPolicy = "keep",
        ramp: int = 0,
    ) -> None:
        if rate not in RATES:
            raise InvalidArgumentError(f"rate={rate!r}: must be 'paper' or 'keep'")
        if isinstance(ramp, bool) or not isinstance(ramp, int) or ramp < 0:
            raise InvalidArgumentError(
                f"momentum_ramp={ramp!r}: must be a whole number of contributions from 0"
            )
        self.size = size
        self.momentum = float(momentum)
        self.rate = rate
        self.momentum_of = parse_momentum_policy(momentum_policy)
        self.ramp = ramp
        # Contributions before the first round of the asynchronous stretch that lasts.
        self.switched_at: int | None = None

    def setting(self, mode: Mode, contributions: int, before: int, divisor: float) -> Setting:
        """For the next round, in order.

        Args:
          mode: Of the round.
          contributions: In the round, at least 1.
          before: Contributions of all rounds before it.
          divisor: By which the channel has the sum divided.
        """
        if mode.kind not in ASYNCHRONOUS:
            self.switched_at = None
            momentum = self.momentum
        else:
            if self.switched_at is None:
                self.switched_at = before
            done = 1.0 if self.ramp == 0 else min(1.0, (before - self.switched_at) / self.ramp)
            momentum = float(self.momentum_of(self.momentum, self.size, done))
        if self.rate == "keep":
            return Setting(1.0, divisor, momentum)
        return Setting(contributions / self.size, float(contributions), momentum)

    def state(self) -> dict[str, Any]:
        """What JSON can hold of what it remembers."""
        return {"switched_at": self.switched_at}

    def restore(self, state: dict[str, Any]) -> None:
        """Goes on from there."""
        found = state["switched_at"]
        self.switched_at = None if found is None else int(found)


def parse_momentum_policy(policy: str | MomentumPolicy) -> MomentumPolicy:
    """A momentum policy by its name, or as it is.

    Raises:
      InvalidArgumentError: if there is none of that name.
    """
    if callable(policy):
        return policy
    if policy in MOMENTUM_POLICIES:
        return MOMENTUM_POLICIES[policy]
    raise InvalidArgumentError(
        f"momentum_policy={policy!r}: must be one of {', '.join(map(repr, MOMENTUM_POLICIES))}, or "
        "a function of (momentum, size, share of the ramp that is over)"
    )
