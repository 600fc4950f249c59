# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Partial reductions for custom training loops."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import tensorflow as tf

from hvd_partial import arguments
from hvd_partial.errors import InvalidArgumentError
from hvd_partial.modes import Mode
from hvd_partial.tensorflow import _channels, _distributed, _keras, _ops, _replay
from hvd_partial.tensorflow._channels import Options, Staleness, TensorSpec
from hvd_partial.tensorflow._errors import names_rank, translated
from hvd_partial.tensorflow._reduced import refuse_reduced
from hvd_partial.tensorflow._replay import Replay, refuse_xla

Update = Callable[[list[Any], list[Any]], object]


class Reduced(list):  # type: ignore[type-arg]
    """The reduced tensors, a list, with what is known of them; each fact a scalar (tensor).

    Attributes:
      rounds: Results that are in it: 1, or more if this rank was late; int32. 0: all contributions
        of the round were left out as not finite, and the tensors are zeros.
      contributions: Of all ranks, in those rounds.
      own: Contributions of this rank in them. 0: this rank's came too late and goes into a later
        round.
      weight: Sum of the contributions' weights.
      last_round: Number of the newest of these rounds.
    """

    rounds: Any
    contributions: Any
    own: Any
    weight: Any
    last_round: Any


@names_rank
def partial_allreduce(
    tensors: Sequence[Any],
    name: str,
    mode: str | Mode = "majority",
    *,
    combine: str = "sum",
    catch_up: str = "replay",
    max_lag: int = 8,
    average: str | None = "size",
    staleness: Staleness = "inverse",
    grace: str | float = "auto",
    skip_nonfinite: bool = True,
) -> Reduced:
    """Reduces tensors over the ranks that are there in time.

    The results of all rounds that wait for this rank are combined into one. To apply them one by
    one, as replicas that stay equal need, use a distributed optimizer or `apply`.

    Args:
      tensors: A list of dense tensors or IndexedSlices (made dense), of the same shapes and dtypes
        on all ranks and in all calls: float32, float64, float16, bfloat16, int32 or int64.
      name: The channel's; the same on all ranks, another for every other list of tensors.
      mode: Which ranks a round waits for, when the channel is opened; later `set_mode` changes it.
      combine: "sum" adds the results up: right for gradients, of which none may get lost; "latest"
        takes the newest: right for measurements.
      catch_up, max_lag, average, staleness, grace, skip_nonfinite: As DistributedOptimizer's.
        Integers need average=None and staleness="full".

    Returns:
      The reduced tensors, with facts; works in a tf.function as well. Without gradient.

    Raises:
      NotConnectedError: before `init()`.
      InvalidArgumentError: for arguments that do not fit, or a name that is taken.
      MismatchError: if the ranks disagree.
    """
    if isinstance(tensors, tf.Tensor | tf.Variable | tf.IndexedSlices):
        raise InvalidArgumentError("tensors: must be a list; put the one tensor into a list")
    tensors = arguments.listed("tensors", tensors, "tensors")
    arguments.text("name", name, "the channel's, the same on all ranks")
    if combine not in ("sum", "latest"):
        raise InvalidArgumentError(
            f"combine={combine!r}: must be 'sum' (of the results, for gradients) or 'latest' (the "
            "newest, for measurements)"
        )
    options = Options(
        mode=mode,
        average=average,
        staleness=staleness,
        grace=grace,
        max_lag=max_lag,
        catch_up=catch_up,
        skip_nonfinite=skip_nonfinite,
    )
    dense = [tf.convert_to_tensor(tensor) for tensor in tensors]
    names = [f"tensor {i}" for i in range(len(dense))]
    return reduce_dense(f"tensors/{name}", dense, names, options, add=combine == "sum")


def reduce_dense(
    channel_name: str, dense: Sequence[tf.Tensor], names: Sequence[str], options: Options, add: bool
) -> Reduced:
    """Deposits dense tensors and combines the results that wait: their sum, or the newest."""
    refuse_xla(f"channel {channel_name!r}: hvd_partial")
    specs = []
    for tensor, name in zip(dense, names, strict=True):
        if not tensor.shape.is_fully_defined():
            raise InvalidArgumentError(
                f"channel {channel_name!r}: {name} has shape {tensor.shape}; a channel's shapes "
                "must be fully known"
            )
        specs.append(TensorSpec(name, tuple(tensor.shape), tensor.dtype))
    channel = _channels.open_channel(channel_name, specs, options)
    with translated():
        count = _ops.deposit(channel.name, list(dense))
        return _combine(channel, count, add)


def _combine(channel: _channels.Channel, count: tf.Tensor, add: bool) -> Reduced:
    zeros = [tf.zeros(spec.shape, spec.dtype) for spec in channel.tensors]
    none = tf.zeros((), tf.float64)

    def take(after: Any, values: list[Any], facts: list[Any]) -> tuple[list[Any], list[Any]]:
        got, header = _ops.take(channel.name, channel.shapes, channel.dtypes, after, channel.latest)
        if add:
            got = [a + b for a, b in zip(values, got, strict=True)]
        contributions, own, weight, _ = facts
        return got, [
            contributions + header.contributions,
            own + header.own,
            weight + header.weight,
            header.round,
        ]

    values, facts = zeros, [none, none, none, none]
    if tf.executing_eagerly():
        for _ in range(int(count)):
            values, facts = take(count, values, facts)
    else:

        def body(index: Any, values: list[Any], facts: list[Any]) -> tuple[Any, Any, Any]:
            got, known = take(index, values, facts)
            return index + 1, got, known

        _, values, facts = tf.while_loop(
            lambda index, values, facts: index < count,
            body,
            [tf.constant(0), values, facts],
            parallel_iterations=1,
        )
    reduced = Reduced(values)
    reduced.rounds = count
    reduced.contributions = tf.cast(facts[0], tf.int64)
    reduced.own = tf.cast(facts[1], tf.int64)
    reduced.weight = facts[2]
    reduced.last_round = tf.cast(facts[3], tf.int64)
    return reduced


@names_rank
def partial_flush(name: str) -> Reduced:
    """All ranks meet in a channel of `partial_allreduce`; gives what was left over, added up.

    Eager only. Afterwards every contribution has been in exactly one result on every rank.
    """
    channel = _channels.find(f"tensors/{name}")
    if channel is None:
        raise InvalidArgumentError(
            f"name={name!r}: partial_allreduce has not been called with it; call that first"
        )
    total = _combine(channel, tf.constant(0), True)
    with translated():
        _ops.begin_flush(channel.name)
        while True:
            count, flushed = _ops.wait(channel.name)
            if flushed and count == 0:
                return total
            part = _combine(channel, count, True)
            total = _joined(total, part)


def _joined(first: Reduced, second: Reduced) -> Reduced:
    joined = Reduced([a + b for a, b in zip(first, second, strict=True)])
    joined.rounds = first.rounds + second.rounds
    joined.contributions = first.contributions + second.contributions
    joined.own = first.own + second.own
    joined.weight = first.weight + second.weight
    joined.last_round = second.last_round
    return joined


class Loop:
    """What `apply` keeps between the steps of a custom loop."""

    def __init__(self, name: str, variables: Sequence[Any], options: Options) -> None:
        self.replay = Replay(f"loop/{name}", options)
        self.variables = list(variables)
        self.options = options
        self.update: Update | None = None
        self.replay.open(_keras.tensor_specs(self.variables))

    def step(self, gradients: Sequence[Any], variables: Sequence[Any], options: Options) -> None:
        refuse_reduced(gradients, f"apply on channel {self.replay.name!r}")
        same = len(variables) == len(self.variables) and all(
            _keras.raw(a) is _keras.raw(b) for a, b in zip(variables, self.variables, strict=True)
        )
        if not same or options != self.options:
            raise InvalidArgumentError(
                f"channel {self.replay.name!r}: variables and options must be the same in all "
                "calls; give another name to another set"
            )
        self.replay.step(gradients, self.apply)

    def flushing(self) -> tuple[Replay, _replay.Apply]:
        return self.replay, self.apply

    def apply(self, values: list[Any], all_bad: Any, any_bad: Any, header: Any) -> None:
        del all_bad, any_bad, header
        kept = [i for i, value in enumerate(values) if value is not None]
        if self.update is not None:
            self.update([values[i] for i in kept], [self.variables[i] for i in kept])


_loops: dict[str, Loop] = {}
_numbers: Iterator[int] = itertools.count()
_ATTRIBUTE = "_hvd_partial_loop"


@names_rank
def apply(
    optimizer: Any,
    gradients: Sequence[Any],
    variables: Sequence[Any],
    *,
    name: str | None = None,
    mode: str | Mode = "majority",
    catch_up: str = "replay",
    max_lag: int = 8,
    average: str | None = "size",
    staleness: Staleness = "inverse",
    grace: str | float = "auto",
    skip_nonfinite: bool = True,
) -> None:
    """One step of a custom loop: deposits local gradients and applies every result that waits.

    With a distributed optimizer it is `optimizer.apply_gradients(zip(gradients, variables))`, and
    the other arguments are those that the optimizer was made with. With a plain one, or with any
    function that updates the variables, the loop replays as a distributed optimizer does: replicas
    that start equal are equal at the same round. Works eagerly and in a tf.function.

    Args:
      optimizer: A Keras optimizer, or `update(gradients, variables)`, called once for each result.
      gradients: Local ones, not reduced; IndexedSlices become dense; None where there is none.
      variables: The same on all ranks and in all calls.
      name: Of the channel; must be given for a function. By default a number in order of the first
        calls, which must be the same on all ranks.
      mode, catch_up, max_lag, average, staleness, grace, skip_nonfinite: As DistributedOptimizer's.

    Raises:
      NotConnectedError: before `init()`.
      InvalidArgumentError: for arguments that do not fit.
    """
    gradients = arguments.listed("gradients", gradients, "gradients")
    variables = arguments.listed("variables", variables, "variables")
    if len(gradients) != len(variables):
        raise InvalidArgumentError(
            f"gradients: {len(gradients)} for {len(variables)} variables; give one for each, None "
            "where there is none"
        )
    known = _keras.flavour(optimizer)
    if known is not None and _distributed.state_of(optimizer) is not None:
        optimizer.apply_gradients(list(zip(gradients, variables, strict=True)))
        return
    options = Options(
        mode=mode,
        average=average,
        staleness=staleness,
        grace=grace,
        max_lag=max_lag,
        catch_up=catch_up,
        skip_nonfinite=skip_nonfinite,
    )
    loop = _loop_of(optimizer, known is not None, name, variables, options)
    if known is not None:
        _keras.build(optimizer, variables)
        loop.update = lambda values, kept: _apply_gradients(optimizer, values, kept)
    else:
        loop.update = optimizer
    loop.step(gradients, variables, options)


def _apply_gradients(optimizer: Any, values: list[Any], variables: list[Any]) -> None:
    optimizer.apply_gradients(list(zip(values, variables, strict=True)))


def _loop_of(
    optimizer: Any, is_keras: bool, name: str | None, variables: list[Any], options: Options
) -> Loop:
    if not is_keras and not callable(optimizer):
        raise InvalidArgumentError(
            f"optimizer={optimizer!r}: must be a Keras optimizer or a function "
            "update(gradients, variables)"
        )
    if name is None:
        if not is_keras:
            raise InvalidArgumentError(
                "name: must be given when the update is a function, the same on all ranks"
            )
        name = vars(optimizer).get(_ATTRIBUTE) or f"{type(optimizer).__name__}/{next(_numbers)}"
        object.__setattr__(optimizer, _ATTRIBUTE, name)
    arguments.text("name", name, "the channel's, the same on all ranks")
    if name not in _loops:
        _loops[name] = Loop(name, variables, options)
    return _loops[name]


def loop_name(optimizer: Any) -> str | None:
    """The name under which `apply` trains with a plain optimizer."""
    return getattr(optimizer, _ATTRIBUTE, None)


@names_rank
def flush(optimizer: Any = None) -> None:
    """All ranks meet, leftovers are reduced and everything is applied: replicas are equal.

    Eager only; every rank must call it, or end. It ends when all have. Ranks that train several
    optimizers in turn, and not equally often, must flush them together.

    Args:
      optimizer: A distributed optimizer, or one that `apply` was called with, or the name given to
        `apply`; None for all there are, together.

    Raises:
      InvalidArgumentError: if nothing has been trained with it.
    """
    if optimizer is None:
        flush_channels({name for name, _ in _trained()})
        return
    if isinstance(optimizer, str):
        name = optimizer
    else:
        if _keras.flavour(optimizer) is not None:
            state_found = _distributed.state_of(optimizer)
            if state_found is not None:
                _distributed.flush([state_found])
                return
        name = loop_name(optimizer) or ""
    loop = _loops.get(name)
    if loop is None:
        raise InvalidArgumentError(
            f"optimizer={optimizer!r}: nothing has been trained with it; give a distributed "
            "optimizer, one that apply() was called with, or its name"
        )
    _replay.flush([loop.flushing()])


def channels_with_rounds() -> set[str]:
    """Of optimizers, and of loops of `apply`, those that have made a round since the engine was
    connected: all ranks have opened them."""
    channels = {channel.name: channel for channel in _channels.all_channels()}
    return {
        name
        for name, _ in _trained()
        if name in channels and channels[name].engine_channel().stats().rounds > 0
    }


def flush_channels(names: AbstractSet[str]) -> None:
    """Flushes those optimizers and loops, together."""
    _replay.flush([flushing() for name, flushing in _trained() if name in names])


def _trained() -> list[tuple[str, Callable[[], tuple[Replay, _replay.Apply]]]]:
    """Name, and what flushes it, of all optimizers and loops of `apply` that were trained with."""
    states = [state for state in _distributed.live_states() if state.variables]
    return [(state.name, state.flushing) for state in states] + [
        (loop.replay.name, loop.flushing) for loop in _loops.values()
    ]
