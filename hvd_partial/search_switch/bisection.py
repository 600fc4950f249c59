# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""The search itself: a pure function from the runs made so far to what is known and what is next.

Because `review` starts anew from the runs each time, a search that was interrupted cannot differ
from one that was not. Accuracies are compared as the decimal numbers that people wrote, in exact
arithmetic: 0.74 is not below 0.75 - 0.01, and rejecting a setting early cannot disagree by a
rounding with what the full evaluation would say.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal, Protocol

BSP = 1.0
ASP = 0.0
# 2**-16 of a workload is less than a step of any job that is worth a search.
MOST_SETTINGS = 16

Verdict = Literal["target", "accepted", "rejected", "open"]


class SearchError(RuntimeError):
    """The search cannot go on; the message says what to do."""


class SettingsError(ValueError):
    """A setting of the search is wrong; the message starts with the name of its option."""


@dataclass(frozen=True, order=True)
class Run:
    """Which run: the BSP fraction of its setting, and its number there, from 1."""

    bsp_fraction: float
    number: int


@dataclass(frozen=True)
class Outcome:
    """What a run came to.

    Attributes:
      accuracy: The final one; None if there was none, or not a finite number.
      seconds: What the run said that its training took; of a failed run, how long it ran.
      loss: The final one, where the run reported it; None as for the accuracy.
      failure: "" of a run that ended by itself with numbers; else why not.
    """

    accuracy: float | None
    seconds: float
    loss: float | None = None
    failure: str = ""

    def failure_at(self, chance: float) -> str:
        """Why this run counts as failed, or ""."""
        if self.failure:
            return self.failure
        if self.accuracy is None or self.accuracy <= chance:
            shown = "no accuracy" if self.accuracy is None else f"accuracy {self.accuracy:g}"
            return f"diverged: {shown}, chance is {chance:g}"
        return ""


@dataclass(frozen=True)
class Settings:
    """By what runs are judged.

    Attributes:
      beta: How far below the target the mean accuracy of a setting may be.
      runs: Runs for each setting.
      bsp_runs: Runs with BSP alone, made first, whose mean accuracy is the target.
      target: A number instead of BSP runs.
      bsp_seconds: With a number as target: what a BSP run takes, if known.
      history: Outcomes of BSP runs made elsewhere, instead of BSP runs of the search's own.
      max_settings: How many fractions are tried at most.
      chance: The accuracy of guessing; a run that is not above it has diverged.
      best_accuracy: No run can have more.
      allowed_failures: More failed runs than this reject a setting.
      early_rejection: Leave out the runs of a setting that cannot save it any more.
      try_asp: Try ASP alone too, if every fraction tried was accepted.
    """

    beta: float = 0.01
    runs: int = 5
    bsp_runs: int = 5
    target: float | None = None
    bsp_seconds: float | None = None
    history: tuple[Outcome, ...] = ()
    max_settings: int = 5
    chance: float = 0.0
    best_accuracy: float = 1.0
    allowed_failures: int = 0
    early_rejection: bool = True
    try_asp: bool = False

    def __post_init__(self) -> None:
        def require(holds: bool, message: str) -> None:
            if not holds:
                raise SettingsError(message)

        require(_finite(self.beta) and self.beta >= 0, "--beta must not be negative")
        require(self.runs >= 1, "--runs must be at least 1")
        require(self.bsp_runs >= 1, "--bsp-runs must be at least 1")
        require(
            1 <= self.max_settings <= MOST_SETTINGS,
            f"--max-settings must be between 1 and {MOST_SETTINGS}",
        )
        require(
            _finite(self.best_accuracy) and _finite(self.chance),
            "--chance and --best-accuracy must be numbers",
        )
        require(
            0 <= self.chance < self.best_accuracy,
            "--chance must be at least 0 and below --best-accuracy "
            f"({self.best_accuracy:g}); accuracies are shares: 0.1, not 10",
        )
        require(
            0 <= self.allowed_failures < min(self.runs, self.bsp_runs),
            "--allowed-failures must be at least 0 and less than --runs and --bsp-runs",
        )
        if self.target is not None:
            require(not self.history, "--target and --bsp-history exclude each other")
            require(
                _finite(self.target) and self.chance < self.target <= self.best_accuracy,
                f"--target {self.target:g} must be above --chance ({self.chance:g}) and not above "
                f"--best-accuracy ({self.best_accuracy:g})",
            )
        if self.bsp_seconds is not None:
            require(self.target is not None, "--bsp-seconds goes with --target NUMBER only")
            require(
                _finite(self.bsp_seconds) and self.bsp_seconds > 0, "--bsp-seconds must be positive"
            )


class Candidates(Protocol):
    """The fractions that can be tried."""

    def between(self, low: float, high: float) -> float | None:
        """The one to try next, strictly between these two; None if there is none."""

    def runs(self, bsp_fraction: float, wanted: int) -> int:
        """How many of the wanted runs can be had."""


class Midpoints:
    """All fractions: what a search on a script can try."""

    def between(self, low: float, high: float) -> float | None:
        return (low + high) / 2

    def runs(self, bsp_fraction: float, wanted: int) -> int:
        return wanted


class RecordedFractions:
    """The fractions that there are recorded runs of: the one nearest to the middle is tried next.

    Of two equally near ones it is the smaller.
    """

    def __init__(self, counts: Mapping[float, int]) -> None:
        self._counts = dict(counts)

    def between(self, low: float, high: float) -> float | None:
        middle = (exact(low) + exact(high)) / 2
        inside = [fraction for fraction in self._counts if low < fraction < high]
        return min(inside, key=lambda f: (abs(exact(f) - middle), f), default=None)

    def runs(self, bsp_fraction: float, wanted: int) -> int:
        return min(self._counts.get(bsp_fraction, 0), wanted)


@dataclass(frozen=True)
class Evaluation:
    """A setting: its runs so far, and what they say.

    Attributes:
      bsp_fraction: The setting.
      outcomes: Of its runs, in their order.
      planned: How many runs it has when none is left out.
      verdict: "target" for BSP, when complete; "open" while runs are missing.
      reason: Why it was rejected.
      next_number: The run to make next, while it is open.
    """

    bsp_fraction: float
    outcomes: tuple[Outcome, ...]
    planned: int
    verdict: Verdict
    reason: str = ""
    next_number: int = 0


@dataclass(frozen=True)
class Review:
    """All that the runs made so far say.

    Attributes:
      target: Mean accuracy of the BSP runs, or the number given; None while it is not known.
      evaluations: The settings tried, in their order; BSP runs of the search's own come first.
      low: The largest fraction rejected; 0 if none was.
      high: The smallest fraction accepted; 1, which needs no trial, if none was.
      next: The run to make next; None at the end.
      broken: Why the search failed; "" if it did not.
    """

    target: Fraction | None = None
    evaluations: tuple[Evaluation, ...] = field(default=())
    low: float = ASP
    high: float = BSP
    next: Run | None = None
    broken: str = ""

    @property
    def finished(self) -> bool:
        return self.next is None

    @property
    def found(self) -> bool:
        return self.finished and not self.broken and self.high < BSP


def exact(number: float) -> Fraction:
    """The decimal number that this float is written as."""
    return Fraction(repr(float(number)))


def mean_accuracy(outcomes: Iterable[Outcome], chance: float) -> Fraction | None:
    """Over the runs that did not fail; None if there is none."""
    good = [
        exact(o.accuracy) for o in outcomes if o.accuracy is not None and not o.failure_at(chance)
    ]
    return sum(good, Fraction(0)) / len(good) if good else None


def review(settings: Settings, candidates: Candidates, made: Mapping[Run, Outcome]) -> Review:
    """What the runs made so far say, and which one is next."""
    evaluations: list[Evaluation] = []

    if settings.target is not None:
        target = exact(settings.target)
    else:
        bsp = _bsp(settings, candidates, made)
        failures = _failures(bsp.outcomes, settings)
        if not settings.history:
            evaluations.append(bsp)
        if len(failures) > settings.allowed_failures:
            return Review(
                evaluations=tuple(evaluations),
                broken=f"{len(failures)} of {len(bsp.outcomes)} BSP runs failed, so there is no "
                f"target: {failures[0]} (--retry-failed makes runs again that crashed or timed "
                "out)",
            )
        if bsp.verdict == "open":
            return Review(evaluations=tuple(evaluations), next=Run(BSP, bsp.next_number))
        mean = mean_accuracy(bsp.outcomes, settings.chance)
        if mean is None:
            return Review(
                evaluations=tuple(evaluations),
                broken="there are no BSP runs to take the target from: give --target NUMBER",
            )
        target = mean

    low, high = ASP, BSP

    def state(next_run: Run | None = None) -> Review:
        return Review(target, tuple(evaluations), low, high, next_run)

    def asp_is_worth_a_trial() -> bool:
        return settings.try_asp and low == ASP and 0 < high < BSP

    def evaluate(bsp_fraction: float) -> Evaluation:
        evaluation = _evaluate(bsp_fraction, settings, candidates, made, target)
        evaluations.append(evaluation)
        return evaluation

    for _ in range(settings.max_settings):
        middle = candidates.between(low, high)
        if middle is None:
            break
        evaluation = evaluate(middle)
        if evaluation.verdict == "open":
            return state(Run(middle, evaluation.next_number))
        if evaluation.verdict == "accepted":
            high = middle
        else:
            low = middle
    if asp_is_worth_a_trial() and candidates.runs(ASP, settings.runs) > 0:
        evaluation = evaluate(ASP)
        if evaluation.verdict == "open":
            return state(Run(ASP, evaluation.next_number))
        if evaluation.verdict == "accepted":
            high = ASP
    return state()


def search(
    settings: Settings,
    candidates: Candidates,
    made: MutableMapping[Run, Outcome],
    make: Callable[[Run, Review], Outcome],
) -> Review:
    """Makes one run after the other until nothing is left to ask; `made` holds them all."""
    while True:
        known = review(settings, candidates, made)
        if known.next is None:
            return known
        made[known.next] = make(known.next, known)


def _finite(number: float) -> bool:
    return math.isfinite(number)


def _failures(outcomes: Iterable[Outcome], settings: Settings) -> list[str]:
    found = (outcome.failure_at(settings.chance) for outcome in outcomes)
    return [failure for failure in found if failure]


def _collect(
    bsp_fraction: float, planned: int, made: Mapping[Run, Outcome]
) -> tuple[tuple[Outcome, ...], int]:
    """The runs of a setting, and the number of the first one that is missing."""
    runs = [Run(bsp_fraction, number) for number in range(1, planned + 1)]
    missing = next((run.number for run in runs if run not in made), 0)
    return tuple(made[run] for run in runs if run in made), missing


def _bsp(settings: Settings, candidates: Candidates, made: Mapping[Run, Outcome]) -> Evaluation:
    if settings.history:
        return Evaluation(BSP, settings.history, len(settings.history), "target")
    planned = candidates.runs(BSP, settings.bsp_runs)
    outcomes, missing = _collect(BSP, planned, made)
    return Evaluation(BSP, outcomes, planned, "open" if missing else "target", next_number=missing)


def _evaluate(
    bsp_fraction: float,
    settings: Settings,
    candidates: Candidates,
    made: Mapping[Run, Outcome],
    target: Fraction,
) -> Evaluation:
    planned = candidates.runs(bsp_fraction, settings.runs)
    outcomes, missing = _collect(bsp_fraction, planned, made)
    reason = _lost(outcomes, planned, target - exact(settings.beta), settings)
    verdict: Verdict = "rejected" if reason else "accepted"
    if missing and not (reason and settings.early_rejection):
        return Evaluation(bsp_fraction, outcomes, planned, "open", next_number=missing)
    return Evaluation(bsp_fraction, outcomes, planned, verdict, reason)


def _lost(
    outcomes: tuple[Outcome, ...], planned: int, threshold: Fraction, settings: Settings
) -> str:
    """Why the runs that are missing cannot save a setting; "" if they can, or if it is complete
    and good.

    With nothing missing this is the full evaluation. A setting that is lost stays lost: no outcome
    is above `best_accuracy`, so the most that the mean can become never grows.
    """
    failures = _failures(outcomes, settings)
    if len(failures) > settings.allowed_failures:
        return failures[0]
    missing = planned - len(outcomes)
    good = len(outcomes) - len(failures)
    if good + missing == 0:
        return failures[0] if failures else "no runs"
    mean = mean_accuracy(outcomes, settings.chance) or Fraction(0)
    most = (mean * good + missing * exact(settings.best_accuracy)) / (good + missing)
    if most >= threshold:
        return ""
    at_most = "at most " if missing else ""
    return f"mean accuracy {at_most}{float(most):.4f}, needed {float(threshold):.4f}"
