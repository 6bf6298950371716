"""The private folder: what somebody else may have put in its place is not used."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest
from cache_folder import OpenFolder

from fastload._native import _C
from fastload.cache.folder import LOCK_NAME, PrivateFolder, folder_path
from fastload.errors import CacheError


@pytest.fixture
def root(memory: OpenFolder) -> Path:
    if not _C.file_system(str(memory.path))["in_memory"]:
        pytest.skip("no file system in memory has room")
    return memory.path


def test_it_is_made_for_its_user_alone(root: Path) -> None:
    before = os.umask(0)
    try:
        with PrivateFolder(root, create=True) as folder:
            assert folder.path == root / f"fastload-{os.geteuid()}"
            assert folder.path.stat().st_mode & 0o7777 == 0o700
    finally:
        os.umask(before)
    with PrivateFolder(root) as again:
        assert os.path.samestat(os.fstat(again.fd), folder.path.stat())


def test_it_is_not_made_without_need(root: Path) -> None:
    with pytest.raises(FileNotFoundError):
        PrivateFolder(root)
    assert os.listdir(root) == []


@pytest.mark.parametrize("create", [True, False])
def test_a_link_is_not_followed(root: Path, tmp_path: Path, create: bool) -> None:
    tmp_path.chmod(0o700)
    folder_path(root).symlink_to(tmp_path)
    with pytest.raises(CacheError, match="not a folder of yours"):
        PrivateFolder(root, create)
    assert os.listdir(tmp_path) == []


def test_a_file_in_its_place(root: Path) -> None:
    folder_path(root).write_bytes(b"")
    with pytest.raises(CacheError, match="not a folder of yours"):
        PrivateFolder(root, create=True)


@pytest.mark.parametrize("mode", [0o701, 0o710, 0o720, 0o777, 0o1777])
def test_a_folder_that_others_may_enter(root: Path, mode: int) -> None:
    folder_path(root).mkdir()
    folder_path(root).chmod(mode)
    with pytest.raises(CacheError, match=f"mode {mode:04o}"):
        PrivateFolder(root, create=True)


def test_a_folder_of_somebody_else(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uid = os.geteuid()
    (root / f"fastload-{uid + 1}").mkdir(mode=0o700)
    monkeypatch.setattr(os, "geteuid", lambda: uid + 1)
    with pytest.raises(CacheError, match=f"belongs to user {uid}, this process runs as {uid + 1}"):
        PrivateFolder(root, create=True)


def test_a_root_that_is_not_in_memory(tmp_path: Path) -> None:
    if _C.file_system(str(tmp_path))["in_memory"]:
        pytest.skip("temporary files lie in memory here")
    with pytest.raises(CacheError, match="not in memory"):
        PrivateFolder(tmp_path, create=True)
    assert os.listdir(tmp_path) == []


def test_a_root_that_is_not_there() -> None:
    with pytest.raises(CacheError, match="FASTLOAD_CACHE_DIR"):
        PrivateFolder(Path("/nowhere/at/all"), create=True)


def test_one_makes_files_at_a_time(root: Path) -> None:
    with PrivateFolder(root, create=True) as folder:
        other = os.open(folder.path / LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(CacheError, match="locked by another process"), folder.creating(0.0):
            pass
        os.close(other)
        with folder.creating(0.0):
            pass


def test_a_lock_that_is_a_link_is_not_followed(root: Path, tmp_path: Path) -> None:
    with PrivateFolder(root, create=True) as folder:
        (folder.path / LOCK_NAME).symlink_to(tmp_path / "made")
        with pytest.raises(CacheError, match="symbolic"), folder.creating(0.0):
            pass
    assert not (tmp_path / "made").exists()
