# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""What is written down for each update, and found again."""

from __future__ import annotations

from pathlib import Path

from hvd_partial.sync_switch.journal import Journal


def written(path: Path, *counts: int) -> None:
    journal = Journal(path)
    for count in counts:
        journal.write(count, {"contributions": 10 * count})
    journal.close()


def test_any_count_of_updates_is_found(tmp_path: Path) -> None:
    path = tmp_path / "state.jsonl"
    written(path, 1, 2, 3, 4, 5)
    found = Journal(path).resume(3)
    assert found is not None
    assert (found["iterations"], found["contributions"]) == (3, 30)
    # Training went on from there: what came after it then is forgotten.
    written(path, 4)
    assert Journal(path).resume(5) == {"iterations": 4, "contributions": 40}
    # An older checkpoint than the one it went on from.
    assert Journal(path).resume(2) == {"iterations": 2, "contributions": 20}


def test_a_new_job_starts_anew(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "state.jsonl"
    assert Journal(path).resume(0) is None
    written(path, 1, 2)
    assert Journal(path).resume(0) is None
    assert path.read_text() == ""
    assert Journal(path).resume(7) is None


def test_a_line_cut_off_by_a_crash_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "state.jsonl"
    written(path, 1, 2)
    with path.open("a") as file:
        file.write('{"iterations": 3, "contri\n[]\n')
    found = Journal(path).resume(3)
    assert found is not None
    assert found["iterations"] == 2


def test_the_last_word_on_an_update_counts(tmp_path: Path) -> None:
    path = tmp_path / "state.jsonl"
    journal = Journal(path)
    journal.write(1, {"contributions": 1})
    journal.write(1, {"contributions": 2})
    journal.close()
    found = Journal(path).resume(1)
    assert found is not None
    assert found["contributions"] == 2
