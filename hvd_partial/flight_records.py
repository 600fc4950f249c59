# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Reads the flight records of several ranks and merges them: one clock, one list of rounds."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FORMAT = 1


class RecordError(Exception):
    """A file is not a flight record that can be used; the text says which and why."""


@dataclass(frozen=True)
class Event:
    """Something that happened on `rank`, `time` seconds on the common clock."""

    time: float
    rank: int
    name: str
    channel: str
    facts: dict[str, Any]

    @property
    def round(self) -> int:
        return int(self.facts.get("round", 0))


@dataclass
class Record:
    """The flight record of one rank.

    Attributes:
      shift: What to add to its times to get those of the common clock.
      cut_off: Its last line was not whole.
    """

    path: str
    header: dict[str, Any]
    channels: list[dict[str, Any]]
    stalls: list[dict[str, Any]]
    raw_events: list[dict[str, Any]]
    cut_off: bool = False
    shift: float = 0.0

    @property
    def rank(self) -> int:
        return int(self.header["rank"])

    @property
    def end(self) -> float:
        """When it was written."""
        return float(self.header["monotonic"]) + self.shift

    def events(self) -> Iterator[Event]:
        ids = {item["id"]: str(item["name"]) for item in self.channels if "id" in item}
        # Until its id is known a channel has its number on this rank.
        local = {item.get("local"): str(item["name"]) for item in self.channels}
        for facts in self.raw_events:
            number = facts.get("channel")
            if number is None:
                name = local.get(facts["local"], "") if "local" in facts else ""
            else:
                name = ids.get(number, f"number {number}")
            yield Event(float(facts["t"]) + self.shift, self.rank, facts["event"], name, facts)


def read(path: str) -> Record:
    """Reads one file.

    Raises:
      RecordError: if it is not a flight record.
    """
    try:
        lines = Path(path).read_text(errors="replace").splitlines()
    except OSError as error:
        raise RecordError(f"{path}: cannot be read: {error.strerror}") from None
    items: list[dict[str, Any]] = []
    cut_off = False
    for number, line in enumerate(lines, 1):
        try:
            item = json.loads(line)
        except ValueError:
            if number == len(lines) and items:
                cut_off = True  # the disk was full, or the copy was stopped
                break
            raise RecordError(f"{path}: line {number} is not a flight record's") from None
        if not isinstance(item, dict) or "line" not in item:
            raise RecordError(f"{path}: line {number} is not a flight record's")
        items.append(item)
    if not items or items[0]["line"] != "header":
        raise RecordError(f"{path}: not a flight record: its first line is not a header")
    header = items[0]
    if header.get("format") != FORMAT:
        raise RecordError(
            f"{path}: format {header.get('format')!r}; this version of hvd_partial reads {FORMAT}"
        )
    missing = {"rank", "size", "pid", "host", "boot", "reason", "wall", "monotonic"} - set(header)
    if missing:
        raise RecordError(f"{path}: the header has no {', '.join(sorted(missing))}")
    return Record(
        path,
        header,
        [item for item in items if item["line"] == "channel"],
        [item for item in items if item["line"] == "stall"],
        [item for item in items if item["line"] == "event"],
        cut_off,
    )


@dataclass
class Round:
    """What the records say of one round of a channel; times on the common clock.

    Attributes:
      calls: When each rank asked for it.
      late: Ranks that took part without having asked for it before it started.
      activated: When it started, or None if no record has it.
      published: When its result was there, on each rank.
      contributed: Contributions of each rank whose record has it.
      contributions: In it, of all ranks; None if it is not complete in any record.
    """

    channel: str
    number: int
    mode: str = ""
    flush: bool = False
    calls: dict[int, float] = field(default_factory=dict)
    activated: float | None = None
    published: dict[int, float] = field(default_factory=dict)
    contributed: dict[int, int] = field(default_factory=dict)
    contributions: int | None = None
    contributors: int | None = None

    @property
    def late(self) -> list[int]:
        if self.activated is None:
            return []
        return sorted(
            rank
            for rank in self.contributed.keys() | self.published.keys()
            if self.calls.get(rank, float("inf")) > self.activated
        )


@dataclass
class Story:
    """All records together.

    Attributes:
      last_heard: For each rank, the last message of it in rank 0's record.
    """

    records: dict[int, Record]
    size: int
    events: list[Event]
    rounds: list[Round]
    notes: list[str]
    last_heard: dict[int, Event]
    last_call: dict[int, Event]

    @property
    def end(self) -> float:
        return max(record.end for record in self.records.values())

    @property
    def missing(self) -> list[int]:
        return [rank for rank in range(self.size) if rank not in self.records]


def files_of(arguments: Iterable[str]) -> list[str]:
    """Files as given; a folder stands for all flight records in it.

    Raises:
      RecordError: if a folder has none.
    """
    found: list[str] = []
    for name in arguments:
        if Path(name).is_dir():
            inside = sorted(str(path) for path in Path(name).glob("hvd_partial-*.jsonl"))
            if not inside:
                raise RecordError(f"{name}: no flight record in this folder")
            found += inside
        else:
            found.append(name)
    return found


def merge(records: Sequence[Record]) -> Story:
    """Makes one story of the records of one job.

    Raises:
      RecordError: if they are not of one job.
    """
    sizes = {int(record.header["size"]): record for record in records}
    if len(sizes) > 1:
        listed = ", ".join(f"{record.path} (size {size})" for size, record in sizes.items())
        raise RecordError(f"these records are of different jobs: {listed}")
    notes: list[str] = []
    newest: dict[int, Record] = {}
    for record in sorted(records, key=lambda item: float(item.header["wall"])):
        newest[record.rank] = record
    if len(newest) < len(records):
        notes.append(
            f"{len(records) - len(newest)} older records of the same ranks are not looked at"
        )
    newest = dict(sorted(newest.items()))
    _align(list(newest.values()), notes)
    notes += [
        f"{record.path} is cut off; what was in it is used"
        for record in newest.values()
        if record.cut_off
    ]
    events = sorted(
        (event for record in newest.values() for event in record.events()),
        key=lambda event: event.time,
    )
    last_heard: dict[int, Event] = {}
    last_call: dict[int, Event] = {}
    for event in events:
        peer = event.facts.get("peer")
        if event.rank == 0 and event.name == "receive" and peer is not None:
            last_heard[int(peer)] = event
            if event.facts.get("message") == "Call":
                last_call[int(peer)] = event
    size = next(iter(sizes))
    return Story(newest, size, events, _rounds(events), notes, last_heard, last_call)


def _align(records: Sequence[Record], notes: list[str]) -> None:
    """One host has one monotonic clock; between hosts only the time of day is common."""
    first = records[0].header
    others = []
    for record in records[1:]:
        header = record.header
        if header["boot"] != first["boot"] or not header["boot"]:
            record.shift = (float(header["wall"]) - float(header["monotonic"])) - (
                float(first["wall"]) - float(first["monotonic"])
            )
            others.append(record.rank)
    if others:
        notes.append(
            f"{ranks_text(others)} ran on another host than rank {records[0].rank}: their times "
            "are aligned by the time of day and are as exact as the hosts' clocks agree"
        )


def _rounds(events: Sequence[Event]) -> list[Round]:
    rounds: dict[tuple[str, int], Round] = {}

    def of(event: Event) -> Round:
        key = (event.channel, event.round)
        return rounds.setdefault(key, Round(*key))

    for event in events:
        facts = event.facts
        if event.name == "deposit" and facts.get("waits"):
            of(event).calls[event.rank] = event.time
        elif event.name == "receive" and facts.get("message") == "Call" and facts.get("waits"):
            # Of ranks without a record, what rank 0 heard; a message later than their own event.
            of(event).calls.setdefault(int(facts["peer"]), event.time)
        elif event.name == "activate":
            told = of(event)
            told.mode = str(facts.get("mode", ""))
            told.flush = bool(facts.get("flush"))
            if told.activated is None:
                told.activated = event.time
        elif event.name == "join":
            of(event).contributed[event.rank] = int(facts.get("contributions", 0))
        elif event.name == "publish":
            told = of(event)
            told.published[event.rank] = event.time
            told.contributions = int(facts.get("contributions", 0))
            told.contributors = int(facts.get("contributors", 0))
    return [rounds[key] for key in sorted(rounds)]


def ranks_text(ranks: Sequence[int]) -> str:
    """ "rank 2", "ranks 0, 1 and 3"."""
    ordered = sorted(ranks)
    if len(ordered) == 1:
        return f"rank {ordered[0]}"
    return f"ranks {', '.join(map(str, ordered[:-1]))} and {ordered[-1]}"
