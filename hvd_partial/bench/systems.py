# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""The allreduces that are compared, behind one interface. Each is imported where it is made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]


class System(Protocol):
    """One rank's end of an allreduce of float32 sums."""

    rank: int
    size: int

    def prepare(self, elements: int) -> None:
        """Before the first call of this many elements."""

    def call(self, values: Floats) -> Floats:
        """One allreduce; returns a sum (the newest, where there are several)."""

    def barrier(self) -> None: ...

    def finish(self) -> None:
        """After the last call of the present size: nothing of it is under way any more."""

    def gather(self, item: Any) -> list[Any]:
        """The items of all ranks, on every rank (rank 0 at least)."""

    def close(self) -> None: ...


class OurSystem:
    """A channel of one tensor at numpy level; a second one, in sync mode, is the barrier."""

    def __init__(
        self, rank: int, size: int, exchange: Callable[[Any], list[Any]], mode: str, max_lag: int
    ) -> None:
        from hvd_partial import engine

        self.rank, self.size = rank, size
        self._exchange = exchange
        self._engine = engine.connect(rank, size, exchange)
        self._mode, self._max_lag = mode, max_lag
        self._one = [np.zeros(1, np.float32)]
        self._meeting = self._engine.channel("barrier", self._one, "sync", average=None)
        self._channel = self._meeting

    def prepare(self, elements: int) -> None:
        like = [np.empty(elements, np.float32)]
        self._channel = self._engine.channel(
            f"{elements} elements",
            like,
            self._mode,
            average=None,
            staleness="full",
            max_lag=self._max_lag,
            skip_nonfinite=False,
        )

    def call(self, values: Floats) -> Floats:
        result: Floats = self._channel.allreduce([values])[-1].values[0]
        return result

    def barrier(self) -> None:
        self._meeting.allreduce(self._one)

    def finish(self) -> None:
        self._channel.flush()
        self._channel.leave()

    def gather(self, item: Any) -> list[Any]:
        return self._exchange(item)

    def close(self) -> None:
        self._engine.close()


class HorovodSystem:
    """`hvd.allreduce(op=Sum)` on the CPU inside a `tf.function`, as a training step runs it."""

    def __init__(self) -> None:
        import horovod.tensorflow as hvd
        import tensorflow as tf

        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(1)
        hvd.init()
        self.rank, self.size = hvd.rank(), hvd.size()
        self._hvd = hvd
        self._tf = tf
        self._functions: dict[int, Any] = {}
        self._one = tf.zeros(1)
        self.prepare(1)
        self._meeting = self._functions[1]

    def prepare(self, elements: int) -> None:
        def allreduce(x: Any) -> Any:
            return self._hvd.allreduce(x, op=self._hvd.Sum, name=f"bench.{elements}")

        spec = self._tf.TensorSpec([elements], self._tf.float32)
        self._functions[elements] = self._tf.function(allreduce, input_signature=[spec])

    def call(self, values: Floats) -> Floats:
        result: Floats = self._functions[values.size](self._tf.constant(values)).numpy()
        return result

    def barrier(self) -> None:
        self._meeting(self._one).numpy()

    def finish(self) -> None:
        pass

    def gather(self, item: Any) -> list[Any]:
        items: list[Any] = self._hvd.allgather_object(item)
        return items

    def close(self) -> None:
        self._hvd.shutdown()


class MpiSystem:
    """`MPI_Allreduce` through mpi4py, which polls while it waits."""

    def __init__(self) -> None:
        from mpi4py import MPI

        self._mpi = MPI
        self._world = MPI.COMM_WORLD
        self.rank, self.size = self._world.Get_rank(), self._world.Get_size()
        self._sum = np.empty(0, np.float32)

    def prepare(self, elements: int) -> None:
        self._sum = np.empty(elements, np.float32)

    def call(self, values: Floats) -> Floats:
        self._world.Allreduce(values, self._sum, op=self._mpi.SUM)
        return self._sum

    def barrier(self) -> None:
        self._world.Barrier()

    def finish(self) -> None:
        pass

    def gather(self, item: Any) -> list[Any]:
        items: list[Any] = self._world.allgather(item)
        return items

    def close(self) -> None:
        pass
