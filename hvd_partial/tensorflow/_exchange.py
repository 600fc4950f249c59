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

from hvd_partial.tensorflow import _runtime

Array = np.ndarray[Any, Any]

_LEAST_BYTES = 256


def gather(data: bytes) -> dict[int, bytes]:
    """What each rank gave, by rank, without those that have ended; all others must call it."""
    engine = _runtime.connect()
    sizes = np.zeros(engine.size, np.int64)
    sizes[engine.rank] = len(data) + 1  # 0: not there
    (sizes,) = _summed(_channel(engine, "hvd_partial/sizes", [sizes]), [sizes])
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
    return {rank: json.loads(data) for rank, data in gather(json.dumps(value).encode()).items()}


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
