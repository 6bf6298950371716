"""Write tests/slow.txt, which says how long tests last, from recorded runs.

The command is ``python tools/mark_slow.py REPORT.xml ...``. ``pytest --junitxml=REPORT.xml`` writes a report
of the seconds of each test, with setup and teardown. If several reports have a test, the smallest number
counts, because a busy machine only adds to it. If the machine was half as fast as a quiet one, ``--slower 2``
halves all numbers. Lines of tests that no report has stay, and so do lines with a sign, which are written by
hand.

The list has every test of at least ``--floor`` seconds. ``make test`` leaves tests of at least ``--limit``
seconds to ``make test-rest``. ``--table`` prints what other limits would give, and writes nothing.
"""

from __future__ import annotations

import argparse
import sys
from bisect import bisect
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tests" / "reference"))

from slow_list import FILE, LIMIT, SIGNS, SlowList  # noqa: E402

# Few numbers, so that a list of another day differs little.
STEPS = [step * 10**power for power in (-1, 0, 1, 2, 3) for step in (1, 1.5, 2, 3, 5, 7)]
FLOOR = 0.2
HEADER = """\
# How long tests last at least, in seconds: tools/mark_slow.py writes this from recorded runs. Lines with
# a sign are written by hand: "-" is slow as a whole, "+" never. tests/reference/slow_list.py has the rules.
"""


def recorded(report: Path) -> dict[str, float]:
    """The seconds of each test of a report; of a test that ran again, those of its longest run."""
    found: dict[str, float] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        path = case.get("classname", "").replace(".", "/").removeprefix("tests/")
        name = f"{path}.py::{case.get('name', '')}"
        found[name] = max(found.get(name, 0.0), float(case.get("time", "0")))
    return found


def together(reports: Iterable[Path], slower: float = 1.0) -> dict[str, float]:
    """The seconds of each test of all reports, which a machine has written that was so much slower."""
    found: dict[str, float] = {}
    for report in reports:
        for name, lasted in recorded(report).items():
            found[name] = min(found.get(name, lasted / slower), lasted / slower)
    return found


def rounded(seconds: float) -> float:
    """The next lower step."""
    return STEPS[max(0, bisect(STEPS, seconds + 1e-9) - 1)]


def _is_plain(name: str) -> bool:
    """Whether a line can hold it as it is: a report writes what XML has no room for in another way."""
    return name.isprintable() and "#x" not in name


def lines_of(seconds: dict[str, float], limit: float = LIMIT, floor: float = FLOOR) -> dict[str, float]:
    """The lines for these tests.

    A test whose cases are all below the limit, or all from there on, has one line with the longest of them.
    Otherwise each of its cases has its own.
    """
    tests: dict[str, dict[str, float]] = defaultdict(dict)
    for name, lasted in seconds.items():
        tests[name.partition("[")[0]][name] = rounded(lasted)
    found: dict[str, float] = {}
    for test, cases in tests.items():
        longest = max(cases.values())
        one_line = not all(map(_is_plain, cases)) or len({lasted >= limit for lasted in cases.values()}) == 1
        found.update({test: longest} if one_line else cases)
    return {name: lasted for name, lasted in found.items() if lasted >= floor}


def merged(old: SlowList, seconds: dict[str, float], new: dict[str, float]) -> dict[str, float]:
    """The new lines, and of the old ones those with a sign and those that the reports say nothing of."""
    tests = {name.partition("[")[0] for name in seconds}
    kept = {
        name: lasted
        for name, lasted in old.seconds.items()
        if lasted in SIGNS.values() or name.partition("[")[0] not in tests
    }
    signed = SlowList([])
    signed.seconds = {name: lasted for name, lasted in kept.items() if lasted in SIGNS.values()}
    return {**kept, **{name: lasted for name, lasted in new.items() if signed.seconds_of(name) == 0}}


def text_of(lines: dict[str, float]) -> str:
    """The file."""
    signs = {lasted: sign for sign, lasted in SIGNS.items()}
    return HEADER + "".join(
        f"{signs.get(lasted) or format(lasted, 'g')} {name}\n" for name, lasted in sorted(lines.items())
    )


def table_of(seconds: dict[str, float], whole: SlowList) -> str:
    """What limits would give: quick tests and their seconds, in each folder of tests/ and in all."""
    limits = (0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0)
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0] * (len(limits) + 1))
    for name, lasted in seconds.items():
        sign = next((sign for sign, value in SIGNS.items() if whole.seconds_of(name) == value), "")
        for folder in (name.split("/")[0], "all"):
            sums[folder][-1] += lasted
            for i, limit in enumerate(limits):
                sums[folder][i] += lasted if sign == "+" or (not sign and rounded(lasted) < limit) else 0
    rows = [f"{'seconds of tests below':22}" + "".join(f"{limit:8g}" for limit in limits) + "   whole"]
    rows += [f"{name:22}" + "".join(f"{each:8.0f}" for each in row) for name, row in sorted(sums.items())]
    return "\n".join(rows)


def main(words: Sequence[str] | None = None) -> int:
    """The command."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("reports", nargs="+", type=Path, metavar="REPORT.xml")
    number: Any = {"type": float, "metavar": "SECONDS"}
    parser.add_argument("--limit", **number, default=LIMIT, help="least seconds to be slow (%(default)s)")
    parser.add_argument("--floor", **number, default=FLOOR, help="least seconds to be listed (%(default)s)")
    parser.add_argument("--slower", type=float, default=1.0, metavar="TIMES", help="machine slowdown (1)")
    parser.add_argument("--output", type=Path, default=FILE, metavar="FILE")
    parser.add_argument("--table", action="store_true", help="print what other limits would give")
    given = parser.parse_args(words)
    old, seconds = SlowList.read(given.output), together(given.reports, given.slower)
    if given.table:
        print(table_of(seconds, old))
        return 0
    lines = merged(old, seconds, lines_of(seconds, given.limit, given.floor))
    given.output.write_text(text_of(lines), encoding="utf-8")
    slow = SlowList(text_of(lines).splitlines())
    quick = [lasted for name, lasted in seconds.items() if not slow.is_slow(name, given.limit)]
    print(f"{len(seconds)} tests, {sum(seconds.values()):.0f} s; quick: {len(quick)}, {sum(quick):.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
