"""When, where and with what something was measured: the part of a result that lets others repeat it."""

from __future__ import annotations

import datetime
import importlib.metadata
import subprocess
from pathlib import Path
from typing import Any

from harness.machine import facts

__all__ = ["commit", "provenance", "versions"]

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("fastload", "torch", "numpy", "pillow")


def commit(checkout: Path = ROOT) -> str:
    """The checkout's commit, with "-dirty" if files were changed; why not, where it cannot be told."""
    command = ["git", "-C", str(checkout), "describe", "--always", "--abbrev=12", "--dirty"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except FileNotFoundError:
        return "unknown: git is not installed"
    return done.stdout.strip() if done.returncode == 0 else "unknown: this is not a git checkout"


def versions() -> dict[str, str]:
    """Of this interpreter's packages that matter; those of a rival's are in its runs."""
    found = {}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


def provenance() -> dict[str, Any]:
    """``date``, ``commit``, ``versions`` and ``machine``."""
    now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    return {"date": now, "commit": commit(), "versions": versions(), "machine": facts()}
