# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""What all tests share."""

from __future__ import annotations

import os

# Neither TensorFlow's greeting nor a search for GPUs in any process that a test starts.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
