"""Killed at any moment, changed, or started twice: a pack goes on, or says why it does not."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pack_trees import class_tree, command, encoded, environment, run_cli, snapshot
from process import HANG
from tar_reference import captioned, write_tar

import fastload
from fastload import PackedDataset
from fastload.errors import FormatError, PackError
from fastload.packing import PackOptions, pack
from fastload.packing.cut import WORK_NAME
from fastload.packing.foreign import index_files
from fastload.packing.recode import recode
from fastload.shard.manifest import MANIFEST_NAME

DRIVER = Path(__file__).with_name("kill_driver.py")


def options(format_name: str = "arrow", **extra: object) -> PackOptions:
    return PackOptions(format=format_name, shard_size=16384, num_proc=1, **extra)  # type: ignore[arg-type]


def test_killed_around_every_change_on_disk(tmp_path: Path, format_name: str) -> None:
    source = class_tree(tmp_path / "source", classes=2, images=12)
    done = subprocess.run(
        [sys.executable, DRIVER, source, tmp_path, format_name],
        capture_output=True, text=True, timeout=HANG, env=environment(), check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["points"] >= 60
    assert (result["failures"], result["early"]) == ([], 0)


@pytest.mark.parametrize("processes", [1, 2])
def test_killed_at_random_moments(tmp_path: Path, processes: int) -> None:
    source = class_tree(tmp_path / "source", classes=8, images=12)
    arguments = ("--shard-size", "8kB", "--num-proc", processes, "--quiet")
    pack(source, tmp_path / "whole" / "set", PackOptions(shard_size=8000, num_proc=1))
    output, rng = tmp_path / "killed" / "set", random.Random(processes)
    for _ in range(4):
        process = subprocess.Popen(
            command("pack", source, output, *arguments), env=environment(), stderr=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
        time.sleep(rng.uniform(0.1, 0.7))
        process.kill()
        process.wait()
    wait_for_lock(output)
    assert run_cli("pack", source, output, *arguments).returncode == 0
    assert snapshot(output) == snapshot(tmp_path / "whole" / "set")


def wait_for_lock(output: Path) -> None:
    """The processes of a killed pack are killed with it; give the kernel a moment."""
    deadline = time.monotonic() + 100
    while time.monotonic() < deadline:
        if not any(str(output).encode() in line for line in running_commands()):
            return
        time.sleep(0.02)
    raise AssertionError("processes of a killed pack are still running")


def running_commands() -> list[bytes]:
    found = []
    for entry in os.listdir("/proc"):
        try:
            found.append(Path(f"/proc/{int(entry)}/cmdline").read_bytes())
        except (ValueError, OSError):
            continue
    return found


def _packs_folders(source: Path, output: Path) -> None:
    pack(source, output, options())


def _packs_a_sequence(source: Path, output: Path) -> None:
    samples = [{"image": path.read_bytes(), "label": 0} for path in sorted(source.rglob("*.jpeg"))]
    fastload.pack(samples, output, shard_size=16384, num_proc=1)


def _indexes_a_tar(source: Path, output: Path) -> None:
    tar = source.with_suffix(".tar")
    if not tar.exists():
        write_tar(tar, captioned(20, 0), tarfile.PAX_FORMAT)
    index_files([tar], output)


def _recodes(source: Path, output: Path) -> None:
    if not (output / MANIFEST_NAME).exists():
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "replace", _REPLACE)
            patch.setattr(os, "fsync", _FSYNC)
            pack(source, output, options())
    recode(output, "fast", 1)


_REPLACE, _FSYNC = os.replace, os.fsync


@pytest.mark.parametrize("call", ["replace", "fsync"])
@pytest.mark.parametrize("run", [_packs_folders, _packs_a_sequence, _indexes_a_tar, _recodes])
def test_failure_of_every_rename_and_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Callable[[Path, Path], None], call: str
) -> None:
    source = class_tree(tmp_path / "source", classes=2, images=12)
    run(source, tmp_path / "whole" / "set")
    expected = snapshot(tmp_path / "whole" / "set")
    original, at, reasons = getattr(os, call), 0, []
    while True:
        output, count = tmp_path / "failing" / "set", 0

        def failing(*arguments: object, limit: int = at) -> object:
            nonlocal count
            count += 1
            if count == limit + 1:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return original(*arguments)

        monkeypatch.setattr(os, call, failing)
        try:
            run(source, output)
            assert count <= at
            break
        except PackError as error:
            reasons.append(str(error))
        monkeypatch.setattr(os, call, original)
        assert not list(output.rglob(".tmp-*"))
        run(source, output)
        assert snapshot(output) == expected
        shutil.rmtree(output.parent)
        at += 1
    assert at >= 7
    assert all("Input/output error" in reason for reason in reasons), reasons


def test_what_is_renamed_was_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format_name: str
) -> None:
    """A file is synced after its last change and before its rename, and its folder after it."""
    events: list[tuple[str, str]] = []
    replace = os.replace

    def fsync(descriptor: int) -> None:
        events.append(("sync", os.readlink(f"/proc/self/fd/{descriptor}")))

    def recorded(old: str, new: str) -> None:
        events.append(("rename", f"{old} {new}"))
        replace(old, new)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", recorded)
    source = class_tree(tmp_path / "source", classes=1)
    pack(source, tmp_path / "out", options(format_name))
    renames = [(i, *what.split(" ")) for i, (kind, what) in enumerate(events) if kind == "rename"]
    last = [os.path.basename(new) for _, _, new in renames[-3:]]
    assert last == ["index.fli", MANIFEST_NAME, "entries.fli"]  # complete without the last
    for i, old, new in renames:
        data = f"{old}/data.mdb" if old.endswith(".lmdb") else old
        assert ("sync", data) in events[:i]
        assert ("sync", os.path.dirname(new)) in events[i + 1 : i + 3]


def test_only_unfinished_shards_are_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = class_tree(tmp_path / "source")
    with monkeypatch.context() as patch:
        fail_after(patch, 6)
        with pytest.raises(PackError):
            pack(source, tmp_path / "out", options())
    finished = [path.stem for path in (tmp_path / "out" / WORK_NAME).glob("[!.]*.part")]
    before = {name: (tmp_path / "out" / name).stat().st_ino for name in finished}
    assert before
    assert not list((tmp_path / "out").glob(".tmp-*"))
    pack(source, tmp_path / "out", options())
    after = {path.name: path.stat().st_ino for path in (tmp_path / "out").glob("*.arrow")}
    assert before.items() <= after.items()
    assert len(after) > len(before)


def fail_after(patch: pytest.MonkeyPatch, renames: int) -> None:
    replace, count = os.replace, 0

    def failing(old: object, new: object) -> None:
        nonlocal count
        count += 1
        if count > renames:
            raise OSError(errno.EIO, "no more")
        replace(old, new)  # type: ignore[arg-type]

    patch.setattr(os, "replace", failing)


def interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """A source and an unfinished pack of it."""
    source, output = class_tree(tmp_path / "source"), tmp_path / "out"
    with monkeypatch.context() as patch:
        fail_after(patch, 6)
        with pytest.raises(PackError):
            pack(source, output, options())
    assert (output / WORK_NAME).exists()
    with pytest.raises(FormatError, match="interrupted pack goes on"):
        PackedDataset(output)
    return source, output


def test_changed_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, output = interrupted(tmp_path, monkeypatch)
    (source / "class 1" / "000a.jpg").write_bytes(encoded(5))
    with pytest.raises(PackError, match=r"48 files .*, now 49 .*class 1/000a\.jpg.*--restart"):
        pack(source, output, options())
    pack(source, output, options(restart=True))
    assert len(PackedDataset(output)) == 49


def test_touched_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, output = interrupted(tmp_path, monkeypatch)
    os.utime(source / "class 2" / "003.jpeg")
    with pytest.raises(PackError, match=r"has changed.*class 2/003\.jpeg"):
        pack(source, output, options())


def test_other_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, output = interrupted(tmp_path, monkeypatch)
    with pytest.raises(PackError, match=r"format was arrow, now lmdb.*--restart"):
        pack(source, output, options("lmdb"))
    with pytest.raises(PackError, match="shard_size was 16384, now 20000"):
        pack(source, output, PackOptions(shard_size=20000, num_proc=1))
    pack(source, output, options(on_error="skip"))  # decides nothing about the bytes
    assert len(PackedDataset(output)) == 48


def test_restart_leaves_nothing_of_the_old_pack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, output = interrupted(tmp_path, monkeypatch)
    pack(source, output, options("lmdb", restart=True))
    assert not list(output.glob("*.arrow"))
    (output / "entries.fli").write_bytes(b"of the pack that goes")
    pack(source, output, options("hdf5", restart=True, entries=None))
    assert not list(output.glob("*.lmdb"))
    assert not (output / "entries.fli").exists()
    assert len(PackedDataset(output)) == 48


def test_two_at_once(tmp_path: Path) -> None:
    source = class_tree(tmp_path / "source", classes=2)
    slow = tmp_path / "slow.py"
    slow.write_text(
        "import sys, time\nfrom fastload.packing.files import folder_lock\nfrom pathlib import Path\n"
        "with folder_lock(Path(sys.argv[1])):\n    print('held', flush=True)\n    time.sleep(600)\n"
    )
    output = tmp_path / "out"
    output.mkdir()
    holder = subprocess.Popen(
        [sys.executable, slow, output], env=environment(), stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(PackError, match=f"process {holder.pid} on .*, started 20"):
            pack(source, output, options())
        assert holder.poll() is None  # nobody has waited for it
    finally:
        holder.kill()
        holder.communicate()
    pack(source, output, options())  # the lock died with its holder
    assert len(PackedDataset(output)) == 24


def test_processes_die_with_the_parent(tmp_path: Path) -> None:
    source = class_tree(tmp_path / "source", classes=8, images=40)
    process = subprocess.Popen(
        command("pack", source, tmp_path / "out", "--shard-size", "4096", "--num-proc", 2, "--quiet"),
        env=environment(),
    )
    deadline = time.monotonic() + 100
    while not list((tmp_path / "out").glob("*.arrow")) and time.monotonic() < deadline:
        time.sleep(0.01)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    process.kill()
    process.wait()
    assert children
    deadline = time.monotonic() + 100
    while any(alive(int(child)) for child in children) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not any(alive(int(child)) for child in children)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


# The command, interrupted when the third shard is published.
INTERRUPTED = """
import os, signal, sys
from fastload.packing.work import ShardWork

publish, published = ShardWork.publish, []

def interrupted(self, number, part):
    published.append(number)
    if len(published) == 3:
        os.kill(os.getpid(), signal.SIGINT)
    publish(self, number, part)

ShardWork.publish = interrupted
from fastload.cli import main
sys.exit(main())
"""


def test_ctrl_c_leaves_a_resumable_folder(tmp_path: Path) -> None:
    source = class_tree(tmp_path / "source", classes=8, images=40)
    output = tmp_path / "out"
    words = ["pack", source, output, "--shard-size", "4096", "--num-proc", "1", "--quiet"]
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, *map(str, words)],
        env=environment(), capture_output=True, text=True, timeout=HANG, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "\ninterrupted; run the same command again to resume\n"
    assert not (output / MANIFEST_NAME).exists()
    kept = {path.name: path.stat().st_ino for path in output.glob("*.arrow")}
    assert 3 <= len(kept) < 320
    pack(source, output, PackOptions(shard_size=4096, num_proc=1))
    assert len(PackedDataset(output)) == 320
    assert {path.name: path.stat().st_ino for path in output.glob("*.arrow")}.items() >= kept.items()


def later(path: Path) -> None:
    """A time after every pack of this test."""
    moment = time.time_ns() + 10**12
    os.utime(path, ns=(moment, moment))


KINDS: list[dict[str, object]] = [{}, {"raw": True}, {"max_side": 20}, {"baseline": True}]


@pytest.mark.parametrize("extra", KINDS, ids=["as they are", "raw", "max_side", "baseline"])
def test_a_file_that_was_only_touched_is_the_same(tmp_path: Path, extra: dict[str, object]) -> None:
    source = class_tree(tmp_path / "source", classes=2)
    (source / "class 0" / "003bad.jpg").write_bytes(b"no image")  # shifts the sample ids behind it
    pack(source, tmp_path / "out", options(on_error="skip", **extra))
    before = snapshot(tmp_path / "out")
    for path in source.rglob("*"):
        later(path)
    (tmp_path / "out" / "entries.fli").unlink(missing_ok=True)  # as if killed before they were made
    [again] = pack(source, tmp_path / "out", options(on_error="skip", **extra))
    assert again.was_complete
    assert snapshot(tmp_path / "out") == before


@pytest.mark.parametrize("name", ["class 1/002.webp", "class 0/003bad.jpg"])
def test_a_newer_file_of_other_bytes_is_named(tmp_path: Path, name: str) -> None:
    """Of the same size, so that only its bytes tell."""
    source = class_tree(tmp_path / "source", classes=2)
    (source / "class 0" / "003bad.jpg").write_bytes(b"no image".ljust(len(encoded(5))))
    pack(source, tmp_path / "out", options(on_error="skip", entries=None))
    data = bytearray((source / name).read_bytes())
    data[40] ^= 1
    (source / name).write_bytes(encoded(5) if "bad" in name else data)
    later(source / name)
    with pytest.raises(
        PackError, match=rf"{name} is newer than the pack and has changed.*index .* --entries"
    ):
        pack(source, tmp_path / "out", options(on_error="skip"))
    assert not list((tmp_path / "out").glob(".tmp-*"))


def test_what_a_killed_check_left_is_removed(tmp_path: Path) -> None:
    source, output = class_tree(tmp_path / "source", classes=2), tmp_path / "out"
    pack(source, output, options())
    before = snapshot(output)
    for name in (".tmp-scan", ".tmp-scan-ab12"):
        (output / name).mkdir()
        (output / name / "paths.bin").write_bytes(b"x")
    pack(source, output, options())
    assert snapshot(output) == before
    assert not list(output.glob(".tmp-*"))
