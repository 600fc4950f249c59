# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Scripts that end in whatever way, as whole processes that meet in files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

DEADLINE_SECONDS = 40.0

PRELUDE = """
import os, signal, sys, threading, time
from pathlib import Path
import numpy as np
from hvd_partial import engine as module

rank, size, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])

def exchange(address):
    (folder / f"{rank}.new").write_bytes(address)
    (folder / f"{rank}.new").rename(folder / f"{rank}")
    while not all((folder / f"{other}").exists() for other in range(size)):
        time.sleep(0.002)
    return [(folder / f"{other}").read_bytes() for other in range(size)]

ONE = [np.ones(4, np.float32)]
engine = module.connect(rank, size, exchange)
channel = engine.channel("g", ONE, "sync")

def train(steps):
    for _ in range(steps):
        channel.allreduce(ONE)
    print("made", channel.stats().rounds, flush=True)
"""


def run_script(body: str, size: int, folder: Path) -> list[tuple[int, str, str]]:
    """Exit code, output and error output of each rank; the test fails if one does not end."""
    script = folder / "script.py"
    script.write_text(PRELUDE + body)
    processes = [
        subprocess.Popen(
            [sys.executable, str(script), str(rank), str(size), str(folder)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(size)
    ]
    try:
        ended = [process.communicate(timeout=DEADLINE_SECONDS) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return [
        (process.returncode, out, err) for process, (out, err) in zip(processes, ended, strict=True)
    ]


def test_a_script_that_never_closes_ends_well(tmp_path: Path) -> None:
    for code, out, err in run_script("train(5)\n", 3, tmp_path):
        assert (code, out, err) == (0, "made 5\n", "")


@pytest.mark.parametrize("ending", ["", "sys.exit(0)"])
def test_a_rank_that_returns_early_leaves_and_the_others_go_on(tmp_path: Path, ending: str) -> None:
    body = f"""
if rank == 1:
    train(2)
    {ending}
else:
    train(9)
"""
    outcomes = run_script(body, 3, tmp_path)
    assert [(code, err) for code, _, err in outcomes] == [(0, "")] * 3
    assert [out for _, out, _ in outcomes] == ["made 9\n", "made 2\n", "made 9\n"]


def test_an_exception_that_nobody_catches_is_the_others_reason(tmp_path: Path) -> None:
    body = """
train(2)
if rank == 1:
    raise ValueError("a bug")
while True:
    train(1)
"""
    for rank, (code, _, err) in enumerate(run_script(body, 3, tmp_path)):
        assert code == 1
        if rank == 1:
            assert "ValueError: a bug" in err
        else:
            assert "AbortedError" in err
            assert "rank 1 ended the job: ValueError: a bug" in err


def test_a_process_that_ends_without_python_noticing_is_a_lost_peer(tmp_path: Path) -> None:
    body = """
train(2)
if rank == 1:
    os._exit(7)
while True:
    train(1)
"""
    outcomes = run_script(body, 3, tmp_path)
    assert [code for code, _, _ in outcomes] == [1, 7, 1]
    for _, _, err in (outcomes[0], outcomes[2]):
        assert "PeerLostError" in err
        assert "rank 1" in err


@pytest.mark.parametrize("attempt", range(3))  # without care it dies in two out of three
def test_a_thread_that_waits_in_vain_does_not_keep_or_crash_its_process(
    tmp_path: Path, attempt: int
) -> None:
    body = """
if rank == 0:
    thread = threading.Thread(target=channel.allreduce, args=(ONE,), daemon=True)
    thread.start()
    while channel.stats().deposits < 1:
        time.sleep(0.001)
    # Ends while its thread waits for rank 1, which never calls.
"""
    outcomes = run_script(body, 2, tmp_path)
    assert outcomes[1][0] == 0
    assert outcomes[0][0] == 0


def test_a_forked_child_does_not_close_its_parents_engine(tmp_path: Path) -> None:
    body = """
train(2)
child = os.fork()
if child == 0:
    signal.alarm(10)  # kills it if it waits for ranks that are not its own
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
train(2)
"""
    for code, out, _ in run_script(body, 2, tmp_path):
        assert (code, out) == (0, "made 2\nmade 4\n")


def test_importing_the_engine_imports_neither_tensorflow_nor_horovods_tensorflow() -> None:
    question = (
        "import sys, hvd_partial, hvd_partial.engine\n"
        "print([name for name in sys.modules if 'tensorflow' in name or 'keras' in name])"
    )
    answer = subprocess.run(
        [sys.executable, "-c", question], capture_output=True, text=True, check=True, timeout=60
    )
    assert answer.stdout == "[]\n"


def test_importing_the_package_alone_loads_nothing() -> None:
    question = (
        "import sys; import hvd_partial; print('numpy' in sys.modules, hvd_partial.__version__)"
    )
    answer = subprocess.run(
        [sys.executable, "-c", question], capture_output=True, text=True, check=True, timeout=60
    )
    assert answer.stdout.startswith("False 0.")


HIDE = """
import importlib.abc, sys

class Hide(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == {name!r}:
            raise ImportError("hidden")

sys.meta_path.insert(0, Hide())
"""


@pytest.mark.parametrize(
    ("hidden", "remedy"),
    [
        ("libucx", "pip install libucx-cu12"),
        ("hvd_partial._engine", "build the package"),
    ],
)
def test_a_missing_library_is_named_with_the_remedy(hidden: str, remedy: str) -> None:
    question = HIDE.format(name=hidden) + "import hvd_partial.engine"
    answer = subprocess.run(
        [sys.executable, "-c", question], capture_output=True, text=True, check=False, timeout=60
    )
    assert answer.returncode == 1
    assert "ImportError" in answer.stderr
    assert remedy in answer.stderr


def test_errors_work_without_horovod() -> None:
    question = HIDE.format(name="horovod") + (
        "from hvd_partial.errors import PeerLostError\n"
        "print([base.__name__ for base in PeerLostError.__mro__][:3])"
    )
    answer = subprocess.run(
        [sys.executable, "-c", question], capture_output=True, text=True, check=True, timeout=60
    )
    assert answer.stdout == "['PeerLostError', 'HvdPartialError', 'RuntimeError']\n"
