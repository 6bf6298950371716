"""What the node keeps of a set in a store: fetched once, checked, whole or not there."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fault_server import Fault, FaultServer, Rule
from field_sets import RICH, rich_samples, write_field_set
from object_server import ObjectServer
from process import HANG

from fastload import PackedDataset
from fastload.errors import CacheError, ChecksumError, FormatError, RemoteError
from fastload.remote import node_folder
from fastload.remote.location import Location
from fastload.shard import node_sets as node_copy
from fastload.shard.node_sets import NodeCopy, copy_to_node

BUCKET = "node-copies"
TABLES = ["dataset.json", "index.fli"]


@pytest.fixture(scope="module")
def server(object_server: ObjectServer, packed: PackedDataset) -> ObjectServer:
    """With a set in the bucket."""
    object_server.make_bucket(BUCKET)
    put(object_server, packed.folder, "set")
    return object_server


def put(server: ObjectServer, folder: Path, name: str) -> None:
    """Upload a set."""
    client = server.client()
    for path in (path for path in folder.rglob("*") if path.is_file()):
        key = f"{name}/{path.relative_to(folder).as_posix()}"
        client.put_object(Bucket=BUCKET, Key=key, Body=path.read_bytes())


@pytest.fixture
def front(server: ObjectServer) -> Iterator[FaultServer]:
    """A server before the store that fails as it is told, and counts."""
    with FaultServer(upstream=server.endpoint.removeprefix("http://")) as front:
        yield front


@pytest.fixture
def sets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the node keeps sets."""
    monkeypatch.setenv("FASTLOAD_SETS_DIR", str(tmp_path / "sets"))
    return tmp_path / "sets"


def open_it(server: ObjectServer, front: FaultServer, name: str = "set", **options: Any) -> NodeCopy:
    """Open a set through the server before the store."""
    given = {**server.storage_options, "endpoint_url": front.url}
    copy = copy_to_node(Location("s3", BUCKET, name), given, **options)
    while not (copy.folder / "dataset.json").exists():  # it comes last, in the background
        time.sleep(0.01)
    return copy


def asked(front: FaultServer) -> list[str]:
    """Names of the objects that were asked for."""
    return sorted(request.path.partition("?")[0].rpartition("/")[2] for request in front.requests)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name not in (".lock", ".use", ".source"))


def test_index_and_manifest_are_kept(
    server: ObjectServer, front: FaultServer, sets: Path, packed: PackedDataset
) -> None:
    copy = open_it(server, front)
    assert copy.folder == sets / packed.manifest.seal
    assert copy.manifest == packed.manifest
    has_entries = (packed.folder / "entries.fli").exists()
    assert names(copy.folder) == sorted([*TABLES, *(["entries.fli"] if has_entries else [])])
    for name in names(copy.folder):
        assert (copy.folder / name).read_bytes() == (packed.folder / name).read_bytes()
    assert [path for path, _ in copy.shards] == [f"set/{shard.file}" for shard in packed.manifest.shards]
    assert (copy.folder.stat().st_mode & 0o777, copy.folder.parent.parent) == (0o700, sets.parent)


def test_what_is_there_is_not_fetched_again(server: ObjectServer, front: FaultServer, sets: Path) -> None:
    open_it(server, front, entries=False)
    first = asked(front)
    assert first == ["dataset.json", "index.fli"]
    open_it(server, front, entries=False)
    assert asked(front) == sorted([*first, "dataset.json"])


def test_a_set_with_columns_is_kept_whole(
    server: ObjectServer, front: FaultServer, sets: Path, tmp_path: Path
) -> None:
    folder = write_field_set(tmp_path / "fields", RICH, rich_samples(9))
    put(server, folder, "fields")
    columns = [path.name for path in folder.glob("field-*.fli")]
    assert columns
    copy = open_it(server, front, "fields")
    assert set(columns) <= set(names(copy.folder))
    for name in columns:
        assert (copy.folder / name).read_bytes() == (folder / name).read_bytes()


def test_large_files_come_in_parts(
    server: ObjectServer,
    front: FaultServer,
    sets: Path,
    packed: PackedDataset,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(node_copy, "_PART", 1000)
    copy = open_it(server, front, entries=False)
    assert asked(front).count("index.fli") == -(-packed.manifest.index_size // 1000)
    assert (copy.folder / "index.fli").read_bytes() == (packed.folder / "index.fli").read_bytes()


def test_a_set_that_was_packed_anew_is_noticed(
    server: ObjectServer, front: FaultServer, sets: Path, packed: PackedDataset, tmp_path: Path
) -> None:
    put(server, packed.folder, "changing")
    before = open_it(server, front, "changing")
    put(server, write_field_set(tmp_path / "other", RICH, rich_samples(9)), "changing")
    after = open_it(server, front, "changing")
    assert before.manifest.seal != after.manifest.seal
    assert before.folder != after.folder


def test_another_sets_index_is_refused(
    server: ObjectServer, front: FaultServer, sets: Path, packed: PackedDataset, tmp_path: Path
) -> None:
    folder = tmp_path / "torn"
    shutil.copytree(packed.folder, folder)
    index = bytearray((folder / "index.fli").read_bytes())
    index[4096 + 40] ^= 1  # in a page: only checking all of it tells
    (folder / "index.fli").write_bytes(index)
    put(server, folder, "torn")
    with pytest.raises(ChecksumError, match=rf"s3://{BUCKET}/torn/index.fli"):
        open_it(server, front, "torn")
    assert names(sets / packed.manifest.seal) == []


def test_a_missing_index_is_said(
    server: ObjectServer, front: FaultServer, sets: Path, packed: PackedDataset
) -> None:
    put(server, packed.folder, "partly")
    server.client().delete_object(Bucket=BUCKET, Key="partly/index.fli")
    with pytest.raises(FormatError, match=rf"s3://{BUCKET}/partly is not whole: .*index.fli does not exist"):
        open_it(server, front, "partly")


def test_no_set_there_is_said(server: ObjectServer, front: FaultServer, sets: Path) -> None:
    with pytest.raises(FormatError, match=rf"s3://{BUCKET}/nothing is not a packed dataset: it has"):
        open_it(server, front, "nothing")


def test_a_file_that_was_damaged_here_is_fetched_again(
    server: ObjectServer, front: FaultServer, sets: Path, packed: PackedDataset
) -> None:
    folder = open_it(server, front).folder
    for damage in (b"", b"FLINDEX1" + bytes(packed.manifest.index_size - 8)):
        (folder / "index.fli").write_bytes(damage)
        assert open_it(server, front).folder == folder
        assert (folder / "index.fli").read_bytes() == (packed.folder / "index.fli").read_bytes()


def test_what_a_power_cut_has_left_is_looked_at_as_a_whole(
    server: ObjectServer, front: FaultServer, sets: Path, packed: PackedDataset
) -> None:
    """Files came to the disk as a whole when the manifest is there."""
    folder = open_it(server, front).folder
    index = bytearray((packed.folder / "index.fli").read_bytes())
    index[4096 + 40] ^= 1  # in a page: only checking all of it tells
    for is_settled in (True, False):
        (folder / "index.fli").write_bytes(index)
        if not is_settled:
            (folder / "dataset.json").unlink()
        assert open_it(server, front).folder == folder
        good = (folder / "index.fli").read_bytes() == (packed.folder / "index.fli").read_bytes()
        assert good != is_settled


def test_damaged_entry_points_are_left_out(
    server: ObjectServer, front: FaultServer, sets: Path, packed: PackedDataset, tmp_path: Path
) -> None:
    folder = tmp_path / "entries"
    shutil.copytree(packed.folder, folder)
    (folder / "entries.fli").write_bytes(b"no entry points")
    put(server, folder, "entries")
    with pytest.warns(UserWarning, match="entries.fli: .*The entry points are left out"):
        copy = open_it(server, front, "entries")
    assert names(copy.folder) == TABLES


def test_an_index_in_place_of_files_elsewhere_is_refused(
    server: ObjectServer, front: FaultServer, sets: Path, packed: PackedDataset, tmp_path: Path
) -> None:
    folder = tmp_path / "elsewhere"
    shutil.copytree(packed.folder, folder)
    shards = tuple(replace(shard, file="/data/x.arrow") for shard in packed.manifest.shards)
    replace(packed.manifest, shards=shards).write(folder)
    put(server, folder, "elsewhere")
    with pytest.raises(FormatError, match="indexed in place over files that are not in the store: '/data/x"):
        open_it(server, front, "elsewhere")


def test_no_room_is_said_before(
    server: ObjectServer,
    front: FaultServer,
    sets: Path,
    packed: PackedDataset,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(node_folder, "_SPARE", 1 << 60)
    with pytest.raises(CacheError, match="has no room for the index.*FASTLOAD_SETS_DIR"):
        open_it(server, front)
    assert names(sets / packed.manifest.seal) == []


def test_a_folder_that_cannot_be_made_is_said(
    server: ObjectServer, front: FaultServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("FASTLOAD_SETS_DIR", str(tmp_path / "file"))
    with pytest.raises(CacheError, match="cannot be made: .*FASTLOAD_SETS_DIR"):
        open_it(server, front)


def test_where_sets_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FASTLOAD_SETS_DIR", raising=False)
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert node_folder.node_root() == Path("/home/me/.cache/fastload/sets")
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/cache")
    assert node_folder.node_root() == Path("/var/cache/fastload/sets")
    monkeypatch.setenv("FASTLOAD_SETS_DIR", "/nvme/sets")
    assert node_folder.node_root() == Path("/nvme/sets")


OPEN = """
import json, sys
from fastload.remote.location import Location
from fastload.shard.node_sets import copy_to_node
given = json.loads(sys.argv[1])
print("begins", flush=True)
copy_to_node(Location.parse(given.pop("url")), given)
"""


def start(server: ObjectServer, front: FaultServer) -> subprocess.Popen[bytes]:
    given = {**server.storage_options, "endpoint_url": front.url, "url": f"s3://{BUCKET}/set"}
    command = [sys.executable, "-c", OPEN, json.dumps(given)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_one_process_fetches_and_the_others_wait(
    server: ObjectServer, front: FaultServer, sets: Path
) -> None:
    front.rules.append(Rule(Fault(delay=1.0), path="index.fli"))
    processes = [start(server, front) for _ in range(3)]
    for process in processes:
        _, words = process.communicate(timeout=HANG)
        assert (process.returncode, words) == (0, b"")
    found = asked(front)
    assert (found.count("dataset.json"), found.count("index.fli")) == (3, 1)


def test_a_killed_fetch_leaves_nothing_under_a_files_name(
    server: ObjectServer, front: FaultServer, sets: Path, packed: PackedDataset
) -> None:
    front.rules.append(Rule(Fault(hang=True), path="index.fli", times=1))
    process = start(server, front)
    while "index.fli" not in asked(front):
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    process.kill()
    process.communicate()
    left = names(sets / packed.manifest.seal)
    assert left
    assert not set(left) & {*TABLES, "entries.fli"}
    assert open_it(server, front).manifest == packed.manifest
    assert not [name for name in names(sets / packed.manifest.seal) if name.startswith(".tmp-")]


def test_secrets_are_not_shown(server: ObjectServer, front: FaultServer, sets: Path) -> None:
    front.rules.append(Rule(Fault(status=403), path="dataset.json"))
    with pytest.raises(RemoteError) as caught:
        open_it(server, front)
    assert server.storage_options["secret"] not in str(caught.value)
    assert server.storage_options["key"] not in str(caught.value)
