# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Partial allreduce for Horovod: data-parallel training that does not wait for its slowest rank.

Horovod's users import ``hvd_partial.tensorflow`` or ``hvd_partial.tensorflow.keras`` in place of
Horovod's modules. ``hvd_partial.engine`` is the same on numpy arrays, without TensorFlow and
Horovod. This module imports none of them.
"""

__version__ = "0.1.0"
