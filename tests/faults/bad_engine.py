# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Wrong values for hvd_partial.engine, tried in one rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hvd_partial import engine as engine_module
from hvd_partial.engine import Channel, Engine, connect, transports
from hvd_partial.modes import Mode
from tests.engine.process_ranks import Ranks
from tests.faults.bad_input import Row, answer, plain

W, B = np.zeros((3, 2), np.float32), np.zeros(2)

FUNCTIONS: dict[str, list[Any]] = {
    "connect": [connect],
    "transports": [transports],
    "Engine.channel": [Engine.channel],
    "Engine.set_mode": [Engine.set_mode],
    "Engine.modes": [Engine.modes],
    "Engine.stats": [Engine.stats],
    "Engine.write_flight_record": [Engine.write_flight_record],
    "Engine.abort": [Engine.abort],
    "Engine.close": [Engine.close],
    "Channel.allreduce": [Channel.allreduce],
    "Channel.flush": [Channel.flush],
    "Channel.leave": [Channel.leave],
    "Channel.set_mode": [Channel.set_mode],
    "Channel.exclude": [Channel.exclude],
    "Channel.decide": [Channel.decide],
    "Channel.stats": [Channel.stats],
    "Mode": [Mode],
    "Mode.parse": [Mode.parse],
}
NO_WRONG_VALUE = {
    "Engine.abort.reason": "anything has a text",
    "Engine.write_flight_record.reason": "anything has a text",
    "Mode.parse.size": "only narrows what k can be; bindings give it",
    "Mode.parse.rank": "only for the message; bindings give it",
}


def public_callables() -> set[str]:
    """What must be in FUNCTIONS: functions of the module, and public methods of its classes."""
    names = {
        name
        for name in engine_module.__all__
        if callable(getattr(engine_module, name)) and name[0].islower()
    }
    for kind in (Engine, Channel):
        names |= {
            f"{kind.__name__}.{name}"
            for name, member in vars(kind).items()
            if not name.startswith("_") and callable(member)
        }
    return names | {"Mode", "Mode.parse"}


@dataclass
class Things:
    """What calls need."""

    engine: Any = None
    channel: Any = None


def _exchange(address: bytes) -> list[bytes]:
    return [address]


def _opened(argument: str, value: Any, shown: str, remedy: str, **more: Any) -> Row:
    good: dict[str, Any] = {"name": "new", "like": [W, B]}
    return Row(
        "Engine.channel",
        argument,
        shown,
        lambda t: t.engine.channel(**(good | {argument: value})),
        remedy,
        **more,
    )


def _reduced(value: Any, shown: str, remedy: str, says: str = "array") -> Row:
    return Row(
        "Channel.allreduce",
        "arrays",
        shown,
        lambda t: t.channel.allreduce(value),
        remedy,
        says=says,
    )


def _any(value: Any) -> Any:
    """For the type checker, which knows that the value is wrong."""
    return value


ROWS = [
    Row(
        "connect", "rank", "2", lambda t: connect(2, 2, _exchange), "0 to size - 1", has_rank=False
    ),
    Row("connect", "rank", "True", lambda t: connect(True, 2, _exchange), "whole", has_rank=False),
    Row(
        "connect",
        "size",
        "'2'",
        lambda t: connect(0, _any("2"), _exchange),
        "whole",
        has_rank=False,
    ),
    Row("connect", "exchange", "None", lambda t: connect(0, 1, _any(None)), "must be a function"),
    _opened("name", "", "''", "must be a text that is not empty"),
    _opened("name", None, "None", "must be a text that is not empty"),
    _opened("like", [], "[]", "at least one array"),
    _opened("like", W, "an array", "[array]"),
    _opened("like", 5, "5", "must be a list of arrays"),
    _opened("like", [np.zeros(2, np.int8)], "[int8 array]", "what can be reduced is"),
    _opened("like", [np.zeros(2, np.int64)], "[int64 array]", "pass average=None", says="holds"),
    _opened("mode", "majorty", "'majorty'", "did you mean 'majority'?"),
    _opened("mode", "quorum", "'quorum'", "As in 'quorum(3)'"),
    _opened("mode", "quorum(9)", "'quorum(9)'", "k must be 1 to 1"),
    _opened("mode", 3, "3", "valid modes are"),
    _opened("average", "mean", "'mean'", "must be 'size'"),
    _opened("staleness", "invers", "'invers'", "did you mean 'inverse'?"),
    _opened("staleness", lambda tau: 2.0, "lambda tau: 2.0", "weights must be 0 to 1"),
    _opened("staleness", lambda tau: "x", "lambda tau: 'x'", "not a number"),
    _opened("grace", -1.0, "-1.0", "must be 'auto' or a number of seconds, at least 0"),
    _opened("grace", "long", "'long'", "must be 'auto' or a number of seconds, at least 0"),
    _opened("max_lag", 0, "0", "1 to 65536"),
    _opened("max_lag", 2.5, "2.5", "must be a whole number of rounds"),
    _opened("max_lag", 10**9, "10**9", "1 to 65536"),
    _opened("catch_up", "newest", "'newest'", "'latest' (only the newest)"),
    _opened("skip_nonfinite", "no", "'no'", "must be True or False"),
    _opened("names", ["w"], "['w']", "1 names for 2 arrays"),
    _opened("names", 5, "5", "must be a list of texts"),
    _opened("process_set", [0], "[0]", "leave it out"),
    Row(
        "Engine.set_mode", "mode", "'bulk'", lambda t: t.engine.set_mode("bulk"), "valid modes are"
    ),
    Row("Engine.close", "silence_seconds", "-1", lambda t: t.engine.close(-1), "at least 0"),
    Row(
        "Engine.close", "silence_seconds", "'1'", lambda t: t.engine.close("1"), "must be a number"
    ),
    _reduced([W], "[W] for [W, B]", "expected 2 arrays"),
    _reduced([B, W], "[B, W] for [W, B]", "is the order another one?"),
    _reduced([W, B.astype(np.float32)], "float32 for float64", "convert it with .astype()"),
    _reduced(W, "an array", "[array]"),
    _reduced({"w": W, "b": B}, "a mapping", "expected a list of arrays"),
    _reduced(None, "None", "must be a list of arrays", says="arrays"),
    Row("Channel.exclude", "ranks", "[7]", lambda t: t.channel.exclude([7]), "ranks are 0 to"),
    Row("Channel.exclude", "ranks", "3", lambda t: t.channel.exclude(3), "a list of ranks"),
    Row(
        "Channel.exclude",
        "late",
        "'lose'",
        lambda t: t.channel.exclude([], "lose"),
        "must be 'count' or 'drop'",
    ),
    Row("Channel.decide", "number", "0", lambda t: t.channel.decide(0, "sync"), "from 1"),
    Row("Channel.decide", "mode", "'sinc'", lambda t: t.channel.decide(1, "sinc"), "mean 'sync'?"),
    Row(
        "Channel.decide",
        "excluded",
        "[7]",
        lambda t: t.channel.decide(1, "sync", [7]),
        "ranks are 0 to",
    ),
    Row(
        "Channel.decide",
        "late",
        "'lose'",
        lambda t: t.channel.decide(1, "sync", [], "lose"),
        "must be 'count' or 'drop'",
    ),
    Row("Channel.set_mode", "mode", "'sinc'", lambda t: t.channel.set_mode("sinc"), "mean 'sync'?"),
    Row(
        "Mode",
        "kind",
        "'soloo'",
        lambda t: Mode("soloo"),
        "did you mean 'solo'?",
        says="mode",
        has_rank=False,
    ),
    Row("Mode", "k", "0", lambda t: Mode("quorum", k=0), "at least 1", has_rank=False),
    Row("Mode", "k", "None", lambda t: Mode("quorum"), "as in 'quorum(3)'", has_rank=False),
    Row(
        "Mode",
        "seed",
        "-1",
        lambda t: Mode("designated", seed=-1),
        "0 to 2**64 - 1",
        has_rank=False,
    ),
    Row(
        "Mode.parse",
        "mode",
        "'solo(3)'",
        lambda t: Mode.parse("solo(3)"),
        "takes no number",
        has_rank=False,
    ),
]


def try_all(ranks: Ranks) -> list[dict[str, Any]]:
    """In one rank: what each wrong value gets; and then everything still works."""
    # connect's own come first: there is one engine in a process.
    before = [answer(row, Things()) for row in ROWS if row.call == "connect"]
    with ranks.connect() as engine:
        channel = engine.channel("g", [W, B], "solo", names=["kernel", "bias"])
        things = Things(engine, channel)
        after = [answer(row, things) for row in ROWS if row.call != "connect"]
        (result,) = channel.allreduce([W + 1, B])
        if result.contributions != 1:
            raise RuntimeError(f"a wrong call has contributed: {result}")
    return plain(before + after)
