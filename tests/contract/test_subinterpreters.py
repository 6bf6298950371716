"""A subinterpreter: fastload refuses there in words, for each way in, and goes on in the main one."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from process import HANG

# Pythons differ in the module's name, and in how an interpreter is asked for and reports its errors.
PROGRAM = """
import sys
FIRST
try:
    import _interpreters as interpreters
    made = interpreters.create("isolated" if ISOLATED else "legacy")
    run = interpreters.exec
except ImportError:
    import _xxsubinterpreters as interpreters
    made = interpreters.create(isolated=ISOLATED)
    run = interpreters.run_string
inside = '''
import sys
sys.path[:] = PATH
try:
    USE
except ImportError as error:
    print("refused:", error, flush=True)
else:
    print("went in", flush=True)
'''
found = run(made, inside.replace("PATH", repr(sys.path)))
assert found is None, found
interpreters.destroy(made)
LAST
"""
WORKS = "from fastload._native import _C; assert _C.crc32c(b'123456789') == 0xE3069283"
WORDS = "refused: fastload cannot be imported in a subinterpreter: its threads and torch belong to"


def outcome(use: str, isolated: bool, first: str = "") -> subprocess.CompletedProcess[str]:
    program = PROGRAM.replace("USE", use).replace("FIRST", first).replace("LAST", WORKS)
    return subprocess.run(
        [sys.executable, "-c", program.replace("ISOLATED", str(isolated))],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        capture_output=True,
        text=True,
        timeout=HANG,
        check=False,
    )


@pytest.mark.parametrize("isolated", [True, False])
@pytest.mark.parametrize("use", ["import fastload", "from fastload import DataLoader", "import fastload._C"])
def test_a_subinterpreter_is_refused_in_words(use: str, isolated: bool) -> None:
    found = outcome(use, isolated)
    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout.startswith(WORDS), found.stdout
    assert "ProcessPoolExecutor" in found.stdout


def test_also_where_the_main_interpreter_has_it() -> None:
    found = outcome("import fastload._native", True, WORKS)
    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout.startswith(WORDS), found.stdout


def test_the_program_sees_what_goes_in() -> None:
    assert outcome("import json", True).stdout == "went in\n"
