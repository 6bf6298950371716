"""Mutants of the core's files: what they are, and how the end of the tests' program is read."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))

import core_mutants
from core_mutants import CORE, SUBJECTS, chosen, verdict_of
from cpp_mutants import core_mutants_of

SOURCE = """#include <array>
// a < b
#if defined(__x86_64__)
int f(const uint8_t* data, std::array<int, 3>& at) {
  if (a < b && !c) damaged("a < b", 7);
  x += 0x10;
  return std::min(at[1], 20u) << 2;
#elif defined(__aarch64__)
  return 5 + 6;
#endif
}
static_assert(1 + 1 == 2);
"""
WANTED = {
    ('if (a < b && !c) damaged("a < b", 7);', text)
    for text in (
        'if (a <= b && !c) damaged("a < b", 7);',
        'if (a < b || !c) damaged("a < b", 7);',
        'if (a < b && c) damaged("a < b", 7);',
        'if (!(a < b && !c)) damaged("a < b", 7);',
        "if (a < b && !c) ;",
    )
}
WANTED |= {("x += 0x10;", text) for text in ("x -= 0x10;", "x += 17;", "x += 15;", ";")}
WANTED |= {
    ("return std::min(at[1], 20u) << 2;", text)
    for text in (
        "return std::max(at[1], 20u) << 2;",
        "return std::min(at[2], 20u) << 2;",
        "return std::min(at[0], 20u) << 2;",
        "return std::min(at[1], 21u) << 2;",
        "return std::min(at[1], 19u) << 2;",
        "return std::min(at[1], 20u) >> 2;",
        "return std::min(at[1], 20u) << 3;",
        "return std::min(at[1], 20u) << 1;",
    )
}
WANTED |= {
    (
        "int f(const uint8_t* data, std::array<int, 3>& at) {",
        f"int f(const uint8_t* data, std::array<int, {n}>& at) {{",
    )
    for n in (2, 4)
}


def test_mutants_are_small_errors() -> None:
    found = core_mutants_of("x.cpp", SOURCE)
    assert {(each.before, each.after) for each in found} == WANTED
    assert len(found) == len(WANTED)
    assert all(each.applied(SOURCE) != SOURCE for each in found)


@pytest.mark.parametrize("name", sorted(SUBJECTS))
def test_real_files_have_mutants_and_each_has_a_name(name: str) -> None:
    found = chosen(SUBJECTS[name], 0, 1)
    assert len(found) > 300
    assert len({each.key for each in found}) == len(found)
    assert {each.file for each in found} == {f"csrc/core/{file}" for file in SUBJECTS[name].files}
    assert chosen(SUBJECTS[name], 9, 1) == chosen(SUBJECTS[name], 9, 1) != chosen(SUBJECTS[name], 9, 2)
    tests = CORE.parents[1] / "tests" / "cpp"
    assert all((tests / f"{test}.cpp").is_file() for test in SUBJECTS[name].tests)


def test_the_table_of_equivalent_mutants_fits() -> None:
    place = Path(core_mutants.__file__).with_name("equivalent_core_mutants.json")
    entries = json.loads(place.read_text(encoding="utf-8"))
    known = {mutant.key for subject in SUBJECTS.values() for mutant in chosen(subject, 0, 1)}
    assert [entry for entry in entries if (entry["file"], entry["before"], entry["after"]) not in known] == []
    assert all(len(entry["why"]) > 10 for entry in entries)


@pytest.mark.parametrize(
    ("script", "verdict"),
    [
        ("exit 0", ("survived", "")),
        ('[ "$1" = second ] && exit 1; exit 0', ("killed", "second")),
        ("kill -SEGV $$", ("killed", "first")),
        ("kill -XCPU $$", ("by time", "first")),
        ("while true; do :; done", ("by time", "first")),
        ("sleep 60", ("by time", "first")),
    ],
)
def test_how_tests_end(tmp_path: Path, script: str, verdict: tuple[str, str]) -> None:
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    assert verdict_of(program, ["first", "second"], 1) == verdict
