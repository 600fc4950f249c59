# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""`python -m hvd_partial check`: what it says about environments that are right and wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hvd_partial import __main__, check

GOOD_VERSIONS = {
    "tensorflow-cpu": "2.18.1",
    "keras": "3.15.1",
    "tf_keras": "2.18.0",
    "horovod": "0.28.1",
    "libucx-cu12": "1.22.0",
    "hvd-partial": "0.1.0",
}
BUILD_INFO = {
    "tensorflow": "2.18.1",
    "compiler": "g++ 12",
    "build_type": "RelWithDebInfo",
    "sanitizer": None,
}


class Machine:
    """An environment made up for a test; every question that check asks is answered from here."""

    def __init__(self, tmp_path: Path) -> None:
        self.versions: dict[str, str] = dict(GOOD_VERSIONS)
        self.build_info: dict[str, Any] | None = dict(BUILD_INFO)
        self.package = tmp_path / "hvd_partial"
        self.package.mkdir()
        for name in ("libhvd_partial.so", "_engine.cpython-311.so", "_tensorflow_ops.so"):
            (self.package / name).touch()
        binaries = tmp_path / "bin"
        binaries.mkdir()
        (binaries / "horovodrun").touch()
        self.python = binaries / "python"
        self.answers: dict[str, check.Answer] = {
            "transports": check.Answer(["posix", "cma", "tcp"]),
            "gloo_built": check.Answer({"gloo": True, "mpi": False, "nccl": False}),
            "hvd_partial.tensorflow.keras": check.Answer("hvd_partial.tensorflow.keras"),
            "partial_allreduce": check.Answer(1.5),
        }
        self.launches = 0

    def version(self, *names: str) -> str | None:
        return next((self.versions[name] for name in names if name in self.versions), None)

    def probe(self, command: list[str], seconds: float) -> check.Answer:
        assert seconds > 0
        self.launches += command[0].endswith("horovodrun")
        for mark, answer in self.answers.items():
            if mark in command[-1]:
                return answer
        raise AssertionError(f"an unexpected question: {command}")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine(tmp_path)
    monkeypatch.setattr(check, "version", made.version)
    monkeypatch.setattr(check, "run_probe", made.probe)
    monkeypatch.setattr(check, "read_build_info", lambda: made.build_info)
    monkeypatch.setattr(check, "PACKAGE", made.package)
    monkeypatch.setattr(sys, "executable", str(made.python))
    monkeypatch.delenv("TF_USE_LEGACY_KERAS", raising=False)
    return made


def problems() -> dict[str, check.Item]:
    return {i.name: i for i in check.collect(quick=False).items if i.status == "problem"}


def test_a_good_machine_has_no_problem_and_is_tried_out(machine: Machine) -> None:
    assert problems() == {}
    assert machine.launches == 1


def test_quick_starts_no_processes(machine: Machine) -> None:
    report = check.collect(quick=True)
    assert report.ok
    assert machine.launches == 0


def test_an_op_library_for_another_tensorflow(machine: Machine) -> None:
    machine.versions["tensorflow-cpu"] = "2.17.1"
    item = problems()["TensorFlow op library"]
    assert "built for TensorFlow 2.18.1, 2.17.1 is installed" in item.value
    assert "2.18.1" in item.remedy
    assert machine.launches == 0, "nothing is launched where it cannot work"


def test_an_op_library_for_another_patch_release_fits(machine: Machine) -> None:
    machine.versions["tensorflow-cpu"] = "2.18.0"
    assert problems() == {}


def test_a_tensorflow_that_horovod_does_not_build_with(machine: Machine) -> None:
    machine.versions["tensorflow-cpu"] = "2.21.0"
    assert "2.16 to 2.18" in problems()["TensorFlow"].remedy


def test_without_tensorflow_and_horovod(machine: Machine) -> None:
    del machine.versions["tensorflow-cpu"], machine.versions["horovod"]
    assert set(problems()) >= {"TensorFlow", "Horovod"}
    assert all(item.remedy for item in problems().values())


def test_nothing_was_built(machine: Machine) -> None:
    machine.build_info = None
    assert "make build" in problems()["native libraries"].remedy


def test_the_op_library_was_left_out(machine: Machine) -> None:
    assert machine.build_info is not None
    machine.build_info["tensorflow"] = None
    assert problems()["TensorFlow op library"].value == "left out of the build"


@pytest.mark.parametrize("name", ["libhvd_partial.so", "_engine.cpython-311.so"])
def test_a_library_was_deleted(machine: Machine, name: str) -> None:
    (machine.package / name).unlink()
    assert [item.value for item in problems().values()] == ["missing"]


def test_legacy_keras_is_asked_for_but_not_there(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    del machine.versions["tf_keras"]
    assert problems() == {}
    monkeypatch.setenv("TF_USE_LEGACY_KERAS", "1")
    assert "tf_keras" in problems()


def test_horovod_without_a_controller(machine: Machine) -> None:
    machine.answers["gloo_built"] = check.Answer({"gloo": False, "mpi": False, "nccl": False})
    assert problems()["horovod.tensorflow"].value == "without a controller"


def test_processes_that_do_not_find_each_other_or_compute_nonsense(machine: Machine) -> None:
    machine.answers["partial_allreduce"] = check.Answer(failure="no answer within 180 s")
    assert problems()["two processes"].value == "no answer within 180 s"
    machine.answers["partial_allreduce"] = check.Answer(1.0)
    assert "averaged to 1.0" in problems()["two processes"].value


def test_a_failure_of_the_engine_is_shown_as_it_was_said(machine: Machine) -> None:
    machine.answers["transports"] = check.Answer(failure="ImportError: libucp.so.0: not found")
    assert "libucp.so.0" in problems()["hvd_partial.engine"].value


def test_the_command_prints_a_table_or_json_and_returns_0_or_1(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    assert __main__.main(["check"]) == 0
    assert "Training will work here." in capsys.readouterr().out
    machine.build_info = None
    assert __main__.main(["check"]) == 1
    assert "what to do:" in capsys.readouterr().out
    assert __main__.main(["check", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["ok"] is False
    assert {"group", "name", "value", "status", "remedy"} == document["items"][0].keys()


def test_probes_report_what_a_process_says_and_how_it_ends() -> None:
    assert check.run_python("answer = [1, 'two']").value == [1, "two"]
    assert check.run_python("import no_such_module").failure.startswith("ModuleNotFoundError")
    died = check.run_python("import os\nos.kill(os.getpid(), 11)")
    assert died.failure == "ended by signal 11"
    assert "no answer within" in check.run_python("import time\ntime.sleep(60)", 0.5).failure
    missing = check.run_probe(["/no/such/program"], 5.0)
    assert "/no/such/program" in missing.failure


def test_the_answer_of_a_rank_is_found_behind_the_launcher_s_prefix() -> None:
    code = f"print('[1,0]<stdout>:{check.ANSWER}1.5[1,0]<stdout>:')"
    assert check.run_probe([sys.executable, "-c", code], 30.0).value == 1.5


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_this_environment_passes() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "hvd_partial", "check", "--json"],
        capture_output=True,
        text=True,
        timeout=590,
        check=False,
    )
    document = json.loads(done.stdout)
    assert [item for item in document["items"] if item["status"] == "problem"] == []
    assert done.returncode == 0
