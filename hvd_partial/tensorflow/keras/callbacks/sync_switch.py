# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Changes the mode of the running training: Sync-Switch's schedule, and policies beyond it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import horovod.tensorflow as _hvd
import numpy as np
import tensorflow as tf

from hvd_partial import arguments
from hvd_partial.errors import InvalidArgumentError
from hvd_partial.modes import KINDS, Mode
from hvd_partial.stragglers import StragglerDetector
from hvd_partial.sync_switch import Configuration, Decision, Observation, Schedule, Setting
from hvd_partial.sync_switch.configuration import ASYNCHRONOUS, MomentumPolicy
from hvd_partial.sync_switch.journal import Journal
from hvd_partial.sync_switch.policies import parse_policy
from hvd_partial.sync_switch.schedule import as_schedule
from hvd_partial.tensorflow import _distributed, _exchange, _keras
from hvd_partial.tensorflow._distributed import Distributed
from hvd_partial.tensorflow._errors import names_rank
from hvd_partial.tensorflow._rounds import Round, momentum_of
from hvd_partial.tensorflow.keras.callbacks._base import (
    PartialCallback,
    detector_options,
    open_early,
    require_states,
    states_of,
)


@dataclass(frozen=True)
class Switch:
    """One change of mode.

    Attributes:
      round: The first in the new mode.
      step: Contributions before it, divided by the number of ranks.
      before: Mode until then.
      after: Mode from then on.
      seconds: Since training began.
    """

    round: int
    step: float
    before: str
    after: str
    seconds: float


class SyncSwitchCallback(PartialCallback):
    """Sync rounds for the first part of the workload, asynchronous ones for the rest; or whatever
    the schedule and the policy say.

    The workload is `epochs` x `steps_per_epoch` contributions of each rank, whoever makes them.
    Every rank decides from the same rounds, so all ranks change at the same round: the next one
    that starts. Nothing is traced again, nothing waits, no process is restarted.

    The order of callbacks: `ReplicaSyncCallback`, `BackupAndRestore` (so that it saves equal
    replicas), `BroadcastGlobalVariablesCallback`, this one, callbacks that use the logs. The model
    must be built before `fit`.

    At each epoch's end the logs get `switches`, how many there were so far, and `asynchronous`, the
    share of the epoch's contributions that came in rounds of modes async and solo. `switches` of
    the callback lists them.

    Args:
      schedule: [(mode, share of the workload), ...], e.g. [("sync", 0.0625), ("async", None)].
      bsp_fraction: Short for sync for this share, then async. One of the two, unless the policy is
        an object or a function, which then decides alone.
      policy: "baseline" (the schedule, whoever is slow); while a straggler is found in a sync
        phase: "greedy" (async until it is gone, then what is left of the sync share), "elastic" (no
        round waits for it until the phase is over), "adaptive" (rounds wait for as many ranks as
        are not slow); a `hvd_partial.sync_switch.Policy`; or a function from an `Observation` to a
        mode, the same on all ranks.
      detector: Options of `hvd_partial.stragglers.StragglerDetector` for policies that look for
        stragglers, e.g. {"rule": "ratio"}.
      rate: "paper": a round of c contributions is applied with c / P of the optimizer's learning
        rate, on the mean of the c. "keep": rate and divisor stay as they are. For SGD both are the
        same; see docs/sync_switch.md.
      momentum_policy: In asynchronous rounds: "keep" (the paper's choice), "zero", "scaled" (1/P),
        "linear ramp" or "nonlinear ramp" (from 1/P of it to all of it, from each switch on), or a
        function of (momentum, size, share of the ramp that is over). For SGD with momentum.
      momentum_ramp: Steps of each rank that a ramp takes; default: an epoch.
      steps_per_epoch: Batches per rank in an epoch; by default what Keras knows, if it does.
      epochs: Of the whole training; by default those of `fit`.
      state_file: Where rank 0 writes down how training stands, in a line for each round. A job that
        goes on from a checkpoint, whichever, finds there what belongs to its weights. Without it
        such a job begins at initial_epoch / epochs of the workload, and policies start anew.
      log_dir: Where rank 0 writes switches for TensorBoard.
      verbose: 1: rank 0 prints them.

    Raises:
      InvalidArgumentError: naming the argument.
    """

    @names_rank
    def __init__(
        self,
        schedule: Schedule | Iterable[tuple[str | Mode, float | None]] | None = None,
        *,
        bsp_fraction: float | None = None,
        policy: Any = "baseline",
        detector: dict[str, Any] | None = None,
        rate: str = "paper",
        momentum_policy: str | MomentumPolicy = "keep",
        momentum_ramp: int | None = None,
        steps_per_epoch: int | None = None,
        epochs: int | None = None,
        state_file: str | Path | None = None,
        log_dir: str | Path | None = None,
        verbose: int = 0,
    ) -> None:
        super().__init__()
        if schedule is not None and bsp_fraction is not None:
            raise InvalidArgumentError("bsp_fraction: is short for a schedule; give one of the two")
        planned = None if schedule is None else as_schedule(schedule)
        if bsp_fraction is not None:
            planned = Schedule.from_bsp_fraction(bsp_fraction)
        self.policy = parse_policy(policy, planned)
        self.switches: list[Switch] = []
        self._detector_options = detector_options(detector)
        self._rate = rate
        self._momentum_policy = momentum_policy
        self._momentum_ramp = momentum_ramp
        self._live = momentum_policy != "keep"
        for name, value in (
            ("momentum_ramp", momentum_ramp),
            ("steps_per_epoch", steps_per_epoch),
            ("epochs", epochs),
        ):
            if value is not None:
                arguments.whole(name, value, least=1)
        for name, path in (("state_file", state_file), ("log_dir", log_dir)):
            if path is not None and not isinstance(path, str | os.PathLike):
                raise arguments.wrong(name, path, "a path")
        arguments.whole("verbose", verbose, least=0, most=1, hint="1: rank 0 prints switches")
        Configuration(1, 0.0, rate, momentum_policy, momentum_ramp or 0)  # checks them
        self._steps_per_epoch = steps_per_epoch
        self._epochs = epochs
        self._state_file = None if state_file is None else Path(state_file)
        self._log_dir = None if log_dir is None else str(log_dir)
        self._verbose = verbose
        self._state: Distributed | None = None
        self._begun = False
        self._size = 1
        self._total = 0
        self._offset = 0  # position in the workload minus the optimizer's contributions
        self._position = 0
        self._round = -1  # applied last
        self._mode: Mode | None = None
        self._decision: Decision | None = None
        self._configuration: Configuration | None = None
        self._detector: StragglerDetector | None = None
        self._journal: Journal | None = None
        self._writer: Any = None
        self._written = 0
        self._started = 0.0
        self._counts = [0, 0]  # contributions of the epoch in asynchronous rounds, in all
        self._losses: list[float] = []

    # ---- Keras's hooks ----------------------------------------------------------

    def set_model(self, model: Any) -> None:
        super().set_model(model)
        self._begun = False
        states = states_of(model)
        if len(states) != 1:
            return  # on_train_begin says what is wrong; without training nothing is
        self._state = states[0]
        retrace = self._state.applying.add(self._on_round)
        if self._live:
            retrace |= self._state.applying.make_momentum_live(self._state.optimizer)
        if retrace:
            # The step that was traced before does not ask for rate and momentum.
            model.train_function = None

    def on_train_begin(self, logs: Any = None) -> None:
        super().on_train_begin(logs)
        states = require_states(self.model, type(self).__name__)
        if len(states) != 1 or self._state is None:
            raise InvalidArgumentError(
                f"{type(self).__name__}: the model trains with {len(states)} distributed "
                "optimizers; it takes exactly one"
            )
        self._require_movable_schedule(self._state.optimizer)
        parameters = self.params or {}
        steps = self._steps_per_epoch or parameters.get("steps")
        epochs = self._epochs or parameters.get("epochs")
        if not steps or not epochs:
            raise InvalidArgumentError(
                f"{type(self).__name__}: steps_per_epoch must be given, because Keras does not "
                "know how many batches an epoch of this dataset has"
            )
        if not self.model.built:
            raise InvalidArgumentError(
                f"{type(self).__name__}: build the model before fit (give it an Input), so that "
                "its first round is in the right mode"
            )
        self._size = _hvd.size()
        self._per_epoch = int(steps) * self._size // self._state.settings.passes
        self._total = int(epochs) * self._per_epoch
        self._started = time.monotonic()

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        del logs
        if not self._begun:
            self._begin(epoch)
        self._counts = [0, 0]
        self._losses = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        del batch
        if self.policy.needs_loss and logs and "loss" in logs:
            self._losses.append(float(np.mean(np.asarray(logs["loss"]))))
        self._write()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        del epoch
        if self.policy.needs_loss and self._state is not None:
            self._decide_with_loss(logs)
        self._write()
        if logs is not None:
            asynchronous, all_of_epoch = self._counts
            logs["switches"] = float(len(self.switches))
            logs["asynchronous"] = asynchronous / max(1, all_of_epoch)

    def on_train_end(self, logs: Any = None) -> None:
        if self._begun and self._state is not None:
            if self._decision is not None and self._decision.excluded:
                self._send(Decision(self._decision.mode), 2 * (self._round + 1) + 1)
            self._state.applying.remove(self._on_round)
            self._state.applying.momentum.assign(momentum_of(self._state.optimizer))
        self._begun = False
        self._write()
        for closing in (self._writer, self._journal):
            if closing is not None:
                closing.close()
        self._writer = self._journal = None
        super().on_train_end(logs)

    # ---- the beginning ------------------------------------------------------------

    def _require_movable_schedule(self, optimizer: Any) -> None:
        if _keras.learning_rate_variable(optimizer) is not None:
            return
        worker = (
            _keras.inner_optimizer(optimizer) if _keras.is_loss_scaling(optimizer) else (optimizer)
        )
        if _keras.flavour(worker) == "tf_keras_legacy":
            schedule = worker._hyper.get("learning_rate")
        else:
            schedule = worker._learning_rate
        if not hasattr(schedule, "bind"):
            raise InvalidArgumentError(
                f"{type(self).__name__}: the learning rate follows {type(schedule).__name__}, "
                "which counts updates, and a switch changes how many contributions an update has; "
                "wrap it in hvd_partial.tensorflow.keras.schedules.ByContributions(schedule)"
            )

    def _begin(self, epoch: int) -> None:
        """Where training stands, the same on all ranks: a meeting of all."""
        state = trained(self._state)
        open_early(self.model, state)
        # Ranks may stand at different rounds, if they were not flushed.
        own: dict[str, Any] = {
            "contributions": int(state.contributions),
            "rounds": int(state.replay.opened_channel().stats().rounds),
        }
        iterations = int(state.iterations())
        if self._state_file is not None and _hvd.rank() == 0:
            self._journal = Journal(self._state_file)
            own["restored"] = self._journal.resume(iterations)
        everybody = _exchange.gather_json(own).values()
        restored = next((found["restored"] for found in everybody if found.get("restored")), None)
        done = max(found["contributions"] for found in everybody)
        rounds = max(found["rounds"] for found in everybody)
        self._configuration = Configuration(
            self._size,
            momentum_of(state.optimizer),
            self._rate,
            self._momentum_policy,
            (self._momentum_ramp or self._per_epoch // self._size) * self._size,
        )
        self._detector = None
        if self.policy.detects:
            self._detector = StragglerDetector(self._size, **self._detector_options)
        self._position = epoch * self._per_epoch
        if restored is not None:
            self._position = int(restored["contributions"])
            self.policy.restore(restored["policy"])
            self._configuration.restore(restored["configuration"])
            self.switches = [Switch(**found) for found in restored["switches"]]
            self._written = len(self.switches)
        self._offset = self._position - done
        self._round = rounds - 1
        self._mode = None
        self._decision = None
        self._begun = True
        self._send(self.policy.decide(self._observation(0)), 2 * rounds + 1)

    # ---- round by round -------------------------------------------------------------

    def _observation(self, round_contributions: int, **more: Any) -> Observation:
        return Observation(
            size=self._size,
            total=self._total,
            contributions=self._position,
            round_contributions=round_contributions,
            mode=self._mode,
            stragglers=() if self._detector is None else self._detector.stragglers,
            **more,
        )

    def _on_round(self, seen: Round) -> Setting | None:
        if not self._begun or self._configuration is None:
            return None
        before = self._offset + seen.before
        if self._mode is not None and seen.mode != self._mode:
            switch = Switch(
                seen.number,
                before / self._size,
                str(self._mode),
                str(seen.mode),
                time.monotonic() - self._started,
            )
            self.switches.append(switch)
        self._mode, self._round = seen.mode, seen.number
        setting = self._configuration.setting(seen.mode, seen.contributions, before, seen.divisor)
        self._position = before + seen.contributions
        self._counts[1] += seen.contributions
        if seen.mode.kind in ASYNCHRONOUS:
            self._counts[0] += seen.contributions
        if self._detector is not None:
            self._detector.observe(seen.contributions_of, seen.compute_seconds, seen.dropped_of)
        observation = self._observation(seen.contributions, compute_seconds=seen.compute_seconds)
        self._send(self.policy.decide(observation), 2 * (seen.number + 1))
        if self._journal is not None and self._state is not None:
            self._journal.write(
                seen.iterations + self._state.iterations_per_round,
                {
                    "contributions": self._position,
                    "policy": self.policy.state(),
                    "configuration": self._configuration.state(),
                    "switches": [asdict(switch) for switch in self.switches],
                },
            )
        return setting

    def _send(self, decision: Decision, number: int) -> None:
        """To the coordinator, from every rank: whichever comes first is in force."""
        if decision == self._decision or self._state is None:
            return
        self._decision = decision
        self._state.replay.opened_channel().decide(
            number, decision.mode, decision.excluded, decision.late
        )

    def _decide_with_loss(self, logs: Any) -> None:
        state = trained(self._state)
        _distributed.flush([state])
        loss = (logs or {}).get("loss")
        if loss is None and self._losses:
            loss = float(np.mean(self._losses))
        everybody = _exchange.gather_json(None if loss is None else float(loss))
        losses = [found for found in everybody.values() if found is not None]
        if not losses:
            return
        observation = self._observation(0, loss=float(np.mean(losses)))
        self._send(self.policy.decide(observation), 2 * (self._round + 1) + 1)

    # ---- for people -----------------------------------------------------------------

    def _write(self) -> None:
        if self._written == len(self.switches) or _hvd.rank() != 0:
            return
        new, self._written = self.switches[self._written :], len(self.switches)
        for switch in new:
            text = (
                f"round {switch.round}, step {switch.step:.1f}, {switch.seconds:.1f} s: "
                f"{switch.before} -> {switch.after}"
            )
            if self._verbose:
                print(f"\nSyncSwitch: {text}", flush=True)
            if self._log_dir is not None:
                if self._writer is None:
                    self._writer = tf.summary.create_file_writer(self._log_dir)
                step = int(switch.step)
                with self._writer.as_default():
                    kind = (
                        Mode.parse(switch.after).kind
                        if "designated" not in switch.after
                        else ("designated")
                    )
                    tf.summary.scalar("sync_switch/mode", KINDS.index(kind), step=step)
                    tf.summary.text("sync_switch/switch", text, step=step)
                self._writer.flush()


def trained(state: Distributed | None) -> Distributed:
    """Raises where a callback is called without having a model."""
    if state is None:
        raise InvalidArgumentError("SyncSwitchCallback: is used in model.fit only")
    return state
