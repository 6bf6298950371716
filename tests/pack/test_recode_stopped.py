"""Recodes that are killed, fail or are begun otherwise: the set is whole, and the same call goes on."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pack_trees import command, environment, make_tree, snapshot
from recode_sets import contents, field_set, stored

from fastload.errors import ChecksumError, PackError
from fastload.packing import PackOptions, pack
from fastload.packing import recode as recode_run
from fastload.packing.progress import Observer, Work
from fastload.packing.recode import files_of, recode
from fastload.packing.target import OutputFolder
from fastload.packing.verify import verify
from fastload.packing.work import ShardWork
from fastload.shard.dataset import PackedFiles


def test_all_is_on_the_device_before_the_switch_and_nothing_goes_before_it(
    jpegs: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format_name: str
) -> None:
    folder = field_set(tmp_path / "set", format_name, jpegs)
    old = files_of(PackedFiles(folder).manifest)
    events: list[tuple[str, str]] = []
    replace, remove = os.replace, recode_run.remove

    def recorded(source: Path, target: Path) -> None:
        # What was synced under the one name has the other from here on.
        events.extend([("sync", str(target))] if ("sync", str(source)) in events else [])
        events.append(("rename", Path(target).name))
        if ("sync", f"{source}/data.mdb") in events:
            events.append(("sync", f"{target}/data.mdb"))
        replace(source, target)

    def removed(path: Path) -> None:
        events.append(("remove", path.name))
        remove(path)

    where = "/proc/self/fd/{}"
    monkeypatch.setattr(
        os, "fsync", lambda number: events.append(("sync", os.readlink(where.format(number))))
    )
    monkeypatch.setattr(os, "replace", recorded)
    monkeypatch.setattr(recode_run, "remove", removed)
    manifest = recode(folder, "fast", 1).manifest
    at = events.index(("rename", "dataset.json"))
    named = [shard.file for shard in manifest.shards] + [manifest.index_name]
    named += [str(entry["file"]) for entry in manifest.fields if "file" in entry]
    assert len(named) > 8
    for name in named:
        assert ("sync", str(folder / name)) in events[:at], name
    last = max(i for i in range(at) if events[i][0] == "rename")
    assert ("sync", str(folder)) in events[last:at]
    assert events[at + 1] == ("sync", str(folder))
    assert {name for kind, name in events[at:] if kind == "remove"} >= old - {"dataset.json"}
    assert not {name for kind, name in events[:at] if kind == "remove"} & old


def test_several_processes_killed(plain: Path, tmp_path: Path) -> None:
    """The command itself, from outside: what its processes had begun is not taken for finished."""
    copy = tmp_path / "whole" / "set"
    shutil.copytree(plain, copy)
    recode(copy, "fast", 1)
    for wanted in (0, 1, 3):
        arguments = ("recode", plain, "--num-proc", 2, "--quiet")
        process = subprocess.Popen(command(*arguments), env=environment(), stdout=subprocess.DEVNULL)
        while process.poll() is None and len([*plain.glob(".fastload-recode/*.part")]) < wanted:
            time.sleep(0.001)
        process.kill()
        process.wait()
        assert [PackedFiles(plain).read(i) for i in range(2)] == [PackedFiles(copy).read(i) for i in range(2)]
    recode(plain, "fast", 2)
    assert snapshot(plain) == snapshot(copy)


class Stop(Exception):
    """Ends a recode where a test wants it."""


def stopped_after(shards: int, monkeypatch: pytest.MonkeyPatch, run: Callable[[], object]) -> None:
    """Run a recode that ends when so many shards are written."""
    write, left = ShardWork.write, [shards]

    def stopping(self: ShardWork, number: int, advance: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise Stop
        return write(self, number, advance)

    with monkeypatch.context() as patch:
        patch.setattr(ShardWork, "write", stopping)
        with pytest.raises(Stop):
            run()


def test_finished_shards_are_kept(plain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped_after(2, monkeypatch, lambda: recode(plain, "fast", 1))
    started: list[int] = []

    class Heard(Observer):
        def started(self, work: Work) -> None:
            if work.doing == "recoding":
                started.append(work.done)

    recode(plain, "fast", 1, Heard())
    shards = PackedFiles(plain).manifest.shards
    assert started == [shards[0].records + shards[1].records]
    assert not (plain / ".fastload-recode").exists()


def test_a_damaged_plan_is_named(plain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped_after(1, monkeypatch, lambda: recode(plain, "fast", 1))
    next(plain.rglob("plan.json")).write_text("{")
    with pytest.raises(PackError, match=r"fastload-recode has a recode that cannot be resumed.*set is good"):
        recode(plain, "fast", 1)


@pytest.mark.parametrize("then", ["small", None])
def test_another_wish_begins_anew(plain: Path, monkeypatch: pytest.MonkeyPatch, then: str | None) -> None:
    before = contents(plain)
    stopped_after(2, monkeypatch, lambda: recode(plain, "fast", 1))
    result = recode(plain, then, 1)
    assert result.was_so is (then is None)
    assert not [name for name in os.listdir(plain) if name.startswith(".")]
    if then is None:
        assert contents(plain) == before
    assert verify(plain, decode=True)[0] == []


def test_killed_behind_the_switch_another_wish_first_ends_it(
    plain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = contents(plain)

    def stop(*_: object) -> None:
        raise Stop

    with monkeypatch.context() as patch:
        patch.setattr(recode_run, "_finish", stop)
        with pytest.raises(Stop):
            recode(plain, "fast", 1)
    assert len(snapshot(plain)) > 2 * len(before)  # old and new
    with pytest.warns(UserWarning, match="entry points are left out"):
        assert PackedFiles(plain).manifest.options["coefficients"] == "fast"
    recode(plain, None, 1)
    assert contents(plain) == before


def test_pack_restart_throws_an_unfinished_recode_away(
    plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = snapshot(plain)
    stopped_after(2, monkeypatch, lambda: recode(plain, "fast", 1))
    kind = PackedFiles(plain).manifest.format
    pack(tmp_path / "source", plain, PackOptions(format=kind, shard_size=8000, num_proc=1, restart=True))
    assert snapshot(plain) == before
    recode(plain, "fast", 1)
    pack(tmp_path / "source", plain, PackOptions(format=kind, shard_size=8000, num_proc=1, restart=True))
    assert snapshot(plain) == before


def test_a_full_disk(
    tiny: Path, jpegs: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format_name: str
) -> None:
    # Bytes that nothing makes smaller: zeros behind the end marker would leave room enough.
    noise = random.Random(0).randbytes(100_000)
    large = {name: data + noise for name, data in jpegs.items() if name.startswith("c/")}
    source = make_tree(tmp_path / "source", large)
    pack(source, tmp_path / "set", PackOptions(format=format_name, shard_size=250_000, num_proc=1))
    subprocess.run(["cp", "-r", tmp_path / "set", tiny], check=True)
    (tiny / "fill").write_bytes(bytes(800_000))
    before = snapshot(tiny / "set")
    with pytest.raises(PackError, match=r"not enough space in .*bytes needed, [\d,]+ free"):
        recode(tiny / "set", "fast", 1)
    monkeypatch.setattr(recode_run, "require_space", lambda folder, needed: None)
    with pytest.raises(
        PackError, match=r"No space left on device|Input/output error\. About [\d,]+ bytes needed"
    ):
        recode(tiny / "set", "fast", 1)
    kept = {name: data for name, data in snapshot(tiny / "set").items() if not name.startswith(".fastload-")}
    assert kept == before
    assert not list((tiny / "set").rglob(".tmp-*"))
    subprocess.run(["mount", "-o", "remount,size=40m", tiny], check=True)
    recode(tiny / "set", "fast", 1)
    recode(tiny / "set", None, 1)
    assert stored(tiny / "set") == list(large.values())


def test_a_damaged_shard_stops_it(plain: Path) -> None:
    dataset = PackedFiles(plain)
    at, shard = int(dataset.records["offset"][5]) + 30, dataset.manifest.shards[dataset.records["shard"][5]]
    with open(plain / shard.file, "r+b") as file:
        file.seek(at)
        file.write(b"\x00\x01\x02")
    before = snapshot(plain)
    with pytest.raises(ChecksumError):
        recode(plain, "fast", 1)
    found = snapshot(plain)
    assert {name: found[name] for name in before} == before
    assert not (OutputFolder(plain).work).exists()
