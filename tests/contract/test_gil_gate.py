"""Threads that want the GIL while the interpreter ends.

CPython up to 3.13 ends them in a way that ends the process, "terminate called without an active exception",
as soon as it passes a function of C++ that must not throw. Each process here makes that time long: an object
whose ``__del__`` runs in the interpreter's finalization sleeps, and leaves the GIL to whoever asks.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from pictures import encoded, picture
from plain_pack import plain_pack
from process import HANG

BEGINNING = """
import os, sys, threading, time
import numpy as np
from fastload import PackedDataset
from fastload._native import _C

class Last:
    sleep, write = time.sleep, os.write  # the modules' names are gone by then

    def __del__(self):
        self.sleep(0.3)
        self.write(1, b"finalized")

last = Last()
dataset = PackedDataset(sys.argv[1])

def decode(record):
    time.sleep(0.001)
    return np.zeros((8, 8, 3), np.uint8)

def make_engine(threads=2):
    view = _C.ViewPlan(_C.GeometrySpec(), 8, 8)
    fields = [_C.FieldPlan("picture"), _C.FieldPlan("label", part=_C.INDEX, width=8)]
    return _C.Engine(dataset.sources, [], [view], fields, seed=0, threads=threads, max_pixels=100_000,
                     fallback=decode)

def submit(engine):
    ids = np.arange(len(dataset), dtype=np.int64)
    places = [(8 * len(ids), 192), (0, 8)]
    return engine.submit(np.empty(len(ids) * 200, np.uint8), places, ids, None, 0)
"""

# The engines live until the interpreter's end: nothing has closed them.
DECODERS = """
engines = [make_engine(), make_engine()]
tickets = [[submit(engine) for _ in range(40)] for engine in engines]
engines[0].wait(tickets[0][0], 60.0)
"""

# A thread of Python's that comes back from the core.
WAITING = """
engine = make_engine(1)
ticket = submit(engine)

def wait():
    while True:
        engine.wait(ticket, 0.001)

for _ in range(3):
    threading.Thread(target=wait, daemon=True).start()
time.sleep(0.02)
"""

# They have gone on, because nothing ended for a while, and wait for the GIL when it does.
GONE_ON = (
    WAITING
    + """
import atexit

@atexit.register
def late():
    _C.close_gil_gate()
    sys.setswitchinterval(1000)  # nobody gets the GIL before the interpreter ends
    end = time.monotonic() + 0.5
    while time.monotonic() < end:
        pass
"""
)

# A decoder that is in the middle of a picture is waited for. Which picture that is, the machine says.
HELD_UP = """
inside, left = threading.Event(), []

def decode(record):
    inside.set()
    time.sleep(0.5)
    left.append(record)
    return np.zeros((8, 8, 3), np.uint8)

engine = make_engine(1)
ticket = submit(engine)
inside.wait()
assert _C.close_gil_gate(60.0)
done = len(left)
assert 1 <= done < 20, done
assert engine.wait(ticket, 60.0)
assert len(left) == done
faults = engine.collect(ticket)
assert len(faults) == 20 - done, faults
assert "the Python interpreter is exiting" in faults[0][3], faults[0]
"""

# Not for ever.
TOO_LONG = """
inside = threading.Event()

def decode(record):
    inside.set()
    threading.Event().wait()

engine = make_engine(1)
submit(engine)
inside.wait()
assert not _C.close_gil_gate(0.2)
os.write(1, b"finalized")
os._exit(0)
"""

# In the middle of a decoder, and of a call: only the thread that forks is in the child.
FORKED = """
children = []

def decode(record):
    if not children:
        children.append(os.fork())
        if children[0] == 0:
            os._exit(0 if _C.close_gil_gate() else 5)
        sys.exitcode = os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1])
    return np.zeros((8, 8, 3), np.uint8)

engine = make_engine()
ticket = submit(engine)
while not engine.wait(ticket, 0.01):
    pass
assert sys.exitcode == 0, sys.exitcode
"""

# A function that atexit was given before fastload's waits for a thread that is in the core.
JOINED = """
stop, ended = threading.Event(), []
engine = make_engine(1)
ticket = submit(engine)

def wait():
    while not stop.is_set():
        engine.wait(ticket, 0.001)
    ended.append(True)

thread = threading.Thread(target=wait, daemon=True)
thread.start()
_C.close_gil_gate()
stop.set()
thread.join(60)
assert ended
"""


PROGRAMS = {
    "decoders": DECODERS,
    "waiting": WAITING,
    "gone on": GONE_ON,
    "held up": HELD_UP,
    "too long": TOO_LONG,
    "forked": FORKED,
    "joined": JOINED,
}


@pytest.fixture(scope="module")
def gifs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """GIFs, which the core gives to the decoder in Python."""
    return plain_pack(
        tmp_path_factory.mktemp("gifs"), [encoded(picture(0, 8, 8), "GIF")] * 20, range(20)
    ).folder


# One interpreter imports everything; a forked child runs a program, and then ends as any process does.
LAUNCHER = """
import json
programs, pids = json.loads(sys.argv[2]), []
for number, program in enumerate(programs):
    pids.append(os.fork())
    if pids[-1] == 0:
        for descriptor, kind in ((1, "out"), (2, "err")):
            os.dup2(os.open(f"{sys.argv[3]}/{number}.{kind}", os.O_WRONLY | os.O_CREAT), descriptor)
        exec(program)
        break
else:
    statuses = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    os.write(1, json.dumps(statuses).encode())
    os._exit(0)
"""


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_process_ends_with_threads_that_want_the_gil(name: str, gifs: Path, tmp_path: Path) -> None:
    programs = [PROGRAMS[name]] * (3 if name in ("decoders", "waiting") else 1)
    command = [sys.executable, "-c", BEGINNING + LAUNCHER, str(gifs), json.dumps(programs), str(tmp_path)]
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=HANG, check=True)
    ends = [
        (status, *((tmp_path / f"{number}.{kind}").read_text() for kind in ("out", "err")))
        for number, status in enumerate(json.loads(run.stdout))
    ]
    assert ends == [(0, "finalized", "")] * len(programs)


def test_there_is_no_way_around_the_gate() -> None:
    bindings = Path(__file__).parents[2] / "csrc/bindings"
    others = [path for path in bindings.iterdir() if path.stem != "gil"]
    assert len(others) > 15
    around = ("gil_scoped", "PyGILState", "PyEval_")
    assert [path.name for path in others if any(word in path.read_text() for word in around)] == []
