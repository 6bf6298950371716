"""Every source of ``pack`` by every way that it can go; docs/guide/what-packs.md shows the table.

The page is written by these tests: ``FASTLOAD_WRITE_PAGES=1 pytest tests/contract/test_rows.py``.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from house_sources import ROOT
from pack_fixtures import unsynced
from row_sources import SOURCES
from row_ways import WAYS, Case

from fastload.errors import PackError

__all__ = ["unsynced"]

PAGE = ROOT / "docs" / "guide" / "what-packs.md"
WRITES = os.environ.get("FASTLOAD_WRITE_PAGES") == "1"
MOST_REFUSED = 9
PROCESSES = ("killed, and on", "several processes")  # ways that take a second each
PLACE = r"\S*/set"
INTRODUCTION = """# What can be packed into what

What `fastload pack` and `fastload.pack` take, and every way to pack it: into folders and stores, by one
process or many machines, unchanged or changed. A number means that a source cannot be packed in this way;
the reasons are below the table. Tests run every cell, and write this page.

- *The same again*: the same command finds that nothing is left to do, and a changed source is refused.
- *Killed, and on*: a pack into a folder that was killed goes on when it is run again (an iterable's begins
  anew), and its result has the same bytes.
- *Several processes*, *a store*, *plan and shares* (`--plan-only`, `--shards`, `--publish`) and *Ray* give
  the same bytes as one process and a folder. In Ray's place the test sends the work through pickle and writes
  each shard alone, as Ray's tasks do; `make foreign NAME=ray` has a cluster.
- *Skip*: `--on-error skip` leaves out what cannot be packed, and lists it.
- *Runs*: `--runs /`, by the folders and numbers of keys ([sequences](sequences.md)).

"""


class Table:
    """The outcomes of all cells, each found when it is first asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._cases: dict[str, Case] = {}
        self._found: dict[tuple[str, str], str] = {}

    def outcome(self, name: str, way: str) -> str:
        """Nothing if a source can go a way; why not, if the refusal is a PackError."""
        if (name, way) not in self._found:
            folder = self._folder / name.replace(" ", "-")
            case = self._cases.setdefault(name, Case(name, SOURCES[name], folder))
            try:
                WAYS[way](case)
                self._found[name, way] = ""
            except PackError as error:
                self._found[name, way] = _sentence(str(error))
        return self._found[name, way]

    def page(self) -> str:
        """The page of all cells."""
        reasons: list[str] = []
        lines = [f"| | {' | '.join(WAYS)} |", "|---" * (len(WAYS) + 1) + "|"]
        for name in SOURCES:
            cells = []
            for way in WAYS:
                reason = self.outcome(name, way)
                if reason and reason not in reasons:
                    reasons.append(reason)
                cells.append(f"[{reasons.index(reason) + 1}](#why-not)" if reason else "yes")
            lines.append(f"| {SOURCES[name].words} | {' | '.join(cells)} |")
        numbered = [f"{number}. {reason}" for number, reason in enumerate(reasons, 1)]
        return INTRODUCTION + "\n".join([*lines, "", "## Why not", "", *numbered, ""])


def _sentence(message: str) -> str:
    """The first sentence of a refusal, without the place's name."""
    first = re.split(r"(?<=\.)\s", re.sub(PLACE, "The folder", message), maxsplit=1)[0]
    word, _, rest = first.partition(" ")
    return f"{word.capitalize() if word.isalpha() else f'`{word}`'} {rest}"


@pytest.fixture(scope="module")
def table() -> Iterator[Table]:
    """The table, with its sources in memory where that is possible."""
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="fastload-test-", dir=memory if memory.is_dir() else None))
    yield Table(folder)
    shutil.rmtree(folder)


def cells_of(page: str) -> dict[tuple[str, str], str]:
    """What a page says of each cell: why not, or nothing."""
    reasons = dict(re.findall(r"(?m)^(\d+)\. (.+)$", page))
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| ")]
    names = {SOURCES[name].words: name for name in SOURCES}
    return {
        (names[words], way): "" if cell == "yes" else reasons[re.findall(r"\d+", cell)[0]]
        for words, *cells in rows[1:]
        for way, cell in zip(WAYS, cells, strict=True)
    }


def check(name: str, way: str, table: Table) -> None:
    """A cell is as the page says."""
    found = table.outcome(name, way)
    said = found if WRITES else cells_of(PAGE.read_text(encoding="utf-8")).get((name, way))
    assert said == found, "FASTLOAD_WRITE_PAGES=1 writes the page anew"


@pytest.mark.parametrize("way", [way for way in WAYS if way not in PROCESSES])
@pytest.mark.parametrize("name", SOURCES)
def test_each_cell_is_as_the_page_says(name: str, way: str, table: Table) -> None:
    check(name, way, table)


@pytest.mark.parametrize("way", PROCESSES)
@pytest.mark.parametrize("name", SOURCES)
def test_cells_that_start_processes(name: str, way: str, table: Table) -> None:
    check(name, way, table)


@pytest.mark.timeout(1500)  # every cell once more: two minutes, and more than five beside other work
def test_the_page_is_of_these_cells(table: Table) -> None:
    drawn = table.page()
    if WRITES:
        PAGE.write_text(drawn, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == drawn
    refused = [cell for cell, reason in cells_of(drawn).items() if reason]
    assert 0 < len(refused) <= MOST_REFUSED, refused
