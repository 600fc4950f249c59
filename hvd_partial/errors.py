# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""What can go wrong. Every message names the rank and, where there is one, channel and round."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    _HorovodInternalError = RuntimeError
else:
    try:
        # A light module: it does not import TensorFlow.
        from horovod.common.exceptions import HorovodInternalError as _HorovodInternalError
    except ImportError:
        _HorovodInternalError = RuntimeError


class HvdPartialError(RuntimeError):
    """The base of all errors of this package."""

    # AutoGraph passes on an error with its class only if it is made like this.
    __init__ = Exception.__init__


class InvalidArgumentError(HvdPartialError, ValueError):
    """An argument of this rank's call is wrong; nothing was sent, and the other ranks go on."""


class MismatchError(HvdPartialError, ValueError):
    """The ranks disagree about a channel: its tensors or its options. Every rank gets it."""


class NotConnectedError(HvdPartialError):
    """Used before `connect()` (or `init()`), or after `close()` (or `shutdown()`)."""


class PeerLostError(HvdPartialError, _HorovodInternalError):
    """A rank's process died.

    Also a `HorovodInternalError` where Horovod is installed, which its elastic loop catches.
    """


class AbortedError(HvdPartialError, _HorovodInternalError):
    """A rank gave up and said why; the message has its reason.

    Also a `HorovodInternalError` where Horovod is installed, which its elastic loop catches.
    """


# By the codes of hvdp_status in native/capi/hvd_partial.h. The others are plain HvdPartialErrors:
# a time limit of the engine's, a failure of the transport, a bug.
_CLASSES: dict[int, type[HvdPartialError]] = {
    1: InvalidArgumentError,
    2: MismatchError,
    3: PeerLostError,
    4: AbortedError,
    5: NotConnectedError,
}


def from_status(code: int, message: str) -> HvdPartialError:
    """The error for a status of the engine that is not 0."""
    return _CLASSES.get(code, HvdPartialError)(message)
