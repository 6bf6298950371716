"""A copy of the house in which a recipe of CONTRIBUTING.md is followed, and what the recipe names."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

from fastload._native import _C

__all__ = ["HouseCopy", "steps_of"]

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("fastload", "csrc/core", "csrc/bindings", "tests/reference", "tests/transform")


def _vector_flags() -> dict[str, list[str]]:
    """What CMake gives to the files of an instruction set, by their suffix."""
    text = (ROOT / "CMakeLists.txt").read_text(encoding="utf-8")
    found = re.findall(r"\{(\w+)_sources\} PROPERTIES COMPILE_OPTIONS\s+\"([^\"]+)\"", text)
    return {level: flags.split(";") for level, flags in found}


def steps_of(recipe: str, name: str) -> set[str]:
    """The files that a recipe of CONTRIBUTING.md has as steps, for a thing called ``name``."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    body = text.split(f"### {recipe}\n", 1)[1].split("\n#", 1)[0]
    steps = re.findall(r"^\d+\. (.*?):", body, re.MULTILINE)
    return {path.replace("NAME", name) for step in steps for path in re.findall(r"`([^`]+)`", step)}


class HouseCopy:
    """The sources in a folder of their own, with the extension as it is built, and what was changed there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.touched: set[str] = set()
        junk = shutil.ignore_patterns("__pycache__", "*.so")
        for part in PARTS:
            shutil.copytree(ROOT / part, folder / part, ignore=junk)
        shutil.copy(ROOT / "FORMAT.md", folder)
        shutil.copy(str(_C.__file__), folder / "fastload")

    def add(self, path: str, text: str) -> None:
        """A new file."""
        assert not (self.folder / path).exists(), path
        (self.folder / path).write_text(text, encoding="utf-8")
        self.touched.add(path)

    def insert(self, path: str, before: str, text: str) -> None:
        """``text`` in front of the first place that says ``before``."""
        found = (self.folder / path).read_text(encoding="utf-8")
        assert before in found, f"{path} no longer says {before!r}: bring the recipe and its test up to date"
        head, tail = found.split(before, 1)
        (self.folder / path).write_text(head + text + before + tail, encoding="utf-8")
        self.touched.add(path)

    def replace(self, path: str, old: str, new: str) -> None:
        """``new`` in the first place that says ``old``."""
        self.insert(path, old, new)
        found = (self.folder / path).read_text(encoding="utf-8")
        (self.folder / path).write_text(found.replace(new + old, new, 1), encoding="utf-8")

    def python(self, program: str, *arguments: str) -> str:
        """What a program prints that imports the copy."""
        env = {**os.environ, "PYTHONPATH": f"{self.folder}:{self.folder / 'tests/reference'}"}
        line = [sys.executable, "-c", program, *arguments]
        done = subprocess.run(line, cwd=self.folder, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def compile(self, program: str, sources: list[str], only_looked_at: tuple[str, ...] = ()) -> Path:
        """A C++ program with some of the core's sources; others are compiled without a result."""
        main, compiler = self.folder / "main.cpp", os.environ.get("CXX", "c++")
        main.write_text(program, encoding="utf-8")
        flags = ["-std=c++20", "-Wall", "-Wextra", "-Werror", f"-I{self.folder / 'csrc/core'}"]
        result, parts, by_level = self.folder / "program", list(sources), _vector_flags()
        for i, source in enumerate(sources):
            level = Path(source).stem.rpartition("_")[2]
            if level in by_level and platform.machine() == "x86_64":
                parts[i] = str(self.folder / f"{Path(source).stem}.o")
                self._run([compiler, *flags, *by_level[level], "-c", "-o", parts[i], source])
        self._run([compiler, *flags, "-o", str(result), str(main), *parts])
        if only_looked_at:
            self._run([compiler, *flags, "-fsyntax-only", *only_looked_at])
        return result

    def _run(self, line: list[str]) -> None:
        done = subprocess.run(line, cwd=self.folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
