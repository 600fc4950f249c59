# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""``python -m hvd_partial explain FILE...``: one story of several ranks' flight records."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

from hvd_partial.flight_records import RecordError, Round, Story, files_of, merge, read
from hvd_partial.flight_verdict import doing, verdict

DEFAULT_ROUNDS = 12

EXAMPLES = """\
Flight records are written when a job fails (the error names the file), and when a process gets
SIGUSR2. Every rank writes its own; copy those of other hosts here first.

examples:
  python -m hvd_partial explain /tmp/hvd_partial-*.jsonl     all of them; the newest of each rank
  python -m hvd_partial explain records/                     all in a folder
  python -m hvd_partial explain --rounds 50 records/         more of the rounds before the end
  python -m hvd_partial explain --json records/ | jq .verdict

exit code: 0, or 2 if a file is not a flight record
"""


def round_facts(told: Round, end: float) -> dict[str, Any]:
    """A round for programs; times are seconds before the last record."""

    def before(time: float | None) -> float | None:
        return None if time is None else round(end - time, 6)

    return {
        "channel": told.channel,
        "round": told.number,
        "mode": told.mode,
        "flush": told.flush,
        "calls": {str(rank): before(time) for rank, time in sorted(told.calls.items())},
        "activated": before(told.activated),
        "published": {str(rank): before(time) for rank, time in sorted(told.published.items())},
        "contributions": told.contributions,
        "contributors": told.contributors,
        "late": told.late,
    }


def story_facts(story: Story, rounds: Sequence[Round]) -> dict[str, Any]:
    """Everything for programs."""
    return {
        "verdict": verdict(story),
        "size": story.size,
        "ranks": [
            {
                "rank": rank,
                "doing": doing(story, rank),
                **(
                    {
                        "file": record.path,
                        "reason": record.header["reason"],
                        "host": record.header["host"],
                        "pid": record.header["pid"],
                        "seconds_before_the_last": round(story.end - record.end, 6),
                    }
                    if (record := story.records.get(rank)) is not None
                    else {}
                ),
            }
            for rank in range(story.size)
        ],
        "rounds": [round_facts(told, story.end) for told in rounds],
        "notes": story.notes,
    }


def last_rounds(story: Story, count: int) -> list[Round]:
    """The last `count` rounds of each channel."""
    chosen: list[Round] = []
    for name in sorted({told.channel for told in story.rounds}):
        chosen += [told for told in story.rounds if told.channel == name][-count:]
    return chosen


def _calls(told: Round, size: int) -> str:
    """Who called when, after the first of them; who had called for a later round is left out."""
    if not told.calls:
        return "nobody asked" if told.flush else "not in the records"
    first = min(told.calls.values())
    ordered = sorted(told.calls.items(), key=lambda item: item[1])
    shown = [f"{rank} +{1000 * (time - first):.1f}" for rank, time in ordered[:8]]
    more = f", {len(ordered) - 8} more" if len(ordered) > 8 else ""
    never = [rank for rank in range(size) if rank not in told.calls]
    if told.activated is None and never:
        more += f"; not: {', '.join(map(str, never[:8]))}{', ...' if len(never) > 8 else ''}"
    return ", ".join(shown) + more


def show(story: Story, rounds: Sequence[Round]) -> None:
    """Prints the story for people."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() else 130, highlight=False)
    for number, line in enumerate(verdict(story)):
        console.print(f"[bold]{escape(line)}[/]" if number == 0 else escape(line), soft_wrap=True)
    hosts = sorted({str(record.header["host"]) for record in story.records.values()})
    console.print(
        escape(f"\n{len(story.records)} of {story.size} ranks have a record; hosts: ")
        + escape(", ".join(hosts)),
        soft_wrap=True,
    )
    for note in story.notes:
        console.print(f"[yellow]note[/] {escape(note)}", soft_wrap=True)

    console.print("\n[bold]at the end[/]")
    table = Table(box=None, pad_edge=False)
    table.add_column("rank", justify="right")
    table.add_column("recorded because", max_width=40)
    table.add_column("was doing")
    for rank in range(story.size):
        record = story.records.get(rank)
        reason = "" if record is None else str(record.header["reason"])
        table.add_row(str(rank), escape(reason), escape(doing(story, rank)))
    console.print(table)

    for name in dict.fromkeys(told.channel for told in rounds):
        console.print(f"\n[bold]channel {escape(repr(name))}[/] (ms; started: s before the end)")
        table = Table(box=None, pad_edge=False)
        for title in ("round", "started", "waited", "reduced"):
            table.add_column(title, justify="right")
        table.add_column("mode")
        table.add_column("contributions")
        table.add_column("calls: rank +ms after the first")
        table.add_column("late")
        for told in (item for item in rounds if item.channel == name):
            table.add_row(*map(escape, _row(told, story)))
        console.print(table)


def _row(told: Round, story: Story) -> list[str]:
    started = waited = reduced = ""
    if told.activated is None:
        started = "not yet"
    else:
        started = f"-{story.end - told.activated:.3f}"
        if told.calls:
            waited = f"{1000 * max(0.0, told.activated - min(told.calls.values())):.1f}"
        if told.published:
            reduced = f"{1000 * max(0.0, max(told.published.values()) - told.activated):.1f}"
    sums = ""
    if told.contributions is not None:
        sums = f"{told.contributions} of {told.contributors} ranks"
    elif told.activated is not None:
        sums = "not complete"
    late = ", ".join(map(str, told.late[:8])) + (", ..." if len(told.late) > 8 else "")
    mode = told.mode + (" (flush)" if told.flush else "")
    return [str(told.number), started, waited, reduced, mode, sums, _calls(told, story.size), late]


def run(options: argparse.Namespace) -> int:
    """The command: 0, or 2 if a file cannot be used."""
    if options.rounds < 0:
        print("explain: --rounds must be 0 or more", file=sys.stderr)
        return 2
    try:
        story = merge([read(path) for path in files_of(options.files)])
    except RecordError as error:
        print(f"explain: {error}", file=sys.stderr)
        return 2
    rounds = last_rounds(story, options.rounds) if options.rounds else []
    if options.json:
        print(json.dumps(story_facts(story, rounds), indent=2))
    else:
        show(story, rounds)
    return 0


def add_parser(commands: Any) -> None:
    """Adds `explain` to the command line."""
    parser = commands.add_parser(
        "explain",
        help="what happened, from the flight records of several ranks",
        description="Merges flight records: who is waited for or died, what each rank was doing, "
        "and the last rounds.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="flight records, or folders")
    parser.add_argument(
        "--rounds",
        type=int,
        default=DEFAULT_ROUNDS,
        metavar="N",
        help=f"show the last N rounds of each channel (default {DEFAULT_ROUNDS})",
    )
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.set_defaults(run=run)
