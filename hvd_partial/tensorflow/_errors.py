# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""From errors of TensorFlow ops to those of hvd_partial."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import horovod.tensorflow as _hvd
import tensorflow as tf

from hvd_partial import errors
from hvd_partial.tensorflow import _interrupts

Function = TypeVar("Function", bound=Callable[..., Any])

_TEXT = re.compile(r"hvd_partial \[([A-Z_]+)\]: (.*?)(?: \(HorovodAllreduce\))?(?:\n|\Z)", re.S)
_OP = re.compile(r"\s*\[Op:\w+\] name:.*", re.S)
_CLASSES: dict[str, type[Exception]] = {
    "INVALID_ARGUMENT": errors.InvalidArgumentError,
    "MISMATCH": errors.MismatchError,
    "PEER_LOST": errors.PeerLostError,
    "ABORTED": errors.AbortedError,
    "NOT_CONNECTED": errors.NotConnectedError,
}


def translate(error: BaseException) -> Exception | None:
    """The error that an op of ours reported, or None if it was another's.

    Inside a `tf.function` the op can only raise a TensorFlow error; the class of ours is in its
    text. A lost or aborted job is also a `HorovodInternalError`, as Horovod's elastic loop wants.
    """
    found = _TEXT.search(str(error))
    if found is None or not isinstance(error, tf.errors.OpError):
        return None
    # TensorFlow adds the op's name, and an assertion in a graph has its text in quotes.
    text = _OP.sub("", found[2]).removesuffix('"')
    return _CLASSES.get(found[1], errors.HvdPartialError)(text)


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Raises errors of our ops as what they are."""
    try:
        yield
    except tf.errors.OpError as error:
        if _interrupts.take_deferred():
            raise KeyboardInterrupt from error
        ours = translate(error)
        if ours is None:
            raise
        raise ours from error


def names_rank(function: Function) -> Function:
    """A function (or constructor) whose complaints about arguments begin with this rank, once there
    is one."""

    @functools.wraps(function)
    def naming(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except errors.InvalidArgumentError as error:
            if str(error).startswith("rank ") or not _hvd.is_initialized():
                raise
            raise errors.InvalidArgumentError(f"rank {_hvd.rank()}: {error}") from None

    return naming  # type: ignore[return-value]
