# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""The command line: ``python -m hvd_partial COMMAND``.

A command is a module with ``add_parser(commands)``, which adds its own parser and sets ``run``, a
function from the parsed arguments to the exit code. It is listed in ``COMMANDS``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from hvd_partial import bench, check, explain, search_switch, simulate

COMMANDS = (check, bench, simulate, explain, search_switch)


def build_parser() -> argparse.ArgumentParser:
    """The parser with all commands."""
    parser = argparse.ArgumentParser(
        prog="python -m hvd_partial",
        description="Partial allreduce for Horovod.",
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in COMMANDS:
        command.add_parser(commands)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit code."""
    options = build_parser().parse_args(arguments)
    return options.run(options)


if __name__ == "__main__":
    sys.exit(main())
