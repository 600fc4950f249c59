# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Which channels there are, so that they open anew after shutdown() and init().

Traced graphs name their channels; what a name means stands here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from hvd_partial import arguments, policy
from hvd_partial.errors import HvdPartialError, InvalidArgumentError
from hvd_partial.modes import Mode
from hvd_partial.tensorflow import _ops, _runtime

Staleness = str | Callable[[int], float]


@dataclass(frozen=True)
class TensorSpec:
    """One tensor of a channel."""

    name: str
    shape: tuple[int, ...]
    dtype: tf.DType

    def array(self) -> np.ndarray[Any, Any]:
        """An array of this shape and dtype that occupies no memory."""
        return np.broadcast_to(np.zeros((), self.dtype.as_numpy_dtype), self.shape)


@dataclass(frozen=True)
class Options:
    """What the ranks must agree in, besides the tensors.

    Attributes:
      mode: Which ranks a round waits for, e.g. "majority"; see `hvd_partial.modes.Mode`.
      average: "size", "contributions" or None, what the sum is divided by.
      staleness: "inverse", "inverse_squared", "full" or a function of the rounds late.
      grace: Seconds that a round with its quorum waits for the rest, or "auto".
      max_lag: Results that may wait to be applied.
      catch_up: "replay" or "latest".
      skip_nonfinite: Leave out contributions with inf or nan.
    """

    mode: str | Mode = "majority"
    average: str | None = "size"
    staleness: Staleness = "inverse"
    grace: str | float = "auto"
    max_lag: int = 8
    catch_up: str = "replay"
    skip_nonfinite: bool = True

    def __post_init__(self) -> None:
        Mode.parse(self.mode)
        policy.average_code(self.average)
        policy.catch_up_code(self.catch_up)
        policy.grace_seconds(self.grace)
        policy.staleness_weights(self.staleness, policy.checked_max_lag(self.max_lag))
        arguments.flag("skip_nonfinite", self.skip_nonfinite)


@dataclass
class Channel:
    """A channel as this process knows it, connected or not."""

    name: str
    tensors: tuple[TensorSpec, ...]
    options: Options
    on_open: list[Callable[[], None]] = field(default_factory=list)

    @property
    def shapes(self) -> list[tf.TensorShape]:
        return [tf.TensorShape(tensor.shape) for tensor in self.tensors]

    @property
    def dtypes(self) -> list[tf.DType]:
        return [tensor.dtype for tensor in self.tensors]

    @property
    def latest(self) -> bool:
        return self.options.catch_up == "latest"

    def engine_channel(self) -> Any:
        """The engine's own object, for stats and modes."""
        return _open(_runtime.connect(), self)


_channels: dict[str, Channel] = {}
# What exclude() was last called with here, for all channels; None: never.
_excluded: tuple[tuple[int, ...], str] | None = None


def open_channel(name: str, tensors: Sequence[TensorSpec], options: Options) -> Channel:
    """Opens a channel, or gives the one that was opened with the same tensors and options.

    Raises:
      InvalidArgumentError: if the name is taken by another one, or a dtype cannot be sent.
      NotConnectedError: before `init()`.
    """
    for tensor in tensors:
        if tensor.dtype not in _ops.DTYPES:
            known = ", ".join(dtype.name for dtype in _ops.DTYPES)
            raise InvalidArgumentError(
                f"channel {name!r}: {tensor.name} is {tensor.dtype.name}; what can be reduced is "
                f"{known}"
            )
    wanted = Channel(name, tuple(tensors), options)
    known_channel = _channels.get(name)
    if known_channel is None:
        _open(_runtime.connect(), wanted)
        _channels[name] = wanted
        if _excluded is not None:
            wanted.engine_channel().exclude(*_excluded)
        return wanted
    if (known_channel.tensors, known_channel.options) != (wanted.tensors, wanted.options):
        raise InvalidArgumentError(
            f"channel {name!r} is open already, with other tensors or options; give this one "
            f"another name"
        )
    _runtime.connect()
    return known_channel


def find(name: str) -> Channel | None:
    """The channel of that name, if this process has opened it."""
    return _channels.get(name)


def leave(name: str) -> None:
    """This rank is done with a channel; the others go on without it. The name cannot be used again
    while the engine lives."""
    channel = _channels.pop(name, None)
    if channel is not None and _runtime.connected():
        with contextlib.suppress(HvdPartialError):  # of a job that has failed
            channel.engine_channel().leave()


def exclude(ranks: Sequence[int], late: str, only: Channel | None) -> None:
    """For one channel, or for all, those opened later included."""
    global _excluded
    for channel in all_channels() if only is None else [only]:
        channel.engine_channel().exclude(ranks, late)
    if only is None:
        _excluded = (tuple(ranks), late)


def all_channels() -> list[Channel]:
    """In the order in which they were opened."""
    return list(_channels.values())


def take_up_modes() -> None:
    """Sets the modes that were in force before a restart, where they had been changed: a rank that
    is gone may have done it. One rank's call is enough."""
    modes, size = _runtime.modes_before()
    engine = _runtime.connect()
    for channel in _channels.values():
        mode = modes.get(channel.name)
        opened = _runtime.capped(Mode.parse(channel.options.mode), size)
        if mode is not None and mode != str(opened):
            now = _runtime.capped(Mode.parse(mode), engine.size)
            channel.engine_channel().set_mode(now)


def _open(engine: Any, channel: Channel) -> Any:
    options = channel.options
    return engine.channel(
        channel.name,
        [tensor.array() for tensor in channel.tensors],
        mode=_runtime.capped(Mode.parse(options.mode), engine.size),
        average=options.average,
        staleness=options.staleness,
        grace=options.grace,
        max_lag=options.max_lag,
        catch_up=options.catch_up,
        skip_nonfinite=options.skip_nonfinite,
        names=[tensor.name for tensor in channel.tensors],
    )


def _reopen(engine: Any) -> None:
    global _excluded
    _excluded = None  # ranks may be others now
    for channel in _channels.values():
        _open(engine, channel)
        for action in channel.on_open:
            action()


_runtime.on_connect(_reopen)
