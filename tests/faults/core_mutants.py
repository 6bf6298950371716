"""Mutation of the core's own tests: small errors in the entropy decoder and in what reads the index.

    PYTHONPATH=tests/faults python tests/faults/core_mutants.py \
        '{"points": 150, "seed": 1, "folder": "/tmp/core-mutants", "modules": ["entropy"]}'

``points``: how many mutants of each module, chosen by ``seed``; 0: all. Builds the core and its tests once
in ``folder`` (``sanitize``: with these sanitizers, as "make cpp-test" has them), then for each mutant the
files that it changes, which are linked in front of the core. A mutant that compiles to the same machine code
is equivalent, and one that does not compile is none. Prints what survived and is not in
``equivalent_core_mutants.json``, a table, and a line of JSON. ``again``: only what survived the last time.
"""

from __future__ import annotations

import json
import random
import re
import resource
import shlex
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cpp_mutants import CoreMutant, core_mutants_of
from mutant_ends import main, row_of, say, told

ROOT = Path(__file__).parents[2]
CORE = ROOT / "csrc" / "core"
_MOST_CPU_S = 15  # of one test file; they take less than one


@dataclass(frozen=True)
class Subject:
    """Some files of the core, and the test files that answer for them."""

    files: tuple[str, ...]  # below csrc/core
    tests: tuple[str, ...]


SUBJECTS = {
    "entropy": Subject(
        tuple(
            f"decode/jpeg/{name}"
            for name in (
                "entropy_vector.cpp",
                "huffman_vector.cpp",
                "huffman.cpp",
                "bits.cpp",
                "scan.cpp",
                "entry_points.cpp",
            )
        ),
        ("test_entropy", "test_jpeg_damage", "test_jpeg_kernels", "test_jpeg", "test_decode", "test_cut"),
    ),
    "index": Subject(
        ("shard/paged_file.cpp", "shard/index.cpp", "shard/entries.cpp"),
        (
            *("test_index", "test_entries", "test_guarded_range", "test_cache", "test_record_feed"),
            *("test_read_ahead", "test_file_bytes"),
        ),
    ),
}


class Build:
    """The core and its tests without mutants, and how to build one file of it again.

    Args:
        tests: the program of tests, of tests/cpp/CMakeLists.txt.

    Raises:
        subprocess.CalledProcessError: it does not compile.
    """

    def __init__(self, folder: Path, sanitize: str, tests: str = "fastload_tests") -> None:
        self.folder = folder
        self._output = f" -o tests/cpp/{tests} "
        options = ["-DFASTLOAD_PYTHON=OFF", "-DFASTLOAD_CPP_TESTS=ON", "-DCMAKE_BUILD_TYPE=Debug"]
        options += ["-DCMAKE_CXX_FLAGS_DEBUG=-O1", f"-DFASTLOAD_SANITIZE={sanitize}"]
        _call(["cmake", "-S", str(ROOT), "-B", str(folder), "-G", "Ninja", *options])
        _call(["ninja", "-C", str(folder), tests])
        listed = _call(["ninja", "-C", str(folder), "-t", "commands", tests]).splitlines()
        self._compile = {
            source: line
            for line in listed
            for source in re.findall(r" -c (\S+\.cpp)$", line.split(" && ")[0])
            if "-DFASTLOAD_LEVEL=" not in line or "-DFASTLOAD_LEVEL=scalar" in line
        }
        self._headers: set[str] = set()
        self._link = next(line for line in reversed(listed) if self._output in line)

    def sources_of(self, file: str) -> list[str]:
        """The source files that a change of ``file`` changes: itself, or those that include it."""
        path = CORE / file
        if path.suffix == ".cpp":
            return [str(path)]
        names = [source for source in self._compile if f'#include "{file}"' in Path(source).read_text()]
        return [name for name in names if "/csrc/core/" in name]

    def objects(self, file: str, text: str) -> list[Path] | None:
        """The object files with ``file`` in another text; None: that does not compile."""
        place = self.folder / "mutant"
        changed = place / file
        changed.parent.mkdir(parents=True, exist_ok=True)
        made = []
        for source in self.sources_of(file):
            target = place / f"{Path(source).stem}.o"
            given = str(changed) if source.endswith(file) else source
            headers = self._precompiled(source, file)
            changed.write_text(text)
            done = self._compiled(source, f"-include {headers} -o {target} -c {given}")
            changed.unlink()
            if done.returncode:
                return None
            made.append(target)
        return made

    def _precompiled(self, source: str, file: str) -> Path:
        """A header of all that ``file`` includes, compiled once: parsing it is most of the work."""
        name = f"{Path(file).stem}-{Path(source).stem}.h"
        headers = self.folder / "mutant" / name
        if name not in self._headers:
            text = (CORE / file).read_text(encoding="utf-8")
            headers.write_text("\n".join(re.findall(r"(?m)^#include .*$", text)))
            done = self._compiled(source, f"-x c++-header -o {headers}.gch {headers}")
            if done.returncode:
                raise RuntimeError(f"what {file} includes does not compile:\n{done.stderr.decode()}")
            self._headers.add(name)
        return headers

    def _compiled(self, source: str, rest: str) -> subprocess.CompletedProcess[bytes]:
        """The compiler, run as for ``source`` but for its last arguments."""
        command = re.sub(r" -o \S+\.o -c \S+$", f" {rest}", self._compile[source])
        command = re.sub(r" -MD -MT \S+ -MF \S+", "", command)
        command = command.replace(" -I", f" -D_GLIBCXX_ASSERTIONS -I{self.folder / 'mutant'} -I", 1)
        return subprocess.run(shlex.split(command), cwd=self.folder, capture_output=True, check=False)

    def link(self, objects: Sequence[Path], program: Path) -> None:
        """The tests, with these object files in place of the core's."""
        command = self._link.removeprefix(": && ").removesuffix(" && :")
        command = command.replace(self._output, f" -o {program} {shlex.join(map(str, objects))} ")
        _call(shlex.split(command), self.folder)


def _call(command: list[str], folder: Path | None = None) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{shlex.join(command)[:300]} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def machine_code(objects: Sequence[Path]) -> list[bytes]:
    """What object files do, without where it came from."""
    found = []
    for path in objects:
        bare = path.with_suffix(".bare")
        _call(["objcopy", "--strip-debug", "--remove-section=.comment", str(path), str(bare)])
        found.append(bare.read_bytes())
    return found


def verdict_of(program: Path, tests: Sequence[str], limit: int) -> tuple[str, str]:
    """How the tests end, and which of them failed first."""
    for test in tests:
        try:
            done = subprocess.run(
                [str(program), test],
                capture_output=True,
                timeout=4 * limit,
                check=False,
                preexec_fn=lambda: _bounded(limit),
            )
        except subprocess.TimeoutExpired:
            return "by time", test
        if done.returncode == -24:  # SIGXCPU
            return "by time", test
        if done.returncode:
            return "killed", test
    return "survived", ""


def _bounded(limit: int) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def chosen(subject: Subject, points: int, seed: int) -> list[CoreMutant]:
    """The subject's mutants, ``points`` of them unless that is 0, and how many there are."""
    found = [
        mutant
        for file in subject.files
        for mutant in core_mutants_of(f"csrc/core/{file}", (CORE / file).read_text(encoding="utf-8"))
    ]
    return random.Random(seed).sample(found, points) if 0 < points < len(found) else found


def as_it_is(build: Build, name: str, file: str, program: Path) -> list[bytes]:
    """The machine code of a file without mutants, with which the tests must pass."""
    objects = build.objects(file, (CORE / file).read_text(encoding="utf-8"))
    if objects is None:
        raise RuntimeError(f"{file} does not compile as it is")
    build.link(objects, program)
    end, by = verdict_of(program, SUBJECTS[name].tests, 300)
    if end != "survived":
        raise RuntimeError(f"{by} fails without a mutant of {file}")
    return machine_code(objects)


def try_subject(
    build: Build,
    name: str,
    mutants: Sequence[CoreMutant],
    reasons: Mapping[tuple[str, ...], str],
    survivors: list[list[str]],
) -> Counter[str]:
    """What became of the mutants; those that survived are added to ``survivors``."""
    subject = SUBJECTS[name]
    program = build.folder / f"{name}_tests"
    plain: dict[str, list[bytes]] = {}
    ends: Counter[str] = Counter()
    for number, mutant in enumerate(mutants):
        file = mutant.file.removeprefix("csrc/core/")
        source = (ROOT / mutant.file).read_text(encoding="utf-8")
        if file not in plain:
            plain[file] = as_it_is(build, name, file, program)
        objects = build.objects(file, mutant.applied(source))
        if objects is None:
            ends["no mutant"] += 1
            continue
        if machine_code(objects) == plain[file]:
            ends["equivalent"] += 1
            continue
        build.link(objects, program)
        end, by = verdict_of(program, subject.tests, _MOST_CPU_S)
        if end == "survived" and mutant.key in reasons:
            end = "equivalent"
        ends[end] += 1
        if end == "survived":
            survivors.append(list(mutant.key))
        if end in ("survived", "by time"):
            say(f"{end} {by}: {mutant}")
        if number % 50 == 49:
            say(f"{name}: {number + 1} of {len(mutants)}")
    return ends


def run(wish: Mapping[str, Any]) -> dict[str, Any]:
    """What the program prints last."""
    seed, points = int(wish["seed"]), int(wish["points"])
    names = list(wish.get("modules", SUBJECTS))
    build = Build(Path(wish["folder"]) / "build", wish.get("sanitize", ""))
    entries = json.loads(Path(__file__).with_name("equivalent_core_mutants.json").read_text(encoding="utf-8"))
    reasons = {(entry["file"], entry["before"], entry["after"]): entry["why"] for entry in entries}
    rows: dict[str, dict[str, int]] = {}
    bad = []
    noted = Path(wish["folder"]) / "survived.json"
    again = {tuple(key) for key in json.loads(noted.read_text())} if wish.get("again") else None
    survivors: list[list[str]] = []
    for name in names:
        every = chosen(SUBJECTS[name], 0, seed)
        mutants = [
            each for each in chosen(SUBJECTS[name], points, seed) if again is None or each.key in again
        ]
        ends = try_subject(build, name, mutants, reasons, survivors)
        rows[name] = row_of(ends)
        known = {mutant.key for mutant in every}
        files = {mutant.file for mutant in every}
        bad += [
            [key[0], f"no such mutant: {key[1]} -> {key[2]}"]
            for key in reasons
            if key[0] in files and key not in known
        ]
    noted.write_text(json.dumps(survivors))
    return told("core_mutants", seed, rows, bad)


if __name__ == "__main__":
    main(run)
