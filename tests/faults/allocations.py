"""Each allocation of the core fails in turn, and all from each on: tests/cpp/memory as an instrument.

``allocations.py '{"points": 0, "seed": 1, "folder": "/tmp"}'`` builds the C++ tests under sanitizers, if
they are not there, runs those of memory, and prints what failed how often. There is no sample: all of it
takes seconds of a processor. ``{"program": "..."}`` runs another build of them.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
BUILDS = ("fuzz", "sanitize")  # as tools/sanitize.sh names them, with clang's libFuzzer and without
THING = re.compile(r"^  (.+): (\d+) allocations failed in turn, and all from each of (\d+) on$")


def built() -> Path:
    """The program, which tools/sanitize.sh builds."""
    programs = [ROOT / "build" / build / "tests/cpp/fastload_memory_tests" for build in BUILDS]
    if not any(program.exists() for program in programs):
        subprocess.run([ROOT / "tools" / "sanitize.sh", "build"], cwd=ROOT, check=True)
    return next(program for program in programs if program.exists())


def judged(output: str, status: int) -> dict[str, Any]:
    """What the program's output says."""
    points: dict[str, int] = {"things": 0, "each in turn": 0, "all from each on": 0}
    bad = []
    lines = output.splitlines()
    for number, line in enumerate(lines):
        thing = THING.match(line)
        if thing is not None:
            points["things"] += 1
            points["each in turn"] += int(thing[2])
            points["all from each on"] += int(thing[3])
        if line.startswith("FAILED"):
            bad.append([line.removeprefix("FAILED "), " ".join(lines[number + 1 : number + 2]).strip()])
    if status != 0 and not bad:
        bad.append(["the program", f"it ended with status {status}: " + " ".join(lines[-3:])])
    if points["things"] == 0:
        bad.append(["the program", "nothing was tried"])
    return {"instrument": "allocations", "seed": 0, "points": points, "bad": bad}


def main(words: list[str]) -> int:
    """Whether something is bad."""
    options = json.loads(words[0]) if words else {}
    program = Path(options["program"]) if "program" in options else built()
    done = subprocess.run([program], capture_output=True, text=True, errors="replace", check=False)
    sys.stdout.write(done.stdout + done.stderr)
    result = judged(done.stdout, done.returncode)
    sys.stdout.write(f"\n{json.dumps(result)}\n")
    return 1 if result["bad"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
