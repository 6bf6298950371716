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

INSTALLED = Path(str(fastload.__file__)).parent  # or built in place: the package under test
OF_FASTLOAD = "[m.__file__ for name, m in sys.modules.items() if name.split('.')[0] == 'fastload']"


def python(*words: str, folder: Path, alone: bool = False) -> subprocess.CompletedProcess[str]:
    """Run Python in ``folder``, which comes first in the import path; ``alone``: nothing is installed."""
    path = "" if alone else os.pathsep.join(path for path in sys.path if path)
    line = [sys.executable, *(["-S"] if alone else []), *words]
    env = {**os.environ, "PYTHONPATH": path}
    return subprocess.run(
        line, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=HANG
    )


def printed(run: subprocess.CompletedProcess[str]) -> list[str]:
    """Its words, after success."""
    assert run.returncode == 0, run.stderr
    return run.stdout.split()


def copy_sources(target: Path) -> Path:
    """The package without an extension."""
    shutil.copytree(PACKAGE, target / "fastload", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    return target / "fastload"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with a copy of the sources, of which nothing may be imported."""
    file = copy_sources(tmp_path) / "__init__.py"
    head, last, tail = file.read_text(encoding="utf-8").rpartition("\n_check_built()")
    file.write_text(f"{head}\nONLY_HERE = True{last}{tail}", encoding="utf-8")
    (tmp_path / "pyproject.toml").touch()
    return tmp_path


def last_line(run: subprocess.CompletedProcess[str]) -> str:
    """The error's line; nothing else may have gone wrong on the way."""
    assert run.returncode == 1
    assert run.stderr.count("Traceback") == 1, run.stderr
    return run.stderr.strip().splitlines()[-1]


@pytest.mark.parametrize(
    "first", ["import fastload", "from fastload import pack", "import fastload.packing.options"]
)
def test_in_a_checkout_the_installed_package_is_imported(checkout: Path, first: str) -> None:
    """All of it, and nothing of the checkout's."""
    code = f"{first}; import sys, fastload; fastload.Schema; print(*sorted({OF_FASTLOAD}))"
    files = printed(python("-c", code, folder=checkout))
    assert len(files) > 5
    assert {Path(file).relative_to(INSTALLED).suffix for file in files} <= {".py", ".so"}
    facts = "fastload.__path__[0], fastload.__spec__.origin, 'ONLY_HERE' in dir(fastload)"
    found = printed(python("-c", f"import fastload; print({facts})", folder=checkout))
    assert found == [str(INSTALLED), str(INSTALLED / "__init__.py"), "False"]


def test_commands_and_scripts_in_a_checkout_are_the_installed_package_s(checkout: Path) -> None:
    assert f"{INSTALLED})" in printed(python("-m", "fastload", "--version", folder=checkout))
    (checkout / "script.py").write_text("import fastload; print(fastload.pack.__code__.co_filename)")
    [file] = printed(python("script.py", folder=checkout))
    assert Path(file).is_relative_to(INSTALLED)


def test_processes_of_a_script_in_a_checkout_import_the_same(checkout: Path) -> None:
    (checkout / "script.py").write_text(
        "import multiprocessing, pickle, fastload\n"
        "def where(sampler):\n"
        "    return type(sampler) is fastload.SubsetSampler, fastload.__file__\n"
        "if __name__ == '__main__':\n"
        "    with multiprocessing.get_context('spawn').Pool(1) as pool:\n"
        "        print(*pool.apply(where, [fastload.SubsetSampler([1])]))\n"
    )
    found = printed(python("script.py", folder=checkout))
    assert found == ["True", str(INSTALLED / "__init__.py")]


def test_reloading_in_a_checkout_changes_nothing(checkout: Path) -> None:
    code = (
        "import importlib, sys, fastload\n"
        "old = fastload.Schema\n"
        "assert importlib.reload(fastload) is fastload is sys.modules['fastload']\n"
        f"print(fastload.Schema is old, fastload.__file__, len(set({OF_FASTLOAD})) == len({OF_FASTLOAD}))"
    )
    assert printed(python("-c", code, folder=checkout)) == ["True", str(INSTALLED / "__init__.py"), "True"]


def test_a_checkout_that_is_built_is_imported(checkout: Path) -> None:
    extension = Path(str(_C.__file__))
    (checkout / "fastload" / extension.name).symlink_to(extension)
    code = "import fastload; print(fastload.ONLY_HERE, fastload.errors.__file__)"
    found = printed(python("-c", code, folder=checkout))
    assert found == ["True", str(checkout / "fastload" / "errors.py")]


def test_a_source_folder_says_how_to_get_a_package(checkout: Path) -> None:
    line = last_line(python("-c", "import fastload", folder=checkout, alone=True))
    assert line.startswith(f"ImportError: {checkout / 'fastload'} is fastload's source folder")
    assert "Nor is fastload installed for this interpreter" in line
    assert f"python -m pip install {checkout}" in line
    assert "tools/build_inplace.sh" in line


def test_an_extension_for_another_python_is_named(checkout: Path) -> None:
    package = checkout / "fastload"
    (package / "_C.cpython-39-x86_64-linux-gnu.so").touch()
    line = last_line(python("-c", "from fastload import DataLoader", folder=checkout, alone=True))
    assert f"{package} was compiled for another Python: it has _C.cpython-39-x86_64-linux-gnu.so" in line


def test_an_installation_without_extension_is_not_complete(tmp_path: Path) -> None:
    """Even where there is another one: which of the two is meant, nobody can say."""
    package = copy_sources(tmp_path)
    line = last_line(python("-c", "import fastload.loader.data_loader", folder=tmp_path))
    assert line.startswith(f"ImportError: {package} has no compiled extension")


def test_an_extension_that_does_not_load_is_named(tmp_path: Path) -> None:
    package = copy_sources(tmp_path)
    name = Path(str(_C.__file__)).name
    (package / name).write_bytes(b"not a library")
    run = python("-c", "import fastload; fastload.WeightedSampler", folder=tmp_path)
    line = run.stderr.strip().splitlines()[-1]
    assert run.returncode == 1
    assert line.startswith("ImportError: fastload's extension cannot be loaded: ")
    assert name in line


def test_the_import_brings_nothing_else() -> None:
    code = "import sys; old = set(sys.modules); import fastload; print(*sorted(set(sys.modules) - old))"
    run = python("-c", code, folder=PACKAGE.parent / "tests")
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
    run = python("-c", "import fastload; print(*dir(fastload))", folder=PACKAGE.parent / "tests")
    assert {"DataLoader", "PackedDataset", "transforms", "__version__"} <= set(run.stdout.split())


def test_the_label_of_padding_is_the_core_s() -> None:
    assert fastload.IGNORE_LABEL == _C.IGNORE_LABEL
