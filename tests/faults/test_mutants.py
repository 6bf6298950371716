"""Mutants of Python modules: what they are, that our tests kill some, and that it would show if not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parent))

import mutants
from mutant_ends import share_killed
from mutant_runs import PLACE, Outcome, Runs, TestRun
from mutants import SUBJECTS, Equivalents, chosen, table
from python_mutants import Mutant, mutants_of

SOURCE = '''
"""Of a module."""
from typing import Any
__all__ = ["f"]
LIMIT = 8

@decorated(9)
def f(a: "key", *, b=True) -> Any[3]:
    """Of a function."""
    assert a < 3
    if a < 3 and not b:
        raise ValueError(f"{a + 1}", 5)
    self.x = a[1:]
    for i in a:
        i += 1
        break
    g(i, key="two words", n=min(a, b))
    return "name"
'''
WANTED = {
    ("", "LIMIT = 8", "LIMIT = 9"),
    ("", "LIMIT = 8", "LIMIT = 7"),
    ("", 'def f(a: "key", *, b=True) -> Any[3]:', 'def f(a: "key", *, b=False) -> Any[3]:'),
    ("f", "if a < 3 and not b:", "if (not (a < 3 and (not b))):"),
    ("f", "if a < 3 and not b:", "if (a < 3 or not b):"),
    ("f", "if a < 3 and not b:", "if (a <= 3) and not b:"),
    ("f", "if a < 3 and not b:", "if a < 4 and not b:"),
    ("f", "if a < 3 and not b:", "if a < 2 and not b:"),
    ("f", "if a < 3 and not b:", "if a < 3 and (b):"),
    ("f", 'raise ValueError(f"{a + 1}", 5)', "pass"),
    ("f", "self.x = a[1:]", "pass"),
    ("f", "self.x = a[1:]", "self.x = a[:]"),
    ("f", "self.x = a[1:]", "self.x = a[2:]"),
    ("f", "self.x = a[1:]", "self.x = a[0:]"),
    ("f", "i += 1", "pass"),
    ("f", "i += 1", "i -= 1"),
    ("f", "i += 1", "i += 2"),
    ("f", "i += 1", "i += 0"),
    ("f", "break", "continue"),
    ("f", 'g(i, key="two words", n=min(a, b))', "pass"),
    ("f", 'g(i, key="two words", n=min(a, b))', "g(i, n=min(a, b))"),
    ("f", 'g(i, key="two words", n=min(a, b))', "g(i, key='two words')"),
    ("f", 'g(i, key="two words", n=min(a, b))', 'g(i, key="two words", n=max(a, b))'),
    ("f", 'return "name"', "return None"),
    ("f", 'return "name"', "return 'namen'"),
}


def test_mutants_are_small_errors() -> None:
    found = mutants_of("x.py", SOURCE.encode())
    assert {(each.where, each.before, each.after) for each in found} == WANTED
    assert len(found) == len(WANTED)
    for mutant in found:
        changed = mutant.applied(SOURCE.encode())
        assert changed.count(b"\n") == SOURCE.count("\n")
        compile(changed, "x.py", "exec")
    at_import = {each.before for each in found if each.function is None}
    assert at_import == {"LIMIT = 8", 'def f(a: "key", *, b=True) -> Any[3]:'}
    assert {each.function for each in found} == {None, ("f", 7)}


def test_the_same_words_twice_are_told_apart() -> None:
    found = mutants_of("x.py", b"def f(a):\n    g(a)\n    g(a)\n")
    assert [each.key[3] for each in found] == ["pass", "pass  #2"]


@pytest.mark.parametrize("name", sorted(SUBJECTS))
def test_real_modules_have_mutants_and_each_has_a_name(name: str) -> None:
    found = chosen(SUBJECTS[name], 0, 1)
    assert len(found) > 50
    assert len({each.key for each in found}) == len(found)
    for mutant in found[::9]:
        source = (PLACE / mutant.file).read_bytes()
        compile(mutant.applied(source), mutant.file, "exec", dont_inherit=True)
    assert chosen(SUBJECTS[name], 5, 1) == chosen(SUBJECTS[name], 5, 1) != chosen(SUBJECTS[name], 5, 2)


def test_the_table_of_equivalent_mutants_fits() -> None:
    equivalents = Equivalents.read(Path(mutants.__file__).with_name("equivalent_mutants.json"))
    every = [mutant for subject in SUBJECTS.values() for mutant in chosen(subject, 0, 1)]
    assert equivalents.stale(every, [mutant.file for mutant in every]) == []
    assert {key[0] for key in equivalents.reasons} <= {mutant.file for mutant in every}
    assert all(len(why) > 10 for why in equivalents.reasons.values())


def made(after: str, function: tuple[str, int] | None = ("f", 7)) -> Mutant:
    return Mutant("x.py", "f", "before", after, range(8, 10), function, 0, 0, b"")


def test_what_no_longer_fits_is_named() -> None:
    equivalents = Equivalents({("x.py", "f", "before", "a"): "why", ("y.py", "f", "before", "a"): "why"})
    assert equivalents.stale([made("a")], ["x.py"]) == []
    assert equivalents.stale([made("b")], ["x.py"]) == [("x.py", "f", "before", "a")]


def test_the_table_counts() -> None:
    ends = [("killed", "a"), ("by time", "b"), ("survived", "c"), ("survived", "d"), ("killed", "d")]
    outcomes = {"m": [Outcome(made(after), verdict) for verdict, after in ends]}
    (row,) = table(outcomes, Equivalents({made("d").key: "why"})).values()
    assert row == {"killed": 2, "by time": 1, "equivalent": 1, "survived": 1}
    assert share_killed(row) == 3 / 4


def test_a_mutant_meets_the_tests_that_run_it() -> None:
    runs = [
        TestRun("a.py::slow", 9.0, {"x.py": [8]}),
        TestRun("b.py::elsewhere", 0.1, {"x.py": [12]}),
        TestRun("c.py::quick", 0.2, {"x.py": [1, 9]}),
        TestRun("d.py::other", 0.1, {"y.py": [8]}),
        TestRun("c.py::quicker", 0.1, {"x.py": [8, 9]}),
        TestRun("e.py::slowest", 12.0, {"x.py": [8]}),
    ]
    assert [run.test for run in mutants.tests_for(made("a"), runs)] == [
        "c.py::quicker",
        "c.py::quick",
        "a.py::slow",
    ]
    assert "b.py::elsewhere" in [run.test for run in mutants.tests_for(made("a", None), runs)]


def endless() -> None:
    while True:
        time.sleep(0.01)


def test_a_child_ends_in_time(tmp_path: Path) -> None:
    runs = Runs([], tmp_path, lambda runs: None)
    assert runs.in_child(lambda: 3, 60) == 3
    assert runs.in_child(endless, 0.3) is None
    assert runs.in_child(lambda: os.kill(os.getpid(), signal.SIGKILL), 60) == -signal.SIGKILL
    assert runs.in_child(lambda: 1 // 0, 60) == 1
    assert runs.in_child(lambda: (tmp_path / "tests" / "left").write_text("") or 4, 60) == 4
    assert runs.in_child(lambda: len(os.listdir(tmp_path / "tests")) + 5, 60) == 5  # nothing of the last one


def run(tmp_path: Path, **wish: Any) -> tuple[int, dict[str, Any]]:
    """The program's exit code, and what it printed last."""
    here = Path(__file__).parent
    paths = [str(PLACE)] if (PLACE / "pyproject.toml").exists() else []
    paths += [str(here), str(here.parent / "reference")]
    done = subprocess.run(
        [sys.executable, str(here / "mutants.py"), json.dumps({"folder": str(tmp_path), **wish})],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.returncode, dict(json.loads(done.stdout.splitlines()[-1]))


def test_our_tests_kill_mutants(tmp_path: Path) -> None:
    code, found = run(tmp_path, points=7, seed=3, modules=["policy", "partition"])
    assert (code, found["bad"]) == (0, [])
    ends: Counter[str] = Counter()
    for name, count in found["points"].items():
        ends[name.partition(": ")[2]] += count
    assert ends.total() == 14
    assert ends["survived"] == 0
    assert ends["killed"] >= 10


def test_tests_that_look_at_something_else_kill_none(tmp_path: Path) -> None:
    wish = {"points": 3, "seed": 1, "modules": ["partition"], "tests": ["sampler/test_order.py"]}
    code, found = run(tmp_path, **wish)
    assert (code, found["bad"]) == (1, [["partition", "0.0% killed"]])
    assert found["points"]["partition: survived"] == 3
