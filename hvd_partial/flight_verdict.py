# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""What a merged story of flight records comes to: who is to blame, and what each rank was doing."""

from __future__ import annotations

import re
from typing import Any

from hvd_partial.flight_records import Record, Story, ranks_text

_LOST = re.compile(r"rank (\d+) was lost \((.*?)\)")
_ENDED = re.compile(r"rank (\d+) ended the job: (.*)")

# In the order of the cause: an abort or a transfer that failed may follow from a death.
_CAUSES = ("PeerLost", "Aborted", "Transport", "Internal")


def verdict(story: Story) -> list[str]:
    """The most important sentences first; at least one."""
    return _failures(story) or _stalls(story) or _not_answering(story) or [_nothing(story)]


def doing(story: Story, rank: int) -> str:
    """What a rank was doing at the end of its record, or what others know of it."""
    record = story.records.get(rank)
    if record is None:
        heard = story.last_heard.get(rank)
        if heard is None:
            return "no record of it, and no word of it in the others'"
        ago = story.records[0].end - heard.time
        return f"no record of it; rank 0 last heard of it {_seconds(ago)} before: {_said(heard)}"
    parts = []
    if record.header.get("progress") == "does not answer":
        parts.append("its progress thread does not answer")
    parts += [_channel(channel) for channel in record.channels]
    return "; ".join(parts) or "had opened no channel"


def _channel(channel: dict[str, Any]) -> str:
    name = f"{channel['name']!r}"
    if not channel.get("answers"):
        return f"{name}: its lock is held, nothing is known"
    if channel.get("left"):
        return f"{name}: has left after round {channel['round'] - 1}"
    if channel.get("rejected"):
        return f"{name}: the ranks disagree about it"
    called = channel.get("called_ago")
    lag = f", {channel['lag']} rounds behind" if channel["lag"] else ""
    if channel.get("waits"):
        what = "in a flush" if channel.get("flushing") else "in a call"
        held = {
            "reducing": ", which has started and does not end",
            "ring full": ", with its ring full",
        }.get(channel.get("held_by", ""), "")
        return (
            f"{name}: has waited {_seconds(channel['waits_seconds'])} {what} "
            f"for round {channel['round']}{held}"
        )
    if channel.get("held_by") == "depositing":
        return f"{name}: copies a contribution for round {channel['round']}"
    full = ", its ring is full" if channel.get("held_by") == "ring full" else ""
    if called is None:
        return f"{name}: has never called (round {channel['round']}{lag}{full})"
    return (
        f"{name}: in the user's code, last call {_seconds(called)} ago "
        f"(round {channel['round']}{lag}{full})"
    )


def _failures(story: Story) -> list[str]:
    reasons = [
        (str(record.header["reason"]), record)
        for record in story.records.values()
        if str(record.header["reason"]).partition(":")[0] in _CAUSES
    ]
    reasons.sort(key=lambda item: (_CAUSES.index(item[0].partition(":")[0]), item[1].end))
    lines: list[str] = []
    for reason, record in reasons:
        kind, _, text = reason.partition(": ")
        if kind == "PeerLost" and (found := _LOST.search(text)):
            line = _died(story, int(found[1]), found[2], record)
        elif kind == "Aborted":
            found = _ENDED.search(text)
            who = int(found[1]) if found else record.rank
            why = found[2] if found else text.partition("\n")[0]
            line = f"rank {who} ended the job: {why}"
        else:
            line = f"rank {record.rank} failed ({kind.lower()}): {text}"
        if line not in lines:
            lines.append(line)
    return lines


def _died(story: Story, lost: int, reason: str, record: Record) -> str:
    line = f"rank {lost} died ({reason})"
    heard = story.last_heard.get(lost)
    noticed = [
        event.time
        for event in story.events
        if event.name == "lost" and event.facts.get("peer") == lost
    ]
    when = min(noticed) if noticed else record.end
    if heard is not None:
        line += f": last heard of {_seconds(when - heard.time)} before: {_said(heard)}"
    elif lost in story.records:
        # Its own record is of an earlier moment.
        line += f": its own record is {_seconds(when - story.records[lost].end)} older"
    return line


def _stalls(story: Story) -> list[str]:
    record = story.records.get(0)
    lines = []
    if record is not None:
        now = float(record.header["monotonic"])
        for stall in record.stalls:
            have = "has" if len(stall["waiting"]) == 1 else "have"
            where = f"channel {stall['name']!r}, round {stall['round']}, {stall['mode']} mode"
            waiting = (
                f"{ranks_text(stall['waiting'])} {have} waited "
                f"{_seconds(now - float(stall['since']))}"
            )
            if not stall["waited_for"]:
                lines.append(
                    f"{waiting} for the transfers of a round in which all take part ({where}): "
                    "look at the network"
                )
            needed, listed = int(stall["needed"]), len(stall["waited_for"])
            some = f"{needed} of these {listed} would do; " if 0 < needed < listed else ""
            lines += [
                f"{_why(story, missing, now)}; {some}{waiting} for it ({where})"
                for missing in stall["waited_for"]
            ]
        if lines or story.size == len(story.records):
            return lines
    # Without what rank 0 knows: whoever waits, and who of the others does not.
    waits: dict[str, list[int]] = {}
    idle: dict[str, list[int]] = {}
    for rank, item in story.records.items():
        for channel in item.channels:
            if channel.get("answers") and not channel.get("left"):
                kind = waits if channel.get("waits") else idle
                kind.setdefault(str(channel["name"]), []).append(rank)
    for name, ranks in waits.items():
        they = "waits" if len(ranks) == 1 else "wait"
        others = idle.get(name, [])
        if others:
            have = "has" if len(others) == 1 else "have"
            lines.append(
                f"{ranks_text(others)} {have} not called; {ranks_text(ranks)} {they} "
                f"(channel {name!r}; the record of rank 0 would say more)"
            )
        elif story.missing:
            lines.append(
                f"{ranks_text(ranks)} {they} in channel {name!r}; whoever is waited for is among "
                f"those without a record: {ranks_text(story.missing)}"
            )
    return lines


def _why(story: Story, missing: dict[str, Any], now: float) -> str:
    rank = int(missing["rank"])
    called = missing["called"]
    ago = "" if called is None else f", {_seconds(now - float(called))} before the record"
    why = missing["why"]
    if why == "not opened":
        return f"rank {rank} has not opened the channel"
    last = f"; its last call was{ago[1:]}" if ago else ""
    if why == "ring full":
        return f"the ring of rank {rank} is full of results that it has not applied{last}"
    if why == "depositing":
        return f"rank {rank} copies a contribution{ago}"
    if why == "silent":
        return f"rank {rank} does not answer (stopped, or its host is overloaded){last}"
    if called is None:
        return f"rank {rank} has never called"
    heard = story.last_call.get(rank)
    since = f" since round {heard.round}" if heard is not None else ""
    return f"rank {rank} has not called{since}{ago}"


def _not_answering(story: Story) -> list[str]:
    return [
        f"the progress thread of rank {rank} does not answer: its process is starved of CPU, or "
        "this is a bug; please report it with the record"
        for rank, record in story.records.items()
        if record.header.get("progress") == "does not answer"
    ]


def _nothing(story: Story) -> str:
    if story.missing:
        return (
            "no rank with a record waits for another; there is no record of "
            f"{ranks_text(story.missing)}"
        )
    return "no rank waited for another when the records were written"


def _said(event: Any) -> str:
    message = str(event.facts.get("message", "a message"))
    where = f" in channel {event.channel!r}" if event.channel else ""
    if message == "Call":
        return f"it called for round {event.round}{where}"
    return f"its message {message}{where}"


def _seconds(value: float) -> str:
    return f"{max(value, 0.0):.1f} s"
