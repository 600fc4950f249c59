# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Whoever connects to a rank's TCP ports without belonging to the job does not disturb it."""

from __future__ import annotations

import contextlib
import os
import re
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

# What a stranger sends before it waits, or goes away.
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
ROUNDS = 150


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


@contextlib.contextmanager
def printed() -> Iterator[list[str]]:
    """Collects the lines that this process prints, UCX's among them."""
    lines: list[str] = []
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


def is_closed(talker: socket.socket, seconds: float) -> bool:
    talker.settimeout(seconds)
    try:
        return talker.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


def stranger(ranks: Ranks, places: list[tuple[str, int]], sentence: bytes) -> dict[str, int]:
    """Speaks to all places: once before the rounds begin, staying on, and again during them."""
    staying = [speak(place, sentence) for place in places]
    ranks.barrier()
    spoken = len(staying)
    for _ in range(5):
        for place in places:
            with speak(place, sentence):
                spoken += 1
    ranks.barrier()
    closed = sum(is_closed(talker, 0.2) for talker in staying)
    for talker in staying:
        talker.close()
    return {"spoken": spoken, "staying": len(staying), "closed": closed}


def job(ranks: Ranks, size: int, sentence: str) -> dict[str, Any]:
    """`size` ranks make rounds, one process more is the stranger."""

    def exchange(address: bytes) -> list[bytes]:
        return ranks.exchange(address)[:size]

    if ranks.rank == size:
        ranks.exchange(b"")
        places = [place for found in ranks.exchange([]) for place in found]
        assert places
        outcome = stranger(ranks, places, SENTENCES[sentence])
        ranks.barrier()
        return dict(outcome)
    with printed() as lines, engine_module.connect(ranks.rank, size, exchange) as engine:
        channel = engine.channel(
            "g", [np.zeros(1000, np.int64)], "sync", average=None, staleness="full"
        )
        ones = [np.ones(1000, np.int64)]
        total = sum(int(r.values[0][0]) for r in channel.allreduce(ones))
        ranks.exchange(listening())
        ranks.barrier()
        started = time.monotonic()
        for _ in range(ROUNDS):
            total += sum(int(r.values[0][0]) for r in channel.allreduce(ones))
        total += sum(int(r.values[0][0]) for r in channel.flush())
        seconds = time.monotonic() - started
        ranks.barrier()
        ranks.barrier()
    return {"total": total, "seconds": seconds, "lines": lines}


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("sentence", SENTENCES)
def test_a_stranger_at_the_ports_does_not_disturb_the_job(size: int, sentence: str) -> None:
    *job_ranks, outcome = run(job, size + 1, size, sentence, deadline=60)
    print(
        sentence, size, outcome, [r["seconds"] for r in job_ranks], [r["lines"] for r in job_ranks]
    )
    assert outcome["spoken"] >= 6 * size
    for rank in job_ranks:
        assert rank["total"] == (ROUNDS + 1) * size
        assert rank["lines"] == []


def test_what_is_not_bytes_is_no_address() -> None:
    with pytest.raises(InvalidArgumentError, match="returned int for rank 1, not bytes"):
        engine_module.connect(0, 2, lambda address: [address, 12])  # type: ignore[list-item]
