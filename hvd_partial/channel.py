# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""A channel: a named, ordered sequence of rounds over one fixed list of tensors."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any

from hvd_partial.errors import HvdPartialError, InvalidArgumentError
from hvd_partial.modes import Mode
from hvd_partial.tensors import Array, Arrays, TensorList

if TYPE_CHECKING:
    from hvd_partial import _engine


@dataclass(frozen=True, eq=False)
class RoundResult:
    """The outcome of one round, the same on every rank (but for `included`).

    Attributes:
      values: New arrays, shapes and dtypes as in `like`: the sum of all contributions, each with
        its weight, divided by `divisor`.
      round: Number of the round in its channel, from 0.
      mode: In which it was started, e.g. "quorum(3)".
      contributions: How many contributions (local gradients) are in it.
      weight: Sum of their weights; equal to `contributions` if none was late.
      divisor: 1 with average=None, size with "size", `contributions` with "contributions".
      contributors: The ranks that have at least one contribution in it.
      included: Whether this rank's own contribution, pending until then, is in it.
      skipped: How many contributions were left out because of inf or nan.
      dropped: How many contributions of excluded ranks were thrown away (late="drop").
      flush: Whether this round ended a flush.
      total_contributions: Of rounds 0 to `round`: the position in training, for schedules.
      compute_seconds: For each rank, seconds it computed before its last call.
    """

    values: list[Array]
    round: int
    mode: str
    contributions: int
    weight: float
    divisor: float
    contributors: tuple[int, ...]
    included: bool
    skipped: int
    dropped: int
    flush: bool
    total_contributions: int
    compute_seconds: tuple[float, ...]


@dataclass(frozen=True)
class ChannelStats:
    """What a channel has done so far, as this rank sees it.

    Attributes:
      rounds: Rounds published here.
      full_rounds: Of these, with at least one contribution of every rank.
      flushes: Of these, the ends of flushes.
      contributions: In them, of all ranks.
      contribution_weight: Sum of their weights.
      deposits: Contributions of this rank.
      late_deposits: Of these, how many were computed at least one round before the one they went
        into.
      skipped: Of these, how many were left out because of inf or nan.
      dropped: Of these, how many were thrown away because this rank was excluded (late="drop").
      missed: Results that were replaced before they were taken (catch_up="latest" only).
      made_without: Rounds that the others made while this process did not answer.
      deferred: Rounds without a result, because a process did not answer; what had been given to
        them is the result of a later round.
      lag: Rounds published and not applied here.
      largest_lag: The largest `lag` so far; never above max_lag with catch_up="replay".
      blocked_seconds: This rank's thread waited for results.
      deposit_seconds: This rank's thread copied contributions.
      bytes_sent: By this process, over all its channels.
      compute_seconds: For each rank, seconds it computed before its last call.
      grace_seconds: In force now; known on rank 0, None elsewhere.
      mode: Of the last round, e.g. "majority"; before the first one as opened.
      excluded: Ranks that the last round did not wait for, by `exclude`.
    """

    rounds: int
    full_rounds: int
    flushes: int
    contributions: int
    contribution_weight: float
    deposits: int
    late_deposits: int
    skipped: int
    dropped: int
    missed: int
    made_without: int
    deferred: int
    lag: int
    largest_lag: int
    blocked_seconds: float
    deposit_seconds: float
    bytes_sent: int
    compute_seconds: tuple[float, ...]
    grace_seconds: float | None
    mode: str
    excluded: tuple[int, ...]


class Channel:
    """Made by `Engine.channel`. Its calls belong to one thread at a time.

    As a context manager it leaves the channel in the end.
    """

    def __init__(
        self,
        native: _engine.Channel,
        name: str,
        tensors: TensorList,
        rank: int,
        size: int,
        bytes_sent: Callable[[], int],
    ) -> None:
        self._native = native
        self._name = name
        self._tensors = tensors
        self._rank = rank
        self._size = size
        self._bytes_sent = bytes_sent
        self._flushing = False
        self._drained: list[RoundResult] = []

    @property
    def name(self) -> str:
        return self._name

    @property
    def mode(self) -> str:
        """Of the last round, e.g. "majority"; before the first one as opened."""
        return str(Mode.from_native(*self._native.stats()["mode"]))

    def allreduce(self, arrays: Arrays) -> list[RoundResult]:
        """Contributes `arrays`, and returns the results to apply now, oldest first.

        Never waits if results are there already: those are returned at once. Else it blocks until
        the next round is complete, which the mode decides. It may or may not include this rank's
        contribution; what is not included goes into the next round.

        Args:
          arrays: Of the shapes and dtypes of `like`, in its order (or by its names, if it was a
            mapping). They are copied before this returns.

        Returns:
          At least one result. (Empty only if the round had no contribution at all because those
          of all its ranks were left out for inf or nan.)

        Raises:
          InvalidArgumentError: if `arrays` do not fit; nothing was contributed then.
          MismatchError: if the ranks disagree about this channel.
          PeerLostError, AbortedError: if the job has failed.
          NotConnectedError: after `close()`.
          KeyboardInterrupt: on Ctrl-C while it waits; the contribution stays.
        """
        try:
            fitted = self._tensors.fitted(arrays)
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"{self._where()}allreduce: {error}") from None
        self._native.deposit(fitted)
        available, _ = self._native.wait()
        return self._take(available)

    def flush(self) -> list[RoundResult]:
        """Meets all ranks that have not left, and returns everything that is not applied yet.

        Afterwards all ranks have had the same results, and no contribution is pending anywhere.
        All ranks must call it, however many allreduce calls each of them made before.

        Returns:
          Results in order; empty if there was nothing. If Ctrl-C interrupts it, call it again: it
          goes on, and nothing is lost.

        Raises:
          As `allreduce`.
        """
        if not self._flushing:
            self._native.begin_flush()
            self._flushing = True
        flushed = False
        while not flushed:
            available, flushed = self._native.wait()
            # Room in the ring, so that the rounds that are still to come can end.
            self._drained += self._take(available)
        self._flushing = False
        results, self._drained = self._drained, []
        return results

    def leave(self) -> None:
        """This rank is done with the channel; the others go on without waiting for it.

        What it still holds goes into the next round, if there is one: when all ranks leave, nobody
        is left to apply it. `flush` first where it matters. It cannot come back.

        Raises:
          NotConnectedError: after `close()`.
        """
        self._native.leave()

    def set_mode(self, mode: str | Mode) -> None:
        """Changes the mode, from one round on that is the same on every rank.

        One rank's call is enough.

        Args:
          mode: "sync", "majority", "solo", "quorum(k)", "designated(seed)", "async" or a Mode.

        Raises:
          InvalidArgumentError: if there is no such mode, or k is out of range.
          PeerLostError, AbortedError: if the job has failed.
          NotConnectedError: after `close()`.
        """
        try:
            parsed = Mode.parse(mode, self._size)
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"{self._where()}{error}") from None
        self._native.set_mode(*parsed.to_native())

    def exclude(self, ranks: Iterable[int], late: str = "count") -> None:
        """Has rounds wait for these ranks no longer, from one round on, the same on every rank.

        One rank's call is enough, also for itself. The ranks stay members: they get all results,
        and the bound `max_lag` holds for them too. If nobody else is left (the others have left the
        channel), rounds wait for them again.

        Args:
          ranks: All that are to be excluded from now on; none of them to wait for all again.
          late: What becomes of their contributions: "count": each goes into the round that it comes
            for, with the weight of a late one; "drop": it goes into none, and is counted
            (`ChannelStats.dropped`). Then the sum of all results is that of all contributions that
            were not dropped.

        Raises:
          InvalidArgumentError: if there is no such rank, or all are named.
          PeerLostError, AbortedError: if the job has failed.
          NotConnectedError: after `close()`.
        """
        self._native.exclude(self._ranks(ranks), self._drop(late))

    def decide(
        self,
        number: int,
        mode: str | Mode,
        excluded: Iterable[int] = (),
        late: str = "count",
    ) -> None:
        """Sets mode and exclusions together, for a decision that every rank makes alike.

        Each rank calls it when it has seen what the decision follows from. The first call that
        arrives is in force from the next round on; calls of the same or a smaller number, of ranks
        that are behind, are not.

        Args:
          number: Of the decision, from 1, growing; e.g. the number of the round that it follows.
          mode, excluded, late: See `set_mode` and `exclude`.

        Raises:
          As `exclude`.
        """
        if isinstance(number, bool) or not isinstance(number, int) or number < 1:
            raise InvalidArgumentError(
                f"{self._where()}number={number!r}: must be a whole number from 1"
            )
        try:
            parsed = Mode.parse(mode, self._size)
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"{self._where()}{error}") from None
        ranks = self._ranks(excluded, "excluded")
        self._native.decide(number, parsed.to_native(), ranks, self._drop(late))

    def stats(self) -> ChannelStats:
        """What the channel has done so far.

        Raises:
          NotConnectedError: after `close()`.
        """
        facts = self._native.stats()
        mode = str(Mode.from_native(*facts.pop("mode")))
        grace = facts.pop("grace_seconds")
        excluded = facts.pop("excluded")
        return ChannelStats(
            bytes_sent=self._bytes_sent(),
            compute_seconds=tuple(facts.pop("compute_seconds")),
            grace_seconds=grace if grace >= 0 else None,
            mode=mode,
            excluded=tuple(rank for rank, flag in enumerate(excluded) if flag),
            **facts,
        )

    def __enter__(self) -> Channel:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            self.leave()
        else:
            # What happened in the body matters more than what leaving says about it.
            with contextlib.suppress(HvdPartialError):
                self.leave()

    def _take(self, available: int) -> list[RoundResult]:
        results = []
        for index in range(available):
            values = self._tensors.empty()
            facts = self._native.header(index)
            self._native.read(index, values)
            results.append(_result(values, facts))
        if available:
            self._native.release(available)
        return results

    def _ranks(self, ranks: Iterable[int], argument: str = "ranks") -> list[int]:
        try:
            found = sorted({operator.index(rank) for rank in ranks})
        except TypeError:
            raise InvalidArgumentError(
                f"{self._where()}{argument}={ranks!r}: must be a list of ranks, e.g. [3]"
            ) from None
        if any(not 0 <= rank < self._size for rank in found):
            raise InvalidArgumentError(
                f"{self._where()}{argument}={found}: ranks are 0 to {self._size - 1}"
            )
        return found

    def _drop(self, late: str) -> bool:
        if late not in ("count", "drop"):
            raise InvalidArgumentError(f"{self._where()}late={late!r}: must be 'count' or 'drop'")
        return late == "drop"

    def _where(self) -> str:
        return f"rank {self._rank}, channel {self._name!r}: "


def _result(values: list[Array], facts: dict[str, Any]) -> RoundResult:
    contributions_of = facts.pop("contributions_of")
    dropped = sum(facts.pop("dropped_of"))
    return RoundResult(
        values=values,
        mode=str(Mode.from_native(*facts.pop("mode"))),
        contributors=tuple(rank for rank, count in enumerate(contributions_of) if count > 0),
        compute_seconds=tuple(facts.pop("compute_seconds")),
        dropped=dropped,
        **facts,
    )
