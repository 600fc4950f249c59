# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Makes a Keras optimizer a distributed one, for each of the three kinds there are.

The order of a step is deposit, reduce, then what the optimizer does by itself: clip, decay, update.
A LossScaleOptimizer that is wrapped divides by its scale before the deposit, because contributions
may be applied later, under another scale; and it learns of non-finite gradients from the round, so
that the scale is the same on all ranks at the same round.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import tensorflow as tf

from hvd_partial.errors import InvalidArgumentError
from hvd_partial.tensorflow import _dynamic, _keras
from hvd_partial.tensorflow._distributed import ATTRIBUTE, Distributed, Settings, Update, state_of

_APPLYING = "_hvd_partial_applying"
_STEPS = "gradient_accumulation_steps"


def distribute(optimizer: Any, name: str | None, settings: Settings) -> Any:
    """The same optimizer, now distributed.

    Raises:
      InvalidArgumentError: if it is no Keras optimizer, or distributed already.
    """
    kind = _keras.flavour(optimizer)
    if kind is None:
        raise InvalidArgumentError(
            f"optimizer={optimizer!r}: must be an optimizer of Keras 3 or tf_keras; for "
            "tf.compat.v1 optimizers use horovod.tensorflow.DistributedOptimizer"
        )
    if state_of(optimizer) is not None:
        raise InvalidArgumentError(
            f"optimizer: {type(optimizer).__name__} is distributed already; gradients would be "
            "reduced twice"
        )
    if "_allreduce_grads" in vars(optimizer):
        raise InvalidArgumentError(
            "optimizer: has been wrapped by Horovod's own DistributedOptimizer; wrap the plain "
            "optimizer instead"
        )
    scaling = _keras.is_loss_scaling(optimizer)
    worker = _keras.inner_optimizer(optimizer) if scaling else optimizer
    base = type(optimizer)
    update = _SCALED_UPDATES[kind] if scaling else _plain_update(kind, base)
    accumulating = _with_own_accumulation(worker, settings)
    state = Distributed(optimizer, name, accumulating, update, screen=scaling)
    state.iterations_per_round = getattr(worker, _STEPS, None) or 1
    object.__setattr__(optimizer, ATTRIBUTE, state)
    if scaling and kind == "keras":
        inner = type(worker)
        _dynamic.become(worker, _dynamic.derive(inner, _accumulation_members()))
    members = _MEMBERS[kind](base) | _common_members(base, settings)
    _dynamic.become(optimizer, _dynamic.derive(base, members))
    schedule = _schedule_of(worker)
    if hasattr(schedule, "bind"):
        schedule.bind(state)
    return optimizer


def _with_own_accumulation(worker: Any, settings: Settings) -> Settings:
    """Keras 3's gradient_accumulation_steps becomes ours: one round for N steps, not N."""
    steps = getattr(worker, _STEPS, None)
    if not steps:
        return settings
    if settings.passes > 1:
        raise InvalidArgumentError(
            f"backward_passes_per_step={settings.passes}: the optimizer has "
            f"gradient_accumulation_steps={steps}, which means the same; give one of them"
        )
    return replace(settings, passes=int(steps), average_passes=True)


def _schedule_of(worker: Any) -> Any:
    if _keras.flavour(worker) == "tf_keras_legacy":
        return worker._hyper.get("learning_rate")
    return getattr(worker, "_learning_rate", None)


# ---- Keras's own update of one result ----------------------------------------


def _update_keras(base: Any, optimizer: Any, values: list[Any], variables: list[Any]) -> None:
    state = vars(optimizer)
    state[_APPLYING] = True
    try:
        base.apply(optimizer, values, variables)
    finally:
        state[_APPLYING] = False
    steps = state.get(_STEPS)
    if steps:
        # Keras counts backward passes in its own accumulation; so do files.
        optimizer._iterations.assign_add(steps - 1)


def _update_tf_keras(base: Any, optimizer: Any, values: list[Any], variables: list[Any]) -> None:
    pairs = list(zip(values, variables, strict=True))
    base.apply_gradients(optimizer, pairs, skip_gradients_aggregation=True)


def _update_legacy(base: Any, optimizer: Any, values: list[Any], variables: list[Any]) -> None:
    pairs = list(zip(values, variables, strict=True))
    base.apply_gradients(optimizer, pairs, experimental_aggregate_gradients=False)


_PLAIN_UPDATES: dict[str, Callable[[Any, Any, list[Any], list[Any]], None]] = {
    "keras": _update_keras,
    "tf_keras": _update_tf_keras,
    "tf_keras_legacy": _update_legacy,
}


def _plain_update(kind: str, base: type) -> Update:
    plain = _PLAIN_UPDATES[kind]

    def update(optimizer: Any, values: Any, variables: Any, all_bad: Any, any_bad: Any) -> None:
        del all_bad, any_bad  # the engine has left out what was not finite
        plain(base, optimizer, values, variables)

    return update


def _unless(condition: Any, action: Callable[[], None]) -> None:
    """Runs the action unless the condition holds, in a graph or eagerly."""
    if tf.executing_eagerly():
        if not bool(condition):
            action()
        return

    def run() -> tf.Tensor:
        action()
        return tf.constant(0)

    tf.cond(condition, lambda: tf.constant(0), run)


def _update_scaled_keras(
    optimizer: Any, values: list[Any], variables: list[Any], all_bad: Any, any_bad: Any
) -> None:
    inner = optimizer.inner_optimizer
    base = type(inner).__mro__[1]  # below the class that hides the accumulation
    _unless(all_bad, lambda: _update_keras(base, inner, values, variables))
    scale = _keras.raw(optimizer.dynamic_scale)
    counter = _keras.raw(optimizer.step_counter)
    grow = tf.equal(counter, optimizer.dynamic_growth_steps - 1)
    scale.assign(tf.where(any_bad, scale * 0.5, tf.where(grow, scale * 2.0, scale)))
    counter.assign(tf.where(any_bad | grow, tf.zeros_like(counter), counter + 1))


def _update_scaled_tf_keras(kind: str) -> Update:
    plain = _PLAIN_UPDATES[kind]

    def update(optimizer: Any, values: Any, variables: Any, all_bad: Any, any_bad: Any) -> None:
        inner = optimizer.inner_optimizer
        _unless(all_bad, lambda: plain(type(inner), inner, values, variables))
        if optimizer.dynamic:
            # It looks at gradients; this one stands for those of all ranks.
            sample = tf.where(any_bad, [float("inf")], [0.0])
            optimizer._loss_scale.update([sample])

    return update


_SCALED_UPDATES: dict[str, Update] = {
    "keras": _update_scaled_keras,
    "tf_keras": _update_scaled_tf_keras("tf_keras"),
    "tf_keras_legacy": _update_scaled_tf_keras("tf_keras_legacy"),
}


# ---- the members of the subclasses -------------------------------------------


def _common_members(base: Any, settings: Settings) -> dict[str, Any]:
    def register_local_var(self: Any, var: Any) -> None:
        raise NotImplementedError(
            "register_local_var: hvd_partial keeps replicas equal by applying the same results "
            "everywhere, so all variables of an optimizer are reduced. Train local layers with an "
            "optimizer of their own."
        )

    def get_config(self: Any) -> dict[str, Any]:
        config = base.get_config(self)
        inner = getattr(_schedule_of(self), "portable", None)
        if inner is not None:
            # So that the file loads without this package.
            config["learning_rate"] = inner()
        return config

    def from_config(cls: Any, /, config: dict[str, Any], **kwargs: Any) -> Any:
        # A copy of a distributed optimizer is distributed too, and not by surprise a local one.
        del cls
        return distribute(base.from_config(config, **kwargs), None, settings)

    return {
        "register_local_var": register_local_var,
        "get_config": get_config,
        "from_config": classmethod(from_config),
    }


def _accumulation_members() -> dict[str, Any]:
    """Hides gradient_accumulation_steps from Keras while it applies a result: accumulation is over
    by then. Configuration, variables and the count of iterations stay those of plain Keras."""

    def get_steps(self: Any) -> int | None:
        state = vars(self)
        return None if state.get(_APPLYING) else state.get(_STEPS)

    def set_steps(self: Any, steps: int | None) -> None:
        vars(self)[_STEPS] = steps

    def iterations(self: Any) -> Any:
        steps = vars(self).get(_STEPS)
        return self._iterations if not steps else _keras.raw(self._iterations) // steps

    return {_STEPS: property(get_steps, set_steps), "iterations": property(iterations)}


def _keras_members(base: type) -> dict[str, Any]:
    @tf.autograph.experimental.do_not_convert
    def apply(self: Any, grads: Any, trainable_variables: Any = None) -> None:
        grads = list(grads)
        if not grads:
            return
        if trainable_variables is None:
            if not self.built:
                raise ValueError(
                    "When passing `grads` without `trainable_variables`, the optimizer must be "
                    "built: call optimizer.build(trainable_variables) first."
                )
            variables = list(self._trainable_variables)
        else:
            variables = list(trainable_variables)
            _keras.build(self, variables)
        if _keras.is_loss_scaling(self):
            scale = _keras.raw(self.dynamic_scale)
            grads = [None if g is None else _divided(g, scale) for g in grads]
        state = vars(self)[ATTRIBUTE]
        state.prepare(self._trainable_variables or variables)
        state.step(grads, variables)

    members: dict[str, Any] = {"apply": apply}
    if not _is_scaling_class(base):
        members |= _accumulation_members()
    return members


def _is_scaling_class(base: type) -> bool:
    return any(kind.__name__ == "LossScaleOptimizer" for kind in base.__mro__)


def _divided(gradient: Any, scale: Any) -> Any:
    gradient = tf.convert_to_tensor(gradient)
    return gradient / tf.cast(scale, gradient.dtype)


def _step_tf_keras(optimizer: Any, grads_and_vars: Any) -> Any:
    pairs = list(grads_and_vars)
    if pairs:
        gradients, variables = zip(*pairs, strict=True)
        _keras.build(optimizer, variables)
        state = vars(optimizer)[ATTRIBUTE]
        state.prepare(variables)
        state.step(gradients, variables)
    return optimizer.iterations


def _tf_keras_members(base: type) -> dict[str, Any]:
    del base

    @tf.autograph.experimental.do_not_convert
    def apply_gradients(
        self: Any,
        grads_and_vars: Any,
        name: str | None = None,
        skip_gradients_aggregation: bool = False,
        **kwargs: Any,
    ) -> Any:
        # What the arguments say of tf.distribute does not concern the ranks.
        del name, skip_gradients_aggregation, kwargs
        return _step_tf_keras(self, grads_and_vars)

    return {"apply_gradients": apply_gradients}


def _legacy_members(base: type) -> dict[str, Any]:
    del base

    @tf.autograph.experimental.do_not_convert
    def apply_gradients(
        self: Any,
        grads_and_vars: Any,
        name: str | None = None,
        experimental_aggregate_gradients: bool = True,
    ) -> Any:
        del name, experimental_aggregate_gradients
        return tf.identity(_step_tf_keras(self, grads_and_vars))

    return {"apply_gradients": apply_gradients}


_MEMBERS: dict[str, Callable[[type], dict[str, Any]]] = {
    "keras": _keras_members,
    "tf_keras": _tf_keras_members,
    "tf_keras_legacy": _legacy_members,
}
