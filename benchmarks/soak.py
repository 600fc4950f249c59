# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Random faults and mode changes for a given time: sums stay exact, and nothing grows.

Light processes without TensorFlow make random episodes: channels are opened and left, ranks are
late, have uneven data, change modes, are stopped (SIGSTOP) and go on, flush. After each flush every
rank must have the exact integer sum of all contributions. From time to time a rank is killed: the
others must say who was lost, and the whole job starts again with a new process in its place. The
last rank is never killed: what it and the job as a whole hold is watched.

  python -m benchmarks.soak --minutes 10 --seed 1 --json benchmarks/results/soak.json
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from benchmarks import soak_rank
from benchmarks.soak_rank import Part, Resources
from hvd_partial.modes import Mode

# An episode takes a second or two; whoever has not ended it after this long hangs.
DEADLINE_SECONDS = 60.0
# What the memory of a process may differ by between the second and the last quarter of the time.
RSS_SLACK_BYTES = 4 << 20
RSS_SLACK_SHARE = 0.03
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["numpy", "benchmarks.soak_rank"])


class SoakError(Exception):
    """Something that must not happen has happened; says what."""


@dataclass
class Tally:
    """What has been done so far.

    Attributes:
      jobs: Engines' lives, from connect to close or kill.
      episodes: With a check of all sums.
      checks: Sums compared, one for each flush and rank.
      rounds: Published.
      contributions: Of all ranks.
      faults: How often each kind was injected.
      error_seconds: From each kill until the slowest survivor knew.
    """

    jobs: int = 0
    episodes: int = 0
    checks: int = 0
    rounds: int = 0
    contributions: int = 0
    largest_lag: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    error_seconds: list[float] = field(default_factory=list)


@dataclass
class _Rank:
    process: Any
    pipe: Connection


@dataclass(frozen=True)
class _Event:
    at: float
    action: Callable[[], None]


class Soak:
    """One job after the other, until the time is over.

    Args:
      size: Number of ranks.
      seed: Of everything that is drawn. (What the system does is its own affair: the same seed
        gives the same plan, not the same run.)
      traces: A folder, for where ranks stand when they hang.
    """

    def __init__(self, size: int, seed: int, traces: Path) -> None:
        self.tally = Tally()
        self.samples: list[tuple[float, Resources]] = []  # of the witness
        self.whole: list[tuple[float, Resources, int]] = []  # all processes, files in /dev/shm
        self._size = size
        self._chance = random.Random(seed)
        self._traces = traces
        self._ranks: list[_Rank] = []
        self._channels = 0
        for rank in range(size):
            self._ranks.append(self._start(rank))

    @property
    def witness(self) -> int:
        """The rank that is never killed."""
        return self._size - 1

    # ---- processes ----------------------------------------------------------------

    def _start(self, rank: int) -> _Rank:
        ours, theirs = _context.Pipe()
        process = _context.Process(
            target=soak_rank.main, args=(rank, self._size, theirs, str(self._traces)), daemon=True
        )
        process.start()
        theirs.close()
        return _Rank(process, ours)

    def end(self) -> None:
        """Whatever happened, no process is left."""
        for rank in self._ranks:
            if rank.process.is_alive():
                rank.process.kill()
            rank.process.join()
            rank.pipe.close()

    def _signal(self, rank: int, number: int) -> None:
        os.kill(self._ranks[rank].process.pid, number)

    # ---- talking to ranks -----------------------------------------------------------

    def _tell(self, command: str, arguments: Sequence[Any], ranks: Sequence[int]) -> None:
        for rank in ranks:
            self._ranks[rank].pipe.send((command, arguments[rank]))

    def _answers(self, ranks: Sequence[int], events: list[_Event]) -> dict[int, tuple[str, Any]]:
        """Waits for one answer of each of these ranks, and acts meanwhile as planned."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        events = sorted(events, key=lambda event: event.at)
        answers: dict[int, tuple[str, Any]] = {}
        addresses: dict[int, bytes] = {}
        while len(answers) < len(ranks) or events:
            now = time.monotonic()
            if events and events[0].at <= now:
                events.pop(0).action()
                continue
            if now > deadline:
                missing = [rank for rank in ranks if rank not in answers]
                raise SoakError(f"ranks {missing} hang; they stand at\n{self._where(missing)}")
            open_pipes = {self._ranks[r].pipe: r for r in ranks if r not in answers}
            until = min([deadline, *(event.at for event in events)])
            for pipe in wait(list(open_pipes), max(0.0, until - time.monotonic())):
                rank = open_pipes[pipe]  # type: ignore[index]
                try:
                    kind, value = self._ranks[rank].pipe.recv()
                except EOFError:
                    code = self._ranks[rank].process.exitcode
                    raise SoakError(f"rank {rank} has ended, with exit code {code}") from None
                if kind == "exchange":
                    addresses[rank] = value
                elif kind == "bug":
                    raise SoakError(f"rank {rank}: {value}")
                else:
                    answers[rank] = (kind, value)
            if len(addresses) == self._size:
                everybody = [addresses[rank] for rank in range(self._size)]
                for rank in range(self._size):
                    self._ranks[rank].pipe.send(everybody)
                addresses = {}
        return answers

    def _where(self, ranks: Sequence[int]) -> str:
        for rank in ranks:
            self._signal(rank, signal.SIGCONT)
            self._signal(rank, signal.SIGUSR1)
        time.sleep(1.0)
        texts = []
        for rank in ranks:
            path = self._traces / f"{rank}-{self._ranks[rank].process.pid}"
            texts.append(f"rank {rank}:\n{path.read_text() if path.exists() else '?'}")
        return "\n".join(texts)

    def _everybody(self, command: str, arguments: Sequence[Any] | None = None) -> list[Any]:
        ranks = range(self._size)
        self._tell(command, arguments or [None] * self._size, ranks)
        answers = self._answers(ranks, [])
        return [self._value(rank, answers[rank]) for rank in ranks]

    def _value(self, rank: int, answer: tuple[str, Any]) -> Any:
        kind, value = answer
        if kind != "done":
            raise SoakError(f"rank {rank} failed: {value['kinds'][0]}: {value['text']}")
        return value

    # ---- jobs -----------------------------------------------------------------------

    def job(self, ends_at: float) -> None:
        """Connects, plays some episodes, and ends in peace or by a kill."""
        chance = self._chance
        self._everybody("connect")
        self.tally.jobs += 1
        kept = f"kept {self.tally.jobs}"
        kept_options = self._options()
        for _ in range(chance.randint(3, 12)):
            if time.monotonic() >= ends_at:
                break
            if chance.random() < 0.3:
                self.episode(kept, kept_options, 64, leave=False)
            else:
                self._channels += 1
                self.tally.faults["channels opened and left"] += 1
                size = chance.choice([1, 64, 1000, 50_000])
                self.episode(f"channel {self._channels}", self._options(), size, leave=True)
        if chance.random() < 0.6 and time.monotonic() < ends_at:
            self.kill()
        closed = self._everybody("close")
        now = time.monotonic()
        self.samples.append((now, closed[self.witness][1]))
        held = [found for _, found in closed] + [soak_rank.resources()]
        whole = Resources(
            *(sum(getattr(one, name) for one in held) for name in Resources.__annotations__)
        )
        self.whole.append((now, whole, len(list(Path("/dev/shm").iterdir()))))

    def _options(self) -> dict[str, Any]:
        return {
            "mode": self._mode(),
            "average": None,
            "staleness": "full",
            "max_lag": self._chance.randint(1, 8),
            "grace": self._chance.choice(["auto", 0.0, 0.002]),
        }

    def _mode(self) -> str:
        drawn = self._chance.choice(
            [
                Mode("sync"),
                Mode("majority"),
                Mode("solo"),
                Mode("async"),
                Mode("quorum", k=self._chance.randint(1, self._size)),
                Mode("designated", seed=self._chance.randint(0, 99)),
            ]
        )
        return str(drawn)

    def _parts(
        self, channel: str, options: dict[str, Any], elements: int, leave: bool
    ) -> list[Part]:
        chance = self._chance
        late = {rank for rank in range(self._size) if chance.random() < 0.3}
        epochs = chance.randint(1, 3)
        parts = []
        for rank in range(self._size):
            delays = tuple(
                tuple(
                    chance.random() * 0.01 if rank in late and chance.random() < 0.5 else 0.0
                    for _ in range(chance.randint(0, 25))
                )
                for _ in range(epochs)
            )
            modes = {}
            for epoch, calls in enumerate(delays):
                for call in range(len(calls)):
                    if chance.random() < 0.03:
                        modes[epoch, call] = self._mode()
            self.tally.faults["mode changes"] += len(modes)
            self.tally.faults["delays"] += sum(s > 0 for calls in delays for s in calls)
            parts.append(Part(channel, options, elements, delays, modes, leave=leave))
        self.tally.faults["flushes"] += epochs
        return parts

    def episode(self, channel: str, options: dict[str, Any], elements: int, leave: bool) -> None:
        """Everybody plays its part, some are stopped meanwhile; sums must be exact."""
        parts = self._parts(channel, options, elements, leave)
        ranks = range(self._size)
        self._tell("play", parts, ranks)
        answers = self._answers(ranks, self._stops())
        self.tally.episodes += 1
        epochs = len(parts[0].epochs)
        wanted = [soak_rank.expected(parts, epoch) for epoch in range(epochs)]
        for rank in ranks:
            sums, rounds, largest_lag = self._value(rank, answers[rank])
            if sums != wanted:
                raise SoakError(f"channel {channel!r}, rank {rank}: {sums}, expected {wanted}")
            if largest_lag > options["max_lag"]:
                raise SoakError(f"channel {channel!r}, rank {rank}: lag {largest_lag}, {options}")
            self.tally.checks += epochs
            self.tally.largest_lag = max(self.tally.largest_lag, largest_lag)
            if rank == 0:
                self.tally.rounds += rounds
        self.tally.contributions += sum(count for _, count in wanted)

    def _stops(self) -> list[_Event]:
        events = []
        begin = time.monotonic()
        # Short ones overlap; one at most is so long that the others go on without that rank.
        longest = self._chance.randrange(self._size)
        for rank in range(self._size):
            if self._chance.random() < 0.15:
                at = begin + self._chance.random() * 0.1
                seconds = self._chance.choice([0.001, 0.02])
                if rank == longest:
                    seconds = self._chance.choice([0.2, 3 * soak_rank.LEAVE_OUT_SECONDS])
                events.append(_Event(at, partial(self._signal, rank, signal.SIGSTOP)))
                events.append(_Event(at + seconds, partial(self._signal, rank, signal.SIGCONT)))
                self.tally.faults["stops"] += 1
        return events

    def kill(self) -> None:
        """Kills a rank at any time; the others must name it. Leaves a new process in its place."""
        victim = self._chance.randrange(self._size - 1)
        self._channels += 1
        options = self._options() | {"grace": 0.0}
        elements = self._chance.choice([1, 1000, 300_000])
        part = Part(f"channel {self._channels}", options, elements, (), endless=True)
        survivors = [rank for rank in range(self._size) if rank != victim]
        killed: list[float] = []

        def strike() -> None:
            killed.append(time.monotonic())
            self._signal(victim, signal.SIGKILL)

        self._tell("play", [part] * self._size, range(self._size))
        at = time.monotonic() + self._chance.random() * 0.3
        answers = self._answers(survivors, [_Event(at, strike)])
        slowest = 0.0
        for rank in survivors:
            kind, value = answers[rank]
            named = kind == "failed" and f"rank {victim} was lost" in value["text"]
            if not named or value["kinds"][0] != "PeerLostError":
                raise SoakError(f"rank {victim} was killed, rank {rank} says {kind}: {value}")
            slowest = max(slowest, value["at"] - killed[0])
        self.tally.error_seconds.append(slowest)
        self.tally.faults["kills of rank 0" if victim == 0 else "kills of another rank"] += 1
        dead = self._ranks[victim]
        dead.process.join()
        dead.pipe.close()
        self._ranks[victim] = self._start(victim)


# ---- what must not grow -------------------------------------------------------------


def quarter(values: Sequence[float], number: int) -> float:
    """Median of a quarter of the values, 0 to 3."""
    count = len(values)
    part = values[count * number // 4 : max(count * (number + 1) // 4, count * number // 4 + 1)]
    return statistics.median(part)


def growth(samples: Sequence[tuple[float, Resources]]) -> dict[str, dict[str, float]]:
    """Of each resource: median of the second quarter of the samples, and of the last.

    The first quarter is left out: caches fill.
    """
    found = {}
    for name in Resources.__annotations__:
        values = [float(getattr(sample, name)) for _, sample in samples]
        found[name] = {"early": quarter(values, 1), "late": quarter(values, 3)}
    return found


def complaints(who: str, grown: dict[str, dict[str, float]], processes: int) -> list[str]:
    """What has grown more than chance explains."""
    found = []
    for name, values in grown.items():
        early, late = values["early"], values["late"]
        # Of a whole job, threads and descriptors may be under way when the sample is taken.
        slack = float(processes) if processes > 1 else 0.0
        if name == "rss":
            slack = max(processes * RSS_SLACK_BYTES, RSS_SLACK_SHARE * early)
        if late > early + slack:
            found.append(f"{who}: {name} grew from {early:.0f} to {late:.0f}")
    return found


# ---- command line -------------------------------------------------------------------


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.soak",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--np", type=int, default=4, help="ranks, at least 2")
    parser.add_argument("--json", type=Path, help="write what came of it here")
    options = parser.parse_args(arguments)
    if options.minutes <= 0:
        parser.error("--minutes must be more than 0")
    if options.np < 2:
        parser.error("--np must be at least 2: one is killed, one is watched")
    return options


def soak(
    minutes: float, seed: int, size: int, on_progress: Callable[[float, Tally], None]
) -> tuple[Soak, str, float]:
    """Runs for so long. Returns what it found, what went wrong ("" if nothing did), and seconds."""
    begun = time.monotonic()
    ends_at = begun + 60 * minutes
    failure = ""
    with tempfile.TemporaryDirectory() as folder:
        running = Soak(size, seed, Path(folder))
        try:
            while time.monotonic() < ends_at:
                running.job(ends_at)
                on_progress(time.monotonic() - begun, running.tally)
        except SoakError as error:
            failure = str(error)
        finally:
            running.end()
    return running, failure, time.monotonic() - begun


def report(
    options: argparse.Namespace, running: Soak, failure: str, seconds: float
) -> dict[str, Any]:
    """What came of it, for people and programs."""
    tally = running.tally
    shm = [float(files) for _, _, files in running.whole]
    grown: dict[str, Any] = {}
    problems = [failure] if failure else []
    if len(running.samples) >= 4:
        grown = {
            "one rank": growth(running.samples),
            "whole job": growth([(at, held) for at, held, _ in running.whole]),
        }
        problems += complaints("one rank", grown["one rank"], 1)
        problems += complaints("whole job", grown["whole job"], options.np + 1)
        grown["files in /dev/shm"] = {"early": quarter(shm, 1), "late": quarter(shm, 3)}
    elif not failure:
        problems.append(f"only {len(running.samples)} jobs ended: too few to see growth")
    errors = tally.error_seconds
    return {
        "command": f"python -m benchmarks.soak --minutes {options.minutes:g} "
        f"--seed {options.seed} --np {options.np}",
        "ranks": options.np,
        "seed": options.seed,
        "seconds": round(seconds, 1),
        **{k: v for k, v in asdict(tally).items() if k not in ("faults", "error_seconds")},
        "faults": dict(tally.faults),
        "error seconds": {
            "kills": len(errors),
            "median": statistics.median(errors) if errors else None,
            "max": max(errors) if errors else None,
        },
        "growth": grown,
        "problems": problems,
    }


def summary(found: dict[str, Any]) -> str:
    """One line."""
    outcome = "FAILED: " + "; ".join(found["problems"]) if found["problems"] else "ok"
    kills = found["error seconds"]
    text = (
        f"{found['seconds']:.0f} s, {found['jobs']} jobs, {found['episodes']} episodes, "
        f"{found['rounds']} rounds, {found['checks']} sums exact, {kills['kills']} kills"
    )
    if kills["kills"]:
        text += f" (known after {kills['median'] * 1e3:.0f} ms, at most {kills['max'] * 1e3:.0f})"
    if found["growth"]:
        rank = found["growth"]["one rank"]
        text += (
            f"; a rank's memory {rank['rss']['early'] / 2**20:.1f} -> "
            f"{rank['rss']['late'] / 2**20:.1f} MiB, "
            f"threads {rank['threads']['early']:.0f} -> {rank['threads']['late']:.0f}, "
            f"descriptors {rank['descriptors']['early']:.0f} -> {rank['descriptors']['late']:.0f}"
        )
    return f"{text}: {outcome}"


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    console = Console()
    with Progress(
        TextColumn("soak"),
        BarColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[told]}"),
        console=console,
        transient=True,
    ) as progress:
        task = progress.add_task("soak", total=60 * options.minutes, told="")

        def show(seconds: float, tally: Tally) -> None:
            told = f"{tally.jobs} jobs, {tally.episodes} episodes, {tally.checks} sums exact"
            progress.update(task, completed=seconds, told=told)

        running, failure, seconds = soak(options.minutes, options.seed, options.np, show)
    found = report(options, running, failure, seconds)
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    console.print(summary(found), markup=False, soft_wrap=True, highlight=False)
    return 1 if found["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
