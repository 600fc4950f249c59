# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""The engine's life in a Horovod process: init, connect, modes, shutdown, exit."""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
from collections.abc import Callable
from typing import Any

import horovod.tensorflow as _hvd
import tensorflow as tf
from tensorflow.python.eager import context as _context

import hvd_partial.engine as _engine_module
from hvd_partial.errors import HvdPartialError, NotConnectedError
from hvd_partial.modes import Mode
from hvd_partial.tensorflow import _interrupts, _ops
from hvd_partial.tensorflow._errors import names_rank

# After this long without a sign of life of the others a rank that ends stops waiting for them.
SILENCE_SECONDS = 30.0

_lock = threading.RLock()
_engine: Any = None
_mode: Mode | None = None  # set for everything
_on_connect: list[Callable[[Any], None]] = []


def init(*args: Any, **kwargs: Any) -> None:
    """`hvd.init()`, and the engine with it. Takes Horovod's arguments.

    The engine connects over `allgather_object`, which starts TensorFlow's runtime; but what Horovod
    users set after `init()` (visible GPUs, memory growth, threads) can only be set before that. So
    where TensorFlow does not run yet, the engine connects at its first use: when training starts,
    at the latest.
    """
    _hvd.init(*args, **kwargs)
    # Handlers run in reverse order: this one before Horovod's, which `init` has just registered.
    atexit.unregister(_close_at_exit)
    atexit.register(_close_at_exit)
    _interrupts.install(_abort)
    if _context.context()._initialized:
        connect()


def connect() -> Any:
    """The engine, connected now if it was not. All ranks must come here.

    Raises:
      NotConnectedError: before `init()` or after `shutdown()`.
    """
    global _engine
    with _lock:
        if _engine is not None:
            return _engine
        if not _hvd.is_initialized():
            raise NotConnectedError(
                "hvd_partial is not initialized: call hvd_partial.tensorflow.init() first, and "
                "nothing after shutdown()"
            )

        def exchange(address: bytes) -> list[bytes]:
            # Also from inside a tf.function that is being traced.
            with tf.init_scope():
                return _hvd.allgather_object(address, name="hvd_partial.addresses")

        _ops.reset()
        _engine = _engine_module.connect(_hvd.rank(), _hvd.size(), exchange)
        for opened in _on_connect:
            opened(_engine)
        if _mode is not None:
            _engine.set_mode(_mode)
        return _engine


def connected() -> bool:
    """Whether the engine runs."""
    return _engine is not None


def on_connect(action: Callable[[Any], None]) -> None:
    """Calls `action(engine)` after each connect; channels are opened anew that way."""
    _on_connect.append(action)


def shutdown() -> None:
    """Leaves all channels, waits until the other ranks do so too, and ends Horovod.

    While the others still train they go on, and this rank waits for them: Horovod ends for all when
    it ends for one.
    """
    _close()
    _hvd.shutdown()


@names_rank
def set_mode(mode: str | Mode) -> None:
    """Sets the mode of everything: "sync", "majority", "solo", "quorum(k)", "designated(seed)",
    "async".

    One rank's call is enough. The change is in force from one round on, the same on all ranks, and
    holds for channels opened later too. It causes no retracing.

    Raises:
      InvalidArgumentError: if there is no such mode.
    """
    global _mode
    parsed = Mode.parse(mode, _hvd.size() if _hvd.is_initialized() else None)
    with _lock:
        if _engine is not None:
            _engine.set_mode(parsed)
        elif not _hvd.is_initialized():
            raise NotConnectedError("set_mode: call hvd_partial.tensorflow.init() first")
        _mode = parsed


def chosen_mode() -> Mode | None:
    """What set_mode() was last called with here."""
    return _mode


def _close() -> None:
    global _engine, _mode
    with _lock:
        engine, _engine, _mode = _engine, None, None
    if engine is not None:
        engine.close(SILENCE_SECONDS)


def _close_at_exit() -> None:
    _close()


def _forget() -> None:
    global _engine
    _engine = None  # its thread is the parent's
    _interrupts.forget()


os.register_at_fork(after_in_child=_forget)


def _abort(reason: str) -> None:
    engine = _engine
    if engine is not None:
        with contextlib.suppress(HvdPartialError):  # it has just been closed
            engine.abort(reason)
