"""What to do where the extension ``fastload._C`` is missing: words for the ImportError."""

from __future__ import annotations

import platform
from pathlib import Path

__all__ = ["advice"]


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
            f"{folder} is fastload's source folder, and has no compiled extension (fastload._C). Python "
            "looks into the current folder and PYTHONPATH before it looks for what is installed: start it in "
            "another folder to import an installed fastload. To install: 'python -m pip install "
            f"{folder.parent}'; to build the extension in the source folder: tools/build_inplace.sh."
        )
    return (
        f"{folder} has no compiled extension (fastload._C): the installation is not complete. Install it "
        "again: 'python -m pip install --force-reinstall --no-deps' and what it was installed from."
    )
