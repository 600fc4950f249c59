# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Handwritten digits with late ranks: Horovod's optimizer beside the modes of hvd_partial.

``python -m examples.digits`` (or ``make demo``) launches everything and compares it.
"""
