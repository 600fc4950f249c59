# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Partial allreduce of numpy arrays, without TensorFlow and Horovod.

    engine = connect(rank, size, exchange)
    channel = engine.channel("gradients", like=[w, b], mode="majority")
    for result in channel.allreduce([dw, db]):
        w -= rate * result.values[0]
        ...
    engine.close()

`exchange` is any allgather of bytes. There is one engine in a process.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType

from hvd_partial import _native, arguments, diagnosis, policy
from hvd_partial.channel import Channel, ChannelStats, RoundResult
from hvd_partial.errors import (
    AbortedError,
    HvdPartialError,
    InvalidArgumentError,
    PeerLostError,
)
from hvd_partial.modes import Mode
from hvd_partial.tensors import Arrays, TensorList

__all__ = [
    "Channel",
    "ChannelStats",
    "Engine",
    "EngineStats",
    "RoundResult",
    "connect",
    "transports",
]

_engine = _native.load()

# A rank that ends waits this long for a sign of life of the others.
SILENCE_SECONDS = 30.0


@dataclass(frozen=True)
class EngineStats:
    """What this process has sent and received over all channels.

    Attributes:
      control_messages_sent: Calls, activations and the like; at most some hundred bytes each.
      bytes_sent: Of tensors.
      bytes_received: Of tensors.
      rounds: Completed here.
    """

    control_messages_sent: int
    bytes_sent: int
    bytes_received: int
    rounds: int


def transports() -> list[str]:
    """What UCX can send over on this machine, e.g. ["bulk cma/memory", "control tcp/eth0"]."""
    return _engine.transports()


def connect(rank: int, size: int, exchange: Callable[[bytes], list[bytes]]) -> Engine:
    """Connects this process with the others; all of them call it.

    Args:
      rank: Of this process, 0 to size - 1.
      size: Number of processes.
      exchange: Any allgather: called once, with this rank's address; returns the addresses of all
        ranks, in their order. Rank 0's holds the secret that keeps strangers out of the job: it
        must not go through what others can read.

    Raises:
      InvalidArgumentError: if an argument or an environment variable is wrong, the exchange mixed
        the ranks up, or the process is connected already.
      HvdPartialError: if the other ranks cannot be reached.
    """
    for name, value in (("rank", rank), ("size", size)):
        if isinstance(value, bool) or not isinstance(value, int):
            raise InvalidArgumentError(f"connect: {name}={value!r} must be a whole number")
    if not 0 <= rank < size:
        raise InvalidArgumentError(
            f"connect: rank={rank} of size={size}: rank must be 0 to size - 1"
        )
    if not callable(exchange):
        raise InvalidArgumentError(
            f"connect: rank {rank}: exchange={exchange!r}: must be a function that takes this "
            f"rank's bytes and returns those of all ranks, in their order"
        )
    settings = diagnosis.Settings.from_environment(rank)
    address = _engine.open_engine(rank, size)
    addresses = list(exchange(address))
    if len(addresses) != size:
        raise InvalidArgumentError(
            f"connect: rank {rank}: exchange returned {len(addresses)} addresses for {size} ranks; "
            f"it must return what every rank passed in, in the order of ranks"
        )
    for other, item in enumerate(addresses):
        if not isinstance(item, bytes | bytearray | memoryview):
            raise InvalidArgumentError(
                f"connect: rank {rank}: exchange returned {type(item).__name__} for rank {other}, "
                f"not bytes; it must return what every rank passed in"
            )
    if addresses[rank] != address:
        raise InvalidArgumentError(
            f"connect: rank {rank}: exchange returned something else for rank {rank} than what it "
            f"was given; its result must be in the order of ranks"
        )
    _engine.set_diagnosis(
        settings.stall_warning_seconds,
        settings.flight_directory,
        diagnosis.versions(),
        settings.flight_signal,
    )
    _engine.set_leave_out(settings.leave_out_seconds)
    _engine.connect_engine([bytes(item) for item in addresses])
    return Engine(rank, size, diagnosis.Speaker(_engine, rank, settings))


class Engine:
    """Made by `connect`. As a context manager it closes in the end, or aborts on an exception."""

    def __init__(self, rank: int, size: int, speaker: diagnosis.Speaker) -> None:
        self._rank = rank
        self._size = size
        self._speaker = speaker
        self._closed = False
        self._channels: dict[int, Channel] = {}
        self._process = os.getpid()
        atexit.register(self._close_at_exit)

    @property
    def rank(self) -> int:
        return self._rank

    @property
    def size(self) -> int:
        return self._size

    def channel(
        self,
        name: str,
        like: Arrays,
        mode: str | Mode = "majority",
        average: str | None = "size",
        staleness: policy.Staleness = "inverse",
        grace: str | float = "auto",
        max_lag: int = 8,
        catch_up: str = "replay",
        *,
        skip_nonfinite: bool = True,
        names: Sequence[str] | None = None,
        process_set: object = None,
    ) -> Channel:
        """Opens a channel. Does not wait for the other ranks, which open it too, in any order.

        Args:
          name: The same on all ranks.
          like: Arrays of the shapes and dtypes to reduce (float16, float32, float64, bfloat16,
            int32, int64; values are not looked at), or a mapping of names to arrays.
          mode: Which ranks a round waits for: "sync" (all), "majority" (half of them), "solo" (any
            one), "quorum(k)", "designated(seed)" (one that is drawn for each round) or "async" (as
            solo, with full weights and without grace).
          average: What the sum is divided by: "size" (number of ranks), "contributions" (of the
            round), or None.
          staleness: Weight of a contribution that is tau rounds late: "inverse" (1 / (1 + tau)),
            "inverse_squared", "full" (1), or a function of tau that returns 0 to 1.
          grace: Seconds that a round which has its quorum waits for the other ranks, or "auto":
            learned in majority and quorum, 0 in the other modes.
          max_lag: Results that may wait to be applied on a rank, at least 1; when there are as
            many, the others wait for it. Memory: max_lag + 3 times the size of the tensors.
          catch_up: "replay": a late rank gets every result, so that replicas stay equal; "latest":
            only the newest.
          skip_nonfinite: Leave out (and count) contributions with inf or nan.
          names: Of the tensors, for messages; default: numbers, or the mapping's keys.
          process_set: Not supported yet.

        Returns:
          The channel; the same one if it was opened before with the same arguments.

        Raises:
          InvalidArgumentError: if an argument is wrong, or the name is taken by another channel.
          NotConnectedError: after `close()`.
        """
        if not isinstance(name, str) or not name or "\0" in name:
            raise InvalidArgumentError(
                f"rank {self._rank}: channel: name={name!r} must be a text that is not empty"
            )
        try:
            policy.check_process_set(process_set)
            parsed = Mode.parse(mode, self._size)
            tensors = TensorList(like, names)
            lag = policy.checked_max_lag(max_lag)
            weights = policy.staleness_weights(staleness, lag)
            average_code = policy.average_code(average)
            policy.check_integers(tensors.integer_names, average, weights)
            native = _engine.Channel(
                name=name,
                element_counts=[spec.elements for spec in tensors.specs],
                dtypes=[spec.code for spec in tensors.specs],
                signature=tensors.signature,
                mode=parsed.to_native(),
                average=average_code,
                catch_up=policy.catch_up_code(catch_up),
                max_lag=lag,
                staleness_weights=weights,
                grace_seconds=policy.grace_seconds(grace),
                skip_nonfinite=arguments.flag("skip_nonfinite", skip_nonfinite),
            )
        except InvalidArgumentError as error:
            text = str(error)
            if not text.startswith("rank "):
                text = f"rank {self._rank}, channel {name!r}: {text}"
            raise InvalidArgumentError(text) from None
        known = self._channels.get(native.handle)
        if known is None:
            known = Channel(
                native, name, tensors, self._rank, self._size, lambda: self.stats().bytes_sent
            )
            self._channels[native.handle] = known
        return known

    def set_mode(self, mode: str | Mode) -> None:
        """Changes the mode of all channels, present and future, as `Channel.set_mode` does.

        Raises:
          InvalidArgumentError: if there is no such mode, or k is out of range.
          NotConnectedError: after `close()`.
        """
        _engine.set_mode_all(*Mode.parse(mode, self._size, self._rank).to_native())

    def modes(self) -> dict[str, str]:
        """Of each channel by its name: the mode of the last round, or as opened. Works after a
        failure, too."""
        return {channel.name: channel.mode for channel in self._channels.values()}

    def stats(self) -> EngineStats:
        """What this process has sent and received.

        Raises:
          NotConnectedError: after `close()`.
        """
        return EngineStats(**_engine.engine_stats())

    def write_flight_record(self, reason: str = "asked for") -> str | None:
        """Writes what this rank did last, and its present state, to a file.

        `python -m hvd_partial explain` makes one story of the files of several ranks.

        Args:
          reason: Stands in the record.

        Returns:
          The file's path; None if it could not be written (a line in the log says why).

        Raises:
          NotConnectedError: after `close()`.
        """
        return _engine.write_flight_record(str(reason)) or None

    def abort(self, reason: str) -> None:
        """Ends the job: waiting and later calls on every rank raise `AbortedError`.

        Args:
          reason: What the message says, after "rank N ended the job: ".

        Raises:
          NotConnectedError: after `close()`.
        """
        _engine.abort(str(reason))

    def close(self, silence_seconds: float = SILENCE_SECONDS) -> None:
        """Leaves all channels and waits until the other ranks close too.

        While they still make rounds it waits for them. It ends at once if the job has failed, and
        after `silence_seconds` without a sign of life of the others. A second call does nothing.

        Raises:
          InvalidArgumentError: if `silence_seconds` is not a number of seconds.
          KeyboardInterrupt: on Ctrl-C while it waits; the job is aborted then.
        """
        try:
            seconds = arguments.number("silence_seconds", silence_seconds, least=0.0)
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"rank {self._rank}: close: {error}") from None
        if self._closed:
            return
        self._closed = True
        atexit.unregister(self._close_at_exit)
        try:
            _engine.close_engine(seconds)
        finally:
            self._speaker.finish()

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._finish(error)

    def _close_at_exit(self) -> None:
        # A forked child has no progress thread, and the engine is not its own.
        if os.getpid() != self._process:
            return
        # In an interactive session an error is not the end.
        error = None
        if not hasattr(sys, "ps1"):
            error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
        with contextlib.suppress(HvdPartialError):
            self._finish(error)

    def _finish(self, error: BaseException | None) -> None:
        failed = isinstance(error, Exception | KeyboardInterrupt)
        if failed and not isinstance(error, AbortedError | PeerLostError):
            # The others would wait for this rank; they learn why they need not.
            with contextlib.suppress(HvdPartialError):
                self.abort(f"{type(error).__name__}: {error}".rstrip(": "))
        if failed:
            with contextlib.suppress(HvdPartialError):
                self.close()
        else:
            self.close()
