"""Where the extension ``fastload._C`` is missing: the installed package in place of the sources, or advice.

Either everything is the installed package's, or nothing. Its ``__init__`` runs in the module that Python made
for the source folder, whose names, path and submodules are gone by then. The module itself stays, since
whoever imports it, or reloads it, holds it already.
"""

from __future__ import annotations

import platform
import sys
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import module_from_spec
from pathlib import Path
from types import ModuleType


def give_way(package: ModuleType) -> None:
    """Make ``package``, a folder named fastload without an extension, the installed one. Its code ends here.

    Raises:
        ImportError: it is no source folder, or nothing is installed; see :func:`advice`.
    """
    is_source = (Path(package.__path__[0]).parent / "pyproject.toml").exists()
    found = _installed() if is_source else None
    if found is None:
        raise ImportError(advice(package.__path__[0]), name="fastload._C", path=package.__path__[0])
    del sys.modules[__name__]  # the one submodule of this folder
    names = vars(package)
    names.clear()
    names.update(vars(module_from_spec(found)))
    assert found.loader is not None
    found.loader.exec_module(package)


def _installed() -> ModuleSpec | None:
    """The first package in the import path that has its extension."""
    for entry in sys.path:
        spec = PathFinder.find_spec("fastload", [entry])
        if spec is None or spec.submodule_search_locations is None:
            continue
        if PathFinder.find_spec("fastload._C", list(spec.submodule_search_locations)) is not None:
            return spec
    return None


def advice(package: str) -> str:
    """Why ``package``, a folder named fastload, cannot be imported by this interpreter, and what helps."""
    folder = Path(package)
    others = sorted(path.name for path in folder.glob("_C.*.so"))
    if others:
        return (
            f"{folder} was compiled for another Python: it has {', '.join(others)}, and this is "
            f"{platform.python_implementation()} {platform.python_version()} on {platform.machine()}. "
            "Install fastload with this interpreter ('python -m pip install .' in a checkout), or use the "
            "other one."
        )
    if (folder.parent / "pyproject.toml").exists():
        return (
            f"{folder} is fastload's source folder, and has no compiled extension (fastload._C). Nor is "
            "fastload installed for this interpreter, or it would be used in its place. To install: "
            f"'python -m pip install {folder.parent}'; to build the extension in the source folder: "
            "tools/build_inplace.sh."
        )
    return (
        f"{folder} has no compiled extension (fastload._C): the installation is not complete. Install it "
        "again: 'python -m pip install --force-reinstall --no-deps' and what it was installed from."
    )
