"""Every test checks something for certain: it cannot pass because a loop had no turn or an if was false."""

from __future__ import annotations

import ast

import pytest
from certain_checks import Checks, cases_of
from house_sources import ROOT, name_of, python_files


def idle_tests(tree: ast.Module, names: set[str]) -> list[str]:
    """The tests of a module that may check nothing; ``names``: functions elsewhere that check."""
    checks = Checks([tree], names)
    return [f"{test.name}, line {test.lineno}" for test in cases_of(tree) if not checks.has(test)]


def test_every_test_checks_something() -> None:
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in python_files("tests")}
    tests = {path: tree for path, tree in trees.items() if path.name.startswith("test_")}
    shared = Checks(tree for path, tree in trees.items() if path not in tests)
    found = {name_of(path): idle_tests(tree, shared.names) for path, tree in tests.items()}
    assert len(found) > 100
    assert {name: idle for name, idle in found.items() if idle} == {}
    assert (ROOT / "tests" / "contract").is_dir()


@pytest.mark.parametrize(
    "body",
    [
        "pass",
        "x = 1",
        "for a in f(): assert a",
        "for a in (): assert a",
        "for a in range(n): assert a",
        "for a, b in zip(f(), [1, 2]): assert a == b",
        "for a, b in zip(f(), g(), strict=True): assert a == b",
        "if f(): assert 1",
        "while f(): assert 1",
        "f(1)",
        "def inner(): assert 1",
        "x = [1]; x = f()\n    for a in x: assert a",
    ],
)
def test_what_may_check_nothing(body: str) -> None:
    tree = ast.parse(f"def f(*a): pass\ndef test_x(n):\n    {body}\n")
    assert idle_tests(tree, set()) == ["test_x, line 2"]


@pytest.mark.parametrize(
    "body",
    [
        "assert f()",
        "with pytest.raises(ValueError): f()",
        "np.testing.assert_array_equal(1, 1)",
        "for a in (1, 2): assert a",
        "for a in range(3): assert a",
        "for a, b in zip(f(), [1, 2], strict=True): assert a == b",
        "for i, a in enumerate(CASES): assert a",
        "x = [1, 2]\n    for a in x: assert a",
        "x = [f(a) for a in (1, 2)]\n    for a in x: assert a",
        "if f(): assert 1\n    else: assert 2",
        "try: assert 1\n    finally: f()",
        "checking(1)",
        "elsewhere(1)",
        "for a in f(): pass\n    assert a",
    ],
)
def test_what_checks_for_certain(body: str) -> None:
    tree = ast.parse(f"def f(*a): pass\ndef checking(a):\n    assert a\ndef test_x():\n    {body}\n")
    assert idle_tests(tree, {"elsewhere"}) == []


def test_a_fixture_may_check() -> None:
    marked = "@pytest.mark.usefixtures('no_leaks')\ndef test_x():\n    f()\n"
    assert idle_tests(ast.parse(marked), set()) == []
    assert idle_tests(ast.parse("def test_x(no_leaks):\n    f()\n"), set()) == []
