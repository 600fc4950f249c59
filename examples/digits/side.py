# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""What the training asks of the library under comparison."""

from __future__ import annotations

from typing import Any, Protocol

from examples.digits.dataset import ImageSet
from examples.digits.plan import Run


class Side(Protocol):
    """Horovod's own optimizer (`horovod_side`) or hvd_partial's (`partial_side`)."""

    def rank(self) -> int: ...

    def size(self) -> int: ...

    def keras_version(self) -> str: ...

    def allgather(self, value: Any) -> list[Any]:
        """Any object of each rank, by rank."""
        ...

    def barrier(self) -> None: ...

    def wrap(self, optimizer: Any, run: Run) -> Any:
        """The distributed optimizer."""
        ...

    def batches(self, images: ImageSet, run: Run, steps: int) -> Any:
        """What `fit` trains on: this rank's batches."""
        ...

    def callbacks(self, run: Run) -> list[Any]:
        """The library's, with the delays."""
        ...

    def warm_up_callbacks(self) -> list[Any]:
        """The library's, without delays."""
        ...

    def start_counting(self) -> None:
        """What was done so far does not count."""
        ...

    def contributions(self) -> int:
        """Local batches of all ranks that have been reduced since `start_counting`."""
        ...

    def facts(self) -> dict[str, Any]:
        """Since then: contributions, rounds, full_share, late_share, max_lag. All ranks call it."""
        ...
