# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Prints what CMake must know of the installed TensorFlow, as a CMake list."""

from __future__ import annotations

from pathlib import Path

import tensorflow as tf

if __name__ == "__main__":
    flags = tf.sysconfig.get_compile_flags()
    definitions = [flag.removeprefix("-D") for flag in flags if flag.startswith("-D")]
    library = Path(tf.sysconfig.get_lib()) / "libtensorflow_framework.so.2"
    facts = [tf.__version__, tf.sysconfig.get_include(), str(library), "|".join(definitions)]
    print(";".join(facts))
