# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""A rank that ends by an exception or Ctrl-C ends the job on all ranks, at once and with the cause.

Otherwise the others would wait for a rank that is never coming back, or see it die without a word.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType, TracebackType

Abort = Callable[[str], None]

_abort: Abort | None = None
_previous_hook: Callable[..., object] | None = None
_previous_descriptor = -1
_pipe: tuple[int, int] | None = None
_deferred = threading.Event()  # an interrupt that came where it cannot be raised
_lock = threading.Lock()


def install(abort: Abort) -> None:
    """Calls `abort(reason)` when this process ends by an exception or is interrupted.

    Hooks that were there before still run. The second call only changes `abort`.
    """
    global _abort, _previous_hook
    _abort = abort
    if _previous_hook is None:
        _previous_hook = sys.excepthook
        sys.excepthook = _on_exception
    if _pipe is None and threading.current_thread() is threading.main_thread():
        _watch_signals()


def forget() -> None:
    """In a forked child: its end and its signals are not those of the rank."""
    global _abort
    _abort = None
    if _pipe is not None:
        with contextlib.suppress(ValueError):  # not the main thread
            signal.set_wakeup_fd(-1)


def _on_exception(
    kind: type[BaseException], value: BaseException, traceback: TracebackType | None
) -> None:
    if _abort is not None:
        text = str(value).strip().splitlines()
        _abort(f"{kind.__name__}: {text[0]}" if text else kind.__name__)
    if _previous_hook is not None:
        _previous_hook(kind, value, traceback)


def _watch_signals() -> None:
    """Python's handler of SIGINT cannot run while the main thread waits inside a TensorFlow op; so
    a thread learns of the signal through a pipe and ends what the op waits for."""
    global _pipe, _previous_descriptor
    reader, writer = os.pipe()
    os.set_blocking(reader, True)
    os.set_blocking(writer, False)
    _pipe = (reader, writer)
    _previous_descriptor = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _on_interrupt)
    threading.Thread(target=_read_signals, name="hvd_partial-signals", daemon=True).start()


def take_deferred() -> bool:
    """Whether an interrupt has been put off; it is not due any more then."""
    with _lock:
        deferred = _deferred.is_set()
        _deferred.clear()
    return deferred


def _read_signals() -> None:
    if _pipe is None:
        return
    while True:
        received = os.read(_pipe[0], 64)
        if not received:
            return
        if _previous_descriptor >= 0:
            with contextlib.suppress(OSError):
                os.write(_previous_descriptor, received)
        # Somebody else's handler decides itself what an interrupt means.
        ours = signal.getsignal(signal.SIGINT) in (_on_interrupt, signal.default_int_handler)
        if signal.SIGINT in received and ours and _abort is not None:
            _abort("interrupted (SIGINT)")
            _deliver_deferred()


def _deliver_deferred() -> None:
    """Interrupts the main thread once it has left the place where it cannot be."""
    if not _deferred.wait(1.0):
        return
    main = threading.main_thread().ident or 0
    while _makes_an_error(sys._current_frames().get(main)):
        time.sleep(0.0005)
    if take_deferred():
        _thread.interrupt_main()


def _on_interrupt(number: int, frame: FrameType | None) -> None:
    """Python's own handler, but not while TensorFlow's C++ code makes the error of an op: what is
    raised there does not come out as KeyboardInterrupt."""
    if _makes_an_error(frame):
        _deferred.set()
    else:
        signal.default_int_handler(number, frame)


def _makes_an_error(frame: FrameType | None) -> bool:
    for _ in range(3):
        if frame is None:
            return False
        if frame.f_code.co_filename.endswith("errors_impl.py"):
            return True
        frame = frame.f_back
    return False
