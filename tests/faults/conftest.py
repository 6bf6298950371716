"""Lets the tests of this folder import its programs, and those of its neighbours that they use."""

from __future__ import annotations

import sys
from pathlib import Path

for folder in (".", "../reference"):
    sys.path.append(str((Path(__file__).parent / folder).resolve()))
