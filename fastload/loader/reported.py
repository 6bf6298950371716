"""From a loader to its report, which stands above the loader and is named here, not imported."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

__all__ = ["Shown", "reported"]


class Shown(Protocol):
    """What is shown as the last value of a notebook's cell."""

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write it as one HTML file; where that lies."""

    def _repr_html_(self) -> str: ...


def reported(loader: Any, verdict: Any, more: Mapping[str, Any]) -> Shown:
    """See :meth:`fastload.DataLoader.report`."""
    shown: Shown = import_module("fastload.diagnose.report").Report(verdict, loader, **more)
    return shown
