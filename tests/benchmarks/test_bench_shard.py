"""The runs of bench_shard in their smallest form, without a memory limit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from harness.children import child
from runs import shard as shard_run

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
ENV = {**os.environ, "PYTHONPATH": os.pathsep.join([str(BENCHMARKS), *filter(None, sys.path)])}
COUNT = 200


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("random") / "lmdb"
    write = f"write_random(Path({str(folder)!r}), 'lmdb', {COUNT})"
    code = f"from pathlib import Path; from sets.random_set import *; {write}"
    subprocess.run([sys.executable, "-c", code], env=ENV, check=True, timeout=280)
    return folder


@pytest.mark.parametrize(
    "arguments",
    [
        ("loader", "--shuffle", "exact"),
        ("loader", "--shuffle", "block", "--block", "4", "--window", "40"),
        ("loader", "--shuffle", "none", "--before"),
        ("lmdb",),
        ("disk", "--depth", "2"),
    ],
)
def test_each_run_measures_something(folder: Path, arguments: tuple[str, ...]) -> None:
    command = child("runs.shard", arguments[0], folder, *arguments[1:])
    done = subprocess.run(
        [*command, "--seconds", "0.3"], env=ENV, capture_output=True, text=True, timeout=280, check=False
    )
    if "O_DIRECT" in done.stderr or "Invalid argument" in done.stderr:
        pytest.skip("no O_DIRECT here")
    assert done.returncode == 0, done.stderr
    values = json.loads(done.stdout)
    assert values["rate"] > 0
    if arguments[0] == "loader":
        assert values["images"] > 0
        assert ("--before" in arguments) <= (values["ahead_ahead"] == 0)


class FakeKernel:
    """Makes the files of a new cgroup, as the kernel does, and takes them away with it."""

    def __init__(self, root: Path, limit_file: str, needs_control: bool) -> None:
        self.root, self.limit_file, self.needs_control = root, limit_file, needs_control
        self.limits: list[str] = []
        self.members: list[str] = []
        root.mkdir(parents=True)
        for name in ("cgroup.procs", "cgroup.subtree_control"):
            (root / name).write_text("")

    def mkdir(self, group: Path) -> None:
        os.mkdir(group)
        allowed = "+memory" in (self.root / "cgroup.subtree_control").read_text()
        for name in ("cgroup.procs", *([self.limit_file] if allowed or not self.needs_control else [])):
            (group / name).write_text("")

    def rmdir(self, group: Path) -> None:
        for file in group.iterdir():
            text = file.read_text()
            if text:
                (self.limits if file.name == self.limit_file else self.members).append(text)
            file.unlink()
        os.rmdir(group)


@pytest.mark.parametrize(
    ("below", "limit_file", "needs_control"),
    [("", "memory.max", True), ("", "memory.max", False), ("memory", "memory.limit_in_bytes", False)],
)
def test_the_memory_limit_of_either_cgroup_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, below: str, limit_file: str, needs_control: bool
) -> None:
    kernel = FakeKernel(tmp_path / "cgroup" / below, limit_file, needs_control)
    monkeypatch.setattr(shard_run, "CGROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(shard_run, "own_cgroup", lambda _: "/")
    monkeypatch.setattr(Path, "mkdir", lambda path: kernel.mkdir(path))
    monkeypatch.setattr(Path, "rmdir", lambda path: kernel.rmdir(path))
    with shard_run.memory_limit(5 << 20):
        groups = [path for path in kernel.root.iterdir() if path.is_dir()]
        assert [(group / limit_file).read_text() for group in groups] == [str(5 << 20)]
        assert (groups[0] / "cgroup.procs").read_text() == str(os.getpid())
    assert not [path for path in kernel.root.iterdir() if path.is_dir()]
    assert (kernel.root / "cgroup.procs").read_text() == str(os.getpid())  # back where it was
    assert kernel.limits == [str(5 << 20)]


def test_without_a_memory_cgroup_nothing_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_run, "CGROUPS", tmp_path)
    with pytest.raises(SystemExit, match="No writable memory cgroup"), shard_run.memory_limit(1 << 20):
        pass
