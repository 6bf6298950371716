"""docs/measured/programs.md: its table has a line for each program and number of ranks that has run."""

from __future__ import annotations

import re
from pathlib import Path

from compared import Compared
from sources import sources
from trainings import Training

PAGE = Path(__file__).resolve().parents[3] / "docs" / "measured" / "programs.md"
HEAD = """| program | ranks | changed for the run | batches, samples | one import changed: pixels, losses \
| packed: pixels | packed: first loss, all | augmentation, packed |
|---|---|---|---|---|---|---|---|
"""


def line(name: str, program: Training, ranks: int, ours: Compared, packed: Compared | None) -> str:
    """A line of the table."""
    equal = "equal" if ours.pixels == 0 and ours.losses[1] == 0 and not ours.differ else "differ"
    count = f"{ours.batches}, {ours.samples}"
    cells = [*begin(name, program, ranks), count, f"{equal}, {ours.steps} equal"]
    if packed is None:
        cells += ["no pictures, or a Dataset of its own", "–", "–"]
    else:
        by = "its own" if program.draws else "the same at each draw"
        cells += [apart(packed.pixels), f"{apart(packed.losses[0])}, {apart(packed.losses[1])}", by]
    return "| " + " | ".join(cells) + " |"


def absent(name: str, program: Training, ranks: int) -> str:
    """The line of a program that cannot be had."""
    cells = [*begin(name, program, ranks), "not run: its files could not be fetched", "–", "–", "–", "–"]
    return "| " + " | ".join(cells) + " |"


def begin(name: str, program: Training, ranks: int) -> list[str]:
    """The cells that say what is compared."""
    commit = next(source.commit for source in sources(program.of) if source.path == program.file)
    where = f"{name}: `{program.of}` {commit[:8]}, `{program.file}`"
    return [where, str(ranks), program.changed or "–"]


def apart(difference: float) -> str:
    """A difference in words."""
    return "equal" if difference == 0 else f"{difference:.0e}"


def write(new: str) -> None:
    """Put a line into the page's table, in place of the one that it had."""
    text = PAGE.read_text(encoding="utf-8")
    before, head, rest = text.partition(HEAD)
    table = re.match(r"(\|.*\n)*", rest)
    assert head
    assert table
    lines = {key(row): row for row in [*table[0].splitlines(), new]}
    body = "".join(f"{lines[one]}\n" for one in sorted(lines, key=str.lower))
    PAGE.write_text(before + head + body + rest[table.end() :], encoding="utf-8")


def key(row: str) -> str:
    """What names a line: the program and the number of ranks."""
    cells = [cell.strip() for cell in row.split("|")]
    return f"{cells[1].partition(':')[0]}:{cells[2]}"
