"""What the doctor of a script leaves behind, however it ends: nothing."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from process import settled

import fastload
from fastload.diagnose.remains import Remains
from fastload.diagnose.watchdog import MARK, SHARED_MEMORY, processes_of

SCRIPT = """
import os, subprocess, sys, time
import torch
ENVIRONMENT = {}  # so that the program below is known only as a descendant
from torch.utils.data import DataLoader, Dataset


class Data(Dataset):
    def __len__(self):
        return 3000

    def __getitem__(self, index):
        time.sleep(0.001)
        return torch.zeros(3, 4, 4), index


if __name__ == "__main__":
    name = f"1000.{os.getpid()}"
    subprocess.Popen(["sleep", name], env=ENVIRONMENT, start_new_session=True)
    subprocess.run(f"setsid sleep {name} &", shell=True)  # has the mark, and another parent by now
    subprocess.run(["sh", "-c", f"sleep {name} &"], env={"PATH": os.environ["PATH"]})  # of its session
    open(f"/dev/shm/torch_{os.getpid()}_1_0", "wb").write(b"as of a worker that was killed")
    with open("part", "w") as file:
        file.write(os.environ["FASTLOAD_DOCTOR"] + " " + str(os.getpid()))
    os.rename("part", "began")
    model = torch.nn.Linear(48, 1)
    while True:
        for images, labels in DataLoader(Data(), 4, num_workers=2):
            model(images.flatten(1)).sum().backward()
"""
MARKED = SCRIPT.replace(
    "= {}", "= None"
)  # for a script that ends first: who descends from it is then unknown
PATIENCE = 150.0  # seconds, on a crowded machine
# Where tests run under nohup, the doctor would inherit that SIGHUP is ignored.
COMMAND = """
import signal
signal.signal(signal.SIGHUP, signal.SIG_DFL)
from fastload.cli import main
raise SystemExit(main())
"""


class Run:
    """A doctor's process whose temporary files have a folder of their own."""

    def __init__(self, folder: Path, text: str, seconds: float) -> None:
        self.folder, self.temporary, self.work = folder, folder / "tmp", folder / "work"
        self.temporary.mkdir()
        self.work.mkdir()
        (self.work / "train.py").write_text(text)
        here = {**os.environ, "PYTHONPATH": str(Path(fastload.__file__).parents[1])}
        here |= {"TMPDIR": str(self.temporary), "OMP_NUM_THREADS": "1"}
        line = [sys.executable, "-c", COMMAND, "doctor", "--seconds", str(seconds), "train.py"]
        with open(folder / "said", "wb") as said:
            self.process = subprocess.Popen(line, cwd=self.work, env=here, stdout=said, stderr=said)
        self.token, self.script = "", 0

    def wait(self, pattern: str) -> None:
        """Wait until the script's loop has begun, and there is such a path."""
        end = time.monotonic() + PATIENCE
        while not (list(self.work.glob("began")) and list(self.folder.glob(pattern))):
            assert time.monotonic() < end, self.said
            assert self.process.poll() is None, self.said
            time.sleep(0.02)
        self.token, script = (self.work / "began").read_text().split()
        self.script = int(script)

    @property
    def said(self) -> str:
        return (self.folder / "said").read_text()

    def remains(self) -> list[object]:
        """Return what is left of it: processes and files."""
        found: list[object] = [*processes_of(f"{MARK}={self.token}".encode(), self.script)]
        for process in Path("/proc").glob("[0-9]*"):
            try:
                line = (process / "cmdline").read_bytes().decode(errors="replace")
                found += [line] if self.token in line or f"1000.{self.script}" in line else []
            except OSError:
                continue
        shared = Path(SHARED_MEMORY)
        found += [*shared.glob(f"*{self.token}*"), *shared.glob(f"torch_{self.script}_*")]
        return found + [path for path in self.temporary.iterdir() if not path.name.startswith("torch")]

    def leaves_nothing(self) -> None:
        end = time.monotonic() + PATIENCE
        while (found := self.remains()) and time.monotonic() < end:
            time.sleep(0.1)
        assert found == []


@pytest.fixture
def run(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Run]:
    run = Run(tmp_path, **{"text": SCRIPT, "seconds": 60.0, **getattr(request, "param", {})})
    yield run
    run.process.kill()
    run.process.wait()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_doctor_is_ended_while_the_script_runs(run: Run, number: signal.Signals) -> None:
    run.wait("tmp/fl-*")
    assert settled(lambda: sum("sleep" in str(found) for found in run.remains()), 3) == 3
    run.process.send_signal(number)
    run.process.wait()
    run.leaves_nothing()


@pytest.mark.parametrize("run", [{"seconds": 8.0}], indirect=True)
def test_the_doctor_is_killed_during_experiments(run: Run) -> None:
    run.wait("tmp/fl-*/fastload-doctor-*")
    run.process.kill()
    run.process.wait()
    run.leaves_nothing()


@pytest.mark.parametrize("run", [{"text": MARKED}], indirect=True)
def test_the_script_is_killed(run: Run) -> None:
    run.wait("tmp/fl-*")
    os.kill(run.script, signal.SIGKILL)
    assert run.process.wait() == 1
    assert "ended by signal SIGKILL before its loop was watched" in run.said
    assert run.remains() == []  # when it says so, all is done


@pytest.mark.parametrize("run", [{"seconds": 8.0, "text": MARKED}], indirect=True)
def test_a_run_with_its_normal_end(run: Run) -> None:
    run.wait("tmp/fl-*")
    assert run.process.wait() == 0, run.said
    assert run.remains() == []
    assert sorted(path.name for path in run.work.iterdir()) == ["began", "train.py"]
    assert (run.work / "train.py").read_text() == MARKED


def test_what_links_lead_to_stays(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("mine")
    with Remains() as remains:
        (remains.folder / "link").symlink_to(kept)
        (remains.memory / "link").symlink_to(kept / "file")
    assert not remains.folder.exists()
    assert not remains.memory.exists()
    assert (kept / "file").read_text() == "mine"
    with Remains() as remains:  # a link in the folder's place
        shutil.rmtree(remains.folder)
        remains.folder.symlink_to(kept)
    assert (kept / "file").read_text() == "mine"
    remains.folder.unlink()
