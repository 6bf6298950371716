"""The layers of the house: who may import and include whom. ARCHITECTURE.md says why.

A new module gets a line in the table below; without one the tests fail.
"""

from __future__ import annotations

import ast
import importlib
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest
from house_sources import (
    BINDINGS,
    CORE,
    PACKAGE,
    ROOT,
    cpp_files,
    imports,
    includes,
    module_name,
    name_of,
    python_files,
    top_level,
)
from room_tests import ALWAYS, CORE_ROOMS, ROOMS

# Rooms of fastload/, lowest first, and modules that stand alone. A room may import itself, errors, extras,
# _native and what its line names, nothing else.
ALLOWED: dict[str, set[str]] = {
    "_version": set(),
    "errors": set(),
    "extras": set(),
    "unbuilt": set(),
    "_native": set(),
    "machine": set(),
    "sample": set(),
    "collate": {"sample"},
    "remote": {"machine"},
    "transforms": {"sample"},
    "shard": {"machine", "sample", "remote"},
    "sampler": {"machine"},
    "dataset": {"machine", "sample", "collate", "transforms", "shard", "sampler"},
    "vlm": {"machine", "sample", "collate", "dataset"},
    "prefetch": {"machine", "sample", "sampler", "dataset"},
    "cache": {"machine", "shard", "dataset"},
    "packing": {"_version", "machine", "remote", "sample", "shard", "dataset"},
    "transfer": {"machine", "sample", "transforms", "sampler", "prefetch"},
    "ranks": {"machine"},
    "backends": {
        "machine", "sample", "transforms", "shard", "sampler", "dataset", "prefetch", "cache", "transfer",
        "ranks",
    },
    "loader": {
        "_version", "machine", "sample", "transforms", "shard", "sampler", "dataset", "prefetch", "cache",
        "transfer", "ranks", "backends", "collate", "vlm",
    },
    "diagnose": {
        "_version", "machine", "sample", "transforms", "shard", "sampler", "dataset", "prefetch", "cache",
        "packing", "transfer", "backends", "ranks", "loader",
    },
    "integrations": {
        "machine", "sample", "transforms", "shard", "dataset", "prefetch", "packing", "backends", "loader",
    },
    "cli": {
        "machine", "sample", "transforms", "shard", "sampler", "dataset", "cache", "packing", "loader",
        "diagnose", "_version",
    },
    "__init__": {
        "_version", "unbuilt", "sample", "collate", "transforms", "sampler", "dataset", "backends", "packing",
        "loader", "vlm", "diagnose",
    },
    "__main__": {"cli"},
}  # fmt: skip

# Doors upwards: the files that import a module of fastload by its name, and which.
BY_NAME = {
    "loader/torch_compat.py": {"fastload.integrations.accelerate", "fastload.integrations.lightning"},
}

# Rooms of csrc/core, each with those whose headers it may include. Stages know base/ only; what joins them
# stands above them.
MAY_INCLUDE: dict[str, set[str]] = {
    "base": set(),
    "io": {"base"},
    "decode": {"base"},
    "transform": {"base"},
    "vision": {"base", "transform"},
    "collate": {"base", "sample"},
    "shard": {"base", "io"},
    "remote": {"base", "io"},
    "sampler": {"base"},
    "transcode": {"base", "decode"},
    "cache": {"base", "io", "decode", "transform", "shard", "transcode"},
    "sample": {"base", "io", "shard", "transform", "vision"},
    "read_ahead": {"base", "io", "shard", "cache"},
    "engine": {
        "base",
        "io",
        "decode",
        "transform",
        "vision",
        "collate",
        "shard",
        "cache",
        "sample",
        "read_ahead",
    },
    "pack": {"base", "io", "decode", "shard", "transcode"},
}
FOREIGN = ("Python.h", "nanobind", "pybind11", "torch/", "ATen/", "c10/", "cuda", "nvToolsExt")
HEAVY = ("torch", "pyarrow", "h5py", "lmdb", "PIL", "datasets", "rich")
MAX_BINDING_LINES = 500


def part_of(module: str) -> str | None:
    """The part of fastload/ that a module belongs to; None for other packages."""
    head, _, rest = module.partition(".")
    if head != "fastload":
        return None
    return rest.split(".")[0] or "__init__"


def part_of_file(path: Path, package: Path) -> str:
    """The part of fastload/ that a file belongs to."""
    first = path.relative_to(package).parts[0]
    return first.removesuffix(".py")


def broken_imports(package: Path) -> list[str]:
    """Every import within ``package`` (a folder named fastload) that the table does not allow."""
    found = []
    for path in sorted(package.rglob("*.py")):
        part = part_of_file(path, package)
        if part not in ALLOWED:
            found.append(f"{path.name}: part '{part}' has no line in the table")
            continue
        modules = {part_of(name) for name, _ in imports(path, package.parent)}
        modules -= {
            None,
            part,
            *({"errors", "extras"} if part != "errors" else set()),
            *({"_native"} if part not in {"errors", "extras", "unbuilt", "__main__"} else set()),
        }
        names = {p.stem for p in package.iterdir()}
        # "from fastload import x" names the package itself, too; what matters is x.
        wrong = {name for name in modules if name in names and name != "__init__"} - ALLOWED[part]
        if part not in {"_native"}:
            found += [f"{path.relative_to(package)}: imports {name}" for name in sorted(map(str, wrong))]
    return found


def broken_includes(core: Path) -> list[str]:
    """Every #include below ``core`` that the table does not allow, or that is Python's, torch's or CUDA's."""
    found = []
    for path in sorted(p for p in core.rglob("*") if p.suffix in {".h", ".cpp"}):
        folder = path.relative_to(core).parts[0]
        if folder not in MAY_INCLUDE:
            found.append(f"{path.name}: folder '{folder}' has no line in the table")
            continue
        for quote, name in includes(path):
            target = name.split("/")[0]
            if name.startswith(FOREIGN) or (
                quote == '"' and target != folder and target not in MAY_INCLUDE[folder]
            ):
                found.append(f"{path.relative_to(core)}: includes {name}")
    return found


def by_name(package: Path) -> dict[str, set[str]]:
    """The modules of fastload that each file of ``package`` imports by a string."""
    found: dict[str, set[str]] = {}
    for path in sorted(package.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            if called.rpartition(".")[2] not in ("import_module", "__import__"):
                continue
            name = getattr(node.args[0], "value", None)
            if isinstance(name, str) and part_of(name) is not None:
                found.setdefault(path.relative_to(package).as_posix(), set()).add(name)
    return found


def circles(package: Path) -> list[list[str]]:
    """Modules of ``package`` that import each other: each list is one circle.

    Imports for type checkers, inside functions and by name count, too.
    """
    paths = {module_name(path, package.parent): path for path in package.rglob("*.py")}
    doors = by_name(package)
    above = {
        module: {name for name, _ in imports(path, package.parent) if name in paths}
        | doors.get(path.relative_to(package).as_posix(), set())
        for module, path in paths.items()
    }
    # A package's own file runs before each of its modules; what it imports of them is no circle.
    above = {
        module: {n for n in names if not f"{module}.".startswith(f"{n}.")} for module, names in above.items()
    }
    while True:
        done = {module for module, names in above.items() if not names & above.keys()}
        if not done:
            break
        above = {module: names for module, names in above.items() if module not in done}
    while True:  # what only leads to a circle is no part of it
        used = set().union(*above.values()) if above else set()
        if above.keys() <= used:
            break
        above = {module: names for module, names in above.items() if module in used}
    return [sorted(above)] if above else []


def hidden_names(package: Path) -> list[str]:
    """Modules named as something else that their package offers: importing one would take its place."""
    found = []
    for path in package.rglob("__init__.py"):
        offered = set()
        for node in top_level(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                offered.add(node.name)
            elif isinstance(node, ast.ImportFrom) and node.module != "__future__":
                offered |= {alias.asname or alias.name for alias in node.names}
        modules = {each.stem for each in path.parent.iterdir() if each.suffix == ".py" or each.is_dir()}
        found += [f"{path.relative_to(package)}: {name}" for name in sorted(offered & modules)]
    return found


_DOTTED = re.compile(r"fastload(?:\.\w+)+")
_ROLE = re.compile(r":(?:mod|func|class|meth|data|attr|exc):`~?(fastload(?:\.\w+)+)`")


def dead_names(package: Path) -> list[str]:
    """Return the strings that name something of ``fastload`` which is not there.

    Modules that are imported by a string, in a table or a call, are what no type checker and no search for
    importers finds when a module gets another name. The modules that a string names are imported.
    """
    found = []
    for path in python_files(package):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
                continue
            whole = [node.value] if _DOTTED.fullmatch(node.value) else _ROLE.findall(node.value)
            where = f"{path.relative_to(package)}:{node.lineno}"
            found += [f"{where}: {name}" for name in whole if name not in _RANGES and not _is_there(name)]
    return found


_RANGES = {"fastload.prefetch.wait", "fastload.transfer.copy"}  # ranges of NVTX


def _is_there(name: str) -> bool:
    if module_file(name) is not None:  # which may want a library that is not installed
        return True
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError):
        return False
    return True


def module_file(name: str) -> Path | None:
    """Return the file of a module of ``fastload``, None if there is none."""
    path = PACKAGE.joinpath(*name.split(".")[1:])
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)


def made_names(package: Path) -> list[str]:
    """Return where a module is imported by a name put together, which :func:`dead_names` cannot check."""
    found = []
    for path in python_files(package):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            called = node.func if isinstance(node, ast.Call) else None
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            if name == "import_module" and isinstance(node.args[0], ast.JoinedStr):
                found.append(f"{path.relative_to(package).as_posix()}: {ast.unparse(node.args[0])}")
    return found


def test_strings_name_what_is_there() -> None:
    assert dead_names(PACKAGE) == []


def test_put_together_names_of_modules_are_tables_that_tests_read() -> None:
    assert made_names(PACKAGE) == [
        "__init__.py: f'fastload.{name}'",  # _LAZY; tests/contract/test_package.py
        "cli/commands.py: f'fastload.cli.{verb}'",  # VERBS; tests/cli
        "cli/commands.py: f'fastload.cli.{arguments.verb}'",
        "shard/formats.py: f'fastload.shard.{name}'",  # FORMATS; tests/shard
        "transforms/operations/registry.py: f'{__package__}.{file}'",  # ROWS; tests/transform
    ]


def test_imports_go_down() -> None:
    assert broken_imports(PACKAGE) == []


def test_no_modules_import_each_other() -> None:
    assert circles(PACKAGE) == []


def test_modules_are_imported_by_name_only_through_doors() -> None:
    assert by_name(PACKAGE) == BY_NAME


def test_no_module_hides_what_its_package_offers() -> None:
    assert hidden_names(PACKAGE) == []


def test_the_checks_of_modules_find(tmp_path: Path) -> None:
    package = tmp_path / "fastload"
    package.mkdir()
    (package / "__init__.py").write_text("from fastload.a import pack\n")
    (package / "a.py").write_text("from fastload.b import x\ndef pack(): pass\n")
    (package / "b.py").write_text("")
    (package / "pack.py").write_text("from fastload.a import pack\n")
    assert circles(package) == []
    assert hidden_names(package) == ["__init__.py: pack"]
    one_line = "from fastload.pack import y\n"
    by_a_string = 'import_module("fastload.pack")'
    for line in (one_line, f"if TYPE_CHECKING:\n    {one_line}", f"def x():\n    {one_line}", by_a_string):
        (package / "b.py").write_text(line)
        assert circles(package) == [["fastload.a", "fastload.b", "fastload.pack"]]
    (package / "a.py").write_text('"""See :func:`fastload.pack.now` and :class:`fastload.DataLoader`."""\n')
    (package / "b.py").write_text('x("fastload.loader.data_loader")\ny("fastload.integrations.skipping")\n')
    (package / "pack.py").write_text('import_module(f"fastload.{name}")\nimport_module("fastload.remote")\n')
    assert dead_names(package) == ["a.py:1: fastload.pack.now", "b.py:2: fastload.integrations.skipping"]
    assert made_names(package) == ["pack.py: f'fastload.{name}'"]
    assert by_name(package) == {"pack.py": {"fastload.remote"}}


def test_core_includes_go_down_and_know_no_python_torch_or_cuda() -> None:
    assert broken_includes(CORE) == []


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("shard/bad.py", "from fastload.loader.data_loader import DataLoader"),
        ("shard/bad.py", "from fastload import packing"),
        ("shard/bad.py", "from ..packing import scan"),
        ("sampler/bad.py", "def f():\n    import fastload.shard.dataset"),
        ("errors.py", "from fastload import _native"),
        ("newpart.py", "import os"),
    ],
)
def test_the_import_check_finds(tmp_path: Path, file: str, line: str) -> None:
    package = tmp_path / "fastload"
    for name in ("loader/x.py", "_native.py", "sampler/x.py", "packing/scan.py", "shard/dataset.py"):
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text("")
    assert broken_imports(package) == []
    (package / file).write_text(line)
    assert len(broken_imports(package)) >= 1


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("decode/bad.cpp", '#include "transform/view.h"'),
        ("base/bad.h", '#include "decode/decode.h"'),
        ("engine/bad.cpp", '#include "pack/pack.h"'),
        ("engine/bad.cpp", "#include <nanobind/nanobind.h>"),
        ("io/bad.cpp", "#  include <Python.h>"),
        ("newfolder/bad.cpp", ""),
    ],
)
def test_the_include_check_finds(tmp_path: Path, file: str, line: str) -> None:
    (tmp_path / file).parent.mkdir()
    (tmp_path / file).write_text(line)
    assert len(broken_includes(tmp_path)) == 1


def test_every_room_has_its_tests() -> None:
    """make check chooses by these tables, and every test of a room belongs to one."""
    assert set(ROOMS) == set(ALLOWED)
    assert set(CORE_ROOMS) == set(MAY_INCLUDE)
    named = {test for room in ROOMS.values() for test in room.tests}
    tests = ROOT / "tests"
    assert [test for test in sorted({*named, *ALWAYS}) if not (tests / test).exists()] == []
    folders = {path.parent.name for path in tests.glob("*/test_*.py")}
    assert folders - {test.split("/")[0] for test in named} == {"benchmarks", "docs", "faults"}
    words = {path.stem.removeprefix("test_") for path in (tests / "cpp").rglob("test_*.cpp")}
    assert words == {word for room in CORE_ROOMS.values() for word in room.words}
    assert {name for room in CORE_ROOMS.values() for name in room.rooms} <= set(ROOMS)


def test_only_native_imports_the_extension() -> None:
    users = [
        name_of(path)
        for path in python_files("fastload")
        if any(name == "fastload._C" or name.startswith("fastload._C.") for name, _ in imports(path))
    ]
    assert users == ["fastload/_native.py"]


def test_only_transfer_and_dali_use_torch_cuda() -> None:
    users = {
        path.relative_to(PACKAGE).as_posix()
        for path in python_files("fastload")
        if re.search(r"torch\.cuda\.(?!is_available\b)", path.read_text())
    }
    # kernels.py has what torch.cuda lacks, on its current stream.
    # gpu_nodes only asks which devices there are, and only where the user has initialised CUDA.
    # The doctor watches the device that the user's loop is on.
    assert users <= {
        "transfer/cuda.py",
        "transfer/kernels.py",
        "machine/cpu.py",
        "diagnose/step.py",
    }


def test_bindings_hold_no_logic() -> None:
    """By size, and by what a binding has no need of."""
    bindings = cpp_files("csrc/bindings")
    assert len(bindings) > 10
    for path in bindings:
        lines = path.read_text().count("\n")
        assert lines <= MAX_BINDING_LINES, f"{name_of(path)}: {lines} lines"
        system = {name for quote, name in includes(path) if quote == "<"}
        assert not system & {"thread", "condition_variable", "fstream", "jpeglib.h", "png.h"}, name_of(path)


def test_storage_stays_behind_byte_source() -> None:
    """Outside of io nobody knows how a file is read: by a mapping, past the page cache, from a network."""
    kinds = {"io/cold_file.h", "io/mapping.h"}
    users = {
        path.relative_to(CORE).parts[0]
        for path in cpp_files("csrc/core")
        if kinds & {name for _, name in includes(path)}
    }
    assert users == {"io"}


def test_core_compiles_without_bindings() -> None:
    for path in cpp_files("csrc/core"):
        assert not any(name.startswith(("bindings", "..")) for _, name in includes(path)), name_of(path)
    assert BINDINGS.is_dir()


def test_importing_fastload_is_light() -> None:
    code = f"import sys, fastload; print([name for name in {HEAVY!r} if name in sys.modules])"
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT / "tests"
    )
    assert run.stdout.strip() == "[]"


def test_all_names_exist() -> None:
    fastload = importlib.import_module("fastload")
    assert "DataLoader" in fastload.__all__
    for name in fastload.__all__:  # ruff (RUF022) keeps them sorted
        assert getattr(fastload, name) is not None


@pytest.mark.skipif(
    "FASTLOAD_TEST_INSTALLED" not in os.environ, reason="only make test promises an installation"
)
def test_the_installed_package_is_the_one_under_test() -> None:
    """Not the source folder; and it has what only an installation brings."""
    found = Path(str(importlib.import_module("fastload").__file__)).parent
    assert found != PACKAGE
    assert {"_C.pyi", "py.typed"} <= {path.name for path in found.iterdir()}
