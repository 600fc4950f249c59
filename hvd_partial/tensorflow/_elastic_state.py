# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""What an elastic job keeps, goes back to, and gives to workers that join."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import horovod.tensorflow as _hvd
import numpy as np
import tensorflow as tf
from horovod.common.elastic import ObjectState
from horovod.common.exceptions import HostsUpdatedInterrupt
from horovod.runner.elastic.worker import HostUpdateResult
from horovod.tensorflow import elastic as _elastic

from hvd_partial.errors import InvalidArgumentError, MismatchError
from hvd_partial.tensorflow import (
    _channels,
    _distributed,
    _exchange,
    _keras,
    _runtime,
    data,
    partial,
)
from hvd_partial.tensorflow._broadcast import broadcast_variables
from hvd_partial.tensorflow._distributed import Position


class _State:
    """What our states share, in front of one of Horovod's.

    Besides the variables and attributes it keeps where the distributed optimizers stand; what joins
    also gets the mode and the number of the next share of the data.
    """

    _prepared: frozenset[str] | set[str] = frozenset()  # channels that all ranks have opened

    def _variables(self) -> list[tf.Variable]:
        raise NotImplementedError

    def _prepare(self) -> set[str]:
        """Opens channels on all ranks, also where no step will be made; gives their names."""
        return set()

    # ---- on this rank -----------------------------------------------------------

    def save(self) -> None:
        """Keeps the present state, on this rank only: other ranks may have applied less.

        After a failure all get what rank 0 has kept, so this is as safe as `commit`; it does not
        wait for anybody, does not look for new hosts, and contributions that are on their way are
        not in it.
        """
        self._save_model()
        ObjectState.save(self)

    def restore(self) -> None:
        """Goes back to what was kept last. What was on its way is dropped."""
        self._load_model()
        ObjectState.restore(self)

    def _save_model(self) -> None:
        self._copies = {
            variable.ref(): np.array(variable.numpy(), copy=True) for variable in self._variables()
        }
        self._positions = _positions()

    def _load_model(self) -> None:
        for variable in self._variables():
            # One that did not exist then has nothing to go back to; rank 0's is as good as any.
            if variable.ref() in self._copies:
                variable.assign(self._copies[variable.ref()])
        _go_to(self._positions)

    # ---- with the other ranks -----------------------------------------------------

    def commit(self) -> None:
        """All ranks meet: what is on its way is reduced and applied, the state is kept, and if
        hosts have come or gone, the job is arranged anew. All ranks must call it equally often."""
        self._flush()
        self.save()
        self._look_for_hosts()

    def check_host_updates(self) -> None:
        """A commit if hosts have come or gone, else nothing is kept; but all ranks meet here."""
        self._flush()
        self._look_for_hosts()

    def _flush(self) -> None:
        # It comes first: ranks that flush keep nobody waiting who still trains. A channel that
        # another rank may not have opened yet, and where there was no round then, is left out.
        names = self._prepared | partial.channels_with_rounds()
        partial.flush_channels(names)

    def _look_for_hosts(self) -> None:
        update = HostUpdateResult.no_update
        while not self._host_messages.empty():  # type: ignore[attr-defined]
            update |= self._host_messages.get()[1]  # type: ignore[attr-defined]
        # Horovod tells rank 0 only.
        if any(_exchange.gather_json(int(update)).values()):
            self.save()
            raise HostsUpdatedInterrupt(skip_sync=False)

    def sync(self) -> None:
        """All ranks get what rank 0 has."""
        _runtime.connect()
        variables = self._variables()
        _refuse_others(variables)
        broadcast_variables(variables, root_rank=0)
        self._saved_state: dict[str, Any]
        mode, iterations, positions, attributes = _hvd.broadcast_object(
            (_runtime.chosen_mode(), data.iterations(), _positions(), self._saved_state),
            name="hvd_partial.elastic",
        )
        _runtime.adopt_mode(mode)
        data.go_to(iterations)
        _go_to(positions)
        self._saved_state = attributes
        ObjectState.restore(self)
        self._prepared = self._prepare()
        if _hvd.rank() == 0 and mode is None:
            _channels.take_up_modes()
        self._save_model()

    def on_reset(self) -> None:
        """Called after a restart. (Horovod's forgets here what it has heard of hosts meanwhile.)"""
        self.reset()  # type: ignore[attr-defined]
        for callback in self._reset_callbacks:  # type: ignore[attr-defined]
            callback()


class TensorFlowKerasState(_State, _elastic.TensorFlowKerasState):
    """State of a Keras model and its optimizer, of Keras 3 and of tf_keras.

    It holds weights and optimizer variables; the optimizer's are made here if need be, so that
    those of a worker that joins are there to get values. Attributes are kept as Horovod's state
    keeps them. Moving statistics are among the weights; the state of random generators and of
    metrics is each rank's own.

    Args:
      model: A built model.
      optimizer: By default the model's.
      backend: Horovod's; not needed.
      kwargs: More values to keep, as attributes: numbers of epoch and batch, for example.

    Raises:
      InvalidArgumentError: if the model is not built or there is no optimizer.
    """

    def __init__(
        self, model: Any, optimizer: Any = None, backend: Any = None, **kwargs: Any
    ) -> None:
        if not model.built or not model.weights:
            raise InvalidArgumentError(
                "model: is not built, so its variables do not exist yet; give it an Input, or call "
                "model.build(input_shape)"
            )
        if optimizer is None:
            optimizer = getattr(model, "optimizer", None)
        if optimizer is None:
            raise InvalidArgumentError("optimizer: give one, or call model.compile first")
        self.model = model
        self.optimizer = optimizer
        self.backend = backend
        _keras.build(optimizer, model.trainable_variables)
        self._save_model()
        ObjectState.__init__(self, bcast_object=_hvd.broadcast_object, get_rank=_hvd.rank, **kwargs)

    def _variables(self) -> list[tf.Variable]:
        weights = [_keras.raw(variable) for variable in self.model.weights]
        return _unique([*weights, *_keras.optimizer_variables(self.optimizer)])

    def _prepare(self) -> set[str]:
        state = _distributed.state_of(self.optimizer)
        if state is None:
            return set()
        if not state.variables and self.optimizer is getattr(self.model, "optimizer", None):
            state.replay.use_graph(not self.model.run_eagerly)
        state.prepare(self.model.trainable_variables)
        return {state.name}


class TensorFlowState(_State, _elastic.TensorFlowState):
    """State of a list of TensorFlow or Keras variables.

    (Horovod's broadcasts when it is made, where a worker that joins would be alone, and not when
    ranks synchronize.)

    Args:
      variables: What to keep: weights, and the optimizer's variables.
      session: Horovod's, for TensorFlow 1; must be None.
      kwargs: More values to keep, as attributes.

    Raises:
      InvalidArgumentError: if there is no variable.
    """

    def __init__(self, variables: Any = None, session: Any = None, **kwargs: Any) -> None:
        if session is not None:
            raise InvalidArgumentError("session: TensorFlow 1's sessions are not supported")
        self.variables = list(variables or [])
        if not self.variables:
            raise InvalidArgumentError(
                "variables: must be given; eager TensorFlow has no list of all variables"
            )
        self.session = None
        self._save_model()
        ObjectState.__init__(self, bcast_object=_hvd.broadcast_object, get_rank=_hvd.rank, **kwargs)

    def _variables(self) -> list[tf.Variable]:
        return _unique([_keras.raw(variable) for variable in self.variables])


def _unique(variables: Sequence[tf.Variable]) -> list[tf.Variable]:
    return list({variable.ref(): variable for variable in variables}.values())


def _positions() -> dict[str, Position]:
    return {state.name: state.position() for state in _distributed.live_states()}


def _go_to(positions: dict[str, Position]) -> None:
    for state in _distributed.live_states():
        if state.name in positions:
            state.go_to(positions[state.name])


def _refuse_others(variables: Sequence[tf.Variable]) -> None:
    """A broadcast of different variables would hang.

    Raises:
      MismatchError: on all ranks, if the ranks have different ones.
    """
    mine = [(variable.name, tuple(variable.shape), variable.dtype.name) for variable in variables]
    lists = _hvd.allgather_object(mine, name="hvd_partial.variables")
    for rank, theirs in enumerate(lists):
        kinds = [[kind for _, *kind in listed] for listed in (lists[0], theirs)]
        if kinds[0] == kinds[1]:
            continue
        pairs = zip(lists[0], theirs, strict=False)
        first = next((a, b) for a, b in [*pairs, ("no more", "no more")] if a[1:] != b[1:])
        raise MismatchError(
            f"the ranks have different variables to synchronize: rank 0 has {len(lists[0])}, rank "
            f"{rank} has {len(theirs)}; first difference: {first[0]} and {first[1]}. Make the same "
            "model and optimizer on all ranks, and all their variables before training"
        )
