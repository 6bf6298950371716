"""Check quickly what was changed: ``make check``, or ``make check BASE=main`` for all since that branch.

It asks git which files differ from the last commit (or the base), and tools/room_tests.py which tests cover
their rooms. It runs ruff on the files, mypy on the package and the quick tests of the rooms, from the source
folder. If C++ has changed, it first builds the extension there, and also runs the core's tests of the rooms.
It prints what it leaves out: ``make test`` checks everything.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from io import TextIOWrapper
from pathlib import Path
from typing import IO, Any

from room_tests import ALWAYS, CORE_ROOMS, ROOMS

ROOT = Path(__file__).resolve().parents[1]
TESTS = ROOT / "tests"
BUILD = ROOT / "build" / "inplace"
PROGRAMS = {"memory": "fastload_memory_tests", "schedules": "fastload_schedule_tests"}
MANY = 12  # test files: a part of tests/reference that more of them import is left to make test


@dataclass
class Plan:
    """What a check does."""

    tests: dict[str, str] = field(default_factory=dict)  # below tests/, each with why it runs
    words: set[str] = field(default_factory=set)  # of the core's tests
    builds: bool = False
    left: list[str] = field(default_factory=list)  # files that nothing here looks at
    slow_from: float | None = None

    def add(self, why: str, *tests: str) -> None:
        """These tests, too."""
        for test in tests:
            self.tests.setdefault(test, why)

    def room(self, name: str, why: str) -> None:
        """The tests of a room of fastload/."""
        room = ROOMS.get(name)
        if room is None:
            self.left.append(f"{why} (the room {name} has no line in tools/room_tests.py)")
            return
        self.add(why, *room.tests)
        if room.slow_from is not None:
            self.slow_from = min(self.slow_from or room.slow_from, room.slow_from)


def changed_files(base: str | None) -> list[str]:
    """The files that differ from the last commit, or from where this branch left ``base``; new ones too."""

    def git(*words: str) -> list[str]:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True)
        return done.stdout.split("\0")

    since = git("merge-base", base, "HEAD")[0].strip() if base else "HEAD"
    found = git("diff", "--name-only", "-z", since) + git("ls-files", "--others", "--exclude-standard", "-z")
    return sorted({name for name in found if name})


def users_of(module: str) -> list[str]:
    """The test files that import a module of tests/reference."""
    line = re.compile(rf"^\s*(from|import) {re.escape(module)}\b", re.MULTILINE)
    paths = [path for path in TESTS.rglob("test_*.py") if "foreign" not in path.parts]
    return [
        path.relative_to(TESTS).as_posix() for path in sorted(paths) if line.search(path.read_text("utf-8"))
    ]


def _in_package(plan: Plan, name: str) -> None:
    plan.room(name.split("/")[1].removesuffix(".py"), name)


def _in_core(plan: Plan, name: str) -> None:
    plan.builds = True
    room = CORE_ROOMS.get(name.split("/")[2])
    if room is None:
        plan.left.append(name)
        return
    plan.words |= set(room.words)
    for each in room.rooms:
        plan.room(each, name)


def _in_bindings(plan: Plan, name: str) -> None:
    """A binding has the name of what it binds, or its tests are the loader's."""
    plan.builds = True
    word = Path(name).stem
    for each in CORE_ROOMS[word].rooms if word in CORE_ROOMS else ("_native",):
        plan.room(each, name)


def _in_tests(plan: Plan, name: str) -> None:
    path = name.removeprefix("tests/")
    if path.startswith("cpp/"):
        plan.builds = True
        plan.words |= (
            {Path(path).stem.removeprefix("test_")} if Path(path).stem.startswith("test_") else set()
        )
    elif path.startswith("reference/"):
        users = users_of(Path(path).stem)
        if 0 < len(users) <= MANY:
            plan.add(name, *users)
        else:
            plan.left.append(f"{name} ({len(users)} test files import it)")
    elif path.startswith("foreign/") or "/" not in path:
        plan.left.append(name)
    elif Path(path).name.startswith("test_"):
        plan.add(name, path)
    else:
        plan.add(name, path.split("/")[0])


def _in_tools(plan: Plan, name: str) -> None:
    if (TESTS / f"tools/test_{Path(name).stem}.py").exists():
        plan.add(name, f"tools/test_{Path(name).stem}.py")
    else:
        plan.left.append(name)


PLACES: dict[str, Callable[[Plan, str], None]] = {
    "fastload/": _in_package,
    "csrc/core/": _in_core,
    "csrc/bindings/": _in_bindings,
    "tests/": _in_tests,
    "tools/": _in_tools,
}


def plan_for(files: Sequence[str]) -> Plan:
    """What these files need."""
    plan = Plan()
    for name in files:
        place = next((place for place in PLACES if name.startswith(place)), None)
        if place is None:
            plan.left.append(name)
        else:
            PLACES[place](plan, name)
    # What is gone is checked by what is left; a folder has its files.
    plan.tests = {test: why for test, why in plan.tests.items() if (TESTS / test).exists()}
    plan.add("always", *ALWAYS)
    return plan


def test_files(plan: Plan) -> list[str]:
    """The test files of the plan, each once."""
    found: set[str] = set()
    for test in plan.tests:
        paths = (TESTS / test).rglob("test_*.py") if (TESTS / test).is_dir() else [TESTS / test]
        found |= {path.relative_to(TESTS).as_posix() for path in paths}
    return sorted(found)


def halves(files: Sequence[str]) -> list[list[str]]:
    """The files in two parts of about the same size, which says best how long they last."""
    parts: list[list[str]] = [[], []]
    sizes = [0, 0]
    for name in sorted(files, key=lambda name: (TESTS / name).stat().st_size, reverse=True):
        smaller = sizes.index(min(sizes))
        parts[smaller].append(name)
        sizes[smaller] += (TESTS / name).stat().st_size
    return [sorted(part) for part in parts if part]


def is_built() -> bool:
    """Whether the extension in the source folder is younger than all that it is made of."""
    found = [path.stat().st_mtime for path in (ROOT / "fastload").glob("_C.*.so")]
    sources = [ROOT / "CMakeLists.txt", *(ROOT / "csrc").rglob("*.[ch]*")]
    return bool(found) and max(path.stat().st_mtime for path in sources) < max(found)


def build(plan: Plan) -> None:
    """The extension in the source folder, and the programs of the core's tests that the plan has."""
    env = {**os.environ, "PYTHON": sys.executable}
    subprocess.run([ROOT / "tools/build_inplace.sh", "-DFASTLOAD_CPP_TESTS=ON"], env=env, check=True)
    if programs_of(plan):
        targets = [program.name for program, _ in programs_of(plan)]
        subprocess.run([_beside("cmake"), "--build", BUILD, "--target", *targets], env=env, check=True)


def _beside(program: str) -> str:
    """A program of this interpreter's environment, or else any."""
    found = Path(sys.executable).with_name(program)
    return str(found) if found.exists() else program


def programs_of(plan: Plan) -> list[tuple[Path, list[str]]]:
    """The programs of the core's tests with the names that each is to run."""
    found: dict[Path, list[str]] = {}
    for path in sorted((TESTS / "cpp").rglob("test_*.cpp")):
        if path.stem.removeprefix("test_") in plan.words:
            folder = path.parent.name
            inside = BUILD / "tests/cpp" / ("schedules" if folder == "schedules" else "")
            found.setdefault(inside / PROGRAMS.get(folder, "fastload_tests"), []).append(path.stem)
    return list(found.items())


def commands_for(plan: Plan, files: Sequence[str]) -> dict[str, list[Any]]:
    """What runs at once, by what it is called."""
    python = [path for path in files if path.endswith(".py") and (ROOT / path).exists()]
    found: dict[str, list[Any]] = {}
    if python:
        found["ruff check"] = [_beside("ruff"), "check", *python]
        found["ruff format"] = [_beside("ruff"), "format", "--check", *python]
    if any(path.startswith("fastload/") for path in python):
        found["mypy"] = [_beside("mypy"), "--config-file", "../pyproject.toml", "-p", "fastload"]
    for program, names in programs_of(plan):
        found[program.name] = [program, *names]
    quick = ["-q", "-x", "-m", "not slow"]
    for number, part in enumerate(halves(test_files(plan)), 1):
        found[f"pytest {number}"] = [sys.executable, "-m", "pytest", *quick, *part]
    return found


@dataclass
class Running:
    """A command that runs, and its words."""

    process: subprocess.Popen[bytes]
    words: IO[bytes]
    begun: float

    def end_of(self, name: str) -> bool:
        """Say how it ended; whether that is well."""
        self.words.seek(0)
        said = self.words.read().decode("utf-8", "replace").rstrip()
        good = self.process.returncode == 0
        print(
            f"{name}: {time.monotonic() - self.begun:.0f} s: {said.rpartition(chr(10))[2] if good else said}"
        )
        return good


def run_at_once(commands: dict[str, list[Any]], env: dict[str, str], at_a_time: int = 2) -> bool:
    """Run them, two at a time; the first that fails ends the others."""
    waiting, running = list(commands.items()), dict[str, Running]()
    with ExitStack() as files:
        try:
            while waiting or running:
                while waiting and len(running) < at_a_time:
                    name, line = waiting.pop(0)
                    words = files.enter_context(tempfile.TemporaryFile())
                    cwd = ROOT if name.startswith("ruff") else TESTS
                    process = subprocess.Popen(line, cwd=cwd, env=env, stdout=words, stderr=subprocess.STDOUT)
                    running[name] = Running(process, words, time.monotonic())
                for name in [name for name, each in running.items() if each.process.poll() is not None]:
                    if not running.pop(name).end_of(name):
                        return False
                time.sleep(0.05)
        finally:
            for each in running.values():
                each.process.terminate()
                each.process.wait()
    return True


def say(files: Sequence[str], plan: Plan) -> None:
    """Which tests run, and why."""
    print(f"{len(files)} changed files")
    for test, why in plan.tests.items():
        print(f"  tests/{test}: {why}")
    for word in sorted(plan.words):
        print(f"  tests/cpp: {word}")
    for name in plan.left:
        print(f"  no test here: {name}")
    if plan.slow_from is not None:
        print(f"  without the tests that last {plan.slow_from} s: these rooms have many")


def main(words: Sequence[str] | None = None) -> int:
    """The command."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--base", metavar="BRANCH", help="check what changed since leaving this branch")
    parser.add_argument("--only-say", action="store_true", help="only print what would run")
    given = parser.parse_args(words)
    begun = time.monotonic()
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # the words of the build come between these
    files = changed_files(given.base or None)
    plan = plan_for(files)
    say(files, plan)
    if given.only_say:
        return 0
    if plan.builds or not is_built():
        build(plan)
    source = {"PYTHONPATH": str(ROOT), "MYPYPATH": str(ROOT)}
    env = {**os.environ, **source, "OMP_NUM_THREADS": "1"}
    if plan.slow_from is not None:
        env["FASTLOAD_SLOW_FROM"] = str(plan.slow_from)
    result = "good" if run_at_once(commands_for(plan, files), env) else "NOT GOOD"
    print(f"{result} after {time.monotonic() - begun:.0f} s; make test checks the rest")
    return int(result != "good")


if __name__ == "__main__":
    sys.exit(main())
