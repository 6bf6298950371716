"""A failure that passes while packing looks at its source must not make it another source."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import lmdb
import pytest
from annotated_trees import write_yolo

from fastload._native import _C
from fastload.errors import FormatError, PackError, RemoteError, ShardError
from fastload.machine.paths import exists, is_dir, is_file, is_symlink
from fastload.packing import PackOptions
from fastload.packing.annotations.find import annotated_sources
from fastload.packing.annotations.yolo import has_labels
from fastload.packing.files import names_in, raise_if_transient, walk
from fastload.packing.rows import Notes
from fastload.packing.table_columns import is_image_file
from fastload.remote.opening import open_store
from fastload.shard import hdf5
from fastload.shard import lmdb as lmdb_shards
from fastload.shard.lmdb import _opened

LONG = 300 * "x"
PASSING = (errno.EIO, errno.EMFILE, errno.ENOMEM, errno.ESTALE)


def failing(call: Callable[..., Any], name: str, number: int) -> Callable[..., Any]:
    """``call``, which fails for paths that end in ``name``."""

    def called(path: Any, *more: Any, **named: Any) -> Any:
        if isinstance(path, str | bytes | os.PathLike) and os.fsdecode(path).endswith(name):
            raise OSError(number, os.strerror(number), os.fsdecode(path))
        return call(path, *more, **named)

    return called


@pytest.mark.parametrize("number", [*PASSING, errno.EACCES])
def test_a_data_yaml_that_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    write_yolo(tmp_path, 2)
    monkeypatch.setattr(_C, "open_at_once", failing(_C.open_at_once, "data.yaml", number))
    with pytest.raises(PackError, match=f"data.yaml cannot be read: {os.strerror(number)}"):
        annotated_sources(tmp_path, PackOptions(format="arrow"))


@pytest.mark.parametrize("number", PASSING)
def test_a_folder_of_labels_that_cannot_be_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    write_yolo(tmp_path, 2)
    monkeypatch.setattr(os, "scandir", failing(os.scandir, "labels", number))
    with pytest.raises(PackError, match=f"labels cannot be read: {os.strerror(number)}"):
        has_labels(tmp_path)


@pytest.mark.parametrize("number", PASSING)
def test_coco_s_files_that_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    (tmp_path / "annotations").mkdir()
    (tmp_path / "annotations" / "of.json").write_text('{"images": [], "annotations": [{"bbox": []}]}')
    monkeypatch.setattr(_C, "open_at_once", failing(_C.open_at_once, ".json", number))
    with pytest.raises(PackError, match=f".json cannot be read: {os.strerror(number)}"):
        annotated_sources(tmp_path, PackOptions(format="arrow"))


@pytest.mark.parametrize(("number", "found"), [*((one, None) for one in PASSING), (errno.EACCES, False)])
def test_a_picture_of_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, found: bool | None
) -> None:
    (tmp_path / "x.jpg").write_bytes(b"\xff\xd8\xff\xe0")
    assert is_image_file("x.jpg", os.fsencode(tmp_path))
    assert not is_image_file("y.jpg", os.fsencode(tmp_path))
    monkeypatch.setattr(_C, "open_at_once", failing(_C.open_at_once, "x.jpg", number))
    if found is None:
        with pytest.raises(PackError, match="x.jpg cannot be read"):
            is_image_file("x.jpg", os.fsencode(tmp_path))
    else:
        assert is_image_file("x.jpg", os.fsencode(tmp_path)) is found


def test_names_and_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "a").write_text("")
    assert names_in(tmp_path) == ["a", "b"]
    assert names_in(tmp_path / "nothing") == []
    assert names_in(tmp_path / "a") == []
    assert [*walk(str(tmp_path / "nothing"))] == []
    assert [*walk(str(tmp_path))] == [*os.walk(tmp_path)]
    raise_if_transient("x", FileNotFoundError(errno.ENOENT, "gone"))
    raise_if_transient("x", ValueError("no such thing"))
    monkeypatch.setattr(os, "scandir", failing(os.scandir, f"{tmp_path}/b", errno.EACCES))
    assert [*walk(str(tmp_path))] == [(str(tmp_path), ["b"], ["a"])]
    monkeypatch.setattr(os, "listdir", failing(os.listdir, tmp_path.name, errno.EACCES))
    with pytest.raises(PackError, match="cannot be read: Permission denied"):
        names_in(tmp_path)


@pytest.mark.parametrize("number", [*PASSING, errno.EACCES])
def test_a_store_of_files_is_listed_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "x").write_text("")
    store = open_store("file:///")
    assert [found.path for found in store.list(f"{tmp_path}/"[1:])] == [f"{tmp_path}/b/x"[1:]]
    assert [*store.list(f"{tmp_path}/nothing/"[1:])] == []
    monkeypatch.setattr(os, "scandir", failing(os.scandir, f"{tmp_path}/b", number))
    with pytest.raises(RemoteError, match=f"/b cannot be listed: {os.strerror(number)}"):
        [*store.list(f"{tmp_path}/"[1:])]


def test_a_signal_while_lmdb_opens_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, words = lmdb.open, [os.strerror(errno.EINTR)] * 3

    def interrupted(path: str, **options: Any) -> Any:
        if words:
            raise lmdb.Error(f"{path}: {words.pop()}")
        return whole(path, **options)

    monkeypatch.setattr(sys.modules["lmdb"], "open", interrupted)
    _opened(tmp_path / "set", map_size=1 << 20).close()
    assert (tmp_path / "set" / "data.mdb").exists()
    words.append(os.strerror(errno.EIO))
    with pytest.raises(lmdb.Error, match=os.strerror(errno.EIO)):
        _opened(tmp_path / "set", map_size=1 << 20)


@pytest.mark.parametrize("number", PASSING)
def test_what_a_pack_is_known_by_does_not_depend_on_the_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    write_yolo(tmp_path, 2)
    [(_, whole), *_] = annotated_sources(tmp_path, PackOptions(format="arrow"))
    assert all(row.mtime_ns > 0 for row in whole.listed(Notes()) or ())
    [(_, looked), *_] = annotated_sources(tmp_path, PackOptions(format="arrow"))
    monkeypatch.setattr(os, "stat", failing(os.stat, "001.txt", number))
    with pytest.raises(PackError, match=f"001.txt cannot be read: {os.strerror(number)}"):
        list(looked.listed(Notes()) or ())


def test_a_signal_while_hdf5_opens_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, interrupted = h5py.File, [InterruptedError(errno.EINTR, os.strerror(errno.EINTR))] * 3
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["image"] = [1, 2, 3]

    def opened(path: Path, *mode: str, **options: Any) -> Any:
        if interrupted:
            raise interrupted.pop()
        return whole(path, *mode, **options)

    monkeypatch.setattr(h5py, "File", opened)
    with hdf5._open(tmp_path / "x.h5") as file:
        assert list(file) == ["image"]
    assert not interrupted


@pytest.mark.parametrize("number", PASSING)
def test_a_database_that_cannot_be_looked_at_is_not_called_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    lmdb.open(str(tmp_path / "set"), map_size=1 << 20).close()
    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", failing(os.stat, "set", number))
        with pytest.raises(OSError, match=os.strerror(number)):
            lmdb_shards.read_foreign(tmp_path / "set", None, {})
    opened = failing(open, "data.mdb", number)
    monkeypatch.setattr("lmdb.verify.open", opened, raising=False)
    with pytest.raises(ShardError, match=f"set cannot be read: {os.strerror(number)}"):
        lmdb_shards.read_foreign(tmp_path / "set", None, {})
    (tmp_path / "other").mkdir()
    monkeypatch.undo()
    with pytest.raises(FormatError, match="is not an LMDB database"):
        lmdb_shards.read_foreign(tmp_path / "other", None, {})


def test_what_lies_at_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to("folder")
    (tmp_path / "to nothing").symlink_to("nothing")
    (tmp_path / "to itself").symlink_to("to itself")
    os.mkfifo(tmp_path / "pipe")
    found = {
        name: [what(tmp_path / name) for what in (exists, is_dir, is_file, is_symlink)]
        for name in (
            "folder",
            "file",
            "link",
            "to nothing",
            "to itself",
            "pipe",
            "nothing",
            "file/x",
            "\0",
            LONG,
        )
    }
    assert found == {
        "folder": [True, True, False, False],
        "file": [True, False, True, False],
        "link": [True, True, False, True],
        "to nothing": [False, False, False, True],
        "to itself": [False, False, False, True],
        "pipe": [True, False, False, False],
        "nothing": [False] * 4,
        "file/x": [False] * 4,
        "\0": [False] * 4,
        LONG: [False] * 4,
    }
    monkeypatch.setattr(os, "stat", failing(os.stat, "file", errno.EIO))
    for what in (exists, is_dir, is_file, is_symlink):
        with pytest.raises(OSError, match="Input/output error"):
            what(tmp_path / "file")
