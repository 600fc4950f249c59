# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""`python -m hvd_partial search-switch`: the bisection, its journal, and real (tiny) scripts."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from hvd_partial import __main__
from hvd_partial.search_switch import contract, recorded, summary
from hvd_partial.search_switch.bisection import (
    Midpoints,
    Outcome,
    RecordedFractions,
    Review,
    Run,
    SearchError,
    Settings,
    SettingsError,
    review,
    search,
)
from hvd_partial.search_switch.journal import Journal

ROOT = Path(__file__).resolve().parents[1]
# Runs that the authors of Sync-Switch published.
PUBLISHED = ROOT / "examples" / "sync_switch_runs.csv"
quick = hypothesis_settings(max_examples=60, deadline=None)

# Accuracies with few decimals, so that a mean often lies exactly on what is needed.
accuracies = st.integers(0, 100).map(lambda n: n / 100)
outcomes = st.builds(
    Outcome,
    accuracy=accuracies | st.none(),
    seconds=st.integers(1, 100).map(float),
    failure=st.sampled_from(["", "", "", "", "crashed: exit code 1"]),
)


@st.composite
def all_settings(draw: st.DrawFn) -> Settings:
    runs = draw(st.integers(1, 4))
    return Settings(
        beta=draw(st.sampled_from([0.0, 0.01, 0.1, 0.3])),
        runs=runs,
        bsp_runs=runs,
        target=draw(st.none() | st.integers(20, 90).map(lambda n: n / 100)),
        max_settings=draw(st.integers(1, 5)),
        chance=draw(st.sampled_from([0.0, 0.1])),
        allowed_failures=draw(st.integers(0, runs - 1)),
        early_rejection=draw(st.booleans()),
        try_asp=draw(st.booleans()),
    )


class World:
    """What each run would come to: drawn when it is made for the first time, then for ever."""

    def __init__(self, data: st.DataObject) -> None:
        self._data = data
        self._outcomes: dict[Run, Outcome] = {}

    def __call__(self, run: Run, _: Review | None = None) -> Outcome:
        if run not in self._outcomes:
            self._outcomes[run] = self._data.draw(outcomes, label=str(run))
        return self._outcomes[run]


def verdicts(result: Review) -> dict[float, str]:
    return {e.bsp_fraction: e.verdict for e in result.evaluations}


# ---- the bisection


@quick
@given(settings_count=st.integers(1, 8), data=st.data(), try_asp=st.booleans())
def test_on_a_monotone_curve_the_smallest_sufficient_fraction_of_the_grid_is_found(
    settings_count: int, data: st.DataObject, try_asp: bool
) -> None:
    grid = [k / 2**settings_count for k in range(2**settings_count + 1)]
    # A curve that rises where it is drawn to rise, and reaches BSP's accuracy at the latest there.
    steps = sorted(data.draw(st.lists(st.sampled_from(grid), max_size=4)))
    settings = Settings(runs=1, bsp_runs=1, beta=0.05, max_settings=settings_count, try_asp=try_asp)

    def accuracy(fraction: float) -> float:
        return round(0.9 - 0.03 * sum(1 for step in steps if fraction < step), 2)

    sufficient = [f for f in grid if accuracy(f) >= 0.85]
    if not try_asp:
        sufficient = [f for f in sufficient if f > 0]
    made: dict[Run, Outcome] = {}
    result = search(
        settings, Midpoints(), made, lambda run, _: Outcome(accuracy(run.bsp_fraction), 1)
    )
    assert result.high == sufficient[0]
    assert result.found == (result.high < 1)
    assert len(made) <= 1 + settings_count + try_asp


@quick
@given(
    fractions=st.sets(st.integers(1, 999).map(lambda n: n / 1000), min_size=1, max_size=30),
    threshold=st.integers(0, 1000).map(lambda n: n / 1000),
)
def test_on_recorded_fractions_too(fractions: set[float], threshold: float) -> None:
    settings = Settings(runs=1, bsp_runs=1, max_settings=16)
    candidates = RecordedFractions(dict.fromkeys([*fractions, 1.0], 1))

    def make(run: Run, _: Review) -> Outcome:
        return Outcome(0.9 if run.bsp_fraction >= threshold else 0.5, 1)

    result = search(settings, candidates, {}, make)
    assert result.high == min([f for f in fractions if f >= threshold], default=1.0)


@quick
@given(settings=all_settings(), data=st.data())
def test_early_rejection_changes_no_verdict_whatever_the_noise(
    settings: Settings, data: st.DataObject
) -> None:
    world = World(data)
    early: dict[Run, Outcome] = {}
    full: dict[Run, Outcome] = {}
    a = search(dataclasses.replace(settings, early_rejection=True), Midpoints(), early, world)
    b = search(dataclasses.replace(settings, early_rejection=False), Midpoints(), full, world)
    assert verdicts(a) == verdicts(b)
    assert (a.low, a.high, a.target, a.found) == (b.low, b.high, b.target, b.found)
    assert early.items() <= full.items()


def full_evaluation(settings: Settings, runs: list[Outcome], target: Fraction) -> bool:
    """The definition, written again: few failures, and the mean of the others is high enough."""
    good = [o for o in runs if not o.failure and o.accuracy is not None]
    good = [o for o in good if o.accuracy is not None and o.accuracy > settings.chance]
    if len(runs) - len(good) > settings.allowed_failures or not good:
        return False
    # Two decimals each: whole hundredths.
    total = sum(Fraction(round(100 * (o.accuracy or 0)), 100) for o in good)
    return total / len(good) >= target - Fraction(round(100 * settings.beta), 100)


@quick
@given(settings=all_settings(), data=st.data())
def test_what_is_accepted_is_what_the_definition_accepts(
    settings: Settings, data: st.DataObject
) -> None:
    world = World(data)
    result = search(settings, Midpoints(), {}, world)
    if result.target is None:
        assert result.broken
        assert not result.found
        return
    for evaluation in result.evaluations:
        if evaluation.verdict == "target":
            continue
        fraction = evaluation.bsp_fraction
        runs = [world(Run(fraction, number)) for number in range(1, settings.runs + 1)]
        accepted = full_evaluation(settings, runs, result.target)
        assert (evaluation.verdict == "accepted") == accepted


def test_a_candidate_that_cannot_be_saved_is_left_at_once() -> None:
    settings = Settings(target=0.9, beta=0.01, runs=5, max_settings=1, best_accuracy=0.92)
    made: dict[Run, Outcome] = {}
    search(settings, Midpoints(), made, lambda run, _: Outcome(0.8, 1))
    # One run at 0.80 and four at 0.92 would still be 0.896; two and three cannot reach 0.89.
    assert len(made) == 2
    made = {}
    settings = dataclasses.replace(settings, early_rejection=False)
    search(settings, Midpoints(), made, lambda run, _: Outcome(0.8, 1))
    assert len(made) == 5


def test_accuracies_are_compared_as_the_decimals_that_people_write() -> None:
    # As floats, neither is 0.1 * 3 = 0.3 nor 0.92 - 0.01 = 0.91.
    for target, beta, accuracy in ((0.75, 0.01, 0.74), (0.92, 0.01, 0.91), (0.3, 0.2, 0.1)):
        settings = Settings(target=target, beta=beta, runs=3, max_settings=1)
        exactly = search(settings, Midpoints(), {}, lambda *_, a=accuracy: Outcome(a, 1))
        assert exactly.high == 0.5
        below = search(settings, Midpoints(), {}, lambda *_, a=accuracy - 1e-9: Outcome(a, 1))
        assert below.high == 1.0


@pytest.mark.parametrize(
    "bad",
    [
        Outcome(None, 1.0),
        Outcome(0.1, 1.0),
        Outcome(None, 1.0, failure="crashed: exit code 1"),
        Outcome(None, 1.0, failure="timed out"),
        Outcome(0.9, 1.0, failure="diverged: loss is not a finite number"),
    ],
    ids=["nan", "chance", "crash", "timeout", "loss"],
)
def test_a_failed_run_rejects_its_setting_unless_it_is_allowed(bad: Outcome) -> None:
    def make(run: Run, _: Review) -> Outcome:
        return bad if run.number == 2 else Outcome(0.9, 1)

    settings = Settings(target=0.9, runs=3, bsp_runs=3, max_settings=1, chance=0.12)
    strict = search(settings, Midpoints(), made := {}, make)
    assert strict.high == 1.0
    assert len(made) == 2, "the third run was left out"
    lenient = search(dataclasses.replace(settings, allowed_failures=1), Midpoints(), {}, make)
    assert lenient.high == 0.5


def test_without_bsp_runs_that_work_there_is_no_target() -> None:
    settings = Settings(runs=3, bsp_runs=3)
    made: dict[Run, Outcome] = {}
    result = search(
        settings, Midpoints(), made, lambda *_: Outcome(None, 1, failure="crashed: why")
    )
    assert "crashed: why (--retry-failed" in result.broken
    assert (len(made), result.found) == (1, False)


def test_runs_of_bsp_come_first_and_give_the_target() -> None:
    order: list[Run] = []

    def make(run: Run, _: Review) -> Outcome:
        order.append(run)
        return Outcome(0.9 if run.number == 1 else 0.8, 1)

    result = search(Settings(runs=2, bsp_runs=2, max_settings=1), Midpoints(), {}, make)
    assert order == [Run(1.0, 1), Run(1.0, 2), Run(0.5, 1), Run(0.5, 2)]
    assert result.target == Fraction(85, 100)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"beta": -0.1}, "--beta"),
        ({"beta": float("nan")}, "--beta"),
        ({"runs": 0}, "--runs"),
        ({"max_settings": 0}, "--max-settings"),
        ({"max_settings": 99}, "--max-settings"),
        ({"chance": 10.0}, "--chance"),
        ({"target": 93.0}, "--target"),
        ({"allowed_failures": 5}, "--allowed-failures"),
        ({"bsp_seconds": 5.0}, "--bsp-seconds"),
        ({"target": 0.9, "bsp_seconds": 0.0}, "--bsp-seconds"),
        ({"target": 0.9, "history": (Outcome(0.9, 1),)}, "--bsp-history"),
    ],
)
def test_settings_that_make_no_sense_are_named(change: dict[str, Any], word: str) -> None:
    with pytest.raises(SettingsError, match=word):
        Settings(**change)


# ---- the journal


class CutError(Exception):
    """The search was interrupted here."""


def journalled(
    path: Path, settings: Settings, make: Callable[[Run, Review], Outcome]
) -> tuple[Review, dict[Run, Outcome]]:
    with Journal(path, {"command": ["train"]}, dataclasses.asdict(settings)) as journal:
        made = dict(journal.made)

        def keep(run: Run, known: Review) -> Outcome:
            outcome = make(run, known)
            journal.add(run, 1, outcome)
            return outcome

        return search(settings, Midpoints(), made, keep), made


@quick
@given(settings=all_settings(), data=st.data())
def test_an_interruption_anywhere_changes_neither_the_answer_nor_the_runs(
    settings: Settings, data: st.DataObject
) -> None:
    world = World(data)
    straight: dict[Run, Outcome] = {}
    expected = search(settings, Midpoints(), straight, world)
    count = len(straight)
    stops = data.draw(st.lists(st.integers(0, count), max_size=3), label="stop after so many runs")
    torn = data.draw(st.integers(0, 60), label="bytes of the line that the crash tore")
    made_now: list[Run] = []

    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        path = Path(folder) / "journal"
        for stop in [*sorted(stops), count]:

            def make(run: Run, known: Review, stop: int = stop) -> Outcome:
                if len(made_now) == stop:
                    raise CutError
                made_now.append(run)
                return world(run, known)

            try:
                result, made = journalled(path, settings, make)
            except CutError:
                with path.open("ab") as file:
                    file.write(
                        b'{"bsp_fraction": 0.5, "run": 1, "seed": 1, "accuracy": 0.1, "se'[:torn]
                    )
        assert result == expected
        assert made == straight
        assert sorted(made_now) == sorted(straight), "each run was made once"


def test_a_crash_at_any_byte_of_the_journal_loses_at_most_the_last_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Thousands of lines; the disk need not have them.
    monkeypatch.setattr(os, "fsync", lambda _: None)
    path = tmp_path / "journal"
    settings = Settings(runs=2, bsp_runs=2, max_settings=1)
    journalled(path, settings, lambda *_: Outcome(0.9, 1))
    content = path.read_bytes()
    for size in range(len(content)):
        path.write_bytes(content[:size])
        kept = max(0, content[:size].count(b"\n") - 1)
        made: list[Run] = []

        def make(run: Run, _: Review, made: list[Run] = made) -> Outcome:
            made.append(run)
            return Outcome(0.9, 1)

        result, _ = journalled(path, settings, make)
        assert result.high == 0.5
        assert len(made) == 4 - kept
        assert path.read_bytes() == content


def test_a_journal_of_another_search_is_refused_and_untouched(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    judged = {"beta": 0.01, "runs": 5}
    with Journal(path, {"command": ["a"]}, judged) as journal:
        journal.add(Run(0.5, 1), 1, Outcome(0.9, 10))
    before = path.read_bytes()
    with pytest.raises(SearchError, match=r"another job .*command: \['a'\] there, \['b'\] now"):
        Journal(path, {"command": ["b"]}, judged, rejudge=True)
    with pytest.raises(SearchError, match=r"beta: 0.01 there, 0.02 now.*--rejudge"):
        Journal(path, {"command": ["a"]}, judged | {"beta": 0.02})
    assert path.read_bytes() == before
    with Journal(path, {"command": ["a"]}, judged | {"beta": 0.02}, rejudge=True) as journal:
        assert journal.made == {Run(0.5, 1): Outcome(0.9, 10)}
    with Journal(path, {"command": ["a"]}, judged | {"beta": 0.02}):
        pass
    with pytest.raises(SearchError, match="beta"):
        Journal(path, {"command": ["a"]}, judged)


def test_what_is_no_journal_or_damaged_is_refused_and_untouched(tmp_path: Path) -> None:
    path = tmp_path / "thesis.tex"
    path.write_text("ten years of work, without a line's end")
    with pytest.raises(SearchError, match="no journal"):
        Journal(path, {}, {})
    assert path.read_text().startswith("ten years")
    path = tmp_path / "journal"
    with Journal(path, {}, {}) as journal:
        for number in (1, 2):
            journal.add(Run(0.5, number), 1, Outcome(0.9, 10))
    lines = path.read_text().splitlines(keepends=True)
    path.write_text(lines[0] + lines[1][:20] + "\n" + lines[2])
    with pytest.raises(SearchError, match="line 2 is damaged"):
        Journal(path, {}, {})
    path.write_text(lines[0].replace('"format": 1', '"format": 99'))
    with pytest.raises(SearchError, match="another version"):
        Journal(path, {}, {})
    with pytest.raises(SearchError, match="No such file"):
        Journal(tmp_path / "no" / "folder", {}, {})


def test_two_searches_do_not_share_a_journal(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with Journal(path, {}, {}), pytest.raises(SearchError, match="another search is writing"):
        Journal(path, {}, {})
    with Journal(path, {}, {}):
        pass


def test_failures_of_the_machine_can_be_tried_again_and_their_cost_stays(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    failures = ["crashed: exit code 1", "timed out: took", "diverged: loss", ""]
    with Journal(path, {}, {}) as journal:
        for number, failure in enumerate(failures, 1):
            journal.add(Run(0.5, number), 1, Outcome(0.9, 10, failure=failure))
    with Journal(path, {}, {}, retry_failed=True) as journal:
        assert sorted(run.number for run in journal.made) == [3, 4]
        journal.add(Run(0.5, 1), 1, Outcome(0.8, 7))
        assert journal.wasted_seconds == 20
    with Journal(path, {}, {}) as journal:
        assert journal.made[Run(0.5, 1)] == Outcome(0.8, 7)
        assert journal.wasted_seconds == 10, "the one that timed out was not made again"


def test_a_full_disk_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "journal"
    real = os.write
    with Journal(path, {}, {}) as journal:
        size = path.stat().st_size
        monkeypatch.setattr(os, "write", lambda file, data: real(file, data[:5]))
        with pytest.raises(SearchError, match="disk is full"):
            journal.add(Run(0.5, 1), 1, Outcome(0.9, 10))
        assert path.stat().st_size == size


# ---- recorded runs


def replay(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    code = __main__.main(["search-switch", "--json", "--replay", *arguments])
    return code, json.loads(capsys.readouterr().out)


def by_fraction(document: dict[str, Any]) -> dict[float, dict[str, Any]]:
    return {row["bsp_fraction"]: row for row in document["settings"]}


def test_the_published_runs_of_resnet50_give_the_published_choice_and_time(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Figure values of the paper for this job: 12.5 %, 60.1 % of BSP's time, 1.66x; ASP 53.8 %."""
    code, found = replay(capsys, str(PUBLISHED), "--setup", "resnet50-cifar100-8", "--beta", "0.01")
    rows = by_fraction(found)
    assert (code, found["bsp_fraction"]) == (0, 0.125)
    assert {f: row["verdict"] for f, row in rows.items()} == {
        1.0: "target",
        0.5: "accepted",
        0.25: "accepted",
        0.125: "accepted",
        0.0625: "rejected",
        0.0: "not tried",
    }
    assert round(100 * rows[0.125]["share_of_bsp_seconds"], 1) == 60.1
    assert round(100 * rows[0.0]["share_of_bsp_seconds"], 1) == 53.8
    assert round(found["target"], 3) == 0.746
    # 5 runs of BSP and of each of four settings, over what a run saves: the paper's reckoning.
    assert found["cost"]["runs"] == 25
    assert round(found["cost"]["in_bsp_runs"], 1) == 17.9
    assert round(found["cost"]["recurrences"]) == 45
    assert round(found["cost_without_bsp_runs"]["in_bsp_runs"], 1) == 12.9
    assert round(found["cost_without_bsp_runs"]["recurrences"]) == 32


def test_the_published_runs_of_resnet32_give_the_published_time(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Figure values of the paper for this job: 19.5 % of BSP's time at 5 %, ASP 15.2 %."""
    code, found = replay(capsys, str(PUBLISHED), "--setup", "resnet32-cifar10-8")
    rows = by_fraction(found)
    assert code == 0
    assert round(100 * rows[0.05]["share_of_bsp_seconds"], 1) == 19.5
    assert round(100 * rows[0.0]["share_of_bsp_seconds"], 1) == 15.2
    assert rows[0.05]["verdict"] == "accepted"
    assert rows[0.02]["verdict"] == "rejected"


def test_a_target_as_a_number_needs_no_bsp_runs(capsys: pytest.CaptureFixture[str]) -> None:
    setup = ("--setup", "resnet50-cifar100-8")
    code, found = replay(capsys, str(PUBLISHED), *setup, "--target", "0.7462")
    assert (code, found["bsp_fraction"]) == (0, 0.125)
    assert found["cost"]["runs"] == sum(
        row["runs"] for row in found["settings"] if row["verdict"] in ("accepted", "rejected")
    )
    assert by_fraction(found)[1.0]["verdict"] == "not tried"
    code, found = replay(capsys, str(PUBLISHED), *setup, "--target", "0.8")
    assert (code, found["bsp_fraction"], found["cost"]["recurrences"]) == (1, 1.0, None)


def csv_file(tmp_path: Path, text: str) -> str:
    path = tmp_path / "runs.csv"
    path.write_text(text)
    return str(path)


def test_what_a_file_of_runs_may_look_like(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = csv_file(
        tmp_path,
        "# a comment\nseconds,accuracy,bsp_fraction,run,host\n"
        "100,0.9,1,1,a\n60,nan,0.5,1,b\n\n70,0.1,0.75,2,b\n80,0.9,0.75,1,c\n90,.9,0.875,1,d\n",
    )
    code, found = replay(capsys, path, "--chance", "0.1")
    rows = by_fraction(found)
    assert (code, found["bsp_fraction"]) == (0, 0.875)
    assert rows[0.5]["failed_runs"] == rows[0.75]["failed_runs"] == 1
    assert rows[0.75]["seconds"] == 80, "of the run that did not fail"
    assert found["cost"]["seconds"] == 400, "of all runs"
    # Run 1 of 0.75 comes first although it is written behind run 2.
    assert replay(capsys, path, "--runs", "1")[1]["bsp_fraction"] == 0.75


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no runs"),
        ("bsp_fraction,seconds\n1,2\n", "accuracy or final_accuracy"),
        ("bsp_fraction,accuracy\n1,0.9\n", "seconds or minutes"),
        ("accuracy,seconds\n1,2\n", "bsp_fraction"),
        ("bsp_fraction,accuracy,seconds\n1,0.9,5\n1.5,0.9,5\n", "line 3: bsp_fraction is '1.5'"),
        ("bsp_fraction,accuracy,seconds\n1,93,5\n", "line 2: accuracy is '93'"),
        ("bsp_fraction,accuracy,seconds\n1,0.9,0\n", "seconds must be positive"),
        ("bsp_fraction,accuracy,seconds\n1,0.9,soon\n", "seconds is 'soon'"),
        ("bsp_fraction,accuracy,seconds\n1,0.9\n", "seconds is None"),
        ("setup,bsp_fraction,accuracy,seconds\na,1,0.9,5\nb,1,0.9,5\n", "one of a, b"),
        ("bsp_fraction,accuracy,seconds\n0.5,0.9,5\n", "no BSP runs"),
    ],
)
def test_what_is_wrong_with_a_file_of_runs_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, words: str
) -> None:
    assert __main__.main(["search-switch", "--replay", csv_file(tmp_path, text)]) == 2
    assert words in capsys.readouterr().err


def test_a_setting_that_is_not_faster_never_pays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = csv_file(tmp_path, "bsp_fraction,accuracy,minutes\n1,0.9,10\n0.5,0.9,11\n")
    code, found = replay(capsys, path)
    assert (code, found["bsp_fraction"], found["cost"]["recurrences"]) == (0, 0.5, None)
    assert __main__.main(["search-switch", "--replay", path]) == 0
    assert "never pays" in capsys.readouterr().out


def test_asp_alone_is_tried_where_it_is_wanted_and_everything_was_accepted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = "bsp_fraction,accuracy,seconds\n1,0.9,10\n0.5,{},6\n0,0.9,5\n"
    path = csv_file(tmp_path, rows.format(0.9))
    assert replay(capsys, path)[1]["bsp_fraction"] == 0.5
    assert replay(capsys, path, "--try-asp")[1]["bsp_fraction"] == 0.0
    path = csv_file(tmp_path, rows.format(0.5))
    assert replay(capsys, path, "--try-asp")[0] == 1


def test_the_report_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["search-switch", "--replay", str(PUBLISHED), "--setup", "resnet50-cifar100-8"]
    assert __main__.main(arguments) == 0
    out = capsys.readouterr().out
    for words in (
        "12.5 % BSP, then ASP: accuracy 0.7460, 60.1 % of BSP's time (1.66x as fast)",
        "SyncSwitchCallback(bsp_fraction=0.125)",
        "25 runs, 56.0 h = 17.9 x a BSP run",
        "after 45 recurrences of the job (44.8)",
        "rejected",
        "-0.0038 ~",
    ):
        assert words in out
    assert out in (ROOT / "docs" / "search_switch.md").read_text(), "the one in the docs is it"
    assert __main__.main([*arguments, "--target", "0.9"]) == 1
    assert "no fraction that was tried reaches the target" in capsys.readouterr().out


def test_the_summary_of_a_search_that_failed_is_a_document_as_well() -> None:
    settings = Settings(runs=1, bsp_runs=1)
    made = {Run(1.0, 1): Outcome(None, 3.0, failure="crashed: exit code 1")}
    result = review(settings, Midpoints(), made)
    document = summary.summarize(settings, result, made)
    assert (document["found"], document["bsp_fraction"], document["target"]) == (False, None, None)
    assert "crashed" in document["failure"]
    assert document["cost"]["seconds"] == 3.0
    json.dumps(document, allow_nan=False)


# ---- the contract


@pytest.mark.parametrize(
    "line",
    [
        '{"accuracy": 0.5, "seconds": 2}',
        '[0]<stdout>:{"accuracy": 0.5, "seconds": 2}',
        '[1,0]<stdout>:{"accuracy": 0.5, "seconds": 2}[1,0]<stdout>:',
        'result {braces} {"accuracy": 0.5, "seconds": 2, "loss": 1.5, "epochs": {"n": 3}}',
    ],
)
def test_the_line_is_found_among_others(line: str) -> None:
    lines = ["epoch 1\n", '{"accuracy": 0.1, "seconds": 1}\n', '"accuracy" {', line, "bye\n"]
    document = contract.read_result(lines)
    assert document is not None
    assert contract.to_outcome(document, 1.0, "here").accuracy == 0.5


def test_nan_is_divergence_and_nonsense_is_an_error() -> None:
    def outcome(text: str) -> Outcome:
        return contract.to_outcome(json.loads(text), 1.0, "there")

    for text in (
        '{"accuracy": NaN, "seconds": 2}',
        '{"accuracy": null, "seconds": 2}',
        '{"accuracy": 0.5, "seconds": 2, "loss": NaN}',
        '{"accuracy": 0.5, "seconds": 2, "loss": Infinity}',
    ):
        assert outcome(text).failure_at(0.0).startswith("diverged")
    for text, words in (
        ('{"accuracy": 93, "seconds": 2}', "a share"),
        ('{"accuracy": "0.9", "seconds": 2}', '"accuracy" must be a number'),
        ('{"accuracy": true, "seconds": 2}', '"accuracy" must be a number'),
        ('{"accuracy": 0.9}', '"seconds" must be a number'),
        ('{"accuracy": 0.9, "seconds": -1}', '"seconds" must be a positive'),
        ('{"accuracy": 0.9, "seconds": NaN}', '"seconds" must be a positive'),
        ('{"accuracy": 0.9, "seconds": 1, "loss": "low"}', '"loss" must be a number'),
    ):
        with pytest.raises(contract.ContractError, match=words):
            outcome(text)


# A training script: accurate from 30 % BSP on. It writes down how it was called.
SCRIPT = """\
import json, os, sys
fraction, seed = float(sys.argv[1]), int(sys.argv[2])
assert fraction == float(os.environ["HVD_PARTIAL_BSP_FRACTION"])
assert seed == int(os.environ["HVD_PARTIAL_SEED"])
with open("calls", "a") as calls:
    calls.write(f"{fraction} {seed}\\n")
print("epoch 1")
accuracy = 0.9 if fraction >= 0.3 else 0.5
print(json.dumps({"accuracy": accuracy, "seconds": 10 + 90 * fraction, "loss": 0.1}))
"""


class Job:
    """A folder with a script, and the command in it."""

    def __init__(self, folder: Path, script: str) -> None:
        self.folder = folder
        self.journal = folder / "journal"
        self.options: list[str] = ["--json", "--journal", str(self.journal)]
        (folder / "train.py").write_text(script)

    def arguments(self, *options: str) -> list[str]:
        script = [sys.executable, "train.py", "{bsp_fraction}", "{seed}"]
        return ["search-switch", *self.options, *options, "--", *script]

    def calls(self) -> list[str]:
        path = self.folder / "calls"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    monkeypatch.chdir(tmp_path)
    return Job(tmp_path, SCRIPT)


def test_a_search_on_a_script(job: Job, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--runs", "2", "--max-settings", "3", "--first-seed", "7")
    assert __main__.main(job.arguments(*options)) == 0
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    assert found["bsp_fraction"] == 0.375
    # 0.25 had no need of its second run? It had: 0.5 and 1.0 could still reach 0.89 in the mean.
    expected = [f"{f} {seed}" for f in (1.0, 0.5, 0.25, 0.375) for seed in (7, 8)]
    assert job.calls() == [c for c in expected if c != "0.25 8"]
    assert "37.5 % BSP, run 2: accuracy 0.9000" in printed.err
    assert found["saved_seconds"] == pytest.approx(56.25)
    assert found["cost"]["seconds"] == pytest.approx(2 * 100 + 2 * 55 + 32.5 + 2 * 43.75)
    assert (job.folder / "journal.logs" / "bsp-0.5-run-1.out").read_text().startswith("epoch 1")
    # Once more: everything is in the journal, nothing runs.
    assert __main__.main(job.arguments(*options)) == 0
    again = capsys.readouterr()
    assert json.loads(again.out) == found
    assert "going on with the 7 runs" in again.err
    assert len(job.calls()) == 7
    # Another tolerance: refused, then taken by wish; a finer search needs only the new runs.
    assert __main__.main(job.arguments("--runs", "2", "--first-seed", "7")) == 1
    assert "max-settings: 3 there, 5 now" in capsys.readouterr().err
    assert __main__.main(job.arguments("--runs", "2", "--first-seed", "7", "--rejudge")) == 0
    assert json.loads(capsys.readouterr().out)["bsp_fraction"] == 0.3125
    assert len(job.calls()) == 7 + 2 + 1


def test_a_history_of_bsp_runs_costs_nothing(job: Job, capsys: pytest.CaptureFixture[str]) -> None:
    history = csv_file(job.folder, "bsp_fraction,accuracy,seconds\n1,0.9,100\n1,0.9,102\n")
    options = ("--bsp-history", history, "--runs", "1", "--max-settings", "2")
    assert __main__.main(job.arguments(*options)) == 0
    found = json.loads(capsys.readouterr().out)
    assert job.calls() == ["0.5 1", "0.25 1"]
    assert (found["bsp_fraction"], found["bsp_seconds"]) == (0.5, 101)
    assert found["cost"]["recurrences"] == pytest.approx((55 + 32.5) / (101 - 55))


def test_crashes_and_signals_count_as_failures(
    job: Job, capsys: pytest.CaptureFixture[str]
) -> None:
    (job.folder / "train.py").write_text(
        "import os, sys\n"
        "if sys.argv[1] == '0.5': sys.exit('out of memory')\n"
        "if sys.argv[1] == '0.75': os.kill(os.getpid(), 9)\n"
        'print(\'{"accuracy": 0.9, "seconds": 5}\')\n'
    )
    options = ("--target", "0.9", "--runs", "2", "--max-settings", "3")
    assert __main__.main(job.arguments(*options)) == 0
    found = json.loads(capsys.readouterr().out)
    rows = by_fraction(found)
    assert found["bsp_fraction"] == 0.875
    assert rows[0.5]["reason"] == "crashed: exit code 1: out of memory"
    assert rows[0.75]["reason"].startswith("crashed: signal 9")
    assert (found["bsp_seconds"], found["cost"]["recurrences"]) == (None, None)
    # Repaired: only the crashed runs are made again, then the search goes on from there.
    (job.folder / "train.py").write_text('print(\'{"accuracy": 0.9, "seconds": 5}\')\n')
    assert __main__.main(job.arguments(*options, "--retry-failed")) == 0
    assert json.loads(capsys.readouterr().out)["bsp_fraction"] == 0.125


def test_a_script_that_says_nothing_stops_the_search(
    job: Job, capsys: pytest.CaptureFixture[str]
) -> None:
    (job.folder / "train.py").write_text("print('accuracy 0.9')\n")
    assert __main__.main(job.arguments()) == 1
    printed = capsys.readouterr()
    said = printed.err
    assert json.loads(printed.out)["failure"] in said
    assert '{"accuracy": 0.93, "seconds": 1234.5}' in said
    assert "bsp-1.0-run-1.out" in said
    assert len(job.journal.read_text().splitlines()) == 1, "no run was written down"


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie that nobody has waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def gone(pid: int) -> bool:
    deadline = time.monotonic() + 20
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not alive(pid)


# Starts a process of its own, as launchers do; both would run for ten minutes and ignore SIGTERM.
STUBBORN = """\
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
with open("pids.new", "w") as file:
    file.write(f"{os.getpid()} {child.pid}")
os.rename("pids.new", "pids")
time.sleep(600)
"""


def test_the_end_of_a_run_that_takes_too_long_ends_all_its_processes(
    job: Job, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Impatient(subprocess.Popen[bytes]):
        """Its time is over when the script has started its child, however long that takes."""

        def wait(self, timeout: float | None = None) -> int:
            if timeout is None:
                return super().wait()
            deadline = time.monotonic() + 60
            while not Path("pids").exists() and time.monotonic() < deadline:
                time.sleep(0.02)
            raise subprocess.TimeoutExpired(self.args, timeout)

    monkeypatch.setattr(contract, "PATIENCE_SECONDS", 0.2)
    monkeypatch.setattr(subprocess, "Popen", Impatient)
    (job.folder / "train.py").write_text(STUBBORN)
    assert __main__.main(job.arguments("--target", "0.9", "--max-settings", "1")) == 1
    pids = [int(pid) for pid in (job.folder / "pids").read_text().split()]
    assert len(pids) == 2
    assert all(gone(pid) for pid in pids)
    (row,) = json.loads(capsys.readouterr().out)["settings"]
    assert row["reason"].startswith("timed out")


def test_a_run_that_takes_too_long_has_failed(job: Job, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--target", "0.9", "--max-settings", "1", "--run-timeout", "0.3")
    assert __main__.main(["search-switch", *job.options, *options, "--", "sleep", "600"]) == 1
    (row,) = json.loads(capsys.readouterr().out)["settings"]
    assert row["reason"] == "timed out: took longer than 0.3 s (--run-timeout)"
    assert row["runs"] == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_search_ends_its_run_and_continues_with_the_next(
    job: Job, capsys: pytest.CaptureFixture[str], number: signal.Signals
) -> None:
    waiting = (
        "import os\n"
        "if sys.argv[1] == '0.5' and not os.path.exists('go'):\n"
        "    open('pid.new', 'w').write(str(os.getpid()))\n"
        "    os.rename('pid.new', 'pid')\n"
        "    import time; time.sleep(600)\n"
    )
    (job.folder / "train.py").write_text(SCRIPT + waiting)
    options = ("--runs", "1", "--max-settings", "2")
    process = subprocess.Popen(
        [sys.executable, "-m", "hvd_partial", *job.arguments(*options)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 60
    while not (job.folder / "pid").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    script = int((job.folder / "pid").read_text())
    assert alive(script)
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    if number == signal.SIGKILL:
        # Nobody could end the script then.
        assert process.returncode == -number
        os.kill(script, signal.SIGKILL)
    else:
        assert process.returncode == 128 + number
        assert "interrupted" in said
    assert gone(script)
    (job.folder / "go").touch()
    assert __main__.main(job.arguments(*options)) == 0
    assert json.loads(capsys.readouterr().out)["bsp_fraction"] == 0.5
    # BSP's run, the one that was interrupted, the same again, the next setting.
    assert job.calls() == ["1.0 1", "0.5 1", "0.5 1", "0.25 1"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "training script"),
        (["--", "/no/such/program"], "/no/such/program"),
        (["--target", "93", "--", "true"], "--target 93"),
        (["--bsp-seconds", "9", "--", "true"], "--bsp-seconds"),
        (["--run-timeout", "0", "--", "true"], "--run-timeout"),
        (["--setup", "a", "--", "true"], "--setup"),
        (["--replay", "/no/such/file"], "/no/such/file"),
        (["--replay", str(PUBLISHED), "--setup", "c"], "resnet50-cifar100-8"),
        (["--replay", str(PUBLISHED), "--", "true"], "leave out a command"),
        (["--replay", str(PUBLISHED), "--journal", "j"], "leave out --journal"),
        (["--bsp-history", str(PUBLISHED), "--", "true"], "--setup"),
    ],
)
def test_bad_arguments_are_named(
    job: Job, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert __main__.main(["search-switch", *arguments]) == 2
    assert words in capsys.readouterr().err
    assert not (job.folder / "search-switch.jsonl").exists()


def test_help_has_examples_and_unknown_options_end_with_2(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        __main__.main(["search-switch", "--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert "horovodrun -np 4 python train.py" in shown
    assert "exit code: 0" in shown
    with pytest.raises(SystemExit) as ended:
        __main__.main(["search-switch", "--no-such-option"])
    assert ended.value.code == 2


def test_neither_tensorflow_nor_horovod_is_loaded() -> None:
    # horovod.common.exceptions, whose classes ours are too, is light.
    program = (
        "import sys\nfrom hvd_partial import __main__\n"
        f"code = __main__.main(['search-switch', '--replay', {str(PUBLISHED)!r},"
        " '--setup', 'resnet32-cifar10-8'])\n"
        "found = {'tensorflow', 'keras', 'horovod.tensorflow', 'horovod.torch',"
        " 'hvd_partial._engine'} & set(sys.modules)\n"
        "sys.exit(f'imported: {found}' if found else code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_script_in_the_documentation_works(
    job: Job, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (ROOT / "docs" / "search_switch.md").read_text()
    (job.folder / "train.py").write_text(text.split("```python\n")[1].split("```")[0])
    assert __main__.main(job.arguments("--runs", "1", "--chance", "0.12")) in (0, 1)
    found = json.loads(capsys.readouterr().out)
    assert found["failure"] == ""
    assert found["target"] > 0.12


def test_the_file_of_published_runs_reads() -> None:
    found = recorded.read(PUBLISHED, "--replay", "resnet50-cifar100-8", 1.0)
    assert {fraction: len(runs) for fraction, runs in found.items()} == dict.fromkeys(
        (0.0, 0.0625, 0.125, 0.25, 0.5, 1.0), 5
    )
    assert found[0.125][0] == Outcome(0.739, 113.05 * 60)
