# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Examples of hvd_partial. ``examples.minimal`` is the one to read first."""
