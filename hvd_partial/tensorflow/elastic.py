# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Horovod's elastic training, with the engine restarted along with Horovod; see docs/elastic.md."""

from __future__ import annotations

import contextlib
import functools
import queue
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf
from horovod.common.elastic import notification_manager
from horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt
from horovod.tensorflow import elastic as _elastic
from horovod.tensorflow.elastic import *  # noqa: F403 - Horovod's own where unchanged

from hvd_partial.errors import HvdPartialError
from hvd_partial.tensorflow import _interrupts, _runtime
from hvd_partial.tensorflow._elastic_state import TensorFlowKerasState, TensorFlowState
from hvd_partial.tensorflow._errors import translate

_HOROVOD = ("HorovodAllreduce", "HorovodAllgather", "HorovodBroadcast")


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Horovod's decorator: goes on when workers are lost and when they come.

    When a worker is lost, the others go back to the last commit, and what was on its way is
    dropped. When hosts come or go, a commit notices it, and nothing is lost. Then both libraries
    start anew with the ranks that there are, rank 0 gives its state to all, and `func` is called
    again.

    Make model, optimizer and datasets outside of `func`, once, in the same order on all ranks, and
    neither train nor communicate before it: a worker that joins does none of that with the others.

    Args:
      func: Takes a state first, one of this module's.
    """

    @functools.wraps(func)
    def training(state: Any, *args: Any, **kwargs: Any) -> Any:
        notification_manager.init()
        notification_manager.register_listener(state)
        lost = False
        started = False
        try:
            while True:
                try:
                    with _recognised():
                        if started:
                            _restart(state, lost)
                        started, lost = True, False
                        # First of all, on those that join as on those that go on.
                        _runtime.connect()
                        state.sync()
                        return func(state, *args, **kwargs)
                except HorovodInternalError as error:
                    # Of ranks that wait for this one, some may not know.
                    _runtime.abort(f"it goes back to its last commit ({_first_line(error)})")
                    lost = True
                except HostsUpdatedInterrupt:
                    pass
        finally:
            notification_manager.remove_listener(state)

    return training


def _restart(state: Any, lost: bool) -> None:
    if lost:
        state.restore()
    # What is known of the hosts until now, the launcher takes into account; what it says later must
    # not get lost.
    state._host_messages = queue.Queue()
    _runtime.restart()
    state.on_reset()


@contextlib.contextmanager
def _recognised() -> Iterator[None]:
    """Raises errors of ops, of both libraries, as what they are, also those inside of graphs."""
    try:
        yield
    except tf.errors.OpError as error:
        if _interrupts.take_deferred():
            raise KeyboardInterrupt from error
        ours = translate(error)
        if isinstance(ours, HorovodInternalError):
            raise ours from error
        if isinstance(error, tf.errors.UnknownError) and any(n in str(error) for n in _HOROVOD):
            raise HorovodInternalError(str(error)) from error
        raise


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


_horovods_reset = _elastic._reset


def _refuse_half_a_restart() -> None:
    """Horovod's own `run` would restart Horovod and leave the engine with ranks that are gone."""
    if _runtime.connected():
        raise HvdPartialError(
            "the training function is wrapped by horovod's elastic.run, which does not restart "
            "hvd_partial; wrap it with hvd_partial.tensorflow.elastic.run (or "
            "hvd_partial.tensorflow.keras.elastic.run) instead"
        )
    _horovods_reset()


_elastic._reset = _refuse_half_a_restart

__all__ = ["TensorFlowKerasState", "TensorFlowState", "run"]
