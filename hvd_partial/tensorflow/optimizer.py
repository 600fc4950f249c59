# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""DistributedOptimizer: Horovod's, with partial rounds."""

from __future__ import annotations

from typing import Any

from horovod.tensorflow import Average, Compression, Sum, global_process_set

from hvd_partial import arguments
from hvd_partial.errors import InvalidArgumentError
from hvd_partial.modes import Mode
from hvd_partial.tensorflow._channels import Options, Staleness
from hvd_partial.tensorflow._distributed import Settings
from hvd_partial.tensorflow._errors import names_rank
from hvd_partial.tensorflow._wrap import distribute


class HorovodDefaults:
    """Defaults that are Horovod's objects."""

    compression = Compression.none
    op = Average
    process_set = global_process_set


_TEXT = """A Keras optimizer whose gradients are reduced over the ranks that are there in time.

    It is the same object, still an instance of its class, with its variables; only what it does
    with gradients changes. Clipping, weight decay, EMA and the update act on the reduced gradient.
    Works with `fit`, with custom `train_step`s and in loops that call `apply_gradients`, for
    Keras 3 and for tf_keras, its legacy optimizers included. Files saved with it load without this
    package. Both `DistributedOptimizer(LossScaleOptimizer(x))` and the other way round work. Sparse
    gradients are made dense. Inside `tf.function(jit_compile=True)` it raises.

    Keyword arguments of ours:
      mode: Which ranks a round waits for: "sync" (all), "majority" (default), "solo" (anyone),
        "quorum(k)", "designated(seed)", "async". See `set_mode` for changing it.
      catch_up: "replay" (default): a late rank applies all results that it missed, one by one, so
        replicas are equal at the same round; "latest": only the newest, as the eager-SGD paper.
      max_lag: Results that may wait to be applied before the others wait for this rank.
      average: What the sum is divided by: "size" (default), whoever contributed; "contributions";
        or None. `op=Sum` means None.
      staleness: Weight of a contribution that is late by tau rounds: "inverse" (1 / (1 + tau), the
        default), "inverse_squared", "full" (1), or a function of tau.
      grace: Seconds that a round which could start still waits for the rest; "auto" learns it.
      skip_nonfinite: Leave gradients with inf or nan out of the round, and count them.

    Horovod's arguments:
      name: Of the channel; unique. By default the class and a number in order of creation, which
        must be the same on all ranks.
      backward_passes_per_step: Gradients of so many passes are added up and reduced once; so are
        those of Keras 3's gradient_accumulation_steps.
      average_aggregated_gradients: Divide that sum by their number.
      op: Average or Sum.
      gradient_predivide_factor: Gradients are divided by it before the sum, multiplied after.
      compression: Compression.none or fp16.
      sparse_as_dense, num_groups, groups, scale_local_gradients: Accepted; nothing depends on them.
      device_dense, device_sparse: Only CPUs.
      process_set: Only the global one.

    Raises:
      InvalidArgumentError: for an argument that cannot be, and why.
    """


def document(function: Any) -> Any:
    """Gives both DistributedOptimizers their text."""
    function.__doc__ = _TEXT
    return function


@names_rank
def distributed_optimizer(
    optimizer: Any,
    *,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: Any = Average,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Any = None,
    process_set: Any = global_process_set,
    scale_local_gradients: bool = True,
    mode: str | Mode = "majority",
    catch_up: str = "replay",
    max_lag: int = 8,
    average: str | None = "size",
    staleness: Staleness = "inverse",
    grace: str | float = "auto",
    skip_nonfinite: bool = True,
) -> Any:
    """Both DistributedOptimizers, which differ only in the order of Horovod's arguments."""
    del sparse_as_dense  # always
    del scale_local_gradients  # there are no local variables; see register_local_var
    options, predivide = reduction_options(
        op=op,
        average=average,
        gradient_predivide_factor=gradient_predivide_factor,
        device_dense=device_dense,
        device_sparse=device_sparse,
        process_set=process_set,
        num_groups=num_groups,
        groups=groups,
        mode=mode,
        catch_up=catch_up,
        max_lag=max_lag,
        staleness=staleness,
        grace=grace,
        skip_nonfinite=skip_nonfinite,
    )
    passes = arguments.whole("backward_passes_per_step", backward_passes_per_step, least=1)
    if name is not None:
        arguments.text("name", name, "the channel's, the same on all ranks")
    settings = Settings(
        options=options,
        passes=passes,
        average_passes=arguments.flag("average_aggregated_gradients", average_aggregated_gradients),
        predivide=predivide,
        compression=checked_compression(compression),
    )
    return distribute(optimizer, name, settings)


def reduction_options(
    *,
    op: Any,
    average: str | None,
    gradient_predivide_factor: float,
    device_dense: str,
    device_sparse: str,
    process_set: Any,
    num_groups: int,
    groups: Any,
    **others: Any,
) -> tuple[Options, float]:
    """Horovod's arguments as ours, and the factor to divide by before the sum.

    Raises:
      InvalidArgumentError: naming the argument and why it cannot be.
    """
    if op not in (Average, Sum):
        raise InvalidArgumentError(
            "op: must be Average or Sum; a partial round adds what is there, and the "
            "minimum, maximum, product or Adasum of some ranks' gradients is not that of all"
        )
    if op == Sum:
        if average not in ("size", None):
            raise InvalidArgumentError(f"average={average!r}: contradicts op=Sum; use op=Average")
        average = None
    factor = arguments.number("gradient_predivide_factor", gradient_predivide_factor)
    if factor <= 0:
        raise InvalidArgumentError(
            f"gradient_predivide_factor={factor}: must be positive; 1 is for none"
        )
    if factor != 1.0 and op != Average:
        raise InvalidArgumentError(
            "gradient_predivide_factor: needs op=Average; leave one of them out"
        )
    for argument, device in (("device_dense", device_dense), ("device_sparse", device_sparse)):
        if device and "cpu" not in str(device).lower():
            raise InvalidArgumentError(
                f"{argument}={device!r}: rounds are reduced in host memory; leave it empty"
            )
    if process_set is not global_process_set and process_set is not None:
        raise InvalidArgumentError(
            "process_set: only the global one; rounds of a part of the ranks do not exist yet; "
            "leave it out, and all ranks take part"
        )
    # Only hints in Horovod, about what travels together: here a contribution always does.
    arguments.whole("num_groups", num_groups)
    if groups is not None and not isinstance(groups, list):
        arguments.whole("groups", groups, least=1, hint="or a list of lists of variables")
    return Options(average=average, **others), factor


def checked_compression(compression: Any) -> Any:
    """Horovod's fp16, or None for none.

    Raises:
      InvalidArgumentError: for others: what they make of a gradient need not be summable.
    """
    if compression is None or compression is Compression.none:
        return None
    if compression is Compression.fp16:
        return compression
    raise InvalidArgumentError(
        f"compression={compression!r}: must be Compression.none or Compression.fp16; sums of "
        "anything else need not mean anything"
    )
