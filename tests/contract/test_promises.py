"""What SECURITY.md and docs/project/reliability.md name is there; each instrument has its line."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NAMED = re.compile(r"(?:tests|tools|docs|fastload)/[\w/-]+(?:\.(?:py|cpp|c|md))?")


@pytest.mark.parametrize("page", ["SECURITY.md", "docs/project/reliability.md"])
def test_what_a_page_points_to_is_there(page: str) -> None:
    named = set(NAMED.findall((ROOT / page).read_text(encoding="utf-8")))
    assert len(named) >= 6
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_each_sentence_of_what_is_checked_names_its_test() -> None:
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    checked = text.split("## What is checked\n")[1].split("\n## ")[0]
    points = [point for point in checked.split("\n- ")[1:] if "*tests/" not in point]
    assert checked.count("\n- ") >= 10
    assert points == []


def test_reliability_has_each_instrument_of_the_campaign() -> None:
    sys.path.append(str(ROOT / "tests" / "faults"))
    from campaign import INSTRUMENTS

    page = (ROOT / "docs" / "project" / "reliability.md").read_text(encoding="utf-8")
    names = [each.name for each in INSTRUMENTS]
    assert len(names) >= 9
    assert [name for name in names if f"`{name}`" not in page] == []
    programs = ROOT / "tests" / "faults"
    assert [name for name in names if not (programs / f"{name}.py").exists()] == []


def test_reliability_says_the_counts_of_the_last_campaign() -> None:
    rows = re.compile(r"(?m)^\| (\w+) \|[^|]*\| ([\d,]+) \|")
    measured = dict(rows.findall((ROOT / "docs" / "measured" / "faults.md").read_text(encoding="utf-8")))
    said = re.compile(r"(?m)^\| `(\w+)` \|.*\| ([\d,]+) \|$")
    page = dict(said.findall((ROOT / "docs" / "project" / "reliability.md").read_text(encoding="utf-8")))
    assert len(measured) >= 2
    assert page == measured
