# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""`python -m hvd_partial simulate`: its numbers against known ones, its arguments, its output."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hvd_partial import __main__, forecast, simulate, traces
from hvd_partial.errors import InvalidArgumentError
from hvd_partial.modes import Mode

# What these semantics give, by an independent simulation made while they were designed (a model in
# Python, not this code): steps of 100 ms, 5 ms of communication, no grace. For each trace, and for
# majority and solo: speed-up over sync, contributions a round, mean staleness. The rotating skew is
# eager-SGD's (arXiv 1908.04207): equal steps of 400 ms / P, the longest 400 ms.
DESIGNED = {
    (4, "one-random:0.2"): ((1.88, 3.5, 0.6), (2.01, 3.1, 1.0)),
    (4, "one-slow:-1,0.3"): ((3.14, 3.3, 0.3), (3.14, 3.3, 0.3)),
    (4, "rotating:0.1,0.4"): ((1.36, 4.0, 0.5), (1.43, 4.0, 0.7)),
    (4, "lognormal:0.05,1"): ((1.43, 3.7, 0.6), (1.52, 3.4, 0.9)),
    (8, "one-random:0.2"): ((2.29, 7.0, 0.6), (2.40, 6.7, 0.9)),
    (8, "one-slow:-1,0.3"): ((3.49, 7.3, 0.1), (3.49, 7.3, 0.1)),
    (8, "rotating:0.05,0.4"): ((1.42, 8.0, 0.5), (1.54, 5.3, 1.3)),
    (8, "lognormal:0.05,1"): ((1.75, 7.3, 0.6), (1.93, 6.3, 1.1)),
}


def plan(ranks: int, trace: str, **changes: Any) -> forecast.Plan:
    options: dict[str, Any] = {
        "ranks": ranks,
        "seeds": 3,
        "rounds": 200,
        "trace": traces.Trace.parse(trace),
        "compute": 0.1,
        "communication": 0.005,
        "latency": 0.0,
        "apply": 0.0,
        "grace": 0.0,
        "max_lag": 8,
    }
    return forecast.Plan(**(options | changes))


def command(*arguments: str) -> int:
    return __main__.main(["simulate", *arguments])


@pytest.mark.parametrize(("ranks", "trace"), DESIGNED)
def test_the_numbers_are_those_of_the_design(ranks: int, trace: str) -> None:
    modes = [Mode("majority"), Mode("solo")]
    found = forecast.compare(plan(ranks, trace), modes)
    for row, expected in zip(found, DESIGNED[ranks, trace], strict=True):
        speed_up, contributions, staleness = expected
        assert row["speed_up"] == pytest.approx(speed_up, rel=0.04)
        assert row["contributions_per_round"] == pytest.approx(contributions, rel=0.04)
        assert row["staleness_mean"] == pytest.approx(staleness, abs=0.1)


def test_sync_is_the_reference_and_has_no_staleness() -> None:
    (sync,) = forecast.compare(plan(8, "one-random:0.2"), [Mode("sync")])
    assert sync["speed_up"] == 1.0
    assert sync["contributions_per_round"] == 8
    assert sync["full_share"] == 1
    assert sync["staleness_histogram"] == [3 * 200 * 8]
    # 100 ms, 200 ms of the late one, 5 ms of communication; messages take no time here.
    assert sync["contributions_per_second"] == pytest.approx(8 / 0.305, rel=1e-9)
    # Seven ranks wait for the late one and the reduction, the late one for the reduction.
    assert sync["waiting_seconds_per_step"] == pytest.approx((7 * 0.205 + 0.005) / 8, rel=1e-9)


def test_a_balanced_job_gains_and_loses_nothing_in_any_mode() -> None:
    for row in forecast.compare(plan(8, "constant:0"), [Mode("majority"), Mode("solo")]):
        assert row["speed_up"] == pytest.approx(1)
        assert row["contributions_per_round"] == 8
        assert row["staleness_max"] == 0


def test_modes_meet_the_same_delays_and_seeds_are_repeatable() -> None:
    job = plan(4, "lognormal:0.05,1+pauses:0.1,0.5")
    runs = [job.run(Mode("sync"), seed) for seed in (0, 0, 1)]
    assert runs[0] == runs[1]
    assert runs[0]["seconds"] != runs[2]["seconds"]
    # A round of sync is as slow as its slowest rank, so that quorum(4) of 4 is the same.
    assert job.run(Mode("quorum", k=4), 0)["seconds"] == runs[0]["seconds"]


def test_a_full_ring_holds_the_others_up() -> None:
    (free,) = forecast.compare(plan(4, "one-slow:0,1", max_lag=1000), [Mode("solo")])
    (held,) = forecast.compare(plan(4, "one-slow:0,1", max_lag=2), [Mode("solo")])
    assert held["largest_lag"] <= 2 < free["largest_lag"]
    assert held["contributions_per_second"] < 0.6 * free["contributions_per_second"]
    assert free["held_up_share"] == 0
    assert 0.3 < held["held_up_share"] < 1


def test_a_learned_grace_keeps_jitter_from_making_anybody_stale() -> None:
    jitter = plan(8, "lognormal:0.005,0.3", grace=0.0)
    (without,) = forecast.compare(jitter, [Mode("majority")])
    (learned,) = forecast.compare(plan(8, "lognormal:0.005,0.3", grace=-1), [Mode("majority")])
    assert without["late_share"] > 0.3
    assert learned["late_share"] < 0.05
    assert 0 < learned["grace_seconds"] < 0.02


def test_a_file_with_a_column_for_each_rank(tmp_path: Path) -> None:
    path = tmp_path / "steps.csv"
    path.write_text("first,second\n0.1,0.2\n0.3,0.4\n")
    trace = traces.Trace.parse(f"file:{path}")
    assert trace.recorded == ((0.1, 0.3), (0.2, 0.4))
    job = plan(2, f"file:{path}", compute=0.0, rounds=4)
    # Seed 0 plays it from its first line, again and again: 0.2, 0.4, 0.2, 0.4.
    assert job.run(Mode("sync"), 0)["seconds"] == pytest.approx(1.2 + 4 * 0.005)


def test_a_file_with_ranks_and_seconds(tmp_path: Path) -> None:
    path = tmp_path / "a+b.csv"  # a plus sign in a path is no sum
    path.write_text("step,Rank,Seconds\n0,1,0.5\n0,0,0.1\n\n1,1,0.7\n")
    trace = traces.Trace.parse(f"file:{path}+one-slow:0,0.2")
    assert trace.recorded == ((0.1,), (0.5, 0.7))
    assert trace.delays == ((3, 0.0, 0.2),)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n", "no step in it"),
        ("0.1,0.2\n0.1\n", "line 2: 1 columns, but 2 above"),
        ("0.1\nfast\n", "line 2: 'fast' is no number of seconds"),
        ("0.1\n-1\n", "line 2: '-1' is no number of seconds"),
        ("0.1\nnan\n", "line 2: 'nan' is no number of seconds"),
        ("rank,seconds\n0,0.1\n2,0.1\n", "no line of rank 1"),
        ("rank,seconds\nx,0.1\n", "line 2: expected a rank"),
        ("rank,seconds\n", "no step in it"),
        ("", "no step in it"),
    ],
)
def test_a_wrong_file_is_refused_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "steps.csv"
    path.write_text(text)
    with pytest.raises(InvalidArgumentError) as error:
        traces.Trace.parse(f"file:{path}")
    assert message in str(error.value)
    assert str(path) in str(error.value)


WRONG = [
    (["--trace", "weird:1"], "--trace: trace 'weird:1': there is no such trace"),
    (["--trace", "lognormal:1"], "expected 2 numbers, as in lognormal:median,sigma, got 1"),
    (["--trace", "lognormal:1,x"], "--trace: trace 'lognormal:1,x': expected numbers"),
    (["--trace", "lognormal:-1,1"], "no number may be negative"),
    (["--trace", "constant:inf"], "every number must be finite"),
    (["--trace", "pareto:0.1,1"], "tail must be above 1"),
    (["--trace", "one-slow:0.5,1"], "rank 0.5 must be a whole number"),
    (["--trace", "rotating:2,1"], "shortest must not be above longest"),
    (["--trace", "pauses:1.5,1"], "a probability is at most 1"),
    (["--trace", "one-slow:8,1"], "--trace: one-slow: there is no rank 8 of 8"),
    (["--trace", "file:/no/such/file.csv"], "'/no/such/file.csv' cannot be read"),
    (["--trace", "constant:1", "--ranks", "1025"], "argument --ranks: '1025' must be a whole"),
    (["--trace", "constant:1", "--ranks", "0"], "argument --ranks: '0' must be a whole number"),
    (["--trace", "constant:1", "--seeds", "many"], "argument --seeds: 'many' must be a whole"),
    (["--trace", "constant:1", "--rounds", "0"], "argument --rounds: '0' must be a whole number"),
    (["--trace", "constant:1", "--max-lag", "0"], "argument --max-lag: '0' must be a whole"),
    (["--trace", "constant:1", "--compute", "-1"], "argument --compute: '-1' must be a number"),
    (["--trace", "constant:1", "--bandwidth", "0"], "argument --bandwidth: '0' must be a number"),
    (["--trace", "constant:1", "--grace", "long"], "argument --grace: 'long' must be a number"),
    (["--trace", "constant:1", "--mode", "som"], "--mode: mode='som': there is no such mode"),
    (["--trace", "constant:1", "--mode", "quorum(9)"], "--mode: mode='quorum(9)': k must be 1 to"),
    (
        ["--trace", "constant:0", "--compute", "0", "--communication", "0", "--latency", "0"],
        "--compute, --communication, --trace: a step must take some time",
    ),
    ([], "the following arguments are required: --trace"),
]


@pytest.mark.parametrize(("arguments", "message"), WRONG)
def test_a_wrong_argument_is_named_and_ends_with_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = command(*arguments)
    except SystemExit as error:  # argparse's own
        code = error.code
    captured = capsys.readouterr()
    assert message in captured.err
    assert (code, captured.out) == (2, "")


def test_a_file_has_the_last_word_on_ranks_and_computation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "steps.csv"
    path.write_text("0.1,0.2,0.3\n")
    trace = f"file:{path}"
    assert command("--trace", trace, "--compute", "1") == 2
    assert "--compute: a file has the seconds of whole steps" in capsys.readouterr().err
    assert command("--trace", trace, "--ranks", "2") == 2
    assert "--ranks: the file has 3 ranks" in capsys.readouterr().err
    assert command("--trace", trace, "--rounds", "5", "--json") == 0
    options = json.loads(capsys.readouterr().out)["options"]
    assert (options["ranks"], options["compute_seconds"]) == (3, 0)


def test_json_has_every_number(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--ranks", "4", "--seeds", "2", "--rounds", "20", "--trace", "one-random:0.2")
    assert command(*arguments, "--mode", "solo", "quorum(3)", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["options"]["trace"] == "one-random:0.2"
    assert [row["mode"] for row in document["modes"]] == ["solo", "quorum(3)"]
    for row in document["modes"]:
        assert sum(row["staleness_histogram"]) == row["contributions"]
        assert sum(row["contributions_of"]) == row["contributions"] >= 2 * 20 * 4
        assert len(row["seconds"]) == 2
        assert row["late_share"] == pytest.approx(
            sum(row["staleness_histogram"][1:]) / row["contributions"]
        )
        assert row["speed_up_lowest"] <= row["speed_up"] <= row["speed_up_highest"]


def test_the_table_is_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert command("--ranks", "4", "--rounds", "20", "--trace", "one-slow:-1,0.3") == 0
    out = capsys.readouterr().out
    for mode in simulate.DEFAULT_MODES:
        assert re.search(rf"│ {mode} +│ +[\d.]+ │ +\d\.\d\dx \(", out), out
    assert "share of contributions by rounds late" in out
    assert "█" in out


def test_staleness_is_shown_in_classes_that_double() -> None:
    rows = simulate.staleness_rows([10, 0, 3, 1, 1, 1, 0, 2, 5])
    assert rows == [("0", 10), ("1", 0), ("2", 3), ("3", 1), ("4-7", 4), ("8-15", 5)]


def test_an_interruption_ends_it_with_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(self: simulate.ProgressBar, share: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(simulate.ProgressBar, "__call__", interrupt)
    assert command("--trace", "one-random:0.2") == 130
    assert "interrupted" in capsys.readouterr().err


def test_a_thousand_ranks_and_no_tensorflow() -> None:
    code = (
        "import sys\nfrom hvd_partial import __main__\n"
        "code = __main__.main(['simulate', '--ranks', '1024', '--seeds', '1', '--rounds', '5',"
        " '--trace', 'lognormal:0.05,1', '--json'])\n"
        "assert not {'tensorflow', 'keras'} & set(sys.modules)\n"
        "sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert [row["contributions"] >= 5 * 1024 for row in document["modes"]] == [True] * 3


def test_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as error:
        command("--help")
    assert error.value.code == 0
    out = capsys.readouterr().out
    assert "examples:" in out
    for form in traces.FORMS:
        assert form in out
