"""Runs a pytest session's tests against mutants, each in a fork of the process that has collected them.

First all tests run once, in a child, which notes the lines of the mutated files that each of them executes. A
mutant's child puts the changed code into the functions that are there already, and runs the tests that
execute its statement, the quick ones first, until one fails. What runs at import (constants, defaults, class
bodies) cannot be changed that way: such a child forgets the repository's modules and collects anew.
"""

from __future__ import annotations

import gc
import importlib.abc
import importlib.machinery
import json
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from math import ceil
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

import pytest
from python_mutants import Mutant

__all__ = ["PLACE", "ROOT", "Outcome", "Runs", "TestRun"]

ROOT = Path(__file__).parents[2]
_found = find_spec("fastload")
assert _found is not None
assert _found.origin is not None
PLACE = Path(_found.origin).parents[1]  # of the package, in the repository or installed
_LEAST_S = 10.0  # of CPU time, that a mutant's tests may always take
_TIMES = 3  # as long as without the mutant
_WAITING = 6  # times as long, where they wait, or others use the machine
_MEMORY = 4 << 30  # more than the process has
_KILLED, _SURVIVED = 3, 4  # exit codes of a child


@dataclass(frozen=True)
class TestRun:
    """How a test ran without mutants."""

    __test__ = False
    test: str  # node id
    seconds: float
    lines: dict[str, list[int]]  # executed, by file


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant: "killed", "by time", "survived" or "not executed"."""

    mutant: Mutant
    verdict: str
    by: str = ""  # the test


class Runs:
    """A pytest plugin: in place of the tests ``campaign`` runs, which asks for ``baseline`` and ``try_one``.

    Args:
        files: that are mutated, relative to the repository.
        folder: for what tests write.
        campaign: gets this object.
    """

    def __init__(self, files: Iterable[str], folder: Path, campaign: Callable[[Runs], None]) -> None:
        self._files = {str(PLACE / file): file for file in files}
        self._folder, self._campaign = folder, campaign
        self._items: dict[str, pytest.Item] = {}
        self._failed: list[str] = []
        self._factory: Any = None
        self._functions: dict[tuple[str, str, int], list[FunctionType]] = {}

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            raise session.Interrupted("tests cannot be collected")
        self._items = {item.nodeid: item for item in session.items}
        self._factory = session.config._tmp_path_factory  # type: ignore[attr-defined]
        for function in (each for each in gc.get_objects() if type(each) is FunctionType):
            code = function.__code__
            if code.co_filename in self._files:
                key = self._files[code.co_filename], code.co_name, code.co_firstlineno
                self._functions.setdefault(key, []).append(function)
        gc.freeze()  # children shall not copy what they do not change
        self._campaign(self)
        gc.unfreeze()
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed.append(report.nodeid)

    def baseline(self) -> tuple[list[TestRun], list[str]]:
        """Each test's run without mutants, and those that failed or were skipped."""
        place = self._folder / "baseline.json"
        self.in_child(lambda: self._record(place), 3600.0)
        runs, left_out = json.loads(place.read_text())
        return [TestRun(**run) for run in runs], left_out

    def try_one(self, mutant: Mutant, tests: Sequence[TestRun]) -> Outcome:
        """``tests``: that shall be run, in this order."""
        names = [run.test for run in tests]
        limit = _LEAST_S + _TIMES * sum(run.seconds for run in tests)
        note = self._folder / "killed-by"
        note.unlink(missing_ok=True)
        source = (PLACE / mutant.file).read_bytes()
        if mutant.function is None:
            code = self.in_child(lambda: self._anew(mutant, source, names, note), limit + 10)
        else:
            code = self.in_child(lambda: self._patched(mutant, source, names, note), limit)
        if code == _SURVIVED:
            return Outcome(mutant, "survived")
        by = note.read_text() if note.exists() else f"exit code {code}" if code is not None else "time"
        return Outcome(mutant, "by time" if code is None else "killed", by)

    # In children.
    def _record(self, place: Path) -> None:
        runs: list[dict[str, Any]] = []
        left_out: list[str] = []
        items = list(self._items.values())
        for item, after in zip(items, [*items[1:], None], strict=True):
            lines: dict[str, set[int]] = {}
            with _traced(self._files, lines):
                began = time.perf_counter()
                ran = self._passes(item, after)
                seconds = time.perf_counter() - began
            if ran:
                found = {name: sorted(numbers) for name, numbers in lines.items()}
                runs.append({"test": item.nodeid, "seconds": seconds, "lines": found})
            else:
                left_out.append(item.nodeid)
        place.write_text(json.dumps([runs, left_out]))

    def _passes(self, item: pytest.Item, after: pytest.Item | None) -> bool:
        self._failed.clear()
        item.ihook.pytest_runtest_protocol(item=item, nextitem=after)
        return not self._failed

    def _patched(self, mutant: Mutant, source: bytes, names: list[str], note: Path) -> int:
        assert mutant.function is not None
        changed = list(_codes(compile(mutant.applied(source), str(PLACE / mutant.file), "exec")))
        (code,) = [one for one in changed if (one.co_name, one.co_firstlineno) == mutant.function]
        functions = self._functions.get((mutant.file, *mutant.function), [])
        if not functions:
            return self._anew(mutant, source, names, note)  # one that is made when it is called for
        try:
            for function in functions:
                function.__code__ = code
        except ValueError:  # it needs other variables of what surrounds it
            return self._anew(mutant, source, names, note)
        items = [self._items[name] for name in names]
        for item, after in zip(items, [*items[1:], None], strict=True):
            if not self._passes(item, after):
                note.write_text(self._failed[0])
                return _KILLED
        return _SURVIVED

    def _anew(self, mutant: Mutant, source: bytes, names: list[str], note: Path) -> int:
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None) or ""
            own = name == "fastload" or name.startswith("fastload.") or file.startswith(f"{ROOT}/tests/")
            if own and not file.endswith(".so") and Path(file).parent != Path(__file__).parent:
                del sys.modules[name]
        path = PLACE / mutant.file
        sys.meta_path.insert(0, _Changed(path, mutant.applied(source)))
        files = dict.fromkeys(name.split("::")[0] for name in names)
        chosen = _Chosen(names)
        arguments = ["-x", "-q", "-s", "-p", "no:cacheprovider", f"--rootdir={ROOT}", f"--confcutdir={ROOT}"]
        code = pytest.main([*arguments, f"--basetemp={self._folder / 'tests'}", *files], [chosen])
        if code == pytest.ExitCode.OK:
            return _SURVIVED
        note.write_text(chosen.failed or "collection")
        return _KILLED

    def in_child(self, work: Callable[[], int | None], limit: float) -> int | None:
        """The exit code of a child that does ``work``; None: it took more than ``limit`` seconds of CPU time,
        or several times as long by the clock."""
        temporary, made = self._folder / "tests", self._folder / "made"
        temporary.mkdir(exist_ok=True)
        made.write_text("")
        child = os.fork()
        if child == 0:
            code: int | None = 1
            try:
                self._settle(temporary, made, limit)
                code = work()
            finally:
                os._exit(code or 0)
        with suppress(ProcessLookupError, PermissionError):
            os.setpgid(child, child)
        handle = os.pidfd_open(child)
        ready = select.select([handle], [], [], _WAITING * limit)[0]
        os.close(handle)
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # and what its tests started
        status = os.waitpid(child, 0)[1]
        for folder in (str(temporary), *made.read_text().split()):
            shutil.rmtree(folder, ignore_errors=True)
        over = not ready or (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU)
        return None if over else os.waitstatus_to_exitcode(status)

    def _settle(self, temporary: Path, made: Path, limit: float) -> None:
        os.setpgid(0, 0)
        make = tempfile.mkdtemp

        def noted(*arguments: Any, **more: Any) -> str:  # a process that is killed does not clean up
            name = make(*arguments, **more)
            with open(made, "a", encoding="utf-8") as file:
                file.write(f"{name}\n")
            return name

        tempfile.mkdtemp = noted
        silence = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(silence, number)
        resource.setrlimit(resource.RLIMIT_CPU, (ceil(limit), ceil(limit) + 10))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + _MEMORY,) * 2)
        if self._factory is not None:
            self._factory._basetemp = temporary


class _Chosen:
    """A plugin: these tests only, in this order."""

    def __init__(self, names: Sequence[str]) -> None:
        self._order = {name: i for i, name in enumerate(names)}
        self.failed = ""

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted((i for i in items if i.nodeid in self._order), key=lambda i: self._order[i.nodeid])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed = self.failed or report.nodeid


class _Changed(importlib.abc.MetaPathFinder):
    """Finds one module in another text than that of its file."""

    def __init__(self, path: Path, source: bytes) -> None:
        self._name = ".".join(path.relative_to(PLACE).with_suffix("").parts)
        self._path, self._source = path, source

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != self._name:
            return None
        source = self._source

        class Loader(importlib.machinery.SourceFileLoader):
            def get_code(self, fullname: str) -> CodeType:
                return compile(source, self.path, "exec")

        loader = Loader(name, str(self._path))
        return importlib.machinery.ModuleSpec(name, loader, origin=str(self._path))


class _traced:
    """Notes the lines of some files that run meanwhile, in all threads of Python's."""

    def __init__(self, files: dict[str, str], lines: dict[str, set[int]]) -> None:
        self._files, self._lines = files, lines

    def __enter__(self) -> None:
        threading.settrace(self._call)
        sys.settrace(self._call)

    def __exit__(self, *exception: object) -> None:
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]

    def _call(self, frame: FrameType, event: str, argument: object) -> Any:
        name = self._files.get(frame.f_code.co_filename)
        if name is None:
            return None
        numbers = self._lines.setdefault(name, set())

        def line(frame: FrameType, event: str, argument: object) -> Any:
            if frame.f_lineno is not None:
                numbers.add(frame.f_lineno)
            return line

        return line


def _codes(code: CodeType) -> Iterable[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)
