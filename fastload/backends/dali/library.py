"""Finding NVIDIA DALI: imported when a back end is made, and only then."""

from __future__ import annotations

import importlib
import importlib.util
from types import ModuleType
from typing import Any

from fastload.errors import LibraryMissing
from fastload.extras import words

__all__ = ["find_dali", "load_dali", "release_unused"]


def find_dali() -> None:
    """Check that DALI is installed, without importing it.

    Raises:
        LibraryMissing: it is not; the message has the command that installs it.
    """
    try:
        found = importlib.util.find_spec("nvidia.dali")
    except ModuleNotFoundError:  # not even the namespace "nvidia"
        found = None
    if found is None:
        missing = words("nvidia.dali", 'backend="dali"')
        more = "for CUDA 13: fastload[dali13]; it exists for 64-bit Linux"
        raise LibraryMissing(f'{missing} ({more}). Or use backend="native".', name="nvidia.dali")


def load_dali() -> tuple[ModuleType, ModuleType, Any]:
    """DALI's ``fn``, ``types`` and ``Pipeline``.

    Raises:
        LibraryMissing: it is not installed, or cannot be loaded.
    """
    find_dali()
    fn = importlib.import_module("nvidia.dali.fn")
    types = importlib.import_module("nvidia.dali.types")
    return fn, types, importlib.import_module("nvidia.dali.pipeline").Pipeline


def release_unused() -> None:
    """DALI's memory pools give back to the system and to the device what nobody uses."""
    importlib.import_module("nvidia.dali.backend").ReleaseUnusedMemory()
