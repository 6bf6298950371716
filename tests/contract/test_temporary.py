"""Temporary folders go with their owner, however it ends; what a kill leaves, the next one made removes."""

from __future__ import annotations

import errno
import fcntl
import gc
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from process import in_child

from fastload.machine import temporary
from fastload.machine.temporary import TemporaryFolder

MAKES_ONE = """
import sys
from fastload.machine.temporary import TemporaryFolder

folder = TemporaryFolder("test", PLACE)
(folder.path / "below").mkdir()
(folder.path / "below" / "file").write_bytes(b"x")
print(folder.path, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary folders are made."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    return tmp_path / "tmp"


class Owner:
    """Another process, with a folder of its own."""

    def __init__(self, place: Path) -> None:
        path = os.pathsep.join(each for each in sys.path if each)
        self.process = subprocess.Popen(
            [sys.executable, "-c", MAKES_ONE.replace("PLACE", repr(str(place)))],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path},
        )  # fmt: skip
        assert self.process.stdout is not None
        self.folder = Path(self.process.stdout.readline().strip())

    def ends(self, number: int = 0) -> None:
        if number:
            self.process.send_signal(number)
        self.process.communicate()


def test_it_goes_with_its_block_and_with_its_owner(place: Path, no_leaks: None) -> None:
    with TemporaryFolder("block") as path:
        assert path.parent == place
        assert path.stat().st_mode & 0o777 == 0o700
        (path / "file").touch()
    owner = TemporaryFolder("owner")
    assert [*place.iterdir()] == [owner.path]
    del owner
    gc.collect()
    assert not [*place.iterdir()]


def test_it_goes_when_the_program_ends(place: Path) -> None:
    owner = Owner(place)
    assert (owner.folder / "below" / "file").exists()
    owner.ends()
    assert not [*place.iterdir()]


def test_what_a_killed_process_left_goes_with_the_next_one_made(place: Path) -> None:
    killed, alive = Owner(place), Owner(place)
    killed.ends(signal.SIGKILL)
    assert killed.folder.exists()
    with TemporaryFolder("other") as path:  # whatever it is for
        assert {*place.iterdir()} == {alive.folder, path}
    assert (alive.folder / "below" / "file").read_bytes() == b"x"
    alive.ends()
    assert not [*place.iterdir()]


def test_who_gets_it_by_pickle_owns_nothing(place: Path) -> None:
    owner = TemporaryFolder("rows")
    other = pickle.loads(pickle.dumps(owner))
    assert other.path == owner.path
    del other
    gc.collect()
    assert owner.path.exists()


def test_a_forked_child_leaves_it(place: Path) -> None:
    owner = TemporaryFolder("forked")
    assert in_child(owner._end) == 0
    assert owner.path.exists()


def test_names_of_others_stay(place: Path, tmp_path: Path) -> None:
    """Of another boot or machine, without a boot, a link, a file, or only alike."""
    boot, kept = temporary._boot(), tmp_path / "kept"
    assert len(boot) == 8
    kept.mkdir()
    for name in ("fastload-pack-ffffffff-abcdefgh", "fastload-pack-abcdefgh", f"fastload-{boot}-abcdefgh",
                 f"fastload-pack-{boot}-abcdefgh.mine", f"my-fastload-pack-{boot}-abcdefgh"):  # fmt: skip
        (place / name).mkdir()
    (place / f"fastload-link-{boot}-abcdefgh").symlink_to(kept)
    (place / f"fastload-file-{boot}-abcdefgh").touch()
    before = {*place.iterdir()}
    assert len(before) == 7
    with TemporaryFolder("next"):
        assert {*place.iterdir()} > before
    assert kept.exists()
    (place / f"fastload-pack-{boot}-abcdefgh").mkdir()
    with TemporaryFolder("next"):  # the same without all that
        assert len([*place.iterdir()]) == len(before) + 1


@pytest.mark.parametrize("why", ["no locks", "no boot"])
def test_where_nobody_can_tell_nothing_is_removed(
    place: Path, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network file system, where a folder cannot be locked; a system that hides its boot."""
    dead = place / f"fastload-pack-{temporary._boot()}-abcdefgh"
    dead.mkdir()

    def refuse(descriptor: int, kind: int) -> None:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))

    if why == "no locks":
        monkeypatch.setattr(fcntl, "flock", refuse)
    else:
        monkeypatch.setattr(temporary, "_BOOT_ID", str(place / "nothing"))
    with TemporaryFolder("test") as path:
        assert {*place.iterdir()} == {dead, path}
        assert path.name.startswith("fastload-test-")
        monkeypatch.undo()
        assert temporary._boot() not in path.name, "another one would take it for a dead process's"
        temporary._remove_left(str(place))
        assert [*place.iterdir()] == [path]
    assert not [*place.iterdir()]


def test_one_that_is_taken_for_dead_before_it_is_locked(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process removes it in this moment; this one gets another folder."""
    lock, taken = temporary._locked, []

    def late(path: str) -> int | None:
        if not taken:
            taken.append(path)
            shutil.rmtree(path)
        return lock(path)

    monkeypatch.setattr(temporary, "_locked", late)
    with TemporaryFolder("test") as path:
        assert [*place.iterdir()] == [path]
        assert str(path) not in taken
    assert len(taken) == 1


def test_ctrl_c_while_it_is_made(place: Path, monkeypatch: pytest.MonkeyPatch, no_leaks: None) -> None:
    make, made = tempfile.mkdtemp, []

    def interrupted(*arguments: str, **named: str) -> str:
        made.append(make(*arguments, **named))
        os.kill(os.getpid(), signal.SIGINT)
        return made[0]

    monkeypatch.setattr(tempfile, "mkdtemp", interrupted)
    with pytest.raises(KeyboardInterrupt):
        TemporaryFolder("test")
    gc.collect()
    assert len(made) == 1
    assert not [*place.iterdir()]
