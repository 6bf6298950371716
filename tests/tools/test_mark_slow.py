"""The list of slow tests: how recorded runs become lines, who is slow by them, and that each names a test."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import mark_slow
import pytest
from slow_list import FILE, SlowList, unknown_cases

TESTS = FILE.parent
REPORT = '<testsuites><testsuite name="pytest">{}</testsuite></testsuites>'
CASE = '<testcase classname="{}" name="{}" time="{}"/>'


def report(path: Path, *cases: tuple[str, str, float]) -> Path:
    """A report with these cases: module, name, seconds."""
    path.write_text(REPORT.format("".join(CASE.format(*case) for case in cases)), encoding="utf-8")
    return path


def written(folder: Path, *reports: Path, old: str = "") -> SlowList:
    """The list that the command makes of them."""
    (folder / "slow.txt").write_text(old, encoding="utf-8")
    words = ["--output", str(folder / "slow.txt"), "--limit", "1", "--floor", "0.3"]
    assert mark_slow.main([*map(str, reports), *words]) == 0
    return SlowList.read(folder / "slow.txt")


def test_lines_are_as_short_as_they_may_be(tmp_path: Path) -> None:
    slow = written(
        tmp_path,
        report(
            tmp_path / "a.xml",
            ("tests.pack.test_a", "test_one", 1.04),
            ("tests.pack.test_a", "test_quick", 0.2),
            ("tests.pack.test_a", "test_all[x]", 2.9),
            ("tests.pack.test_a", "test_all[y]", 74),
            ("tests.pack.test_a", "test_some[x]", 0.1),
            ("tests.pack.test_a", "test_some[y]", 12),
            ("tests.pack.test_a", "test_some[z]", 0.6),
            ("tests.pack.test_a", "test_odd[#x1B]", 0.1),
            ("tests.pack.test_a", "test_odd[b]", 3),
        ),
    )
    assert slow.seconds == {
        "pack/test_a.py::test_one": 1,
        "pack/test_a.py::test_all": 70,
        "pack/test_a.py::test_some[y]": 10,
        "pack/test_a.py::test_some[z]": 0.5,
        "pack/test_a.py::test_odd": 3,
    }


def test_the_smallest_of_several_reports_counts_and_the_longest_run_of_one(tmp_path: Path) -> None:
    again = [("tests.a.test_b", "test_x", 3.0), ("tests.a.test_b", "test_x", 5.0)]
    first = report(tmp_path / "a.xml", *again, ("tests.a.test_b", "test_y", 9.0))
    second = report(tmp_path / "b.xml", ("tests.a.test_b", "test_x", 7.0), ("tests.a.test_b", "test_y", 0.1))
    assert written(tmp_path, first, second).seconds == {"a/test_b.py::test_x": 5}
    assert mark_slow.together([first], 2.5) == {"a/test_b.py::test_x": 2.0, "a/test_b.py::test_y": 3.6}


def test_lines_that_no_report_speaks_of_stay(tmp_path: Path) -> None:
    old = "- whole/\n+ guards/\n3 a/test_b.py::test_x\n7 a/test_b.py::test_other[x]\n"
    cases = [
        ("tests.a.test_b", "test_x", 0.1),
        ("tests.whole.test_c", "test_z", 0.1),
        ("tests.guards.test_d", "test_z", 9),
    ]
    slow = written(tmp_path, report(tmp_path / "a.xml", *cases), old=old)
    lines = (tmp_path / "slow.txt").read_text().splitlines()
    assert lines[-3:] == ["7 a/test_b.py::test_other[x]", "+ guards/", "- whole/"]
    assert slow.is_slow("tests/whole/test_c.py::test_z")
    assert not slow.is_slow("tests/guards/test_d.py::test_z")


@pytest.mark.parametrize(
    ("name", "seconds"),
    [
        ("tests/a/test_b.py::test_x[1]", 0.5),
        ("tests/a/test_b.py::test_x[2]", 2),
        ("tests/a/test_b.py::test_x", 2),
        ("tests/a/test_b.py::test_y", 0),
        ("tests/a/test_b.py::test_xy[1]", 0),
        ("tests/deep/down/test_c.py::test_x", float("inf")),
        ("tests/a/test_c.py::test_x", float("inf")),
        ("tests/deeper/test_c.py::test_x", 0),
        ("tests/deep/guard/test_c.py::test_x", float("-inf")),
    ],
)
def test_the_longest_line_that_fits_counts(name: str, seconds: float) -> None:
    lines = ["# said", "2 a/test_b.py::test_x", "0.5 a/test_b.py::test_x[1]", "- deep/", "- a/test_c.py"]
    lines += ["+ deep/guard/", "30 deep/guard/test_c.py::test_x"]
    slow = SlowList(lines)
    assert slow.seconds_of(name) == seconds
    assert slow.is_slow(name, 1.0) == (seconds >= 1)
    assert slow.is_slow(name, 0.3) == (seconds >= 0.3)


def test_a_case_that_is_gone_is_found() -> None:
    slow = SlowList(["2 a/test_b.py::test_x[1]", "2 a/test_b.py::test_x[2]", "2 a/test_c.py::test_y[1]"])
    assert unknown_cases(slow, ["tests/a/test_b.py::test_x[2]", "tests/a/test_b.py::test_x[3]"]) == [
        "a/test_b.py::test_x[1]"
    ]


def test_the_table_says_what_limits_would_give(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = report(tmp_path / "a.xml", ("tests.a.test_b", "test_x", 4.0), ("tests.c.test_b", "test_x", 0.8))
    assert mark_slow.main([str(one), "--table", "--output", str(tmp_path / "slow.txt")]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert rows[1:] == [
        ["a", *"0000000", "4"],
        ["all", *"0000111", "5"],
        ["c", *"0000111", "1"],
    ]
    assert not (tmp_path / "slow.txt").exists()


def gone(names: Iterable[str]) -> list[str]:
    """Those of the names, of tests, files or folders below tests/, that nothing has."""
    found = []
    for name in names:
        path, _, test = name.partition("::")
        function = re.escape(test.partition("[")[0])
        there = (TESTS / path).exists()
        if test and there:
            text = (TESTS / path).read_text(encoding="utf-8")
            there = re.search(rf"^def {function}\(", text, re.MULTILINE) is not None
        if not there:
            found.append(name)
    return found


def lines_of(path: Path) -> list[str]:
    """A list's lines, without what it says of itself."""
    return [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]


def test_every_line_names_what_is_there() -> None:
    """A test's cases are asked for by the run that collects them: it says which are gone."""
    slow = SlowList.read()
    assert len(slow.seconds) > 100
    assert len(lines_of(FILE)) == len(slow.seconds), "a name stands twice"
    assert gone(slow.seconds) == [], (
        "tests/slow.txt has lines of tests that are gone; tools/mark_slow.py writes it anew"
    )


def test_what_is_left_out_on_arm_is_there_and_has_a_reason() -> None:
    """A line that names no test would leave nothing out, unseen. There may be no line."""
    lines = [line.partition(" ") for line in lines_of(TESTS / "arm.txt")]
    assert gone(name for name, _, _ in lines) == [], "tests/arm.txt has lines of tests that are gone"
    assert [name for name, _, reason in lines if not reason.strip()] == [], "a name, a space, and why"
    assert len({name for name, _, _ in lines}) == len(lines), "a name stands twice"
