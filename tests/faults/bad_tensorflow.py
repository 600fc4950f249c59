# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Wrong values for hvd_partial.tensorflow and hvd_partial.tensorflow.keras.

`python -m tests.faults.bad_tensorflow` tries them in one process, which is rank 0 of 1, and prints
JSON: the answers, and the public arguments that have no row. Without that, this module needs no
TensorFlow.
"""

from __future__ import annotations

import inspect
import json
import sys
from typing import Any

from tests.faults.bad_input import Row, answer, plain, uncovered

# Options of channels, which five functions share: argument, wrong value, as text, remedy.
_OPTIONS: list[tuple[str, Any, str, str]] = [
    ("mode", "solow", "'solow'", "did you mean 'solo'?"),
    ("catch_up", "newest", "'newest'", "'latest' (only the newest)"),
    ("max_lag", 0, "0", "1 to 65536"),
    ("average", "mean", "'mean'", "must be 'size'"),
    ("staleness", "old", "'old'", "'inverse', 'inverse_squared', 'full' or a function"),
    ("grace", -1.0, "-1.0", "must be 'auto' or a number of seconds, at least 0"),
    ("skip_nonfinite", "no", "'no'", "must be True or False"),
]
# Horovod's arguments, which the optimizers and the tape share.
_HOROVOD: list[tuple[str, Any, str, str]] = [
    ("device_dense", "/gpu:0", "'/gpu:0'", "leave it empty"),
    ("device_sparse", "/gpu:0", "'/gpu:0'", "leave it empty"),
    ("compression", "gzip", "'gzip'", "Compression.none or Compression.fp16"),
    ("op", 7, "7", "must be Average or Sum"),
    ("gradient_predivide_factor", 0.0, "0.0", "must be positive"),
    ("gradient_predivide_factor", "two", "'two'", "must be a number"),
    ("num_groups", -1, "-1", "at least 0"),
    ("groups", 0, "0", "a list of lists of variables"),
    ("process_set", "some", "'some'", "leave it out"),
]
_OPTIMIZER: list[tuple[str, Any, str, str]] = [
    ("name", 5, "5", "must be a text that is not empty"),
    ("backward_passes_per_step", 0, "0", "at least 1"),
    ("average_aggregated_gradients", "yes", "'yes'", "must be True or False"),
    *_HOROVOD,
    *_OPTIONS,
]


def _with(
    call: str, function: str, positional: str, wrong: list[tuple[str, Any, str, str]]
) -> list[Row]:
    """Rows of a function of `Things`, called with good positional arguments and a wrong keyword."""

    def row(argument: str, value: Any, shown: str, remedy: str) -> Row:
        def act(t: Any) -> object:
            return t.find(function)(*getattr(t, positional)(), **{argument: value})

        return Row(call, argument, shown, act, remedy)

    return [row(*entry) for entry in wrong]


def _made(
    call: str, function: str, good: dict[str, Any], wrong: list[tuple[str, Any, str, str]]
) -> list[Row]:
    """Rows of a constructor that takes keywords."""

    def row(argument: str, value: Any, shown: str, remedy: str) -> Row:
        def act(t: Any) -> object:
            return t.find(function)(**(good | {argument: value}))

        return Row(call, argument, shown, act, remedy)

    return [row(*entry) for entry in wrong]


def _one(call: str, argument: str, shown: str, remedy: str, act: Any, **more: Any) -> Row:
    return Row(call, argument, shown, act, remedy, **more)


ROWS = [
    *_with("DistributedOptimizer", "hvd.DistributedOptimizer", "sgd", _OPTIMIZER),
    _one(
        "DistributedOptimizer",
        "optimizer",
        "5",
        "must be an optimizer of Keras 3 or tf_keras",
        lambda t: t.hvd.DistributedOptimizer(5),
    ),
    _one(
        "DistributedOptimizer",
        "optimizer",
        "a distributed one",
        "distributed already",
        lambda t: t.hvd.DistributedOptimizer(t.hvd.DistributedOptimizer(*t.sgd())),
    ),
    _one(
        "DistributedOptimizer",
        "use_locking",
        "True",
        "leave it out",
        lambda t: t.hvt.DistributedOptimizer(*t.sgd(), use_locking=True),
    ),
    *_with("DistributedGradientTape", "hvt.DistributedGradientTape", "tape", _HOROVOD),
    *_with("DistributedGradientTape", "hvt.DistributedGradientTape", "tape", _OPTIONS),
    *_with(
        "DistributedGradientTape",
        "hvt.DistributedGradientTape",
        "tape",
        [("name", "", "''", "must be a text that is not empty")],
    ),
    _one(
        "DistributedGradientTape",
        "gradtape",
        "None",
        "must be a tf.GradientTape",
        lambda t: t.hvt.DistributedGradientTape(None),
    ),
    _one(
        "tape.gradient",
        "sources",
        "a tensor, without name",
        "must be given when the sources are not all variables",
        lambda t: t.gradient_of_a_tensor(),
        says="name",
    ),
    *_with("partial_allreduce", "hvt.partial_allreduce", "tensors", _OPTIONS),
    *_with(
        "partial_allreduce",
        "hvt.partial_allreduce",
        "tensors",
        [("combine", "mean", "'mean'", "'latest' (the newest, for measurements)")],
    ),
    _one(
        "partial_allreduce",
        "tensors",
        "a tensor",
        "put the one tensor into a list",
        lambda t: t.hvt.partial_allreduce(t.tensors()[0][0], "x"),
    ),
    _one(
        "partial_allreduce",
        "tensors",
        "5",
        "must be a list of tensors",
        lambda t: t.hvt.partial_allreduce(5, "x"),
    ),
    _one(
        "partial_allreduce",
        "tensors",
        "[a bool tensor]",
        "what can be reduced is",
        lambda t: t.hvt.partial_allreduce([t.tf.constant([True])], "bools"),
        says="tensor 0",
    ),
    _one(
        "partial_allreduce",
        "name",
        "None",
        "must be a text that is not empty",
        lambda t: t.hvt.partial_allreduce(t.tensors()[0], None),
    ),
    _one(
        "partial_flush",
        "name",
        "'unknown'",
        "call that first",
        lambda t: t.hvt.partial_flush("unknown"),
    ),
    *_with("apply", "hvt.apply", "step", _OPTIONS),
    *_with("apply", "hvt.apply", "step", [("name", 5, "5", "must be a text that is not empty")]),
    _one(
        "apply",
        "name",
        "None, for a function",
        "must be given when the update is a function",
        lambda t: t.hvt.apply(lambda gradients, variables: None, *t.step()[1:]),
    ),
    _one(
        "apply",
        "optimizer",
        "5",
        "must be a Keras optimizer or a function update(gradients, variables)",
        lambda t: t.hvt.apply(5, *t.step()[1:]),
    ),
    _one(
        "apply",
        "gradients",
        "5",
        "must be a list of gradients",
        lambda t: t.hvt.apply(*t.sgd(), 5, t.step()[2]),
    ),
    _one(
        "apply",
        "gradients",
        "[] for one variable",
        "give one for each",
        lambda t: t.hvt.apply(*t.sgd(), [], t.step()[2]),
    ),
    _one(
        "apply",
        "gradients",
        "[], distributed optimizer",
        "give one for each",
        lambda t: t.hvt.apply(t.hvd.DistributedOptimizer(*t.sgd()), [], t.step()[2]),
    ),
    _one(
        "apply",
        "variables",
        "5",
        "must be a list of variables",
        lambda t: t.hvt.apply(*t.step()[:2], 5),
    ),
    _one(
        "flush",
        "optimizer",
        "'unknown'",
        "nothing has been trained with it",
        lambda t: t.hvt.flush("unknown"),
    ),
    _one("mode", "optimizer", "5", "a DistributedOptimizer", lambda t: t.hvt.mode(5)),
    _one("mode", "optimizer", "'unknown'", "open:", lambda t: t.hvt.mode("unknown")),
    _one("stats", "optimizer", "5", "a DistributedOptimizer", lambda t: t.hvt.stats(5)),
    _one("set_mode", "mode", "'bulk'", "valid modes are", lambda t: t.hvt.set_mode("bulk")),
    _one("set_mode", "mode", "'quorum(9)'", "1 to 1", lambda t: t.hvt.set_mode("quorum(9)")),
    _one(
        "broadcast_variables",
        "root_rank",
        "9",
        "0 to 0",
        lambda t: t.hvt.broadcast_variables(t.step()[2], root_rank=9),
    ),
    _one(
        "broadcast_variables",
        "variables",
        "5",
        "must be a list of variables",
        lambda t: t.hvt.broadcast_variables(5, root_rank=0),
    ),
    _one(
        "data.by_contributions",
        "dataset",
        "[1, 2]",
        "must be a tf.data.Dataset",
        lambda t: t.hvd.data.by_contributions([1, 2], 3),
    ),
    _one(
        "data.by_contributions",
        "steps_per_epoch",
        "0",
        "at least 1",
        lambda t: t.hvd.data.by_contributions(t.dataset(), 0),
    ),
    _one(
        "data.by_contributions",
        "steps_per_epoch",
        "2.5",
        "whole number",
        lambda t: t.hvd.data.by_contributions(t.dataset(), 2.5),
    ),
    _one(
        "data.by_contributions",
        "optimizer",
        "a plain one",
        "a DistributedOptimizer",
        lambda t: t.hvd.data.by_contributions(t.dataset(), 3, *t.sgd()),
    ),
    _one(
        "data.shard",
        "dataset",
        "None",
        "must be a tf.data.Dataset",
        lambda t: t.hvd.data.shard(None),
    ),
    _one(
        "data.shard",
        "seed",
        "'a'",
        "the same on all ranks",
        lambda t: t.hvd.data.shard(t.dataset(), "a"),
    ),
    *_made(
        "load_model",
        "hvd.load_model",
        {"filepath": "none.keras"},
        [
            ("compression", "gzip", "'gzip'", "Compression.none or Compression.fp16"),
            ("custom_optimizers", 5, "5", "must be a list of classes"),
            ("custom_objects", [1], "[1]", "must be a dict"),
        ],
    ),
    _one(
        "load_model",
        "filepath",
        "'none.keras'",
        "File not found",
        lambda t: t.hvd.load_model("none.keras"),
        error="ValueError",
        says="filepath=none.keras",
        has_rank=False,
    ),
    _one(
        "ByContributions",
        "schedule",
        "0.1",
        "must be a Keras schedule",
        lambda t: t.hvd.schedules.ByContributions(0.1),
    ),
    _one(
        "ByContributions",
        "start",
        "'now'",
        "None for the optimizer's iterations",
        lambda t: t.hvd.schedules.ByContributions(t.schedule(), start="now"),
    ),
    *_made(
        "callbacks.BroadcastGlobalVariablesCallback",
        "callbacks.BroadcastGlobalVariablesCallback",
        {},
        [
            ("root_rank", 7, "7", "0 to 0"),
            ("root_rank", "0", "'0'", "whole number"),
            ("local_variables", [5], "[5]", "a variable, or a list of variables"),
        ],
    ),
    *_made(
        "callbacks.LearningRateScheduleCallback",
        "callbacks.LearningRateScheduleCallback",
        {"initial_lr": 0.1, "multiplier": 0.5},
        [
            ("initial_lr", None, "None", "the learning rate that multipliers refer to"),
            ("multiplier", "half", "'half'", "or a function of the epoch"),
            ("start_epoch", -1, "-1", "at least 0"),
            ("end_epoch", 1.5, "1.5", "None for never"),
            ("staircase", "no", "'no'", "True or False"),
            ("momentum_correction", "no", "'no'", "True or False"),
            ("steps_per_epoch", 0, "0", "at least 1"),
        ],
    ),
    *_made(
        "callbacks.LearningRateWarmupCallback",
        "callbacks.LearningRateWarmupCallback",
        {"initial_lr": 0.1},
        [
            ("initial_lr", "fast", "'fast'", "the learning rate that multipliers refer to"),
            ("warmup_epochs", 0, "0", "at least 1"),
            ("momentum_correction", "no", "'no'", "True or False"),
            ("steps_per_epoch", 0, "0", "at least 1"),
            ("verbose", "yes", "'yes'", "1: rank 0 says when it is over"),
        ],
    ),
    *_made(
        "callbacks.ReplicaSyncCallback",
        "callbacks.ReplicaSyncCallback",
        {},
        [
            ("average_state", "no", "'no'", "True or False"),
            ("check", "no", "'no'", "True or False"),
        ],
    ),
    *_made(
        "callbacks.ModelAverageCallback",
        "callbacks.ModelAverageCallback",
        {},
        [("every", 0, "0", "at least 1"), ("slots", "no", "'no'", "True or False")],
    ),
    *_made(
        "callbacks.StopAgreementCallback",
        "callbacks.StopAgreementCallback",
        {},
        [("rule", "some", "'some'", "must be 'any'")],
    ),
    *_made(
        "callbacks.DelayInjectionCallback",
        "callbacks.DelayInjectionCallback",
        {"pattern": abs},
        [
            ("pattern", 0.3, "0.3", "FixedRank(rank=-1, seconds=0.3)"),
            ("sleep", 1, "1", "must be a function"),
        ],
    ),
    *_made(
        "callbacks.FixedRank",
        "callbacks.FixedRank",
        {"rank": 0, "seconds": 0.1},
        [
            ("rank", "last", "'last'", "negative: from the end"),
            ("seconds", -1, "-1", "at least 0"),
        ],
    ),
    *_made(
        "callbacks.RandomRank",
        "callbacks.RandomRank",
        {"seconds": 0.1},
        [("seconds", "long", "'long'", "at least 0"), ("seed", -1, "-1", "the same on all ranks")],
    ),
    _one("exclude", "ranks", "[7]", "a whole number, 0 to", lambda t: t.hvd.exclude([7])),
    _one("exclude", "ranks", "[0]", "leave one", lambda t: t.hvd.exclude([0])),
    _one("exclude", "ranks", "3", "a list of ranks", lambda t: t.hvd.exclude(3)),
    _one(
        "exclude", "late", "'lose'", "'count' or 'drop'", lambda t: t.hvd.exclude([], late="lose")
    ),
    _one(
        "exclude",
        "optimizer",
        "5",
        "must be a DistributedOptimizer",
        lambda t: t.hvd.exclude([], optimizer=5),
    ),
    _one("data.measured", "dataset", "5", "a tf.data.Dataset", lambda t: t.hvd.data.measured(5)),
    _one(
        "data.input_seconds",
        "dataset",
        "one that does not measure",
        "hvd.data.measured(dataset)",
        lambda t: t.hvd.data.input_seconds(t.tf.data.Dataset.range(3)),
    ),
    *_made(
        "callbacks.StragglerCallback",
        "callbacks.StragglerCallback",
        {},
        [
            ("detector", "ratio", "'ratio'", "options of StragglerDetector"),
            ("detector", {"windows": 3}, "{'windows': 3}", "it has rule, window"),
            ("detector", {"window": 0}, "{'window': 0}", "whole number from 2"),
            ("dataset", 5, "5", "hvd.data.measured(dataset)"),
            ("verbose", "yes", "'yes'", "0 to 1"),
        ],
    ),
    *_made(
        "callbacks.SyncSwitchCallback",
        "callbacks.SyncSwitchCallback",
        {"schedule": [("sync", 0.5), ("async", None)]},
        [
            ("schedule", [("sync", 2.0)], "[('sync', 2.0)]", "share"),
            ("bsp_fraction", 0.5, "0.5 beside a schedule", "one of the two"),
            ("policy", "plastic", "'plastic'", "elastic"),
            ("detector", {"windows": 3}, "{'windows': 3}", "it has rule, window"),
            ("rate", "papers", "'papers'", "keep"),
            ("momentum_policy", "zeros", "'zeros'", "zero"),
            ("momentum_ramp", 0, "0", "at least 1"),
            ("steps_per_epoch", 0, "0", "at least 1"),
            ("epochs", 1.5, "1.5", "a whole number"),
            ("state_file", 5, "5", "a path"),
            ("log_dir", 5, "5", "a path"),
            ("verbose", "yes", "'yes'", "0 to 1"),
        ],
    ),
    *_made(
        "callbacks.RotatingSkew",
        "callbacks.RotatingSkew",
        {"shortest": 0.1, "longest": 0.2},
        [("shortest", -1, "-1", "at least 0"), ("longest", 0.05, "0.05", "at least 0.1")],
    ),
    *_made(
        "callbacks.LogNormal",
        "callbacks.LogNormal",
        {"median": 0.1},
        [
            ("median", -1, "-1", "at least 0"),
            ("sigma", -1, "-1", "at least 0"),
            ("seed", 0.5, "0.5", "whole number"),
        ],
    ),
]

# Functions of hvd.data, which has other names from other modules, too.
_DATA = ("by_contributions", "shard", "measured", "input_seconds")
_DEVICE = "as Horovod's, which uses it as a name only"
_KERAS = "Keras's own ModelCheckpoint checks it"
NO_WRONG_VALUE = {
    "DistributedOptimizer.sparse_as_dense": "nothing depends on it",
    "DistributedOptimizer.scale_local_gradients": "nothing depends on it",
    "DistributedGradientTape.sparse_as_dense": "nothing depends on it",
    "DistributedGradientTape.scale_local_gradients": "nothing depends on it",
    "tape.gradient.target": "TensorFlow's own tape checks it",
    "tape.gradient.output_gradients": "TensorFlow's own tape checks it",
    "tape.gradient.unconnected_gradients": "TensorFlow's own tape checks it",
    "tape.gradient.use_generic_names": "nothing depends on it",
    "broadcast_variables.process_set": "handed on to Horovod",
    "broadcast_variables.inplace": "handed on to Horovod",
    "load_model.legacy_opts": "nothing depends on it",
    "callbacks.BroadcastGlobalVariablesCallback.device": _DEVICE,
    "callbacks.MetricAverageCallback.device": "nothing depends on it",
    **{
        f"callbacks.BestModelCheckpoint.{name}": _KERAS
        for name in ("monitor", "verbose", "save_weights_only", "mode", "save_freq", "filepath")
    },
}


class Things:
    """What calls need: the modules, and good arguments."""

    def __init__(self) -> None:
        import tensorflow as tf

        import hvd_partial.tensorflow as hvt
        import hvd_partial.tensorflow.keras as hvd

        self.tf, self.hvt, self.hvd = tf, hvt, hvd
        self.callbacks = hvd.callbacks
        self.variable = tf.Variable([1.0, 2.0])

    def find(self, name: str) -> Any:
        module, function = name.split(".")
        return getattr(getattr(self, module), function)

    def sgd(self) -> tuple[Any, ...]:
        return (self.tf.keras.optimizers.SGD(0.1),)

    def tape(self) -> tuple[Any, ...]:
        return (self.tf.GradientTape(),)

    def tensors(self) -> tuple[Any, ...]:
        return ([self.tf.constant([1.0, 2.0])], "x")

    def step(self) -> tuple[Any, ...]:
        return (*self.sgd(), [self.tf.constant([1.0, 1.0])], [self.variable])

    def dataset(self) -> Any:
        return self.tf.data.Dataset.range(10)

    def schedule(self) -> Any:
        return self.tf.keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.9)

    def gradient_of_a_tensor(self) -> object:
        x = self.tf.constant([1.0])
        with self.tf.GradientTape() as tape:
            tape.watch(x)
            y = x * x
        return self.hvt.DistributedGradientTape(tape).gradient(y, [x])

    def functions(self) -> dict[str, list[Any]]:
        """Everything public of ours that takes arguments, elastic training excepted."""
        from hvd_partial.tensorflow import tape
        from hvd_partial.tensorflow.optimizer import distributed_optimizer

        hvt, hvd = self.hvt, self.hvd
        optimizers = [hvt.DistributedOptimizer, hvd.DistributedOptimizer, distributed_optimizer]
        found: dict[str, list[Any]] = {
            "DistributedOptimizer": optimizers,
            "tape.gradient": [tape._PartialTape.gradient],
            "ByContributions": [hvd.schedules.ByContributions.__init__],
        }
        for module in (hvt, hvd):
            for name in module._OURS:
                value = getattr(module, name)
                if inspect.isfunction(value):
                    found.setdefault(name, [value])
        for prefix, module in (("data", hvd.data), ("callbacks", hvd.callbacks)):
            for name in getattr(module, "__all__", None) or _DATA:
                value = getattr(module, name)
                if inspect.isclass(value):
                    value = value.__init__
                found[f"{prefix}.{name}"] = [value]
        for name in ("init", "shutdown"):  # Horovod's arguments
            del found[name]
        return found


def main() -> int:
    things = Things()
    things.hvd.init()
    answers = plain(answer(row, things) for row in ROWS)
    missing = uncovered(things.functions(), ROWS, NO_WRONG_VALUE)
    print(json.dumps({"answers": answers, "missing": missing}))
    sys.stdout.flush()
    things.hvd.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
