"""Write what bench_doctor.py measured into the tables of docs/guide/tuning.md.

    python benchmarks/tuning_table.py build/bench/doctor.json [--note "Two cores, quiet, 2026-11-23."]

The last cell of each row that names a scenario becomes "before → reached (gain)"; rows of scenarios that are
not in the JSON stay as they are. The note, and the machine, stand between the marks near the top.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

DOCUMENT = Path(__file__).parents[1] / "docs" / "guide" / "tuning.md"
LEAF = re.compile(r"^(\|.*\| `([^`|]+)` \|)([^|]*)\|$", re.MULTILINE)
MARKS = re.compile(r"(<!-- measured -->\n).*?(<!-- /measured -->)", re.DOTALL)


def leaves(text: str) -> list[str]:
    """The scenarios that the document names, in order."""
    return [found[2] for found in LEAF.finditer(text)]


def gain(row: Mapping[str, Any]) -> str:
    """What a scenario's fix gave."""
    before, after = row["before"], row["reached"]
    if not after:
        return f"{before:.0f}: nothing to mend"
    return f"{before:.0f} → {after:.0f} ({after / before - 1:+.0%})"


def filled(text: str, rows: list[dict[str, Any]], note: str) -> str:
    """The document with the figures of ``rows``."""
    known = {row["name"]: row for row in rows if row.get("before")}

    def cell(found: re.Match[str]) -> str:
        row = known.get(found[2])
        return found[0] if row is None else f"{found[1]} {gain(row)} |"

    text = LEAF.sub(cell, text)
    return MARKS.sub(lambda found: f"{found[1]}{note}\n{found[2]}" if note else found[0], text)


def main(given: list[str] | None = None) -> int:
    """Rewrite the document."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("measured", type=Path, metavar="JSON")
    parser.add_argument("--note", default="", help="conditions of the measurement")
    parser.add_argument("--document", type=Path, default=DOCUMENT)
    options = parser.parse_args(given)
    rows = json.loads(options.measured.read_text())["rows"]
    text = options.document.read_text(encoding="utf-8")
    options.document.write_text(filled(text, rows, options.note), encoding="utf-8")
    missing = [
        name for name in leaves(text) if name not in {row["name"] for row in rows if row.get("before")}
    ]
    print("Left as they were: " + (", ".join(missing) or "none"))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
