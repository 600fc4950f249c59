# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""What differs between Keras 3, tf_keras and tf_keras's legacy optimizers."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import tensorflow as tf

from hvd_partial.tensorflow._channels import TensorSpec

Flavour = Literal["keras", "tf_keras", "tf_keras_legacy"]


def _module(name: str) -> Any:
    # An optimizer of a module that nobody has imported cannot exist.
    return sys.modules.get(name)


def _keras3() -> Any:
    keras = _module("keras")
    return keras if keras is not None and keras.__version__.startswith("3.") else None


def flavour(optimizer: Any) -> Flavour | None:
    """Which Keras an optimizer is of; None for anything else."""
    keras = _keras3()
    if keras is not None and isinstance(optimizer, keras.optimizers.Optimizer):
        return "keras"
    tf_keras = _module("tf_keras")
    if tf_keras is not None:
        if isinstance(optimizer, tf_keras.optimizers.Optimizer):
            return "tf_keras"
        if isinstance(optimizer, tf_keras.optimizers.legacy.Optimizer):
            return "tf_keras_legacy"
    return None


def is_loss_scaling(optimizer: Any) -> bool:
    """Whether it is a LossScaleOptimizer of either Keras."""
    keras = _keras3()
    if keras is not None and isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        return True
    tf_keras = _module("tf_keras")
    return tf_keras is not None and isinstance(
        optimizer, tf_keras.mixed_precision.LossScaleOptimizer
    )


def inner_optimizer(optimizer: Any) -> Any:
    """What a LossScaleOptimizer wraps."""
    return optimizer.inner_optimizer


def raw(variable: Any) -> tf.Variable:
    """The TensorFlow variable behind a Keras 3 variable."""
    if isinstance(variable, tf.Variable) or not hasattr(variable, "value"):
        return variable
    value = variable.value
    return value() if callable(value) else value


def full_name(variable: Any) -> str:
    """A name for people: "dense/kernel"."""
    return str(getattr(variable, "path", None) or getattr(variable, "name", "variable"))


def tensor_spec(variable: Any) -> TensorSpec:
    """Shape and dtype of a variable's gradient."""
    dtype = getattr(variable, "true_dtype", None) or variable.dtype
    return TensorSpec(full_name(variable), tuple(variable.shape), tf.as_dtype(dtype))


def tensor_specs(variables: Iterable[Any]) -> list[TensorSpec]:
    """One for each."""
    return [tensor_spec(variable) for variable in variables]


def build(optimizer: Any, variables: Sequence[Any]) -> None:
    """Creates an optimizer's variables, if there are none yet."""
    kind = flavour(optimizer)
    with tf.init_scope():
        if kind == "keras":
            if not optimizer.built:
                optimizer.build(list(variables))
        elif kind == "tf_keras":
            optimizer.build(list(variables))
        elif kind == "tf_keras_legacy":
            optimizer._create_all_weights(list(variables))


def optimizer_variables(optimizer: Any) -> list[tf.Variable]:
    """All variables of an optimizer, those of a loss scale included."""
    variables = optimizer.variables
    found = list(variables() if callable(variables) else variables)
    scale = getattr(optimizer, "_loss_scale", None)
    if scale is not None and hasattr(scale, "current_loss_scale"):
        found += [scale.current_loss_scale, scale.counter]
    return [raw(variable) for variable in found]


def learning_rate_variable(optimizer: Any) -> Any:
    """What holds the learning rate; None if it is computed (a schedule)."""
    if is_loss_scaling(optimizer):
        return learning_rate_variable(inner_optimizer(optimizer))
    if flavour(optimizer) == "tf_keras_legacy":
        rate = optimizer._get_hyper("learning_rate")
    else:
        rate = optimizer._learning_rate
    rate = raw(rate)
    return rate if isinstance(rate, tf.Variable) else None


def momentum_variables(optimizer: Any, variables: Sequence[Any]) -> list[tf.Variable]:
    """The velocities of SGD with momentum; an empty list for other optimizers."""
    if is_loss_scaling(optimizer):
        return momentum_variables(inner_optimizer(optimizer), variables)
    if flavour(optimizer) == "tf_keras_legacy":
        if "momentum" not in optimizer.get_slot_names():
            return []
        return [optimizer.get_slot(variable, "momentum") for variable in variables]
    if not getattr(optimizer, "momentum", 0):
        return []
    return [
        raw(velocity) for velocity in getattr(optimizer, "momentums", []) if velocity is not None
    ]
