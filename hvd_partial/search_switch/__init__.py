# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""``python -m hvd_partial search-switch``: how much of a job must be trained with BSP.

Sync-Switch's timing policy: a bisection, offline and over whole training runs, for the smallest
share of the workload that must be trained with BSP before the switch to ASP, so that the accuracy
is still BSP's. ``bisection`` is the search without any I/O, ``contract`` runs the user's script,
``journal`` keeps what was measured, ``recorded`` reads runs that were made elsewhere, ``summary``
and ``report`` say what came out. Nothing here imports TensorFlow or Horovod.
"""

from hvd_partial.search_switch.command import add_parser

__all__ = ["add_parser"]
