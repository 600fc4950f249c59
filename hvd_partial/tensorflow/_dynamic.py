# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Subclasses of optimizer classes that pass for the classes themselves.

A distributed optimizer keeps its identity: only its class changes, to a subclass of the same name,
module and registration. So its variables, its slots and whatever a subclass of the user's holds
stay as they are, and files saved with it load where hvd_partial is not installed.
"""

from __future__ import annotations

import sys
import types
from typing import Any


def derive(base: type, members: dict[str, Any]) -> type:
    """A subclass of `base` with these members that serialises as `base`."""
    namespace = dict(members)
    namespace["__module__"] = base.__module__
    namespace["__qualname__"] = base.__qualname__
    namespace["__doc__"] = base.__doc__
    # tf_keras looks up its public names in the class itself.
    namespace |= {key: value for key, value in vars(base).items() if "_api_names" in key}
    # types.new_class finds the metaclass, which tf_keras's LossScaleOptimizer has.
    derived = types.new_class(base.__name__, (base,), exec_body=lambda body: body.update(namespace))
    for package in ("keras", "tf_keras"):
        _mirror(package, base, derived)
    return derived


def _mirror(package: str, base: type, derived: type) -> None:
    """Gives the subclass the names under which Keras knows the class."""
    exported = sys.modules.get(f"{package}.src.api_export")
    names = getattr(exported, "REGISTERED_OBJS_TO_NAMES", None)
    if names is not None and base in names:
        names[derived] = names[base]
    registration = sys.modules.get(f"{package}.src.saving.object_registration")
    names = getattr(registration, "GLOBAL_CUSTOM_NAMES", None)
    if names is None:
        names = getattr(registration, "_GLOBAL_CUSTOM_NAMES", None)
    if names is not None and base in names:
        names[derived] = names[base]


def become(instance: Any, kind: type) -> None:
    """Changes an instance's class; Keras's own __setattr__ would refuse or track it."""
    object.__setattr__(instance, "__class__", kind)
