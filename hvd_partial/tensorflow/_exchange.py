# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""What ranks tell each other outside of training: metrics, checksums, whether to stop.

It goes through the engine and not through Horovod's collectives, because the engine knows which
ranks have ended: nobody waits for a rank that is gone. Every exchange ends with a flush, so it is
complete in whatever mode the channels are.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from hvd_partial.errors import HvdPartialError, InvalidArgumentError
from hvd_partial.tensorflow import _runtime

Array = np.ndarray[Any, Any]

_LEAST_BYTES = 256
_MOST_BYTES = 1 << 26  # of a rank; metrics and checksums have some hundred


def gather(data: bytes) -> dict[int, bytes]:
    """What each rank gave, by rank, without those that have ended; all others must call it.

    Raises:
      HvdPartialError: naming the rank, if the length that one announced makes no sense.
    """
    engine = _runtime.connect()
    if len(data) > _MOST_BYTES:
        raise InvalidArgumentError(
            f"rank {engine.rank}: {len(data)} bytes to exchange, at most {_MOST_BYTES} can be"
        )
    sizes = np.zeros(engine.size, np.int64)
    sizes[engine.rank] = len(data) + 1  # 0: not there
    (sizes,) = _summed(_channel(engine, "hvd_partial/sizes", [sizes]), [sizes])
    for rank, size in enumerate(sizes.tolist()):
        if not 0 <= size <= _MOST_BYTES + 1:
            raise HvdPartialError(
                f"rank {engine.rank}: rank {rank} announced {size - 1} bytes to exchange, at most "
                f"{_MOST_BYTES} can be; do all ranks run the same version of hvd_partial?"
            )
    capacity = _LEAST_BYTES
    while capacity < int(sizes.max()):
        capacity *= 2
    slots = np.zeros((engine.size, capacity), np.uint8)
    slots[engine.rank, : len(data)] = np.frombuffer(data, np.uint8)
    words = slots.view(np.int32)
    (words,) = _summed(_channel(engine, f"hvd_partial/bytes/{capacity}", [words]), [words])
    slots = words.view(np.uint8).reshape(engine.size, capacity)
    return {
        rank: slots[rank, : int(sizes[rank]) - 1].tobytes()
        for rank in range(engine.size)
        if sizes[rank] > 0
    }


def gather_json(value: Any) -> dict[int, Any]:
    """`gather` for anything that JSON can hold."""
    values = {}
    for rank, data in gather(json.dumps(value).encode()).items():
        try:
            values[rank] = json.loads(data)
        except ValueError as error:
            raise HvdPartialError(
                f"what rank {rank} gave to exchange cannot be read ({error}); do all ranks run the "
                f"same version of hvd_partial?"
            ) from error
    return values


def mean(arrays: Sequence[Array], label: str) -> list[Array]:
    """The mean over the ranks that are there, the same to the last bit on all of them.

    Args:
      arrays: Floating point, of the same shapes on all ranks; half precision is added up in
        float32.
      label: The same on all ranks; part of the channel's name.
    """
    if not arrays:
        return []
    engine = _runtime.connect()
    wide = [a if a.dtype in (np.float32, np.float64) else a.astype(np.float32) for a in arrays]
    layout = repr([(a.shape, str(a.dtype)) for a in wide])
    name = f"hvd_partial/mean/{label}/{zlib.crc32(layout.encode()):08x}"
    ones = np.ones(1, np.float32)
    *sums, count = _summed(_channel(engine, name, [*wide, ones]), [*wide, ones])
    return [
        (total / count[0].astype(total.dtype)).astype(original.dtype).reshape(original.shape)
        for total, original in zip(sums, arrays, strict=True)
    ]


def _channel(engine: Any, name: str, like: Sequence[Array]) -> Any:
    return engine.channel(
        name, list(like), mode="sync", average=None, staleness="full", skip_nonfinite=False
    )


def _summed(channel: Any, arrays: Sequence[Array]) -> list[Array]:
    results = [*channel.allreduce(list(arrays)), *channel.flush()]
    total = [np.array(value) for value in results[0].values]
    for result in results[1:]:
        for kept, value in zip(total, result.values, strict=True):
            kept += value
    return total


def _open_early(engine: Any) -> None:
    # Rounds begin when all ranks have opened the channel: nobody should have to wait for that.
    _channel(engine, "hvd_partial/sizes", [np.zeros(engine.size, np.int64)])


_runtime.on_connect(_open_early)
