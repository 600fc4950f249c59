# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""What is going on, for people and programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hvd_partial import arguments
from hvd_partial.errors import InvalidArgumentError
from hvd_partial.modes import Mode
from hvd_partial.tensorflow import _channels, _distributed, _keras, _runtime
from hvd_partial.tensorflow._errors import names_rank
from hvd_partial.tensorflow.partial import loop_name


def _channel(optimizer: Any) -> _channels.Channel | None:
    """Of a distributed optimizer, or of any channel by its name; by default of the optimizer that
    was made last, else of the channel that was opened first."""
    if isinstance(optimizer, str):
        for name in (optimizer, f"optimizer/{optimizer}", f"loop/{optimizer}"):
            found = _channels.find(name)
            if found is not None:
                return found
        known = ", ".join(repr(channel.name) for channel in _channels.all_channels()) or "none"
        raise InvalidArgumentError(
            f"optimizer={optimizer!r}: no channel of that name; open: {known}"
        )
    if optimizer is None:
        state = _distributed.newest_state()
        if state is not None and state.replay.channel is not None:
            return state.replay.channel
        channels = _channels.all_channels()
        return channels[0] if channels else None
    state = _distributed.state_of(optimizer) if _keras.flavour(optimizer) is not None else None
    if state is not None:
        return state.replay.channel
    loop = loop_name(optimizer)
    if loop is None:
        raise InvalidArgumentError(
            f"optimizer={optimizer!r}: must be a DistributedOptimizer of hvd_partial, one that "
            "apply() was called with, or a channel's name"
        )
    return _channels.find(f"loop/{loop}")


@names_rank
def mode(optimizer: Any = None) -> Mode:
    """The mode in force: of the last round that this rank has seen, or as opened if there was none.

    Args:
      optimizer: A distributed optimizer or a channel's name; by default the optimizer that was made
        last. Before there is any channel: what `set_mode` was called with, or "majority".
    """
    channel = _channel(optimizer)
    if channel is None or not _runtime.connected():
        state = _distributed.newest_state()
        chosen = _runtime.chosen_mode()
        if chosen is not None:
            return chosen
        return Mode.parse("majority" if state is None else state.settings.options.mode)
    return Mode.parse(channel.engine_channel().stats().mode)


@names_rank
def exclude(ranks: Sequence[int], late: str = "count", optimizer: Any = None) -> None:
    """Has rounds wait for these ranks no longer, whatever the mode; none of them: for all again.

    One rank's call is enough. It is in force from one round on, the same on all ranks. Excluded
    ranks stay: they get and apply all results, and the others wait for one that is `max_lag` rounds
    behind.

    Args:
      ranks: All that are excluded from now on.
      late: What becomes of their contributions: "count": each goes into the round that it comes
        for, with the weight of a late one; "drop": into none.
      optimizer: A distributed optimizer or a channel's name; by default all channels, also those
        that this rank opens later.

    Raises:
      InvalidArgumentError: if there is no such rank, or all are named.
      NotConnectedError: before `init()`.
    """
    if late not in ("count", "drop"):
        raise arguments.wrong("late", late, "'count' or 'drop'")
    size = _runtime.connect().size
    excluded = [
        arguments.whole("ranks", rank, least=0, most=size - 1)
        for rank in arguments.listed("ranks", ranks, "ranks")
    ]
    if len(set(excluded)) == size:
        raise InvalidArgumentError(f"ranks={excluded}: all of them; leave one that rounds wait for")
    only = None
    if optimizer is not None:
        only = _channel(optimizer)
        if only is None:
            raise InvalidArgumentError("exclude: the optimizer has no channel yet; train first")
    _channels.exclude(excluded, late, only)


@names_rank
def stats(optimizer: Any = None) -> Any:
    """Counters of a channel: rounds, contributions, deposits, lag, seconds blocked, seconds that
    each rank computed before its last call; see `hvd_partial.engine`.

    Args:
      optimizer: A distributed optimizer or a channel's name; by default the optimizer that was made
        last.

    Raises:
      InvalidArgumentError: if nothing has been trained yet.
    """
    channel = _channel(optimizer)
    if channel is None:
        raise InvalidArgumentError("stats: there is no channel yet; train first")
    return channel.engine_channel().stats()
