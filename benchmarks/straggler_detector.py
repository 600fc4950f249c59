# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""How well the rules of the straggler detector do on labelled synthetic traces.

python -m benchmarks.straggler_detector
python -m benchmarks.straggler_detector --write docs/stragglers.md
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.straggler_traces import KINDS, Trace, make
from hvd_partial.stragglers import RULES, StragglerDetector

SIZES = (2, 3, 4, 8, 16, 64)
ROUNDS = 240
BEGIN = "<!-- the table: python -m benchmarks.straggler_detector --write docs/stragglers.md -->"
END = "<!-- end of the table -->"


@dataclass(frozen=True)
class Score:
    """What a detector made of one trace.

    Attributes:
      windows: That it looked at.
      false_windows: Of these, after which a rank was taken for a straggler that was not slow, nor
        had been in that window.
      delay: Rounds from the first slow one until it was found; None: never.
      undone: Rounds from the last slow one until it was no straggler any more; None: never, or
        there was no end.
    """

    windows: int
    false_windows: int
    delay: int | None
    undone: int | None


def score(detector: StragglerDetector, trace: Trace) -> Score:
    """Runs the detector over a trace."""
    windows = false = 0
    delay = undone = None
    last = None
    rounds, size = trace.seconds.shape
    # While it forgets what it saw, it may be behind.
    forgiven = trace.stop + 3 * detector.window
    for number, seconds in enumerate(trace.seconds):
        detector.observe([1] * size, seconds)
        found = {straggler.rank for straggler in detector.stragglers}
        if trace.rank in found and number >= trace.start and delay is None:
            delay = number + 1 - trace.start
        if number >= trace.stop and trace.rank not in found and undone is None:
            undone = number + 1 - trace.stop
        if detector.last_window is not last:
            last = detector.last_window
            windows += 1
            slow = {trace.rank} if trace.start <= number < forgiven else set()
            false += bool(found - slow)
    return Score(windows, false, delay, undone if trace.stop < rounds else None)


def rows(seeds: int) -> list[str]:
    """Of a Markdown table."""
    text = [
        "| trace | rule | false alarms, % of windows | found, % | after windows, mean (most) | "
        "over after windows, mean |",
        "|---|---|---|---|---|---|",
    ]
    for name, kind in KINDS.items():
        for rule in RULES:
            scores = []
            for size in SIZES:
                for seed in range(seeds):
                    detector = StragglerDetector(size, rule)
                    scores.append(score(detector, make(kind, size, ROUNDS, seed)))
            window = float(detector.window)
            false = sum(s.false_windows for s in scores) / sum(s.windows for s in scores)
            delays = [s.delay / window for s in scores if s.delay is not None]
            undone = [s.undone / window for s in scores if s.undone is not None]
            found = "-" if kind.slowdown == 1.0 else f"{100 * len(delays) / len(scores):.1f}"
            when = f"{np.mean(delays):.1f} ({max(delays):.1f})" if delays else "-"
            over = f"{np.mean(undone):.1f}" if undone else "-"
            if kind.slowdown == 1.0:
                when = over = "-"
            text.append(f"| {name} | {rule} | {100 * false:.2f} | {found} | {when} | {over} |")
    return text


def write(path: Path, table: Sequence[str]) -> None:
    """Replaces what stands between the marks."""
    text = path.read_text()
    if BEGIN not in text or END not in text:
        raise SystemExit(f"{path}: the marks {BEGIN!r} and {END!r} are not there")
    before, rest = text.split(BEGIN, 1)
    after = rest.split(END, 1)[1]
    path.write_text(f"{before}{BEGIN}\n\n" + "\n".join(table) + f"\n\n{END}{after}")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.straggler_detector", description=__doc__
    )
    parser.add_argument("--seeds", type=int, default=20, help="traces of each kind and size")
    parser.add_argument("--write", type=Path, help="put the table into this document")
    options = parser.parse_args(arguments)
    if options.seeds < 1:
        parser.error("--seeds must be positive")
    table = rows(options.seeds)
    if options.write:
        write(options.write, table)
    print("\n".join(table))
    return 0


if __name__ == "__main__":
    sys.exit(main())
