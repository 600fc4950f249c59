# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""The engine's life in a Horovod process: init, connect, modes, shutdown, exit."""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import threading
from collections.abc import Callable
from typing import Any

import horovod.tensorflow as _hvd
import tensorflow as tf
from tensorflow.python.eager import context as _context

import hvd_partial.engine as _engine_module
from hvd_partial.diagnosis import Settings
from hvd_partial.errors import HvdPartialError, NotConnectedError
from hvd_partial.modes import Mode
from hvd_partial.tensorflow import _interrupts, _ops
from hvd_partial.tensorflow._errors import names_rank

# After this long without a sign of life of the others a rank that ends stops waiting for them.
SILENCE_SECONDS = 30.0

_lock = threading.RLock()
_engine: Any = None
_engines = 0  # connected so far
_mode: Mode | None = None  # set for everything
_modes_before: tuple[dict[str, str], int] = ({}, 0)  # of channels, and the size, before a restart
_on_connect: list[Callable[[Any], None]] = []


def init(*args: Any, **kwargs: Any) -> None:
    """`hvd.init()`, and the engine with it. Takes Horovod's arguments.

    The engine connects over `allgather_object`, which starts TensorFlow's runtime; but what Horovod
    users set after `init()` (visible GPUs, memory growth, threads) can only be set before that. So
    where TensorFlow does not run yet, the engine connects at its first use: when training starts,
    at the latest.
    """
    _hvd.init(*args, **kwargs)
    Settings.from_environment(_hvd.rank())  # wrong ones are said here, not when training starts
    # Handlers run in reverse order: this one before Horovod's, which `init` has just registered.
    atexit.unregister(_close_at_exit)
    atexit.register(_close_at_exit)
    _interrupts.install(abort)
    if _context.context()._initialized:
        connect()


def connect() -> Any:
    """The engine, connected now if it was not. All ranks must come here.

    Raises:
      NotConnectedError: before `init()` or after `shutdown()`.
    """
    global _engine, _engines
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
        _engines += 1
        for opened in _on_connect:
            opened(_engine)
        if _mode is not None:
            _engine.set_mode(capped(_mode, _engine.size))
        return _engine


def connected() -> bool:
    """Whether the engine runs."""
    return _engine is not None


def generation() -> int:
    """How many engines this process has had, the present one included. What all ranks have done
    together under one of them, ranks that have joined since have not."""
    return _engines


def capped(mode: Mode, size: int) -> Mode:
    """A quorum that an elastic job has ranks for: it may be smaller now than when it was written.

    In other jobs a quorum that is too large is a mistake, which the engine refuses.
    """
    elastic = os.environ.get("HOROVOD_ELASTIC") == "1"
    if elastic and mode.k is not None and mode.k > size:
        return Mode("quorum", k=size)
    return mode


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


def restart() -> None:
    """Ends both libraries and starts them again, perhaps with other ranks; the mode stays.

    All ranks must do so; those that start meanwhile call `init()` and `connect()`.
    """
    global _modes_before
    mode = _mode
    if _engine is not None:
        _modes_before = (_engine.modes(), _engine.size)
    shutdown()
    # What nobody uses any more does not open its channels anew, on no rank.
    gc.collect()
    adopt_mode(mode)
    init()
    connect()


def modes_before() -> tuple[dict[str, str], int]:
    """The modes that channels had before a restart, whichever rank had set them, and the size."""
    return _modes_before


def adopt_mode(mode: Mode | None) -> None:
    """Has the mode that the other ranks have, which have told the engine, or that the next engine
    is to have."""
    global _mode
    _mode = mode


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
            _engine.set_mode(capped(parsed, _engine.size))
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


def abort(reason: str) -> None:
    """Ends the job for the other ranks, with this reason, if there is one and it has not failed."""
    engine = _engine
    if engine is not None:
        with contextlib.suppress(HvdPartialError):  # it has just been closed
            engine.abort(reason)
