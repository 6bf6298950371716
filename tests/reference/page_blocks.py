"""The code of a page's section, for tests that run what the page's own run cannot."""

from __future__ import annotations

import re
from pathlib import Path

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guide"


def python_of(page: str, heading: str) -> str:
    """The first Python block below a heading of a page of the guide."""
    section = (GUIDE / page).read_text(encoding="utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    found = re.search(r"^```python\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    assert found is not None, f"{page}, {heading}: no Python"
    return found[1]
