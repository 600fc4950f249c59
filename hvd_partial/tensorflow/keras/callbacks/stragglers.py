# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Says who is slow, since when, how much, why, and what it costs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import horovod.tensorflow as _hvd
import numpy as np
import tensorflow as tf

from hvd_partial import arguments
from hvd_partial.errors import InvalidArgumentError
from hvd_partial.stragglers import CostAccount, StragglerDetector
from hvd_partial.tensorflow import _exchange
from hvd_partial.tensorflow import data as _data
from hvd_partial.tensorflow._distributed import Distributed
from hvd_partial.tensorflow._errors import names_rank
from hvd_partial.tensorflow._rounds import Round
from hvd_partial.tensorflow.keras.callbacks._base import (
    PartialCallback,
    detector_options,
    open_early,
    require_states,
    states_of,
)


@dataclass(frozen=True)
class Episode:
    """A rank that was slow for a while.

    Attributes:
      rank: Which.
      since_step: Steps of each rank (contributions / size) when it began.
      until_step: When it was seen to be over; None: it lasts.
      slowdown: Seconds that it computed, over those of the middle rank; the largest seen.
      rounds: That waited for it, being in sync mode.
      job_seconds: By which they would have been shorter.
      rank_seconds: The same, added up over the ranks that waited.
      cause: "compute", "input" (most of what it was slower by, it waited for batches), or "unknown"
        without a measured dataset, or before an epoch has ended.
    """

    rank: int
    since_step: float
    until_step: float | None
    slowdown: float
    rounds: int = 0
    job_seconds: float = 0.0
    rank_seconds: float = 0.0
    cause: str = "unknown"

    def __str__(self) -> str:
        end = "until now" if self.until_step is None else f"to step {self.until_step:.0f}"
        return (
            f"rank {self.rank} from step {self.since_step:.0f} {end}: {self.slowdown:.1f} times as "
            f"slow ({self.cause}), {self.rounds} rounds waited {self.job_seconds:.1f} s for it"
        )


class StragglerCallback(PartialCallback):
    """Looks at the seconds that each rank computes, which all rounds carry, and reports stragglers.

    Waiting is not blamed on those who wait. `episodes` has what was found; at each epoch's end the
    logs get `stragglers` (how many there are) and `straggler_seconds` (how much shorter the sync
    rounds so far would have been without them).

    Args:
      detector: Options of `hvd_partial.stragglers.StragglerDetector`, e.g. {"rule": "ratio"}.
      dataset: What `hvd.data.measured` returned and `fit` trains on: tells whether a straggler
        computes long or waits for its input. Then each epoch's end is a meeting of all ranks.
      verbose: 1: rank 0 prints what has changed at each epoch's end.

    Raises:
      InvalidArgumentError: if an argument is wrong.
    """

    @names_rank
    def __init__(
        self,
        detector: dict[str, Any] | None = None,
        dataset: tf.data.Dataset | None = None,
        verbose: int = 0,
    ) -> None:
        super().__init__()
        self._options = detector_options(detector)
        arguments.whole("verbose", verbose, least=0, most=1, hint="1: rank 0 prints changes")
        if dataset is not None:
            _data.input_seconds(dataset)
        self._dataset = dataset
        self._verbose = verbose
        self.episodes: list[Episode] = []
        self._state: Distributed | None = None
        self._detector: StragglerDetector | None = None
        self._account = CostAccount()
        self._open: dict[int, int] = {}  # rank to the index of its episode that lasts
        self._before: dict[int, tuple[int, float, float]] = {}  # costs when they began
        self._channel: Any = None
        self._size = 1
        self._steps = 0
        self._input_before = 0.0
        self._printed: list[Episode] = []
        self._epoch_seconds: list[float] = []
        self._epoch_counts: list[int] = []

    def set_model(self, model: Any) -> None:
        super().set_model(model)
        states = states_of(model)
        if len(states) != 1:
            return
        self._state = states[0]
        if self._state.applying.add(self._on_round):
            model.train_function = None

    def on_train_begin(self, logs: Any = None) -> None:
        super().on_train_begin(logs)
        states = require_states(self.model, type(self).__name__)
        if len(states) != 1 or self._state is None:
            raise InvalidArgumentError(
                f"{type(self).__name__}: the model trains with {len(states)} distributed "
                "optimizers; it takes exactly one"
            )
        self._size = _hvd.size()
        open_early(self.model, self._state)
        self._detector = StragglerDetector(self._size, **self._options)
        self._open = {}
        self._channel = None

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        del epoch, logs
        self._steps = 0
        self._epoch_seconds = [0.0] * self._size
        self._epoch_counts = [0] * self._size
        if self._dataset is not None:
            self._input_before = _data.input_seconds(self._dataset)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        del batch, logs
        self._steps += 1

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if self._dataset is not None:
            self._find_causes()
        if logs is not None:
            logs["stragglers"] = float(len(self._open))
            logs["straggler_seconds"] = sum(found.job_seconds for found in self.episodes)
        if self._verbose and _hvd.rank() == 0:
            for found in self.episodes:
                if found not in self._printed:
                    print(f"\nepoch {epoch + 1}: straggler: {found}", flush=True)
            self._printed = list(self.episodes)

    def on_train_end(self, logs: Any = None) -> None:
        if self._state is not None:
            self._state.applying.remove(self._on_round)
        super().on_train_end(logs)

    # ---- round by round -------------------------------------------------------------

    def _on_round(self, seen: Round) -> None:
        detector = self._detector
        if detector is None or self._state is None:
            return
        step = (seen.before + seen.contributions) / self._size
        arrived = np.asarray(seen.contributions_of) + np.asarray(seen.dropped_of)
        for rank in np.flatnonzero(arrived) if self._epoch_counts else ():
            self._epoch_seconds[rank] += seen.compute_seconds[rank]
            self._epoch_counts[rank] += 1
        detector.observe(seen.contributions_of, seen.compute_seconds, seen.dropped_of)
        present = {straggler.rank: straggler for straggler in detector.stragglers}
        if seen.mode.kind == "sync":
            if self._channel is None:
                self._channel = self._state.replay.opened_channel()
            excluded = set(self._channel.stats().excluded) if present else set()
            waited_for = [
                rank
                for rank, count in enumerate(seen.contributions_of)
                if count > 0 and rank not in excluded
            ]
            self._account.observe(waited_for, seen.compute_seconds, set(present))
        begin = step - detector.contributions / self._size  # the detector counts from its own
        for rank, straggler in present.items():
            if rank not in self._open:
                self._open[rank] = len(self.episodes)
                cost = self._account.of(rank)
                self._before[rank] = (cost.rounds, cost.job_seconds, cost.rank_seconds)
                self.episodes.append(
                    Episode(rank, begin + straggler.since / self._size, None, straggler.slowdown)
                )
            place = self._open[rank]
            cost, before = self._account.of(rank), self._before[rank]
            self.episodes[place] = replace(
                self.episodes[place],
                slowdown=max(self.episodes[place].slowdown, straggler.slowdown),
                rounds=cost.rounds - before[0],
                job_seconds=cost.job_seconds - before[1],
                rank_seconds=cost.rank_seconds - before[2],
            )
        for rank in [rank for rank in self._open if rank not in present]:
            place = self._open.pop(rank)
            self.episodes[place] = replace(self.episodes[place], until_step=step)

    def _find_causes(self) -> None:
        """A meeting: only the rank itself knows how long it waited for batches."""
        waited = _data.input_seconds(self._dataset) - self._input_before
        own = [waited / max(1, self._steps)]
        everybody = _exchange.gather_json(own)
        inputs = {rank: values[0] for rank, values in everybody.items()}
        middle_input = float(np.median(list(inputs.values())))
        seconds = {
            rank: self._epoch_seconds[rank] / self._epoch_counts[rank]
            for rank in range(self._size)
            if self._epoch_counts[rank] > 0
        }
        if not seconds:
            return
        middle = float(np.median(list(seconds.values())))
        for place, found in enumerate(self.episodes):
            rank = found.rank
            known = rank in seconds and rank in inputs
            if found.cause != "unknown" or not known or seconds[rank] <= middle:
                continue
            of_input = inputs[rank] - middle_input > 0.5 * (seconds[rank] - middle)
            self.episodes[place] = replace(found, cause="input" if of_input else "compute")
