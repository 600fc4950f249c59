# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Flight records: written on a signal and on failures, and `explain` makes a story of them."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

from hvd_partial.__main__ import main
from hvd_partial.errors import PeerLostError
from tests.engine.lines import Lines
from tests.engine.process_ranks import Ranks, launch, run

ONE = [np.ones(4, np.float32)]


def explain(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    code = main(["explain", *map(str, arguments)])
    printed = capsys.readouterr()
    return code, printed.out + printed.err


def blocked(ranks: Ranks, folder: str) -> tuple[int, list[str]]:
    """Ranks 0 and 1 wait for rank 2, which asks everybody for a record."""
    os.environ["HVD_PARTIAL_FLIGHT_DIR"] = folder
    heard: list[int] = []

    def mine(number: int, frame: FrameType | None) -> None:
        heard.append(number)

    if ranks.rank == 0:
        signal.signal(signal.SIGUSR2, mine)
    lines = Lines()
    if ranks.rank != 2:
        lines.when("flight record written to ", lambda: ranks.set(f"written by {ranks.rank}"))
    pids = ranks.exchange(os.getpid())
    with ranks.connect() as engine:
        channel = engine.channel("g", ONE, "sync")
        for _ in range(5):
            channel.allreduce(ONE)
        if ranks.rank == 2:
            ranks.wait_for("rank 0 is about to wait")
            ranks.wait_for("rank 1 is about to wait")
            for pid in pids[:2]:
                os.kill(pid, signal.SIGUSR2)
            for rank in (0, 1):
                ranks.wait_for(f"written by {rank}")
            assert engine.write_flight_record("to compare") is not None
        else:
            ranks.set(f"rank {ranks.rank} is about to wait")
        channel.allreduce(ONE)
    return len(heard), [line for line in lines.all if "flight record" in line]


def test_a_signal_to_a_blocked_rank_writes_its_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outcomes = run(blocked, 3, str(tmp_path), deadline=30)
    assert [heard for heard, _ in outcomes] == [1, 0, 0], "a handler that was there is called"
    for rank in (0, 1):
        line = outcomes[rank][1][-1]
        found = re.fullmatch(
            rf"hvd_partial rank {rank}: flight record written to (\S+) \(SIGUSR2\)", line
        )
        assert found, line
        items = [json.loads(text) for text in Path(found[1]).read_text().splitlines()]
        header = items[0]
        assert (header["rank"], header["size"], header["reason"]) == (rank, 3, "SIGUSR2")
        assert header["progress"] == "answers"
        channel = next(item for item in items if item["line"] == "channel")
        assert channel["name"] == "g"
        assert channel["round"] == 5
        assert channel["ring_capacity"] == 8
        events = [item["event"] for item in items if item["line"] == "event"]
        assert events.count("publish") == 5
        assert {"connect", "call", "deposit", "activate", "join", "return", "release"} <= {*events}

    code, text = explain(capsys, "--json", tmp_path)
    assert code == 0, text
    story = json.loads(text)
    # They were about to wait when the signal came: rank 1 at least may be recorded before it did.
    last = story["rounds"][-1]
    assert set(last["calls"]) <= {"0", "1"}
    assert [told["round"] for told in story["rounds"]][:5] == [0, 1, 2, 3, 4]
    for told in story["rounds"][:5]:
        assert told["contributions"] == told["contributors"] == 3
        assert set(told["calls"]) == {"0", "1", "2"}
        assert told["mode"] == "sync"
        assert max(told["calls"].values()) >= told["activated"] >= max(told["published"].values())


def waits_for_rank_2(ranks: Ranks, folder: str) -> None:
    os.environ["HVD_PARTIAL_FLIGHT_DIR"] = folder
    os.environ["HVD_PARTIAL_STALL_WARNING_S"] = "0.3"
    lines = Lines()
    own = threading.Event()
    lines.when("have waited", lambda: ranks.set("all wait"))
    lines.when(
        "flight record written to ",
        own.set if ranks.rank == 2 else lambda: ranks.set(f"written by {ranks.rank}"),
    )
    pids = ranks.exchange(os.getpid())
    with ranks.connect() as engine:
        channel = engine.channel("g", ONE, "sync")
        for _ in range(3):
            channel.allreduce(ONE)
        if ranks.rank == 2:
            ranks.wait_for("all wait")
            for pid in pids:
                os.kill(pid, signal.SIGUSR2)
            for rank in (0, 1):
                ranks.wait_for(f"written by {rank}")
            assert own.wait(20)
        channel.allreduce(ONE)


def test_explain_names_who_is_waited_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(waits_for_rank_2, 3, str(tmp_path), deadline=30)
    code, text = explain(capsys, tmp_path)
    assert code == 0
    assert re.match(
        r"rank 2 has not called since round 2, \d\.\d s before the record; ranks 0 and 1 have "
        r"waited \d\.\d s for it \(channel 'g', round 3, sync mode\)\n",
        text,
    ), text
    assert "3 of 3 ranks have a record" in text
    assert re.search(r"1 +SIGUSR2 +'g': has waited \d\.\d s in a call for round 3 *\n", text), text
    assert re.search(r"2 +SIGUSR2 +'g': in the user's code, last call \d\.\d s ago", text), text
    assert re.search(r"\n +3 +not yet .*; not: 2", text), text

    # Without rank 0's record less is known, and that is said.
    others = [path for path in tmp_path.iterdir() if "-rank0-" not in path.name]
    code, text = explain(capsys, *others)
    assert text.startswith("rank 2 has not called; rank 1 waits (channel 'g'; the record of rank 0")

    # Of another host: aligned by the time of day, which is said; rounds stay what they were.
    moved = next(path for path in others if "-rank1-" in path.name)
    items = [json.loads(line) for line in moved.read_text().splitlines()]
    for item in items:
        if "t" in item:
            item["t"] += 5000
    items[0]["monotonic"] += 5000
    items[0]["boot"] = "another"
    moved.write_text("".join(json.dumps(item) + "\n" for item in items))
    code, text = explain(capsys, "--rounds", 2, tmp_path)
    assert "rank 1 ran on another host than rank 0" in " ".join(text.split())
    code, text = explain(capsys, "--rounds", 2, "--json", tmp_path)
    told = json.loads(text)["rounds"]
    assert [item["round"] for item in told] == [2, 3]
    assert max(told[0]["calls"].values()) - min(told[0]["calls"].values()) < 5


def survive(ranks: Ranks, victim: int, folder: str) -> tuple[str, list[str]]:
    os.environ["HVD_PARTIAL_FLIGHT_DIR"] = folder
    lines = Lines()
    engine = ranks.connect()
    channel = engine.channel("g", ONE, "sync")
    for _ in range(4):
        channel.allreduce(ONE)
    ranks.barrier()
    if ranks.rank == victim:
        ranks.die()
    with pytest.raises(PeerLostError) as raised:
        while True:
            channel.allreduce(ONE)
    engine.close()
    return str(raised.value), lines.all


@pytest.mark.parametrize("victim", [0, 2])
def test_survivors_of_a_kill_leave_records_that_name_the_victim(
    victim: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outcomes = launch(survive, 4, victim, str(tmp_path), deadline=30)
    files = []
    for outcome in outcomes:
        if outcome.rank == victim:
            assert outcome.exit_code == -signal.SIGKILL
            continue
        assert not outcome.error, outcome.trace
        message, lines = outcome.value
        found = re.search(r"; flight record: (\S+)$", message)
        assert found, message
        assert Path(found[1]).exists(), "it is there before the error is"
        assert any(f"flight record written to {found[1]} (PeerLost: rank" in line for line in lines)
        files.append(found[1])
    assert len(set(files)) == 3
    code, text = explain(capsys, *files)
    assert code == 0
    first = text.splitlines()[0]
    assert first.startswith(f"rank {victim} died ("), text
    if victim != 0:
        assert "last heard of" in first
        assert "it called for round 3 in channel 'g'" in first
    row = next(line for line in text.splitlines() if re.match(rf" +{victim} +", line))
    assert "no record of it" in row


def signal_off(ranks: Ranks) -> None:
    os.environ["HVD_PARTIAL_FLIGHT_SIGNAL"] = "none" if ranks.rank == 1 else "SIGUSR1"
    os.environ["HVD_PARTIAL_FLIGHT_DIR"] = "/dev"  # a folder, but no file can be made in it
    engine = ranks.connect()
    ranks.barrier()
    if ranks.rank == 1:
        os.kill(os.getpid(), signal.SIGUSR2)  # nobody handles it
    with pytest.raises(PeerLostError):
        engine.channel("g", ONE, "sync").allreduce(ONE)


def test_without_a_signal_the_process_has_its_default(tmp_path: Path) -> None:
    outcomes = launch(signal_off, 2, deadline=30)
    assert outcomes[1].exit_code == -signal.SIGUSR2
    assert not outcomes[0].error, outcomes[0].trace


def make_record(path: Path, rank: int = 0, size: int = 2, **changes: Any) -> Path:
    header = {
        "line": "header",
        "format": 1,
        "rank": rank,
        "size": size,
        "pid": 1,
        "host": "h",
        "boot": "b",
        "reason": "SIGUSR2",
        "progress": "answers",
        "wall": 1000.0 + rank,
        "monotonic": 10.0,
        **changes,
    }
    path.write_text(json.dumps(header) + "\n")
    return path


def test_bad_files_are_refused_with_a_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = make_record(tmp_path / "good")
    text_file = tmp_path / "notes.txt"
    text_file.write_text("hello\n")
    empty = tmp_path / "empty"
    empty.mkdir()
    for arguments, message in (
        ([tmp_path / "none"], "none: cannot be read: No such file"),
        ([good, text_file], "notes.txt: line 1 is not a flight record's"),
        ([empty], "no flight record in this folder"),
        ([make_record(tmp_path / "new", format=99)], "format 99; this version"),
        ([good, make_record(tmp_path / "other", rank=1, size=3)], "of different jobs"),
    ):
        code, text = explain(capsys, *arguments)
        assert (code, message in text) == (2, True), text
        assert text.startswith("explain: ")
    with pytest.raises(SystemExit) as ended:
        main(["explain"])
    assert ended.value.code == 2


def test_a_cut_off_file_and_older_ones_are_used_as_far_as_they_go(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = make_record(tmp_path / "old", wall=1.0)
    new = make_record(tmp_path / "new")
    with new.open("a") as file:
        file.write('{"line":"event","t":9.5,"event":"conn')
    code, text = explain(capsys, old, new)
    assert code == 0
    assert "new is cut off" in text
    assert "1 older records of the same ranks are not looked at" in text
    assert text.startswith("no rank with a record waits for another; there is no record of rank 1")


def test_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["explain", "--help"])
    assert ended.value.code == 0
    assert "python -m hvd_partial explain --rounds 50" in capsys.readouterr().out
