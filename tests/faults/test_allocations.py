"""The instrument of allocations reads what its program says. What fails there is planted in C++,
tests/cpp/memory/test_memory_instrument.cpp; the program itself runs in make cpp-test."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

INSTRUMENT = Path(__file__).with_name("allocations.py")
GOOD = """  PNG: 8 allocations failed in turn, and all from each of 7 on
  engine: 290 allocations failed in turn, and all from each of 285 on
5 tests, 0 failed"""
FAILED = """  PNG: 8 allocations failed in turn, and all from each of 8 on
FAILED test_memory_decode.webps_without_memory
  WebP: with allocation 4 failing: another error than one about memory: WebP: the data is damaged
5 tests, 1 failed"""


@pytest.mark.parametrize(
    ("said", "status", "tried", "bad"),
    [
        (GOOD, 0, 298, None),
        (FAILED, 1, 8, "another error than one about memory"),
        ("  PNG: 8 allocations failed in turn, and all from each of 8 on", 134, 8, "status 134"),
        ("0 tests, 0 failed", 1, 0, "nothing was tried"),
    ],
)
def test_what_the_program_says_is_told(
    tmp_path: Path, said: str, status: int, tried: int, bad: str | None
) -> None:
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{said}\nEND\nexit {status}\n")
    program.chmod(0o755)
    command = [sys.executable, INSTRUMENT, json.dumps({"program": str(program)})]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["points"]["each in turn"] == tried
    assert done.returncode == (0 if bad is None else 1)
    assert bool(told["bad"]) == (bad is not None)
    assert bad is None or bad in str(told["bad"])
