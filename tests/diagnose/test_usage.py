"""The kernel's counters, from a tree of files as the kernel writes them, and this machine's own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fastload.diagnose.usage import Meter

TICK = os.sysconf("SC_CLK_TCK")


class Tree:
    """A small machine: process 7 with threads, workers, a cgroup."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.write("proc/self/cgroup", "0::/job\n")
        self.process(7, parent=1, ticks=(300, 100), children=(50, 10), faults=(4, 2))
        self.io(7, asked=1000, read=400)

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def process(
        self,
        pid: int,
        parent: int,
        ticks: tuple[int, int],
        children: tuple[int, int] = (0, 0),
        faults: tuple[int, int] = (0, 0),
    ) -> None:
        fields = [parent, 0, 0, 0, 0, 0, 11, 12, faults[0], faults[1], *ticks, *children]
        self.write(f"proc/{pid}/stat", f"{pid} (a (b) c) S {' '.join(map(str, fields))} 20 0\n")

    def io(self, pid: int, asked: int, read: int) -> None:
        self.write(f"proc/{pid}/io", f"rchar: {asked}\nwchar: 5\nread_bytes: {read}\nwrite_bytes: 0\n")

    def thread(self, number: int, name: str, ran: int, waited: int, pid: int = 7) -> None:
        self.write(f"proc/{pid}/task/{number}/comm", f"{name}\n")
        self.write(f"proc/{pid}/task/{number}/schedstat", f"{ran} {waited} 9\n")

    @property
    def meter(self) -> Meter:
        return Meter(str(self.root), pid=7)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def test_a_process_and_its_threads(tree: Tree) -> None:
    tree.thread(7, "python", ran=10**9, waited=2 * 10**9)
    tree.thread(8, "fastload-0", ran=3 * 10**9, waited=0)
    tree.thread(9, "fastload-read", ran=10**9, waited=5 * 10**8)
    used = tree.meter.read()
    assert used.process_cpu == pytest.approx(400 / TICK)
    assert used.our_cpu == pytest.approx(4.0)
    assert used.waited == pytest.approx(2.5)
    assert (used.asked_bytes, used.read_bytes, used.major_faults) == (1000, 400, 6)
    assert used.workers_cpu == pytest.approx(60 / TICK)  # those that have ended


def test_workers_count_before_and_after_their_end(tree: Tree) -> None:
    tree.process(20, parent=7, ticks=(200, 40))
    tree.io(20, asked=500, read=50)
    tree.write("proc/20/schedstat", "1 3000000000 1\n")
    meter = tree.meter
    alive = meter.read([20, 21])  # 21 has gone, and is among the children already
    assert alive.workers_cpu == pytest.approx(300 / TICK)
    assert (alive.asked_bytes, alive.read_bytes) == (1500, 450)
    assert alive.waited == pytest.approx(3.0)
    for name in ("stat", "io", "schedstat"):
        (tree.root / "proc/20" / name).unlink()
    tree.process(7, parent=1, ticks=(300, 100), children=(250, 50))
    ended = meter.read([20])
    assert ended.workers_cpu == pytest.approx(300 / TICK)
    assert ended.waited == pytest.approx(3.0)  # never less than before


def test_workers_of_a_fork_server_are_kept_by_their_last_numbers(tree: Tree) -> None:
    tree.process(20, parent=15, ticks=(200, 40))
    tree.io(20, asked=500, read=50)
    meter = tree.meter
    alive = meter.read([20])
    (tree.root / "proc/20/stat").unlink()
    assert meter.read([20]).workers_cpu == alive.workers_cpu == pytest.approx(300 / TICK)


@pytest.mark.parametrize(
    ("folder", "text", "seconds"),
    [
        ("sys/fs/cgroup/job", "usage_usec 9\nthrottled_usec 2500000\n", 2.5),
        ("sys/fs/cgroup", "nr_periods 4\nthrottled_usec 1500000\n", 1.5),
        ("sys/fs/cgroup/cpu", "nr_periods 4\nthrottled_time 3000000000\n", 3.0),
    ],
)
def test_throttling(tree: Tree, folder: str, text: str, seconds: float) -> None:
    tree.write("proc/self/cgroup", "1:cpu:/\n" if folder.endswith("cpu") else "0::/job\n")
    tree.write(f"{folder}/cpu.stat", text)
    assert tree.meter.read().throttled == pytest.approx(seconds)


def test_the_machine(tree: Tree) -> None:
    cpus = sorted(os.sched_getaffinity(0))
    mine = f"cpu{cpus[0]} 100 10 20 5000 30 4 6 50 0 0\n"
    tree.write("proc/stat", f"cpu  9 9 9 9 9 9 9 9 9 9\n{mine}cpu99999 700 0 0 0 0 0 0 700 0 0\nintr 5\n")
    tree.write("proc/pressure/cpu", "some avg10=1.00 avg60=0.00 avg300=0.00 total=4500000\nfull total=1\n")
    for core, count in ((0, 3), (1, 4)):
        folder = f"sys/devices/system/cpu/cpu{core}/thermal_throttle"
        tree.write(f"{folder}/core_throttle_count", f"{count}\n")
    (tree.root / "dev/shm").mkdir(parents=True)
    used = tree.meter.read()
    assert used.busy == pytest.approx(140 / TICK)  # user, nice, system, irq, softirq; not idle, not iowait
    assert used.stolen == pytest.approx(50 / TICK)
    assert used.pressure == pytest.approx(4.5)
    assert used.hot == 7
    assert used.shm_free is not None
    assert used.shm_free > 0


def test_what_the_kernel_does_not_say_is_none(tmp_path: Path) -> None:
    used = Meter(str(tmp_path), pid=7).read([8])
    unknown = (used.read_bytes, used.asked_bytes, used.major_faults, used.throttled, used.busy, used.stolen)
    assert unknown == (None,) * 6
    assert (used.pressure, used.hot, used.shm_free) == (None,) * 3


def test_this_process_and_its_children() -> None:
    meter = Meter()
    before = meter.read()
    code = "import time; end = time.process_time() + 0.3\nwhile time.process_time() < end: pass"
    subprocess.run([sys.executable, "-c", code], check=True)
    after = meter.read()
    assert after.when > before.when
    assert after.workers_cpu - before.workers_cpu >= 0.25
    assert after.process_cpu >= before.process_cpu
