"""Defects of the core that were in the product once: put back, the core's own instruments must find them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from core_mutants import CORE, Build, verdict_of

__all__ = ["CORE_DEFECTS", "missed_in_core"]

_MOST_CPU_S = 120  # of one test file


@dataclass(frozen=True)
class CoreDefect:
    """One defect: text of a file below csrc/core that is replaced, and who must find it."""

    what: str
    file: str
    old: str
    new: str
    test: str
    program: str = "fastload_tests"


CORE_DEFECTS: Mapping[str, CoreDefect] = {
    "3": CoreDefect(
        "a decoding thread that finds no memory for its producer ends the process",
        "engine/engine.cpp",
        "  } catch (const std::exception&) {\n    producer.reset();",
        "  } catch (const std::length_error&) {\n    producer.reset();",
        "test_memory_engine",
        "fastload_memory_tests",
    ),
    "8b": CoreDefect(
        "a mapped file that is cut while it is read ends the process (SIGBUS)",
        "io/guarded_range.cpp",
        "  install();\n",
        "",
        "test_guarded_range",
    ),
}


def missed_in_core(numbers: list[str], folder: Path) -> Iterator[tuple[str, str]]:
    """Of each defect why it is not found, or nothing."""
    for number in numbers:
        defect = CORE_DEFECTS[number]
        build = Build(folder, "", defect.program)
        program = build.folder / "planted_tests"
        text = (CORE / defect.file).read_text(encoding="utf-8")
        assert text.count(defect.old) == 1, f"{defect.file} has no longer once: {defect.old}"
        ends = []
        for version in (text, text.replace(defect.old, defect.new)):
            objects = build.objects(defect.file, version)
            assert objects is not None, f"{defect.file} does not compile"
            build.link(objects, program)
            ends.append(verdict_of(program, [defect.test], _MOST_CPU_S)[0])
        right = ends == ["survived", "killed"]
        yield number, "" if right else f"{defect.test} without the defect: {ends[0]}; with it: {ends[1]}"
