# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Protocol policies: what is seen after a round goes in, the mode of the next rounds comes out.

They are pure, and all ranks see the same rounds: so all ranks decide alike, without asking each
other. What a policy remembers is in `state()`, for checkpoints.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from hvd_partial.errors import InvalidArgumentError
from hvd_partial.modes import Mode
from hvd_partial.stragglers import Straggler
from hvd_partial.sync_switch.schedule import Schedule, as_schedule

State = dict[str, Any]
LATE = ("count", "drop")


@dataclass(frozen=True)
class Observation:
    """What is known after a round, the same on every rank.

    Attributes:
      size: Number of ranks.
      total: Contributions of the whole workload.
      contributions: Of all rounds so far.
      round_contributions: Of the last round.
      mode: Of the last round; None before the first one.
      compute_seconds: By rank, before its last call; 0 if not known.
      stragglers: Found by the detector; empty without one.
      loss: Mean over the ranks, at the end of an epoch; None between.
    """

    size: int
    total: int
    contributions: int = 0
    round_contributions: int = 0
    mode: Mode | None = None
    compute_seconds: tuple[float, ...] = ()
    stragglers: tuple[Straggler, ...] = ()
    loss: float | None = None

    @property
    def progress(self) -> float:
        """The share of the workload that is done, 0 to 1."""
        return min(1.0, self.contributions / self.total) if self.total > 0 else 1.0


@dataclass(frozen=True)
class Decision:
    """How the next rounds are to be.

    Attributes:
      mode: Of the rounds.
      excluded: Ranks that no round waits for, though they stay.
      late: What becomes of their contributions: "count" (in the round that they come for, with the
        weight of late ones) or "drop".
    """

    mode: Mode
    excluded: tuple[int, ...] = ()
    late: str = "count"


class Policy:
    """The base of all policies.

    Attributes:
      detects: Whether it looks at stragglers.
      needs_loss: Whether it looks at the loss.
    """

    detects = False
    needs_loss = False

    def decide(self, seen: Observation) -> Decision:
        """Called once before the first round, after each round, and at each epoch's end (then with
        the loss, if `needs_loss`)."""
        raise NotImplementedError

    def state(self) -> State:
        """What JSON can hold of what it remembers."""
        return {}

    def restore(self, state: State) -> None:
        """Goes on from there."""


class BySchedule(Policy):
    """The schedule and nothing else: Sync-Switch's *baseline*, whoever is slow."""

    def __init__(self, schedule: Schedule | Iterable[tuple[str | Mode, float | None]]) -> None:
        self.schedule = as_schedule(schedule)

    def decide(self, seen: Observation) -> Decision:
        return Decision(self.schedule.mode_at(seen.progress))


class _Once(Policy):
    """One mode until something happens, then another one for good."""

    def __init__(self, before: str | Mode, after: str | Mode) -> None:
        self.before = Mode.parse(before)
        self.after = Mode.parse(after)
        self.switched = False

    def happened(self, seen: Observation) -> bool:
        raise NotImplementedError

    def decide(self, seen: Observation) -> Decision:
        self.switched = self.happened(seen) or self.switched
        return Decision(self.after if self.switched else self.before)

    def state(self) -> State:
        return {"switched": self.switched}

    def restore(self, state: State) -> None:
        self.switched = bool(state["switched"])


class OnPlateau(_Once):
    """Switches for good when the loss has not become better for some epochs.

    Args:
      before: First mode.
      after: Second mode.
      patience: Epochs without a loss better than the best by `min_delta`.
      min_delta: In units of the loss.
    """

    needs_loss = True

    def __init__(
        self,
        before: str | Mode = "sync",
        after: str | Mode = "async",
        patience: int = 3,
        min_delta: float = 0.0,
    ) -> None:
        super().__init__(before, after)
        if isinstance(patience, bool) or not isinstance(patience, int) or patience < 1:
            raise InvalidArgumentError(f"OnPlateau: patience={patience!r} must be at least 1")
        if not (math.isfinite(min_delta) and min_delta >= 0):
            raise InvalidArgumentError(f"OnPlateau: min_delta={min_delta!r} must be at least 0")
        self.patience = patience
        self.min_delta = min_delta
        self.best: float | None = None
        self.waited = 0

    def happened(self, seen: Observation) -> bool:
        if seen.loss is None:
            return False
        # Not a number is no improvement.
        better = self.best is None or seen.loss < self.best - self.min_delta
        if better and math.isfinite(seen.loss):
            self.best, self.waited = seen.loss, 0
            return False
        self.waited += 1
        return self.waited >= self.patience

    def state(self) -> State:
        return super().state() | {"best": self.best, "waited": self.waited}

    def restore(self, state: State) -> None:
        super().restore(state)
        self.best, self.waited = state["best"], int(state["waited"])


class OnStraggler(_Once):
    """Switches for good as soon as there is a straggler."""

    detects = True

    def __init__(self, before: str | Mode = "sync", after: str | Mode = "async") -> None:
        super().__init__(before, after)

    def happened(self, seen: Observation) -> bool:
        return bool(seen.stragglers)


class ByFunction(Policy):
    """The user's own.

    Args:
      function: From an Observation to a mode ("solo", a Mode) or a Decision. It must give the same
        on all ranks for the same observation: no clock, no randomness, nothing of this rank alone.
      detects: Whether it looks at `stragglers`.
      needs_loss: Whether it looks at `loss`.
    """

    def __init__(
        self,
        function: Callable[[Observation], str | Mode | Decision],
        detects: bool = True,
        needs_loss: bool = False,
    ) -> None:
        if not callable(function):
            raise InvalidArgumentError(
                f"policy={function!r}: must be a policy or a function from an Observation to a mode"
            )
        self.function = function
        self.detects = detects
        self.needs_loss = needs_loss

    def decide(self, seen: Observation) -> Decision:
        found = self.function(seen)
        if isinstance(found, Decision):
            return found
        return Decision(Mode.parse(found, seen.size))


class _Online(Policy):
    """The schedule, and something else in its sync phases while there is a straggler."""

    detects = True

    def __init__(self, schedule: Schedule | Iterable[tuple[str | Mode, float | None]]) -> None:
        self.schedule = as_schedule(schedule)

    def decide(self, seen: Observation) -> Decision:
        mode = self.schedule.mode_at(seen.progress)
        # The others do not wait for a straggler anyway.
        if mode.kind != "sync":
            return self.elsewhere(mode)
        return self.in_sync(seen, tuple(straggler.rank for straggler in seen.stragglers))

    def elsewhere(self, mode: Mode) -> Decision:
        return Decision(mode)

    def in_sync(self, seen: Observation, slow: tuple[int, ...]) -> Decision:
        raise NotImplementedError


class Greedy(_Online):
    """Async while there is a straggler; what was left of the sync share then comes after it.

    What is trained on the way does not move the schedule on, so the detour is at the expense of its
    last phases: the workload stays what it is.
    """

    def __init__(
        self,
        schedule: Schedule | Iterable[tuple[str | Mode, float | None]],
        meanwhile: str | Mode = "async",
    ) -> None:
        super().__init__(schedule)
        self.meanwhile = Mode.parse(meanwhile)
        self.detour = 0  # contributions
        self._on_detour = False
        self._seen = 0

    def decide(self, seen: Observation) -> Decision:
        if self._on_detour:
            self.detour += seen.contributions - self._seen
        self._seen = seen.contributions
        return super().decide(replace(seen, contributions=max(0, seen.contributions - self.detour)))

    def elsewhere(self, mode: Mode) -> Decision:
        self._on_detour = False
        return Decision(mode)

    def in_sync(self, seen: Observation, slow: tuple[int, ...]) -> Decision:
        self._on_detour = bool(slow)
        return Decision(self.meanwhile if slow else Mode("sync"))

    def state(self) -> State:
        return {"detour": self.detour, "on_detour": self._on_detour, "seen": self._seen}

    def restore(self, state: State) -> None:
        self.detour = int(state["detour"])
        self._on_detour = bool(state["on_detour"])
        self._seen = int(state["seen"])


class Elastic(_Online):
    """A straggler is excluded until the sync phase is over, whether it recovers or not.

    Args:
      schedule: The schedule.
      late: "count": its contributions go into the round that they come for, as any late ones;
        "drop": they are thrown away.
    """

    def __init__(
        self,
        schedule: Schedule | Iterable[tuple[str | Mode, float | None]],
        late: str = "count",
    ) -> None:
        super().__init__(schedule)
        self.late = checked_late(late)
        self.excluded: tuple[int, ...] = ()

    def elsewhere(self, mode: Mode) -> Decision:
        self.excluded = ()
        return Decision(mode)

    def in_sync(self, seen: Observation, slow: tuple[int, ...]) -> Decision:
        together = tuple(sorted({*self.excluded, *slow}))
        if len(together) < seen.size:  # somebody has to go on
            self.excluded = together
        return Decision(Mode("sync"), self.excluded, self.late)

    def state(self) -> State:
        return {"excluded": list(self.excluded)}

    def restore(self, state: State) -> None:
        self.excluded = tuple(int(rank) for rank in state["excluded"])


class Adaptive(_Online):
    """A round needs as many ranks as are not slow at present, whichever they are; everybody again
    as soon as nobody is slow. No rank is named: a straggler that comes in time is waited for as
    long as the grace lasts."""

    def in_sync(self, seen: Observation, slow: tuple[int, ...]) -> Decision:
        needed = max(1, seen.size - len(slow))
        return Decision(Mode("quorum", k=needed) if slow else Mode("sync"))


def checked_late(late: str) -> str:
    """What becomes of the contributions of excluded ranks.

    Raises:
      InvalidArgumentError: if there is no such choice.
    """
    if late not in LATE:
        raise InvalidArgumentError(
            f"late={late!r}: must be 'count' (they go into the round that they come for) or 'drop'"
        )
    return late


POLICIES: dict[str, Callable[[Schedule], Policy]] = {
    "baseline": BySchedule,
    "schedule": BySchedule,
    "greedy": Greedy,
    "elastic": Elastic,
    "adaptive": Adaptive,
}


def parse_policy(policy: Any, schedule: Schedule | None) -> Policy:
    """A policy by its name (on this schedule), as it is, or from the user's function.

    Raises:
      InvalidArgumentError: if there is none of that name, or the schedule is missing.
    """
    if isinstance(policy, Policy):
        return policy
    if isinstance(policy, str):
        if policy not in POLICIES:
            raise InvalidArgumentError(
                f"policy={policy!r}: must be one of {', '.join(map(repr, POLICIES))}, a Policy, or "
                "a function from an Observation to a mode"
            )
        if schedule is None:
            raise InvalidArgumentError(
                f"policy={policy!r}: needs a schedule or bsp_fraction, e.g. bsp_fraction=0.0625"
            )
        return POLICIES[policy](schedule)
    return ByFunction(policy)
