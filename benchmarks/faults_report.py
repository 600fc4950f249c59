# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""docs/reliability.md out of the results of benchmarks.faults and benchmarks.soak."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from hvd_partial.diagnosis import DEFAULT_LEAVE_OUT_SECONDS
from tests.faults.kill_points import POINTS, PROMISED_SECONDS
from tests.faults.kills import MODES, SIZE, VICTIMS
from tests.faults.limits import QUOTA, STEP_SECONDS, STEPS
from tests.faults.stops import AT_CALL, CALLS, MAX_LAG

Found = dict[str, Any]

FATES = {
    "error": "`PeerLostError` on all others",
    "go on": "the others go on",
    "close ends": "the others' `close()` ends",
}


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.0f}" if seconds >= 0.01 else f"{seconds * 1e3:.1f}"


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """As Markdown."""
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    return lines + [f"| {' | '.join(_cell(value) for value in row)} |" for row in rows]


def _cell(value: object) -> str:
    return str(value).replace("|", "\\|").replace("\n", " ")


def problems(found: Found) -> list[str]:
    """All that did not end as it must."""
    texts = [
        f"{kill['point']}, {kill['mode']}, rank {kill['victim']} killed: {kill['problem']}"
        for kill in found.get("kills", [])
        if "problem" in kill
    ]
    texts += [
        f"{stop['what']} stopped in {stop['mode']}: replicas differ: {stop}"
        for stop in found.get("stops", [])
        if not (stop["equal"] and stop["exact"])
    ]
    quota = found.get("quota", [])
    if isinstance(quota, list):
        texts += [f"quota, {job}" for job in quota if not (job["equal"] and job["exact"])]
    for answers in found.get("bad input", {}).values():
        texts += [f"{answer['key']} was accepted" for answer in answers if not answer["errors"]]
    return texts


def late_kills(found: Found) -> list[Found]:
    """Kills of which the survivors knew only after more than the two seconds that are promised."""
    return [
        kill
        for kill in found.get("kills", [])
        if kill.get("fate") != "go on" and kill.get("seconds", 0) > PROMISED_SECONDS
    ]


def summary(found: Found) -> str:
    """One line."""
    kills = found.get("kills", [])
    wrong = len(problems(found))
    seconds = [kill["seconds"] for kill in kills if "seconds" in kill]
    text = f"{len(kills)} kills, {len(late_kills(found))} known after more than 2 s"
    if seconds:
        text += f" (slowest {max(seconds):.2f} s)"
    return f"{text}; {'ok' if not wrong else f'{wrong} problems'}"


def markdown(found: Found, soak: Found | None) -> str:
    """The whole page."""
    machine = ", ".join(f"{name} {value}" for name, value in found["environment"].items())
    lines = [
        "# Reliability: what faults do",
        "",
        "Generated from runs by `python -m benchmarks.faults`; the numbers are what came out.",
        "",
        f"- Command: `{found['command']}`",
        f"- Measured on: {machine}; load average during the kills "
        f"{found.get('load average', 'unknown')}. {found.get('note', '')}".rstrip(),
        "- The same faults are tests, in `tests/faults`.",
    ]
    for section in (_kills, _horovodrun, _stops, _quota, _memory):
        lines += ["", *section(found)]
    lines += ["", *_soak(soak), "", *_input(found)]
    return "\n".join(lines).rstrip() + "\n"


def _kills(found: Found) -> Iterator[str]:
    kills = found.get("kills", [])
    yield "## A rank is killed"
    yield ""
    yield (
        f"SIGKILL of one of {SIZE} ranks (light processes on one machine, without TensorFlow) at a "
        "point that is met exactly: the victim, or a thread of it, sees that it is there; nothing "
        "is timed by sleeping. Milliseconds are from the kill until the slowest survivor's call "
        "had raised (or, where no error is due, until its `close()` had returned), median and "
        "maximum. Every error names the rank that was lost, stays for all later calls, and lets "
        f"`close()` return. {len(kills)} kills in all, {_least(kills)} or more at each point, "
        "spread over modes and victims; "
        f"{sum('problem' in kill for kill in kills)} hung or ended wrongly, "
        f"{len(late_kills(found))} took longer than 2 s."
    )
    yield ""
    rows = []
    for point, facts in POINTS.items():
        for mode in MODES:
            row: list[object] = [f"{point}: {facts.text}", mode]
            for victim in VICTIMS:
                cell = [
                    kill
                    for kill in kills
                    if (kill["point"], kill["mode"], kill["victim"]) == (point, mode, victim)
                ]
                row += [FATES[facts.fate_of(victim)], *_numbers(cell)]
            rows.append(row)
    yield from table(
        [
            "the victim",
            "mode",
            "rank 0, the coordinator",
            "kills",
            "ms",
            "another rank",
            "kills",
            "ms",
        ],
        rows,
    )
    yield ""
    yield (
        "A rank that has said goodbye (its `close()` waits for the others) may die: it is not "
        "needed any more, and the others go on. Rank 0 is: it stays until the last has gone, and "
        "its death before that is an error. A rank that has left its channels but not said goodbye "
        "might open another one, so its death is an error too. Ranks that are in `close()` already "
        "have all they asked for: when a rank that they wait for dies, `close()` returns."
    )


def _least(kills: Sequence[Found]) -> int:
    counts = [sum(kill["point"] == point for kill in kills) for point in POINTS]
    return min(counts)


def _numbers(cell: Sequence[Found]) -> tuple[object, object]:
    wrong = sum("problem" in kill for kill in cell)
    seconds = [kill["seconds"] for kill in cell if "seconds" in kill]
    count = f"{len(cell)}" + (f", {wrong} WRONG" if wrong else "")
    if not seconds:
        return count, "-"
    return count, f"{milliseconds(statistics.median(seconds))}, {milliseconds(max(seconds))}"


def _horovodrun(found: Found) -> Iterator[str]:
    yield "### Under horovodrun, with TensorFlow"
    yield ""
    yield (
        "Rank 0 of 3 is killed inside `model.fit`, in an op in which it waits for rank 1. "
        "(horovodrun then ends the others; they hear of it from the engine before that.)"
    )
    yield ""
    if not found.get("horovodrun"):
        yield "Not measured."
        return
    yield from table(
        ["rank", "ms", "error", "message"],
        [
            (
                seen["rank"],
                milliseconds(seen["seconds"]),
                f"`{seen['kinds'][0]}`",
                seen["message"],
            )
            for seen in found.get("horovodrun", [])
        ],
    )


def _stops(found: Found) -> Iterator[str]:
    stops = found.get("stops", [])
    yield "## A rank stands still, and goes on"
    yield ""
    yield (
        f"{SIZE} ranks make {CALLS} calls each; one stands still before its call {AT_CALL}. "
        "SIGSTOP stops a whole process, its progress thread too, so no reduce can have that "
        f"rank's part. In sync mode all wait. In majority and solo they wait for "
        f"{DEFAULT_LEAVE_OUT_SECONDS:g} s (`HVD_PARTIAL_LEAVE_OUT_S`), and go on without it then, "
        f"until its ring of {MAX_LAG} results would be full; it gets what it has missed after "
        "SIGCONT. Rank 0 decides about rounds: if that one is stopped, all wait. Nobody mistakes "
        "a stopped process for a dead one. Where only the user's thread stands still (slow input, "
        "a debugger, a long computation), its progress thread takes part: the others go on at "
        "once, until that ring is full."
    )
    yield ""
    yield from table(
        [
            "what stands still",
            "mode",
            "rank",
            "for",
            "rounds meanwhile",
            "made without it",
            "results in its first call after",
            "sums exact",
            "replicas",
        ],
        [
            (
                "process (SIGSTOP)" if stop["what"] == "process" else "user's thread",
                stop["mode"],
                stop["victim"],
                f"{stop['seconds']:.1f} s",
                stop["rounds_meanwhile"],
                stop["made_without"],
                stop["caught_up"],
                "yes" if stop["exact"] else "NO",
                "equal, bit by bit" if stop["equal"] else "DIFFERENT",
            )
            for stop in stops
        ],
    )


def _quota(found: Found) -> Iterator[str]:
    quota = found.get("quota", [])
    yield f"## A rank has {QUOTA:.0%} of a processor"
    yield ""
    if isinstance(quota, str):
        yield f"Not measured: no quota can be set on this machine ({quota})."
        return
    yield (
        f"Rank 2 of {SIZE} is in a control group with a processor quota. Each rank makes {STEPS} "
        f"steps that take {STEP_SECONDS * 1e3:.0f} ms of processor time. Late: contributions of "
        "ranks 0 to 3 that went into a later round than they were made for. Seconds: until each "
        "rank's last step was made. Held back: periods of 100 ms in which the quota was used up; "
        "few where the machine is so busy that the other ranks get no more."
    )
    yield ""
    yield from table(
        ["mode", "rounds", "late", "seconds", "held back", "sums exact", "replicas"],
        [
            (
                job["mode"],
                job["rounds"],
                ", ".join(map(str, job["late"])),
                ", ".join(f"{seconds:.1f}" for seconds in job["seconds"]),
                f"{job['throttled']} periods",
                "yes" if job["exact"] else "NO",
                "equal" if job["equal"] else "DIFFERENT",
            )
            for job in quota
        ],
    )


def _memory(found: Found) -> Iterator[str]:
    yield "## No memory for a ring"
    yield ""
    yield (
        "A channel takes all its memory when it is opened. Where there is none, or more is asked "
        "for than the machine has, the job ends at once on all ranks, instead of waiting for a "
        "rank that cannot take part."
    )
    for case in found.get("memory", []):
        what = (
            "`RLIMIT_AS` on rank 1 only"
            if case["case"] == "rank 1"
            else "`max_lag=60000` for 16 MiB on all ranks"
        )
        yield ""
        yield f"{what}:"
        yield ""
        yield from table(
            ["rank", "after", "error", "message"],
            [
                (rank, f"{seen['seconds'] * 1e3:.0f} ms", f"`{seen['kinds'][0]}`", seen["message"])
                for rank, seen in enumerate(case["ranks"])
            ],
        )


def _soak(soak: Found | None) -> Iterator[str]:
    yield "## Soak"
    yield ""
    if soak is None:
        yield "Not run."
        return
    faults = ", ".join(f"{count} {name}" for name, count in sorted(soak["faults"].items()))
    kills = soak["error seconds"]
    yield (
        f"`{soak['command']}`: {soak['seconds']:.0f} s, {soak['jobs']} jobs, {soak['episodes']} "
        f"episodes, {soak['rounds']} rounds, {soak['contributions']} contributions; {faults}. "
        f"After each flush every rank's integer sums were compared with what was contributed: "
        f"{soak['checks']} comparisons."
    )
    if kills["kills"]:
        yield (
            f"Survivors knew of a kill after {milliseconds(kills['median'])} ms (median), "
            f"{milliseconds(kills['max'])} ms at most."
        )
    yield ""
    yield (
        "Outcome: " + ("; ".join(soak["problems"]) if soak["problems"] else "nothing went wrong.")
    )
    if not soak["growth"]:
        return
    yield ""
    yield (
        "What is held after each job's end, median of the second quarter of the time and of the "
        "last. One rank is the one that is never killed; the whole job is all ranks and the "
        "process that controls them."
    )
    yield ""
    rows = []
    for who in ("one rank", "whole job"):
        for name, values in soak["growth"][who].items():
            scale, unit = (2**20, " MiB") if name == "rss" else (1, "")
            rows.append(
                (
                    who,
                    "memory (RSS)" if name == "rss" else name,
                    f"{values['early'] / scale:.1f}{unit}" if unit else int(values["early"]),
                    f"{values['late'] / scale:.1f}{unit}" if unit else int(values["late"]),
                )
            )
    shm = soak["growth"]["files in /dev/shm"]
    rows.append(("machine", "files in /dev/shm", int(shm["early"]), int(shm["late"])))
    yield from table(["who", "what", "early", "late"], rows)


def _input(found: Found) -> Iterator[str]:
    yield "## Bad input"
    yield ""
    yield (
        "Every public argument with a wrong value, and the message it gets. A test holds this "
        "table against the signatures: a new argument needs a row. Where a process has a rank, "
        "the message begins with it."
    )
    for module, answers in found.get("bad input", {}).items():
        yield ""
        yield f"### {module}"
        yield ""
        yield from table(
            ["call", "argument", "value", "error", "message"],
            [
                (
                    f"`{answer['call']}`",
                    f"`{answer['argument']}`",
                    f"`{answer['value']}`",
                    f"`{answer['errors'][0] if answer['errors'] else 'NONE'}`",
                    answer["message"],
                )
                for answer in answers
            ],
        )
