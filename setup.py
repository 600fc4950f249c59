# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
"""Builds the native parts with CMake and lays them into the package.

Three libraries end up in ``hvd_partial/``: ``libhvd_partial.so`` (the engine), ``_engine`` (its
Python module) and, where TensorFlow can be imported, ``_tensorflow_ops.so``. What was built, and
against what, is written to ``hvd_partial/_build_info.json`` for ``python -m hvd_partial check``.

Everything else about the package stands in pyproject.toml. Environment variables:

``HVD_PARTIAL_WITHOUT_TENSORFLOW=1``  leave the TensorFlow op library out
``HVD_PARTIAL_CMAKE_ARGS``            more arguments for CMake, as on its command line
``HVD_PARTIAL_JOBS``                  compilers at a time (default: one per core)
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
PACKAGE = "hvd_partial"
ENGINE_LIBRARY = "libhvd_partial.so"
TENSORFLOW_LIBRARY = "_tensorflow_ops.so"
BUILD_INFO = "_build_info.json"


def installed_version(*distributions: str) -> str | None:
    """The version of the first of these distributions that is installed."""
    for name in distributions:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


def tensorflow_wanted() -> bool:
    """Whether to build the op library; says aloud when it will be missing."""
    if os.environ.get("HVD_PARTIAL_WITHOUT_TENSORFLOW", "0") not in ("", "0"):
        print("hvd_partial: HVD_PARTIAL_WITHOUT_TENSORFLOW is set: no TensorFlow op library.")
        return False
    if importlib.util.find_spec("tensorflow") is None:
        print(
            "hvd_partial: TensorFlow is not installed where this build runs, so the TensorFlow op "
            "library is left out and hvd_partial.tensorflow will not work. Install TensorFlow "
            "first, then this package with `pip install --no-build-isolation`.",
            file=sys.stderr,
        )
        return False
    return True


class CMakeBuild(build_ext):
    """One CMake build for all libraries."""

    def run(self) -> None:
        with_tensorflow = tensorflow_wanted()
        build = self._build_folder(with_tensorflow)
        self._run_cmake(build, with_tensorflow)
        target = ROOT / PACKAGE if self._in_place() else Path(self.build_lib) / PACKAGE
        target.mkdir(parents=True, exist_ok=True)
        names = [ENGINE_LIBRARY, Path(self.get_ext_filename("_engine")).name]
        stale = target / TENSORFLOW_LIBRARY
        if with_tensorflow:
            names.append(TENSORFLOW_LIBRARY)
        elif stale.exists():
            stale.unlink()
        for name in names:
            found = sorted(build.rglob(name))
            if not found:
                raise RuntimeError(f"CMake ended well, but {name} is nowhere in {build}")
            # Onto a new file: a running process keeps the library that it has mapped.
            partial = target / (name + ".new")
            shutil.copy2(found[0], partial)
            partial.replace(target / name)
        info = self._build_info(build, with_tensorflow)
        (target / BUILD_INFO).write_text(json.dumps(info, indent=2) + "\n")

    def get_outputs(self) -> list[str]:
        if self._in_place():
            return []
        folder = Path(self.build_lib) / PACKAGE
        names = (ENGINE_LIBRARY, TENSORFLOW_LIBRARY, BUILD_INFO)
        outputs = [folder / Path(self.get_ext_filename("_engine")).name]
        outputs += [folder / name for name in names if (folder / name).exists()]
        return [str(path) for path in outputs]

    def get_output_mapping(self) -> dict[str, str]:
        return {}

    def get_source_files(self) -> list[str]:
        native = ROOT / PACKAGE / "native"
        files = [p for p in native.rglob("*") if p.suffix in (".cc", ".h", ".txt")]
        return [str(p.relative_to(ROOT)) for p in [*sorted(files), ROOT / "CMakeLists.txt"]]

    def _in_place(self) -> bool:
        return bool(self.inplace or getattr(self, "editable_mode", False))

    def _build_folder(self, with_tensorflow: bool) -> Path:
        # Kept between builds, so that only what changed is compiled again.
        tag = f"cp{sys.version_info[0]}{sys.version_info[1]}"
        tensorflow = installed_version("tensorflow-cpu", "tensorflow")
        tag += f"-tf{tensorflow}" if with_tensorflow else "-notf"
        folder = ROOT / "build" / f"package-{tag}"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _run_cmake(self, build: Path, with_tensorflow: bool) -> None:
        cmake = shutil.which("cmake")
        if cmake is None:
            raise RuntimeError("hvd_partial's native parts need cmake 3.22 or later, and g++")
        # $ORIGIN: the package's own folder. The second entry finds UCX in site-packages.
        rpath = ["$ORIGIN", "$ORIGIN/../libucx/lib"]
        libucx = importlib.util.find_spec("libucx")
        if libucx is None or not libucx.submodule_search_locations:
            raise RuntimeError(
                "hvd_partial is built with UCX from the package libucx-cu12, which is not "
                "installed here: pip install libucx-cu12==1.22.0"
            )
        if self._in_place():
            rpath.append(str(Path(libucx.submodule_search_locations[0]) / "lib"))
        configure = [
            cmake,
            *("-S", str(ROOT), "-B", str(build)),
            "-DCMAKE_BUILD_TYPE=RelWithDebInfo",
            "-DHVD_PARTIAL_PYTHON=ON",
            f"-DHVD_PARTIAL_TENSORFLOW={'ON' if with_tensorflow else 'OFF'}",
            f"-DPython3_EXECUTABLE={sys.executable}",
            "-DPython3_FIND_VIRTUALENV=ONLY",
            "-DCMAKE_BUILD_WITH_INSTALL_RPATH=ON",
            f"-DCMAKE_INSTALL_RPATH={';'.join(rpath)}",
            *shlex.split(os.environ.get("HVD_PARTIAL_CMAKE_ARGS", "")),
        ]
        jobs = os.environ.get("HVD_PARTIAL_JOBS") or str(os.cpu_count() or 1)
        # The flags of a make that called pip belong to that make's own jobs.
        environment = {
            k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")
        }
        for command in (configure, [cmake, "--build", str(build), "--parallel", jobs]):
            print("+", shlex.join(command), flush=True)
            subprocess.run(command, check=True, env=environment)

    def _build_info(self, build: Path, with_tensorflow: bool) -> dict[str, object]:
        cache: dict[str, str] = {}
        for line in (build / "CMakeCache.txt").read_text().splitlines():
            if "=" in line and not line.startswith(("#", "//")):
                key, value = line.split("=", 1)
                cache[key.split(":")[0]] = value
        compiler = cache.get("CMAKE_CXX_COMPILER", "c++")
        first = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False)
        tensorflow = installed_version("tensorflow-cpu", "tensorflow") if with_tensorflow else None
        return {
            "version": self.distribution.get_version(),
            "python": platform.python_version(),
            "tensorflow": tensorflow,
            "ucx": installed_version("libucx-cu12"),
            "compiler": first.stdout.splitlines()[0] if first.stdout else compiler,
            "build_type": cache.get("CMAKE_BUILD_TYPE"),
            "sanitizer": cache.get("HVD_PARTIAL_SANITIZE") or None,
            "cmake_args": os.environ.get("HVD_PARTIAL_CMAKE_ARGS", ""),
            "machine": platform.machine(),
        }


setup(
    # Without sources: it makes the wheel one of this platform and has build_ext run.
    ext_modules=[Extension(f"{PACKAGE}._engine", sources=[])],
    cmdclass={"build_ext": CMakeBuild},
)
