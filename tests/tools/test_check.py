"""The quick check: which tests it takes for what was changed, what it leaves out, and that it can fail."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import check
import pytest
from check import plan_for
from room_tests import ALWAYS, ROOMS


def test_a_room_has_its_tests_and_every_change_some() -> None:
    plan = plan_for(["fastload/sampler/order.py"])
    assert list(plan.tests) == [*ROOMS["sampler"].tests, *ALWAYS]
    assert (plan.builds, plan.words, plan.left, plan.slow_from) == (False, set(), [], None)


def test_the_core_is_built_and_has_tests_of_both_kinds() -> None:
    plan = plan_for(["csrc/core/remote/curl.cpp", "csrc/bindings/remote.cpp"])
    assert plan.builds
    assert {"remote", "memory_shard"} == plan.words
    assert set(ROOMS["remote"].tests) <= set(plan.tests)
    programs = {program.name: names for program, names in check.programs_of(plan)}
    assert programs == {"fastload_tests": ["test_remote"], "fastload_memory_tests": ["test_memory_shard"]}


@pytest.mark.parametrize(
    ("name", "tests"),
    [
        ("tests/sample/test_masks.py", ["sample/test_masks.py"]),
        ("tests/cache/conftest.py", ["cache"]),
        ("tests/reference/slow_list.py", ["tools/test_mark_slow.py"]),
        ("tools/mark_slow.py", ["tools/test_mark_slow.py"]),
        ("fastload/errors.py", list(ROOMS["errors"].tests)),
        ("tests/sample/test_that_was_removed.py", []),
    ],
)
def test_files_have_the_tests_that_look_at_them(name: str, tests: list[str]) -> None:
    assert list(plan_for([name]).tests) == [*tests, *ALWAYS]


@pytest.mark.parametrize(
    "name",
    ["README.md", "tests/conftest.py", "tests/reference/pictures.py", "tools/demo.sh", "fastload/new/x.py"],
)
def test_what_nothing_looks_at_is_named(name: str) -> None:
    plan = plan_for([name])
    assert list(plan.tests) == list(ALWAYS)
    assert len(plan.left) == 1
    assert name in plan.left[0]


def test_the_lowest_limit_of_the_rooms_counts() -> None:
    limits = [plan_for([f"fastload/{room}/x.py"]).slow_from for room in ("transforms", "packing")]
    assert plan_for(["fastload/transforms/x.py", "fastload/packing/x.py"]).slow_from == min(
        filter(None, limits)
    )


def test_both_halves_have_each_file_once() -> None:
    files = check.test_files(plan_for(["fastload/cache/x.py"]))
    first, second = check.halves(files)
    assert sorted(first + second) == files
    assert min(len(first), len(second)) > 5


def test_the_first_failure_ends_it(capsys: pytest.CaptureFixture[str]) -> None:
    wait, fail = "import time; time.sleep(1000)", "print('so it is'); raise SystemExit(3)"
    lines = {"waits": [sys.executable, "-c", wait], "fails": [sys.executable, "-c", fail]}
    assert not check.run_at_once({**lines, "never": ["/no/such/program"]}, {})
    assert "so it is" in capsys.readouterr().out
    assert check.run_at_once({"good": [sys.executable, "-c", "print(1)"]}, {})


def test_changes_are_those_since_the_branch_was_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def git(*words: str) -> None:
        who = ["-c", "user.name=x", "-c", "user.email=x@x"]
        subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True)

    git("init", "-b", "main")
    for name in ("old", "edited", "later"):
        (tmp_path / name).write_text("1")
        git("add", name)
        git("commit", "-m", name)
    git("checkout", "-b", "mine", "HEAD~1")
    (tmp_path / "committed").write_text("1")
    git("add", "committed")
    git("commit", "-m", "mine")
    (tmp_path / "edited").write_text("2")
    (tmp_path / "new").write_text("1")
    monkeypatch.setattr(check, "ROOT", tmp_path)
    assert check.changed_files(None) == ["edited", "new"]
    assert check.changed_files("main") == ["committed", "edited", "new"]
