# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Whoever connects to a rank's TCP ports without belonging to the job does not disturb it."""

from __future__ import annotations

import contextlib
import os
import re
import select
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hvd_partial import engine as engine_module
from hvd_partial.errors import InvalidArgumentError
from tests.engine.process_ranks import Ranks, run

# What UCX sends first over a TCP connection. It is no secret: it stands in UCX's sources.
UCX_MAGIC = struct.pack("<Q", 0xCAFEBABE12345678)
GARBAGE = bytes(np.random.default_rng(1).integers(0, 256, 100_000, np.uint8))

# What a stranger sends before it waits, or goes away; UCX says nothing of it.
SENTENCES = {
    "nothing": b"",
    "a byte": b"\0",
    "half of the first word": UCX_MAGIC[:4],
    "the first word only": UCX_MAGIC,
    "the first word, half a header": UCX_MAGIC + b"\x01\x00",
    "another first word": UCX_MAGIC[::-1],
    "a request for a web page": b"GET / HTTP/1.1\r\nHost: rank0\r\n\r\n",
    "garbage": GARBAGE,
}
TURNED_AWAY = ("another first word", "a request for a web page", "garbage")
# UCX warns of this.
UNKNOWN_KIND = UCX_MAGIC + struct.pack("<BI", 5, 100) + GARBAGE[:100]
ROUNDS = 150  # while a stranger speaks


def listening() -> list[tuple[str, int]]:
    """Where this process listens."""
    inodes = set()
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            inodes.update(re.findall(r"^socket:\[(\d+)\]$", str(entry.readlink())))
    places = []
    for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == "0A" and fields[9] in inodes:
            host, port = fields[1].split(":")
            places.append((socket.inet_ntoa(struct.pack("<I", int(host, 16))), int(port, 16)))
    return places


class Printed(list[str]):
    """The lines that this process prints, UCX's among them; complete afterwards."""

    def wait_for(self, text: str, seconds: float = 20.0) -> None:
        """Blocks until it has been printed, or so long: what a stranger says may be read late."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            sys.stdout.flush()
            if text.encode() in os.pread(1, os.fstat(1).st_size, 0):
                return
            time.sleep(0.01)


@contextlib.contextmanager
def printed() -> Iterator[Printed]:
    """Collects what is printed meanwhile."""
    lines = Printed()
    with tempfile.TemporaryFile() as file:
        kept = [os.dup(1), os.dup(2)]
        for fd in (1, 2):
            os.dup2(file.fileno(), fd)
        try:
            yield lines
        finally:
            sys.stdout.flush()
            for fd, before in zip((1, 2), kept, strict=True):
                os.dup2(before, fd)
                os.close(before)
            file.seek(0)
            lines += file.read().decode(errors="replace").splitlines()


def speak(place: tuple[str, int], sentence: bytes) -> socket.socket:
    talker = socket.create_connection(place, timeout=5)
    with contextlib.suppress(OSError):  # turned away in the middle of it
        talker.sendall(sentence)
    return talker


def closed(talkers: list[socket.socket], seconds: float) -> int:
    """How many of these connections the other side has closed, or closes by then."""
    deadline = time.monotonic() + seconds
    waiting = list(talkers)
    while waiting and (left := deadline - time.monotonic()) > 0:
        ended, _, _ = select.select(waiting, [], [], left)  # no rank ever says anything
        waiting = [talker for talker in waiting if talker not in ended]
    return len(talkers) - len(waiting)


def stranger(ranks: Ranks, sentences: list[bytes]) -> list[tuple[int, int, int]]:
    """Speaks to all places: once before the rounds begin, staying on, and again during them.

    Returns: for each sentence how often it was said, how many connections stayed on, and how many
    of these were closed by the other side.
    """
    ranks.exchange(b"")
    places = [place for found in ranks.exchange([]) for place in found]
    outcomes = []
    talkers: list[socket.socket] = []
    for sentence in sentences:
        staying = [speak(place, sentence) for place in places]
        ranks.barrier()
        said = len(staying)
        for _ in range(5):
            for place in places:
                with speak(place, sentence):
                    said += 1
        patience = 10.0 if sentence in [SENTENCES[name] for name in TURNED_AWAY] else 0.01
        outcomes.append((said, len(staying), closed(staying, patience)))
        ranks.barrier()
        talkers += staying
    ranks.barrier()  # what was said there has been read
    for talker in talkers:
        talker.close()
    return outcomes


def job(ranks: Ranks, size: int, sentences: list[bytes], awaited: str = "") -> Any:
    """`size` ranks make rounds, one process more is the stranger."""
    if ranks.rank == size:
        return stranger(ranks, sentences)

    def exchange(address: bytes) -> list[bytes]:
        return ranks.exchange(address)[:size]

    ones = [np.ones(1000, np.int64)]
    total = 0
    with printed() as lines, engine_module.connect(ranks.rank, size, exchange) as engine:
        channel = engine.channel("g", ones, "sync", average=None, staleness="full")
        ranks.exchange(listening())
        for _ in sentences:
            ranks.barrier()
            for _ in range(ROUNDS):
                total += sum(int(result.values[0][0]) for result in channel.allreduce(ones))
            ranks.barrier()
        total += sum(int(result.values[0][0]) for result in channel.flush())
        lines.wait_for(awaited)
        ranks.barrier()
    return total, list(lines)


@pytest.mark.parametrize("size", [2, 4])
def test_strangers_at_the_ports_do_not_disturb_the_job(size: int) -> None:
    *members, outcomes = run(job, size + 1, size, list(SENTENCES.values()), deadline=60)
    for name, (said, staying, away) in zip(SENTENCES, outcomes, strict=True):
        # Each rank listens once at least.
        assert staying >= size, name
        assert said == 6 * staying, name
        if name in TURNED_AWAY:
            assert away == staying, name
    for total, lines in members:
        assert total == len(SENTENCES) * ROUNDS * size
        assert lines == []


def test_what_ucx_says_of_strangers_does_not_fill_the_log() -> None:
    *members, outcomes = run(job, 3, 2, [UNKNOWN_KIND] * 3, "no handler installed", deadline=60)
    assert all(said >= 6 for said, _, _ in outcomes)
    for total, lines in members:
        assert total == 3 * ROUNDS * 2
        # Four times what it says, with a dump of eight lines; it was said some seventy times.
        assert sum("no handler installed" in line for line in lines) in range(1, 5)
        assert len(lines) <= 40, lines


def test_what_is_not_bytes_is_no_address() -> None:
    with pytest.raises(InvalidArgumentError, match="returned int for rank 1, not bytes"):
        engine_module.connect(0, 2, lambda address: [address, 12])  # type: ignore[list-item]
