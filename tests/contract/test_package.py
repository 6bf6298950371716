"""``import fastload``: what it imports, what it shows, and what it says where it was not built."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from house_sources import PACKAGE
from process import HANG

import fastload
from fastload._native import _C


def python(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run ``code`` in ``folder``, which comes first in the import path."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    line = [sys.executable, "-c", code]
    return subprocess.run(
        line, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=HANG
    )


def copy_sources(target: Path) -> Path:
    """The package without an extension."""
    shutil.copytree(PACKAGE, target / "fastload", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    return target / "fastload"


def last_line(run: subprocess.CompletedProcess[str]) -> str:
    """The error's line; nothing else may have gone wrong on the way."""
    assert run.returncode == 1
    assert run.stderr.count("Traceback") == 1, run.stderr
    return run.stderr.strip().splitlines()[-1]


def test_a_source_folder_says_how_to_get_a_package(tmp_path: Path) -> None:
    package = copy_sources(tmp_path)
    (tmp_path / "pyproject.toml").touch()
    line = last_line(python("import fastload", tmp_path))
    assert line.startswith(f"ImportError: {package} is fastload's source folder")
    assert "start it in another folder" in line
    assert f"python -m pip install {tmp_path}" in line
    assert "tools/build_inplace.sh" in line


def test_an_extension_for_another_python_is_named(tmp_path: Path) -> None:
    package = copy_sources(tmp_path)
    (package / "_C.cpython-39-x86_64-linux-gnu.so").touch()
    line = last_line(python("from fastload import DataLoader", tmp_path))
    assert f"{package} was compiled for another Python: it has _C.cpython-39-x86_64-linux-gnu.so" in line


def test_an_installation_without_extension_is_not_complete(tmp_path: Path) -> None:
    package = copy_sources(tmp_path)
    line = last_line(python("import fastload.loader.data_loader", tmp_path))
    assert line.startswith(f"ImportError: {package} has no compiled extension")


def test_an_extension_that_does_not_load_is_named(tmp_path: Path) -> None:
    package = copy_sources(tmp_path)
    name = Path(str(_C.__file__)).name
    (package / name).write_bytes(b"not a library")
    run = python("import fastload; fastload.WeightedSampler", tmp_path)
    line = run.stderr.strip().splitlines()[-1]
    assert run.returncode == 1
    assert line.startswith("ImportError: fastload's extension cannot be loaded: ")
    assert name in line


def test_the_import_brings_nothing_else() -> None:
    code = "import sys; old = set(sys.modules); import fastload; print(*sorted(set(sys.modules) - old))"
    run = python(code, PACKAGE.parent / "tests")
    assert run.returncode == 0, run.stderr
    others = {name for name in run.stdout.split() if not name.startswith("importlib")}
    assert others - {"__future__", "_warnings", "warnings", "_xxsubinterpreters"} == {"fastload"}


def test_all_names_can_be_found_and_completed() -> None:
    assert set(fastload.__all__) <= set(dir(fastload))
    for name in fastload.__all__:
        assert getattr(fastload, name) is vars(fastload)[name]
    with pytest.raises(AttributeError, match=r"module 'fastload' has no attribute 'Dataloader'"):
        fastload.Dataloader  # type: ignore[attr-defined]  # noqa: B018


def test_names_are_there_before_they_are_used() -> None:
    run = python("import fastload; print(*dir(fastload))", PACKAGE.parent / "tests")
    assert {"DataLoader", "PackedDataset", "transforms", "__version__"} <= set(run.stdout.split())


def test_the_label_of_padding_is_the_core_s() -> None:
    assert fastload.IGNORE_LABEL == _C.IGNORE_LABEL
