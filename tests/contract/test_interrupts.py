"""Signals that end a command, at any moment: an exit code and one word, no traceback, no temporary folder."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from pictures import jpegs
from process import HANG
from row_sources import SOURCES, pictures

from fastload.cli import main

# Sends SIGINT to itself when the AT-th module is looked for after main() has begun; says how many there were.
PROGRAM = """
import os, signal, sys
from fastload.cli import main

class Interrupter:
    looked_for = 0

    def find_spec(self, name, path=None, target=None):
        self.looked_for += 1
        if self.looked_for == AT:
            os.kill(os.getpid(), signal.SIGINT)

finder = Interrupter()
sys.meta_path.insert(0, finder)
sys.argv = ["fastload", *WORDS]
code = main()
print(finder.looked_for)
sys.exit(code)
"""


def environment() -> dict[str, str]:
    """One in which a new process finds the same package as this one."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def interrupted(at: int, words: Sequence[object]) -> subprocess.CompletedProcess[str]:
    """Run the command, interrupted at its ``at``-th import; 0: not at all."""
    program = PROGRAM.replace("AT", str(at)).replace("WORDS", repr([*map(str, words)]))
    return subprocess.run(
        [sys.executable, "-c", program],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=HANG,
        check=False,
    )


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """400 images in two classes."""
    pictures = jpegs(10)
    for number in range(400):
        path = tmp_path / "source" / f"class{number % 2}" / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(pictures[number % 10])
    return tmp_path / "source"


@pytest.mark.parametrize("verb", ["info", "pack"])
def test_ctrl_c_at_imports(verb: str, folder: Path, tmp_path: Path, source: Path) -> None:
    words = ["info", folder]
    if verb == "pack":
        words = ["pack", source, tmp_path / "out", "--limit", 2, "--quiet", "--restart"]
    whole = interrupted(0, words)
    assert whole.returncode == 0, whole.stderr
    total = int(whole.stdout.split()[-1])
    assert total > 50
    for at in (1, 2, 3, *range(4, total, max(1, total // 9)), total):
        done = interrupted(at, words)
        assert done.returncode == 130, f"import {at} of {total}: {done.stderr}"
        assert re.fullmatch(r"\ninterrupted[^\n]*\n", done.stderr), f"import {at} of {total}: {done.stderr}"


def test_who_ignores_ctrl_c_is_not_interrupted(folder: Path) -> None:
    """nohup, and a shell's background job, are born so."""
    program = PROGRAM.replace("AT", "20").replace("WORDS", repr(["info", str(folder)]))
    program = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n" + program
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment(), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


# Found by every Python before anything else is: a worker of a pack stands still where it imports NumPy.
HELD = """
import os, pathlib, sys, time

class Holder:
    def find_spec(self, name, path=None, target=None):
        if name == "numpy":
            status = pathlib.Path("/proc/self/status").read_text()
            place = pathlib.Path(PLACE)
            part = place.with_suffix(f".{os.getpid()}")
            part.write_text(status)
            part.rename(place)
            time.sleep(600)

if "spawn_main" in " ".join(sys.orig_argv):
    sys.meta_path.insert(0, Holder())
"""


def test_ctrl_c_on_a_terminal_reaches_all_processes_of_a_pack(source: Path, tmp_path: Path) -> None:
    """A terminal sends it to the whole group; those that are still importing are silent, too."""
    status, site = tmp_path / "status", tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(HELD.replace("PLACE", repr(str(status))))
    words = ["pack", source, tmp_path / "out", "--shard-size", 4096, "--num-proc", 2, "--quiet"]
    process = subprocess.Popen(
        [sys.executable, "-m", "fastload", *map(str, words)],
        env={**environment(), "PYTHONPATH": f"{site}{os.pathsep}{environment()['PYTHONPATH']}"},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + HANG
        while not status.exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=HANG)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    blocked = int(re.findall(r"SigBlk:\s*(\w+)", status.read_text())[0], 16)
    assert blocked >> (signal.SIGINT - 1) & 1, "its traceback comes if it is faster than the parent's SIGTERM"
    assert (process.returncode, errors) == (130, "\ninterrupted; run the same command again to resume\n")


def test_programs_that_call_main_keep_their_handler(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(signal.SIGINT)
    assert main(["info", str(folder)]) == 0
    assert signal.getsignal(signal.SIGINT) is before
    assert "records" in capsys.readouterr().out


# ---- Signals that end a command leave nothing behind --------------------------------------------------

# Sends the signal to itself, TIMES times, when the AT-th file has been opened after the first temporary
# folder was made. AT is 0: not at all; says how many there were.
OPENING = """
import os, signal, sys
from fastload.cli import main

seen = {"folder": False, "opened": 0}

def hook(event, arguments):
    seen["folder"] |= event == "tempfile.mkdtemp"
    if event == "open" and seen["folder"]:
        seen["opened"] += 1
        if seen["opened"] == AT:
            for _ in range(TIMES):
                os.kill(os.getpid(), NUMBER)

sys.addaudithook(hook)
sys.argv = ["fastload", *WORDS]
code = main()
print(seen["opened"])
sys.exit(code)
"""


# Where tests run under nohup, commands would inherit that SIGHUP is ignored.
DEFAULT = "import signal; signal.signal(signal.SIGHUP, signal.SIG_DFL)\n"


class Ended:
    """A pack that makes temporary folders, and what it says when it gets a signal."""

    def __init__(self, kind: str, folder: Path) -> None:
        self._temporary, self._out = folder / "tmp", folder / "out"
        self._temporary.mkdir()
        given = SOURCES["classes" if kind == "a store" else kind].made(folder / "source", pictures())
        words = ["pack", given, f"file://{self._out}" if kind == "a store" else self._out, "--quiet"]
        self._words = [*map(str, words)]

    def run(self, at: int, number: int, times: int = 1, before: str = DEFAULT) -> tuple[int, str, str]:
        """Exit code, what it printed and its errors."""
        names = {"AT": at, "TIMES": times, "NUMBER": int(number), "WORDS": self._words}
        program = before + re.sub(
            r"\b(AT|TIMES|NUMBER|WORDS)\b", lambda found: repr(names[found[0]]), OPENING
        )
        shutil.rmtree(self._out, ignore_errors=True)
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={**environment(), "TMPDIR": str(self._temporary)},
            capture_output=True,
            text=True,
            timeout=HANG,
            check=False,
        )
        assert [*self._temporary.iterdir()] == []
        return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("kind", ["coco", "voc by URL", "tars", "a store"])
def test_what_ends_a_command_leaves_no_temporary_folder(kind: str, tmp_path: Path) -> None:
    """Neither do an error and a normal end, which other tests have."""
    ended = Ended(kind, tmp_path)
    code, said, errors = ended.run(0, 0)
    assert code == 0, errors
    opened = int(said.split()[-1])
    assert opened > 10
    for at, number in ((2, signal.SIGTERM), (opened // 2, signal.SIGHUP), (opened * 3 // 4, signal.SIGTERM)):
        code, _, errors = ended.run(at, number)
        word = f"\nended by {number.name}; run the same command again to resume\n"
        assert (code, errors) == (128 + number, word), f"file {at} of {opened}"


def test_a_signal_that_comes_twice_does_not_break_off_the_end(tmp_path: Path) -> None:
    """timeout(1) sends it to the process, and then to its group."""
    ended = Ended("coco", tmp_path)
    for at in (3, 30):
        code, _, errors = ended.run(at, signal.SIGTERM, times=2)
        assert (code, errors.count("ended by SIGTERM")) == (143, 1), errors


def test_nohup_is_obeyed(tmp_path: Path) -> None:
    ignore = DEFAULT.replace("SIG_DFL", "SIG_IGN")
    code, said, errors = Ended("coco", tmp_path).run(3, signal.SIGHUP, before=ignore)
    assert (code, errors) == (0, "")
    assert int(said.split()[-1]) > 3


@pytest.mark.parametrize("around", ["contextlib.nullcontext", "interrupts_kept"])
def test_a_forked_worker_dies_of_sigterm_at_once(around: str) -> None:
    """torch's and fastload's loaders fork theirs, while signals are kept, and end them so."""
    program = """
import contextlib, os, signal, sys, time
from fastload.cli import interrupts
from fastload.machine.interrupts import interrupts_kept

interrupts.raise_in_command()
with AROUND():
    child = os.fork()
    if child:
        os.kill(child, signal.SIGTERM)
if child == 0:
    try:
        time.sleep(20)
    finally:
        print("it went on")
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = subprocess.run(
        [sys.executable, "-c", program.replace("AROUND", around)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=HANG,
    )
    assert (done.stdout, done.stderr) == ("-15\n", "")
