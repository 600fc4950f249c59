# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""What all tests share."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

# Neither TensorFlow's greeting nor a search for GPUs in any process that a test starts.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

# Tests that kill ranks leave flight records; they are not for the folder that users look into.
if "HVD_PARTIAL_FLIGHT_DIR" not in os.environ:
    os.environ["HVD_PARTIAL_FLIGHT_DIR"] = tempfile.mkdtemp(prefix="hvd_partial-tests-")
    atexit.register(shutil.rmtree, os.environ["HVD_PARTIAL_FLIGHT_DIR"], ignore_errors=True)
