"""Measure what a fuzzing campaign's minimised corpus covers of each source file, and write the page of it.

The fuzz targets are built again, by clang with source-based coverage and without sanitizers, and run each
made seed and each input of the minimised corpus once. llvm-profdata and llvm-cov count what was run.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fuzz_campaign

ROOT = fuzz_campaign.ROOT
BUILD = ROOT / "build" / "coverage"
CORE = "csrc/core/"
# Why no target reaches a file, and what tests it instead: of the longest beginning that fits.
REASONS = {
    "csrc/core/base/": "clocks and signals of threads: tests/cpp/test_engine, tests/contract/test_interrupts",
    "csrc/core/decode/codecs/coefficients": "the same decoder is called by itself: fuzz_coefficients",
    "csrc/core/decode/jpeg/": "a line that says which kernels are used: tests/cpp/test_jpeg_kernels",
    "csrc/core/shard/": "for who reads ahead: tests/cpp/test_read_ahead",
    "csrc/core/transcode/": "kernels of instruction sets that this machine does not choose: "
    "tests/cpp/test_coding_choice, test_coefficients compare all of them",
    "csrc/core/base/exit_gate": "threads at the end: tests/cpp/test_exit_gate, tests/contract",
    "csrc/core/cache/": "files that processes fill together, with threads: tests/cpp/test_cache, "
    "test_filler, test_decoded, tests/cache",
    "csrc/core/collate/": "batches filled by threads: tests/cpp/test_prefetch, test_engine, test_fields",
    "csrc/core/decode/cost": "a clock's constants, no bytes from outside: tests/contract/test_rooms",
    "csrc/core/sampler/": "numbers alone, no bytes of files: tests/cpp/test_packing, tests/sampler",
    "csrc/core/vision/": "kernels of instruction sets that this machine does not choose: "
    "tests/cpp/test_vision compares all of them",
    "csrc/core/engine/": "threads: tests/cpp/test_engine, test_record_feed, test_pool, tests/contract",
    "csrc/core/io/": "system calls: tests/cpp/test_file_bytes, test_byte_source, test_guarded_range",
    "csrc/core/pack/": "files of a source folder: tests/pack, tests/cpp/memory/test_memory_transcode",
    "csrc/core/read_ahead/": "threads: tests/cpp/test_read_ahead",
    "csrc/core/remote/": "a network and its thread: tests/remote, against stores that fail, and test_remote",
    "csrc/core/sample/": "plans that Python makes, no bytes from outside: tests/cpp/test_fields",
    "csrc/core/transform/": "numbers that Python has checked, no bytes from outside: tests/transform",
}
ARCHITECTURES = ("_neon.cpp", "crc32c_arm.cpp")


@dataclass
class Covered:
    """What was run of one source file."""

    lines: int = 0
    lines_run: int = 0
    regions: int = 0
    regions_run: int = 0
    targets: list[str] = field(default_factory=list)


def run(command: list[str | Path], **options: Any) -> str:
    """The output; the program's own words where it fails."""
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False, **options)
    if done.returncode != 0:
        raise SystemExit(
            f"{command[0]} ended with status {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-4000:]}"
        )
    return str(done.stdout)


def build_replays() -> None:
    """The targets as programs that run inputs once, built for coverage."""
    flags = "-O1 -g1 -fprofile-instr-generate -fcoverage-mapping"
    compiler = os.environ.get("CLANGXX", "clang++")
    options = {
        "FASTLOAD_PYTHON": "OFF",
        "FASTLOAD_CPP_TESTS": "ON",
        "CMAKE_CXX_COMPILER": compiler,
        "CMAKE_BUILD_TYPE": "Debug",
        "CMAKE_CXX_FLAGS_DEBUG": flags,
    }
    defined = [f"-D{name}={value}" for name, value in options.items()]
    run(["cmake", "-S", ROOT, "-B", BUILD, "-G", "Ninja", *defined])
    run(["cmake", "--build", BUILD, "--target", "fuzz_replays"])


def replay(state: fuzz_campaign.State, target: str) -> Path:
    """Runs all inputs of a target; the counts, as llvm-cov reads them."""
    raw, counts = BUILD / f"{target}.profraw", BUILD / f"{target}.profdata"
    folders = [fuzz_campaign.FUZZERS / "seeds" / target, state.folder / "minimised" / target]
    inputs = [folder for folder in folders if folder.is_dir() and any(folder.iterdir())]
    program = BUILD / "tests/cpp/fuzz" / f"{target}_replay"
    run([program, *inputs], env={**os.environ, "LLVM_PROFILE_FILE": str(raw)})
    run([fuzz_campaign.needs("llvm-profdata", "llvm"), "merge", "-sparse", raw, "-o", counts])
    raw.unlink()
    return counts


def export(counts: Path, programs: list[Path]) -> dict[str, dict[str, Any]]:
    """llvm-cov's summary of each source file of the core."""
    objects = [word for program in programs[1:] for word in ("-object", program)]
    command = [fuzz_campaign.needs("llvm-cov", "llvm"), "export", "-summary-only", f"-instr-profile={counts}"]
    data = json.loads(run([*command, programs[0], *objects]))["data"][0]
    files = {}
    for entry in data["files"]:
        path = Path(entry["filename"]).resolve()
        if path.is_relative_to(ROOT / CORE):
            files[path.relative_to(ROOT).as_posix()] = entry["summary"]
    return files


def measure(state: fuzz_campaign.State, targets: list[str]) -> dict[str, Covered]:
    """Each source file of the core that has code."""
    build_replays()
    programs = [BUILD / "tests/cpp/fuzz" / f"{target}_replay" for target in targets]
    counts = [replay(state, target) for target in targets]
    together = BUILD / "all.profdata"
    run([fuzz_campaign.needs("llvm-profdata", "llvm"), "merge", "-sparse", *counts, "-o", together])
    files = {path.relative_to(ROOT).as_posix(): Covered() for path in sorted((ROOT / CORE).rglob("*.cpp"))}
    for name, summary in export(together, programs).items():
        one = files.setdefault(name, Covered())
        one.lines, one.lines_run = summary["lines"]["count"], summary["lines"]["covered"]
        one.regions, one.regions_run = summary["regions"]["count"], summary["regions"]["covered"]
    for target, program, own in zip(targets, programs, counts, strict=True):
        for name, summary in export(own, [program]).items():
            if summary["lines"]["covered"] > 0:
                files[name].targets.append(target)
    return files


def reason(name: str) -> str:
    """Why no target reaches a file.

    Raises:
        KeyError: nobody has said so.
    """
    if name.endswith(ARCHITECTURES):
        return "of another architecture than this machine's: make test-arm"
    fitting = [begin for begin in REASONS if name.startswith(begin)]
    if not fitting:
        raise KeyError(f"{name}: no fuzz target reaches it, and {Path(__file__).name} does not say why")
    return REASONS[max(fitting, key=len)]


def share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f}%" if whole else "-"


def campaign_table(state: fuzz_campaign.State, targets: list[str]) -> list[str]:
    lines = ["| target | executions | a second | minutes | inputs kept by the campaign | findings |"]
    lines.append("|---|---:|---:|---:|---:|---:|")
    for target in targets:
        record = state.record(target)
        folder = state.folder / "minimised" / target
        inputs = len(list(folder.iterdir())) if folder.is_dir() else 0
        lines.append(
            f"| `{target}` | {record.executions:,} | {record.rate:.0f} | {record.seconds / 60:.1f} | "
            f"{inputs} | {len(record.findings)} |"
        )
    return lines


def coverage_table(files: dict[str, Covered]) -> list[str]:
    lines = ["| file of csrc/core | lines | run | regions run | by |", "|---|---:|---:|---:|---|"]
    for name, one in sorted(files.items()):
        if one.lines_run:
            by = ", ".join(target.removeprefix("fuzz_") for target in one.targets)
            lines.append(
                f"| {name.removeprefix(CORE)} | {one.lines} | {share(one.lines_run, one.lines)} | "
                f"{share(one.regions_run, one.regions)} | {by} |"
            )
    return lines


def unreached_list(files: dict[str, Covered]) -> list[str]:
    by_reason: dict[str, list[str]] = {}
    for name, one in sorted(files.items()):
        if not one.lines_run:
            by_reason.setdefault(reason(name), []).append(name.removeprefix(CORE))
    return [f"- {', '.join(names)}: {why}." for why, names in by_reason.items()]


def machine() -> str:
    """Its processor and how many of them, by name."""
    model = "an unknown processor"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    return f"{model}, {os.cpu_count()} cores, Linux, {platform.machine()}"


def page(state: fuzz_campaign.State, targets: list[str], files: dict[str, Covered]) -> str:
    """The whole of docs/measured/fuzzing.md."""
    commit = run(["git", "-C", ROOT, "rev-parse", "--short=10", "HEAD"]).strip()
    reached = [one for one in files.values() if one.lines_run]
    lines, lines_run = sum(one.lines for one in reached), sum(one.lines_run for one in reached)
    parts = [
        "# Measured: fuzzing",
        "",
        "Written by `tools/fuzz_campaign.py`, which runs all fuzz targets (`tests/cpp/fuzz`, under ASan and"
        " UBSan) up to a number of executions, makes the corpus small, and counts what it covers.",
        "",
        f"{datetime.date.today().isoformat()}, commit {commit}, {machine()}; shared with other work, so rates"
        " are what was left of one core. Repeat: `tools/fuzz_campaign.py --executions 100000000`; it goes on"
        " where it was interrupted.",
        "",
        f"{state.executions:,} executions in all"
        f" ({sum(record.seconds for record in state.records.values()) / 3600:.1f} hours of one process),"
        f" {sum(len(record.findings) for record in state.records.values())} findings.",
        "",
        *campaign_table(state, targets),
        "",
        "## What the corpus covers",
        "",
        "Made seeds and minimised corpus, each input once, by clang's source-based coverage. Vector kernels"
        " are those of this machine. Of the files that a target reaches,"
        f" {share(lines_run, lines)} of {lines:,} lines are run.",
        "",
        *coverage_table(files),
        "",
        "## What no target reaches",
        "",
        *unreached_list(files),
    ]
    return "\n".join(parts) + "\n"


def report(state: fuzz_campaign.State, targets: list[str], to: Path) -> None:
    """Measures, and writes the page."""
    files = measure(state, targets)
    to.parent.mkdir(parents=True, exist_ok=True)
    to.write_text(page(state, targets, files))
    print(
        f"{to}: {sum(1 for one in files.values() if one.lines_run)} of {len(files)} files reached", flush=True
    )
