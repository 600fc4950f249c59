# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""What a search came to, as the document that `--json` prints and the table shows.

Recurrences, as Sync-Switch counts them: the cost of the search over what one run of the job saves
from then on, which is a BSP run's time minus that of a run with the fraction chosen.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hvd_partial.search_switch.bisection import (
    BSP,
    Evaluation,
    Outcome,
    Review,
    Run,
    Settings,
    exact,
    mean_accuracy,
)

Document = dict[str, Any]


def summarize(
    settings: Settings,
    result: Review,
    made: Mapping[Run, Outcome],
    *,
    wasted_seconds: float = 0.0,
    others: Mapping[float, Sequence[Outcome]] | None = None,
) -> Document:
    """The document.

    Args:
      settings: Of the search.
      result: Its end.
      made: The runs that were made for it.
      wasted_seconds: Of further runs, whose outcome was not used.
      others: Recorded runs of settings that the search did not ask for, to be shown too.
    """
    bsp = [o for run, o in made.items() if run.bsp_fraction == BSP] or list(settings.history)
    bsp_seconds = _mean_seconds(bsp, settings) or settings.bsp_seconds
    threshold = None if result.target is None else result.target - exact(settings.beta)

    def row(verdict: str, reason: str, fraction: float, outcomes: Sequence[Outcome]) -> Document:
        return {
            "bsp_fraction": fraction,
            "verdict": verdict,
            "reason": reason,
            **_measures(outcomes, settings, bsp_seconds, threshold),
        }

    def of(evaluation: Evaluation) -> Document:
        found = row(
            evaluation.verdict, evaluation.reason, evaluation.bsp_fraction, evaluation.outcomes
        )
        return found | {"runs_planned": evaluation.planned}

    rows = [of(evaluation) for evaluation in result.evaluations]
    tried = {r["bsp_fraction"] for r in rows}
    if settings.history:
        rows.insert(0, row("target", "made elsewhere", BSP, settings.history))
        tried.add(BSP)
    rows += [
        row("not tried", "", fraction, outcomes)
        for fraction, outcomes in (others or {}).items()
        if fraction not in tried
    ]
    chosen = next((r for r in rows if r["bsp_fraction"] == result.high), None)
    chosen_seconds = chosen["seconds"] if chosen is not None else None
    own = [o.seconds for o in made.values()]
    without_bsp = [o.seconds for run, o in made.items() if run.bsp_fraction != BSP]
    saved = None
    if bsp_seconds is not None and chosen_seconds is not None:
        saved = bsp_seconds - chosen_seconds
    return {
        "found": result.found,
        "bsp_fraction": None if result.broken else result.high,
        "failure": result.broken,
        "target": None if result.target is None else float(result.target),
        "needed": None if threshold is None else float(threshold),
        "beta": settings.beta,
        "bsp_seconds": bsp_seconds,
        "saved_seconds": saved if result.found else None,
        "settings": rows,
        "cost": _cost(len(own), sum(own) + wasted_seconds, bsp_seconds, saved, result.found),
        "cost_without_bsp_runs": _cost(
            len(without_bsp), sum(without_bsp) + wasted_seconds, bsp_seconds, saved, result.found
        ),
    }


def _cost(
    runs: int, seconds: float, bsp_seconds: float | None, saved: float | None, found: bool
) -> Document:
    pays = found and saved is not None and saved > 0
    return {
        "runs": runs,
        "seconds": seconds,
        "in_bsp_runs": None if not bsp_seconds else seconds / bsp_seconds,
        "recurrences": seconds / saved if pays and saved else None,
    }


def _measures(
    outcomes: Sequence[Outcome],
    settings: Settings,
    bsp_seconds: float | None,
    threshold: Any,
) -> Document:
    """Mean and spread over the runs that did not fail."""
    good = [o for o in outcomes if not o.failure_at(settings.chance)]
    accuracies = [o.accuracy for o in good if o.accuracy is not None]
    mean = mean_accuracy(outcomes, settings.chance)
    spread = statistics.stdev(accuracies) if len(accuracies) > 1 else None
    seconds = _mean_seconds(outcomes, settings)
    margin = None if mean is None or threshold is None else float(mean - threshold)
    error = None if spread is None else spread / math.sqrt(len(accuracies))
    return {
        "runs": len(outcomes),
        "failed_runs": len(outcomes) - len(good),
        "accuracy": None if mean is None else float(mean),
        "spread": spread,
        "margin": margin,
        "close": margin is not None and error is not None and abs(margin) < error,
        "seconds": seconds,
        "share_of_bsp_seconds": None
        if seconds is None or not bsp_seconds
        else seconds / bsp_seconds,
    }


def _mean_seconds(outcomes: Iterable[Outcome], settings: Settings) -> float | None:
    good = [o.seconds for o in outcomes if not o.failure_at(settings.chance)]
    return statistics.fmean(good) if good else None
