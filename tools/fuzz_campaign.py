"""Run a campaign of all fuzz targets up to a number of executions; an interrupted one can be resumed.

``tools/fuzz_campaign.py run --executions 100000000`` runs the targets in turns of a minute or two, from
the made seeds, the saved inputs and whatever earlier turns found. Cheap targets get more of the time and most
of the executions; each target gets at least a tenth of the cheapest one's time. The progress is kept in
``state.json`` beside the corpus, in ``build/campaign``.

``minimise`` then chooses inputs that reach all that the corpus reaches, ``keep`` writes the best of them into
``tests/cpp/fuzz/corpus.txt``, and ``report`` measures what the minimised corpus covers of each source file,
and writes docs/measured/fuzzing.md. Without a part, all of them but ``keep`` run, in this order. The last
line is one JSON object with the executions of each target; the program exits with 1 if there is a finding.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FUZZERS = ROOT / "build" / "fuzz"
TARGET_LIST = ROOT / "tests" / "cpp" / "fuzz" / "CMakeLists.txt"
PARTS = ("run", "minimise", "keep", "report")
LEAST_SHARE = 0.1  # of the time of the target that makes the most executions a second; else its rate's square
# A minute's turn of a new target, before it is known how fast it is.
FIRST_RATE = 1000.0


@dataclass
class Record:
    """What was done with one target so far."""

    executions: int = 0
    seconds: float = 0.0
    turns: int = 0
    findings: list[str] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return self.executions / self.seconds if self.seconds else FIRST_RATE


class State:
    """The records of all targets, in a file that is whole at any time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "state.json"
        kept = json.loads(self.path.read_text()) if self.path.exists() else {}
        self.records = {name: Record(**values) for name, values in kept.items()}

    def record(self, target: str) -> Record:
        return self.records.setdefault(target, Record())

    def save(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps({name: asdict(r) for name, r in self.records.items()}, indent=1) + "\n")
        new.replace(self.path)

    @property
    def executions(self) -> int:
        return sum(record.executions for record in self.records.values())


def all_targets(text: str | None = None) -> list[str]:
    """The targets that tests/cpp/fuzz/CMakeLists.txt builds."""
    text = TARGET_LIST.read_text() if text is None else text
    lists = re.findall(r"set\((?:jpeg|other)_targets ([^)]*)\)", text)
    return [name for names in lists for name in names.split()]


def next_target(state: State, targets: list[str]) -> str:
    """Whose turn it is: who has had the least of the share of time that its rate gives it."""
    best = max(state.record(name).rate for name in targets)

    def had(name: str) -> float:
        record = state.record(name)
        return record.seconds / max((record.rate / best) ** 2, LEAST_SHARE)

    new = [name for name in targets if state.record(name).turns == 0]
    return new[0] if new else min(targets, key=had)


def options_of(target: str) -> list[str]:
    """As tools/sanitize.sh runs it, but patient: a machine that does much else is no finding."""
    options = ["-max_len=4096", "-timeout=600", "-report_slow_units=600", "-rss_limit_mb=2048"]
    options += ["-print_final_stats=1"]
    return [*options, "-entropic=0"] if target == "fuzz_coefficients" else options


def environment() -> dict[str, str]:
    """Executions are short: a long memory of freed blocks would only be slow."""
    asan = "quarantine_size_mb=32:malloc_context_size=6:" + os.environ.get("ASAN_OPTIONS", "")
    return {**os.environ, "ASAN_OPTIONS": asan}


def turn(state: State, target: str, seconds: int, most: int) -> None:
    """Runs a target for a while, and writes down what came of it."""
    corpus, findings = state.folder / "corpus" / target, state.folder / "findings"
    corpus.mkdir(parents=True, exist_ok=True)
    findings.mkdir(exist_ok=True)
    seeds = FUZZERS / "seeds" / target
    command = [str(FUZZERS / "tests/cpp/fuzz" / target), str(corpus), str(seeds), *options_of(target)]
    command += [f"-max_total_time={seconds}", f"-runs={most}", f"-artifact_prefix={findings}/{target}-"]
    begin = time.monotonic()
    done = subprocess.run(
        command, capture_output=True, text=True, errors="replace", env=environment(), check=False
    )
    record = state.record(target)
    record.seconds = round(record.seconds + time.monotonic() - begin, 1)
    record.turns += 1
    executed = re.search(r"stat::number_of_executed_units: *(\d+)", done.stderr)
    record.executions += int(executed[1]) if executed else 0
    record.findings = sorted(path.name for path in findings.glob(f"{target}-*"))
    if done.returncode != 0:
        log = state.folder / f"{target}.log"
        log.write_text(done.stderr)
        print(f"{target}: FINDING, exit status {done.returncode}; see {log}", flush=True)
        print("".join(f"  {line}\n" for line in done.stderr.splitlines()[-40:]), flush=True)
        if not record.findings:
            record.findings = [f"exit status {done.returncode}"]
    state.save()


def run(state: State, targets: list[str], executions: int, seconds: int, until: float) -> None:
    """Turns until so many executions were made in all, or the time is over."""
    while state.executions < executions and time.monotonic() < until:
        target = next_target(state, targets)
        left = max(1, int(min(seconds, until - time.monotonic())))
        turn(state, target, left, executions - state.executions)
        record = state.record(target)
        print(
            f"{state.executions:,} of {executions:,}; {target}: {record.executions:,} executions in "
            f"{record.seconds:.0f} s, {record.rate:.0f} a second, {len(record.findings)} findings",
            flush=True,
        )


def build() -> None:
    """The targets and their seeds, as ``make fuzz`` makes them."""
    subprocess.run([ROOT / "tools" / "sanitize.sh", "build"], cwd=ROOT, check=True)


def needs(program: str, package: str) -> str:
    """The path of a program of LLVM, of any version.

    Raises:
        SystemExit: it is not installed; the message says what to install.
    """
    places = [Path(found) for found in (shutil.which(program),) if found]
    places += sorted(Path("/usr/lib").glob(f"llvm-*/bin/{program}"), reverse=True)
    if not places:
        raise SystemExit(
            f"{program} is missing. Install {package} (apt-get install {package}), then run this again."
        )
    return str(places[0])


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help="parts to run: run, minimise, keep, report")
    parser.add_argument(
        "--executions", type=int, default=100_000_000, help="executions of all targets, earlier ones included"
    )
    parser.add_argument("--minutes", type=float, default=float("inf"), help="time limit of a run in minutes")
    parser.add_argument(
        "--turn", type=int, default=90, metavar="SECONDS", help="seconds per turn of a target"
    )
    parser.add_argument(
        "--targets", nargs="+", default=all_targets(), choices=all_targets(), metavar="TARGET"
    )
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "campaign")
    parser.add_argument("--no-build", action="store_true", help="use build/fuzz as it is")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "measured" / "fuzzing.md")
    parsed = parser.parse_args(arguments)
    unknown = [part for part in parsed.parts if part not in PARTS]
    if unknown:
        parser.error(f"no such part: {', '.join(unknown)}; there are {', '.join(PARTS)}")
    parsed.parts = parsed.parts or ["run", "minimise", "report"]
    return parsed


def main(arguments: list[str] | None = None) -> int:
    """Whether there is a finding."""
    parsed = parse_arguments(arguments)
    state = State(parsed.folder)
    if not parsed.no_build:
        build()
    if "run" in parsed.parts:
        until = time.monotonic() + 60 * parsed.minutes
        run(state, parsed.targets, parsed.executions, parsed.turn, until)
    if "minimise" in parsed.parts or "keep" in parsed.parts:
        import fuzz_corpus

        fuzz_corpus.minimise(state, parsed.targets, "keep" in parsed.parts)
    if "report" in parsed.parts:
        import fuzz_coverage

        fuzz_coverage.report(state, parsed.targets, parsed.page)
    points = {name: record.executions for name, record in state.records.items()}
    bad = [[name, finding] for name, record in state.records.items() for finding in record.findings]
    print(json.dumps({"instrument": "fuzz_campaign", "seed": 0, "points": points, "bad": bad}))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
