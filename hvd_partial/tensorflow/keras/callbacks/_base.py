# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""What the callbacks share: the optimizers of a model, no XLA, errors of ours as ours."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from hvd_partial import arguments
from hvd_partial.errors import InvalidArgumentError
from hvd_partial.stragglers import StragglerDetector
from hvd_partial.tensorflow import _distributed, _keras
from hvd_partial.tensorflow._distributed import Distributed
from hvd_partial.tensorflow._errors import translated


def states_of(model: Any) -> list[Distributed]:
    """Of the distributed optimizers that a model holds, by name; else of all there are."""
    held = [getattr(model, "optimizer", None), *vars(model).values()]
    found: dict[str, Distributed] = {}
    for value in held:
        if _keras.flavour(value) is not None:
            state = _distributed.state_of(value)
            if state is not None:
                found[state.name] = state
    if not found and getattr(model, "optimizer", None) is None:
        return _distributed.live_states()
    return [found[name] for name in sorted(found)]


def require_states(model: Any, who: str) -> list[Distributed]:
    """As `states_of`, but there must be one.

    Raises:
      InvalidArgumentError: if nothing that the model trains with is distributed.
    """
    states = states_of(model)
    if not states:
        raise InvalidArgumentError(
            f"{who}: the model's optimizer is not distributed, so nothing would be reduced; "
            "compile the model with hvd_partial.tensorflow.keras.DistributedOptimizer(optimizer)"
        )
    return states


def detector_options(detector: Any) -> dict[str, Any]:
    """Options of a `StragglerDetector`, as a callback's argument `detector`, checked.

    Raises:
      InvalidArgumentError: naming the argument, or the option.
    """
    if detector is not None and not isinstance(detector, Mapping):
        raise arguments.wrong(
            "detector", detector, 'options of StragglerDetector, e.g. {"rule": "ratio"}'
        )
    options = dict(detector or {})
    known = [name for name in inspect.signature(StragglerDetector).parameters if name != "size"]
    for name in options:
        if name not in known:
            raise InvalidArgumentError(
                f"detector: StragglerDetector has no option {name!r}; it has {', '.join(known)}"
            )
    try:
        StragglerDetector(2, **options)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"detector: {error}") from None
    return options


def open_early(model: Any, state: Distributed) -> None:
    """Opens the optimizer's channel before the first step, also on a rank that will have no batch:
    the others wait for it to do so. Where there are several optimizers, each opens with its own
    variables in its step."""
    whole = state is _distributed.state_of(getattr(model, "optimizer", None))
    if not state.variables and whole and model.built:
        _keras.build(model.optimizer, model.trainable_variables)
        state.prepare(model.trainable_variables)
        state.replay.use_graph(not model.run_eagerly)


class _Translating:
    """A train function whose errors of ours have our classes."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with translated():
            return self.function(*args, **kwargs)


class PartialCallback(tf.keras.callbacks.Callback):
    """The base of our callbacks."""

    # tf_keras: our hooks do not need the logs as numbers after each batch.
    _supports_tf_logs = True

    def set_model(self, model: Any) -> None:
        super().set_model(model)
        turn_off_automatic_xla(model)

    def on_train_begin(self, logs: Any = None) -> None:
        del logs
        function = getattr(self.model, "train_function", None)
        if function is not None and not isinstance(function, _Translating):
            self.model.train_function = _Translating(function)

    def on_train_end(self, logs: Any = None) -> None:
        del logs
        function = getattr(self.model, "train_function", None)
        if isinstance(function, _Translating):
            self.model.train_function = function.function


def turn_off_automatic_xla(model: Any) -> None:
    """Keras 3 compiles with XLA by itself where it sees an accelerator, and XLA knows none of our
    ops. What the user has asked for stays, and gets an error when the step is traced."""
    resolve = getattr(model, "_resolve_auto_jit_compile", None)
    if resolve is not None and model.jit_compile and resolve():
        model.jit_compile = False
