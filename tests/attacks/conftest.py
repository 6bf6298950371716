"""Lets the tests of this folder import the references."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[1] / "pack"))
sys.path.append(str(Path(__file__).parents[1] / "reference"))

from pack_fixtures import format_name, tmp_path, unsynced

__all__ = ["format_name", "tmp_path", "unsynced"]
