"""Draws the charts and writes the measured tables from the results of all.py.

    python benchmarks/charts/draw.py [--results benchmarks/results]

docs/images/charts/NAME-light.svg and NAME-dark.svg, and the tables between docs/measured/latest.md's marks.
The same results give the same bytes; a test compares them with what is there.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

from charts.content import CHARTS, JOBS, jobs  # noqa: E402
from charts.results import newest  # noqa: E402
from charts.svg import THEMES  # noqa: E402
from charts.tables import filled  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results"
CHART_FOLDER = ROOT / "docs" / "images" / "charts"
DOCUMENT = ROOT / "docs" / "measured" / "latest.md"


def files(results: Path, folder: Path, document: Path) -> dict[Path, str]:
    """Every file that is drawn or written, and its text."""
    found = newest(results)
    drawn = {name: draw(found[name]) for name, draw in CHARTS.items() if name in found}
    if JOBS.keys() & found.keys():
        drawn["jobs"] = jobs(found)
    texts = {
        folder / f"{name}-{theme}.svg": drawing.render(theme)
        for name, drawing in drawn.items()
        for theme in THEMES
    }
    return {**texts, document: filled(document.read_text(encoding="utf-8"), found)}


def main(argv: Sequence[str] | None = None) -> int:
    """Write them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--charts", type=Path, default=CHART_FOLDER, metavar="FOLDER")
    parser.add_argument("--document", type=Path, default=DOCUMENT)
    options = parser.parse_args(argv)
    options.charts.mkdir(parents=True, exist_ok=True)
    for path, text in files(options.results, options.charts, options.document).items():
        path.write_text(text, encoding="utf-8")
        print(path)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
