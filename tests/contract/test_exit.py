"""A process that ends in the middle of an epoch: torch's test_proper_exit, with the cases that torch skips.

For packed data, a map-style and an iterable torch Dataset: break, an exception in the loop, sys.exit, Ctrl-C,
a failing sample, SIGKILL of the consumer (torch's loader_kill) and of a worker (worker_kill). With the
iterator in a global, alive until the interpreter's own end, and without. All must end, with the right status,
and leave neither process nor shared memory behind.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from process import HANG, settled

PROGRAM = Path(__file__).with_name("exits.py")
SECONDS = 2 * HANG  # all cases together; more is a hang, also on a busy machine
ENDS = {
    "break": 0,
    "error": 1,
    "exit": 7,
    "interrupt": -signal.SIGINT,
    "worker_error": 1,
    "loader_kill": -signal.SIGKILL,
    "worker_kill": 1,
}
IMPOSSIBLE = {("packed", "worker_kill"), ("stream", "worker_error")}
CASES = [
    f"{loader}-{end}-{reference}"
    for loader in ("packed", "map", "stream")
    for end in ENDS
    for reference in ("held", "dropped")
    if (loader, end) not in IMPOSSIBLE
]
TEXTS = {
    "error": "RuntimeError: the training step failed",
    "interrupt": "KeyboardInterrupt",
    "worker_error": " is bad",
    "worker_kill": ": DataLoader worker (pid",  # a RuntimeError of torch's handler, or NotDelivered
}


pytestmark = pytest.mark.timeout(600)


@dataclass(frozen=True)
class Outcome:
    """How a case ended."""

    status: int | str
    errors: str
    workers: list[int]  # process ids


def shared_memory() -> set[str]:
    return {name for name in os.listdir("/dev/shm") if "torch" in name or "fastload" in name}


@pytest.fixture(scope="module")
def outcomes(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    """All cases, run at once."""
    output = tmp_path_factory.mktemp("exits")
    before = sorted(path.name for path in folder.iterdir())
    command = [sys.executable, str(PROGRAM), str(folder), str(output), str(SECONDS), *CASES]
    subprocess.run(command, check=True, timeout=SECONDS + 100)
    assert sorted(path.name for path in folder.iterdir()) == before
    statuses = json.loads((output / "statuses.json").read_text())
    found = {}
    for case, status in statuses.items():
        note = output / f"{case}.json"
        workers = json.loads(note.read_text()) if note.exists() else []
        found[case] = Outcome(status, (output / f"{case}.err").read_text(), workers)
    return found


@pytest.mark.parametrize("case", CASES)
def test_it_ends(outcomes: dict[str, Outcome], case: str) -> None:
    loader, end, _ = case.split("-")
    found = outcomes[case]
    assert found.status == ENDS[end], found.errors
    assert TEXTS.get(end, "") in found.errors
    if end == "break":
        assert found.errors == ""
    if end == "worker_kill":
        assert str(found.workers[0]) in found.errors
    assert len(found.workers) == (0 if loader == "packed" else 2)


def command_line(pid: int) -> str:
    """Of a process; "" where it is gone. The number may be another one's by now."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text()
    return ""


def test_nothing_is_left(outcomes: dict[str, Outcome]) -> None:
    """torch's workers look for their parent every five seconds; their memory goes with them."""
    workers = {worker for found in outcomes.values() for worker in found.workers}

    def left() -> set[int]:
        return {worker for worker in workers if "exits.py" in command_line(worker)}

    assert settled(left, set()) == set()
    mine = {name for name in shared_memory() if any(f"_{worker}_" in name for worker in workers)}
    assert mine == set()


INTERRUPTED = """
import random, signal
from fastload.machine.threads import started_pool

armed, hits = False, 0

def interrupt(signum, frame):
    global armed
    if armed:
        armed = False
        signal.raise_signal(signal.SIGINT)

signal.signal(signal.SIGALRM, interrupt)
random.seed(3)
for _ in range(300):
    try:
        armed = True
        signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-5, 4e-4))
        pool = started_pool(3, "interrupted")
        armed = False
        pool.submit(int).result()
    except KeyboardInterrupt:
        hits += 1
print(hits)
"""


def test_an_interrupt_while_a_pool_starts_leaves_no_thread_that_exit_waits_for() -> None:
    run = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=HANG, check=True
    )
    assert int(run.stdout) > 10, run.stderr


STARTING = """
import random, sys, threading, time
from fastload.machine.threads import started_pool

def start_pools():
    while True:
        started_pool(6, "starting").shutdown(wait=True)

threading.excepthook = lambda _: None
threading.Thread(target=start_pools, daemon=True).start()
time.sleep(random.Random(int(sys.argv[1])).uniform(0.02, 0.06))
"""


def test_a_daemon_thread_that_starts_a_pool_at_exit_does_not_hold_it_up() -> None:
    """The interpreter takes no more threads then; the first ones waited for the rest, and exit for them."""
    for first in range(0, 32, 4):
        command = [sys.executable, "-c", STARTING]
        runs = [subprocess.Popen([*command, str(number)]) for number in range(first, first + 4)]
        try:
            assert [run.wait(timeout=HANG) for run in runs] == [0] * 4
        finally:
            for run in runs:
                run.kill()


BESIDE = """
import sys, threading, time
from datetime import timedelta
from torch.distributed import HashStore
from fastload.machine.threads import start_beside

store, stopping, inside = HashStore(), threading.Event(), threading.Event()

class Last:
    sleep = time.sleep

    def __del__(self):  # the interpreter is finalizing: whoever asks for the GIL is ended
        self.sleep(0.3)

def ask():  # in C++, which takes the GIL back in a function that must not throw
    while not stopping.is_set():
        inside.set()
        try:
            store.wait(["never"], timedelta(milliseconds=50))
        except Exception:
            pass

last = Last()
thread = start_beside(ask, "asking", stopping.set)
inside.wait()
"""


def test_threads_beside_the_program_have_ended_before_the_interpreter_does() -> None:
    run = subprocess.run(
        [sys.executable, "-c", BESIDE], capture_output=True, text=True, timeout=HANG, check=False
    )
    assert (run.returncode, run.stderr) == (0, "")


TOLD_TO_END = """
import sys, threading, time
from datetime import timedelta
from torch.distributed import HashStore
from fastload.machine.threads import may_be_abandoned

store, inside = HashStore(), threading.Event()

class Freed:  # by the thread that ends: in C++, which takes the GIL back in a function that must not throw
    def __del__(self):
        for _ in range(10):
            try:
                store.wait(["never"], timedelta(milliseconds=50))
            except Exception:
                pass

class Last:
    sleep = time.sleep

    def __del__(self):  # the interpreter is finalizing: whoever asks for the GIL is ended
        self.sleep(0.3)

def work():
    freed = Freed()
    with may_be_abandoned():
        inside.set()
        while threading.main_thread().is_alive():
            time.sleep(0.01)

last = Last()
threading.Thread(target=work, daemon=True).start()
inside.wait()
"""


def test_daemon_threads_have_freed_what_they_held_before_the_interpreter_ends() -> None:
    run = subprocess.run(
        [sys.executable, "-c", TOLD_TO_END], capture_output=True, text=True, timeout=HANG, check=False
    )
    assert (run.returncode, run.stderr) == (0, "")


def test_a_thread_beside_the_program_that_does_not_end_is_left(capfd: pytest.CaptureFixture[str]) -> None:
    program = (
        "import threading, time; from fastload.machine import threads; threads._PATIENCE = 0.1; "
        "threads.start_beside(threading.Event().wait, 'waiting', int)"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=HANG, check=False).returncode == 0
    assert capfd.readouterr().err == ""


KEPT = """
import builtins, sys, threading
import fastload, torch
from fastload import transforms as T

folder, where, kind = sys.argv[1:]

def same(image): return image

class Numbers(torch.utils.data.Dataset):
    def __len__(self): return 40
    def __getitem__(self, i): return torch.zeros(3), i

core = T.Compose([T.RandomResizedCrop(16), T.ToDtype("uint8")])
make = {
    "core": lambda: fastload.DataLoader(folder, 4, num_workers=2, transform=core),
    "callable": lambda: fastload.DataLoader(folder, 4, num_workers=2, transform=T.Compose([core, same])),
    "inline": lambda: fastload.DataLoader(folder, 4, num_workers=0, transform=T.Compose([core, same])),
    "no batches": lambda: fastload.DataLoader(folder, None, num_workers=2, transform=T.Compose([core, same])),
    "persistent": lambda: fastload.DataLoader(
        folder, 4, num_workers=2, transform=T.Compose([core, same]), persistent_workers=True
    ),
    "dataset": lambda: fastload.DataLoader(Numbers(), 4, num_workers=2),
}[kind]

def batches(loader): yield from loader

began = threading.Event()

def forever(loader):
    while True:
        for _ in loader: began.set()

if where == "global":
    loader = make(); kept = iter(loader); next(kept)
elif where == "generator":
    kept = batches(make()); next(kept)
elif where == "module":
    sys.kept = make(); builtins.kept = iter(sys.kept); next(builtins.kept)
elif where == "daemon":
    loader = make(); threading.Thread(target=forever, args=(loader,), daemon=True).start(); began.wait()
"""


@pytest.mark.parametrize("where", ["global", "generator", "module", "daemon"])
@pytest.mark.parametrize("kind", ["core", "callable", "inline", "no batches", "persistent", "dataset"])
def test_a_loader_that_is_kept_ends_with_the_interpreter_without_a_word(
    folder: Path, kind: str, where: str
) -> None:
    command = [sys.executable, "-W", "ignore", "-c", KEPT, str(folder), where, kind]
    run = subprocess.run(command, capture_output=True, text=True, timeout=HANG, check=False)
    assert (run.returncode, run.stderr) == (0, "")
