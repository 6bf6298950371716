"""Commands with URLs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cache_folder import memory_folder
from fault_server import FaultServer
from field_sets import RICH, rich_samples, write_field_set
from object_server import ObjectServer

from fastload import PackedDataset
from fastload.cli import main
from fastload.packing import entries as entries_module
from fastload.packing import fetched
from fastload.packing.entries import index_stored_entries
from fastload.packing.fetched import in_windows, runs
from fastload.packing.foreign import index_entries
from fastload.packing.unpack import unpack
from fastload.packing.verify import verify
from fastload.shard.dataset import PackedFiles
from fastload.shard.index import RECORD
from fastload.shard.manifest import ENTRIES_NAME

BUCKET = "commands"
URL = f"s3://{BUCKET}/set"


@pytest.fixture(scope="module")
def fields(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A set of every kind of field."""
    return write_field_set(tmp_path_factory.mktemp("fields"), RICH, rich_samples(9))


@pytest.fixture(scope="module")
def server(object_server: ObjectServer, packed: PackedDataset, fields: Path) -> ObjectServer:
    """With sets in the bucket."""
    object_server.make_bucket(BUCKET)
    put(object_server, packed.folder, "set")
    put(object_server, fields, "fields")
    return object_server


def put(server: ObjectServer, folder: Path, name: str) -> None:
    """Upload a set."""
    client = server.client()
    for path in (path for path in folder.rglob("*") if path.is_file()):
        key = f"{name}/{path.relative_to(folder).as_posix()}"
        client.put_object(Bucket=BUCKET, Key=key, Body=path.read_bytes())


@pytest.fixture(autouse=True)
def environment(server: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Credentials in the environment, and a place for indexes."""
    monkeypatch.setenv("FASTLOAD_SETS_DIR", str(tmp_path / "sets"))
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def cache_root(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory."""
    with memory_folder(tmp_path) as folder:
        yield folder.path


def out_of(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    """What a command prints."""
    assert main(words) == code, capsys.readouterr().err
    caught = capsys.readouterr()
    return caught.out if code == 0 else caught.out + caught.err


def files_of(folder: Path) -> dict[str, bytes]:
    found = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


def test_info_is_the_folders(packed: PackedDataset, fields: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for url, folder in ((URL, packed.folder), (f"s3://{BUCKET}/fields", fields)):
        wanted = json.loads(out_of(capsys, "info", str(folder), "--json"))
        assert json.loads(out_of(capsys, "info", url, "--json")) == wanted
    assert out_of(capsys, "info", URL).startswith(f"{URL}\n")


def test_options_may_be_given(
    server: ObjectServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    option = "--storage-option"
    given = f"endpoint_url={server.endpoint}"
    assert "52" in out_of(capsys, "info", URL, option, given, option, "region=us-east-1")
    assert "has no 'endpoint_uri'" in out_of(capsys, "info", URL, option, "endpoint_uri=x", code=1)
    assert main(["info", URL, "--storage-option", "endpoint_url"]) == 2


def test_verify_finds_nothing_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    assert "52 records are intact (CRC-32C, decoding)" in out_of(capsys, "verify", URL, "--decode")
    words = "9 records are intact (CRC-32C, values of all fields)"
    assert words in out_of(capsys, "verify", f"s3://{BUCKET}/fields")


@pytest.mark.parametrize("where", ["record", "field", "index", "missing", "short", "entries"])
def test_verify_finds_what_it_finds_in_a_folder(
    server: ObjectServer, fields: Path, tmp_path: Path, where: str
) -> None:
    folder = tmp_path / "damaged"
    shutil.copytree(fields, folder)
    shard = folder / PackedFiles(folder).manifest.shards[0].file
    damage(folder, shard, where)
    put(server, folder, where)
    found, records = verify(f"s3://{BUCKET}/{where}", decode=True)
    wanted, count = verify(folder, decode=True)
    assert found
    assert records == count
    if where in ("record", "short"):
        assert [replace(each, reason="") for each in found] == [replace(each, reason="") for each in wanted]
    assert [each.shard for each in found] == [each.shard for each in wanted]


def damage(folder: Path, shard: Path, where: str) -> None:
    if where == "missing":
        shard.unlink()
        return
    path = {"field": folder / "field-02.fli", "index": folder / "index.fli"}.get(where, shard)
    if where == "entries":
        path = folder / "entries.fli"
        path.write_bytes(b"none")
        return
    data = bytearray(path.read_bytes())
    if where == "short":
        del data[-1]
    else:
        data[4097 if path != shard else len(data) // 2] ^= 1
    path.write_bytes(data)


def test_verify_reads_by_large_requests(packed: PackedDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []
    whole = fetched._fetch

    def counted(store: Any, path: str, begin: int, end: int, descriptor: int) -> None:
        asked.append((begin, end))
        whole(store, path, begin, end, descriptor)

    monkeypatch.setattr(fetched, "_fetch", counted)
    assert verify(URL) == ([], 52)
    assert len(asked) == len(packed.manifest.shards)


@pytest.mark.parametrize("window", [1 << 26, 3000])
def test_entry_points_are_made_and_checked(
    server: ObjectServer,
    packed: PackedDataset,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    window: int,
) -> None:
    monkeypatch.setattr(fetched, "WINDOW_BYTES", window)
    shutil.copytree(packed.folder, tmp_path / "here")
    index_entries(tmp_path / "here", 16)
    where = f"points{window}"
    url = f"s3://{BUCKET}/{where}"
    put(server, packed.folder, where)
    assert "there are no entry points" in out_of(capsys, "verify", url, "--entries")
    assert "16 pixels" in out_of(capsys, "index", url, "--entries", "16")
    stored = server.client().get_object(Bucket=BUCKET, Key=f"{where}/{ENTRIES_NAME}")["Body"].read()
    assert stored == (tmp_path / "here" / ENTRIES_NAME).read_bytes()
    assert "entry points)" in out_of(capsys, "verify", url, "--entries")
    assert PackedFiles(url).entries is not None
    index_entries(tmp_path / "here", 32)
    wrong = (tmp_path / "here" / ENTRIES_NAME).read_bytes()
    server.client().put_object(Bucket=BUCKET, Key=f"{where}/{ENTRIES_NAME}", Body=wrong[:-1])
    problems, _ = verify(url, entries=True)
    assert [problem.shard for problem in problems] == [ENTRIES_NAME]
    assert f"'fastload index {url} --entries' makes it anew" in problems[0].reason
    out_of(capsys, "index", url, "--entries", "none")
    assert PackedFiles(url).entries is None


def test_entry_points_that_differ_are_found(
    server: ObjectServer, packed: PackedDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    index_stored_entries(URL, None, 16)
    made = entries_module._C.build_entries

    def other(reader: Any, ids: Any, spacing: int) -> Any:
        found, sizes = made(reader, ids, spacing)
        return bytes(len(found)), sizes

    fake = SimpleNamespace(build_entries=other, Entries=entries_module._C.Entries)
    monkeypatch.setattr(entries_module, "_C", fake)
    problems, _ = verify(URL, entries=True)
    assert sum(problem.count for problem in problems) == 52
    assert "has other entry points than its bytes give" in problems[0].reason
    monkeypatch.undo()


def test_entry_points_of_a_web_server_stay_on_the_node(
    packed: PackedDataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with FaultServer(folder=packed.folder) as web:
        assert main(["index", f"{web.url}/", "--entries", "16"]) == 0
        said = capsys.readouterr()
        assert "a web server is read only" in said.err
        assert "used on this node only" in said.err
        dataset = PackedFiles(f"{web.url}/")
        assert dataset.entries is not None
        assert dataset.read(3) == packed.read(3)


def test_an_index_of_others_files_is_made_where_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert "set holds no .tar files" in out_of(capsys, "index", URL, "--output", "x", code=1)
    found = out_of(capsys, "index", "a.tar", "--output", URL, code=1)
    assert f"an index is written to a local folder. Found: {URL}" in found


@pytest.mark.parametrize("window", [1 << 26, 3000])
def test_unpack_gives_the_same_files(
    packed: PackedDataset, fields: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, window: int
) -> None:
    monkeypatch.setattr(fetched, "WINDOW_BYTES", window)
    for name, folder in (("set", packed.folder), ("fields", fields)):
        count = unpack(f"s3://{BUCKET}/{name}", tmp_path / f"{name}-url")
        assert count == unpack(folder, tmp_path / f"{name}-folder")
        assert files_of(tmp_path / f"{name}-url") == files_of(tmp_path / f"{name}-folder") != {}


def test_windows_have_all_samples_once(packed: PackedDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetched, "WINDOW_BYTES", 5000)
    found = [(sample, part.read(sample)) for ids, part in in_windows(PackedFiles(URL)) for sample in ids]
    assert found == [(sample, packed.read(sample)) for sample in range(52)]


def test_runs_hold_the_records() -> None:
    records = np.zeros(5, RECORD)
    gap = fetched._GAP
    records["offset"] = [100, 50, 10_000, 10_000 + gap + 11, 1 << 40]
    records["length"] = [10, 20, 10, 5, 10]
    assert runs(records, 1 << 30) == [(50, 10_010), (10_000 + gap + 11, 10_000 + gap + 16)]


def test_warm_reads_from_a_store(
    packed: PackedDataset, cache_root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["warm", URL, "--to", str(cache_root), "--json"]
    (found,) = json.loads(out_of(capsys, *words))["sets"]
    assert (found["dataset"], found["whole"], found["put_records"]) == (URL, True, 52)
    words[1] = str(packed.folder)
    (again,) = json.loads(out_of(capsys, *words))["sets"]
    assert again["there_records"] == 52


def test_the_cache_of_a_set_in_a_store_is_named_and_cleared(
    cache_root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out_of(capsys, "warm", URL, "--to", str(cache_root))
    (path,) = out_of(capsys, "cache", "path", URL, "--dir", str(cache_root)).split()
    assert Path(path).exists()
    assert "1 set removed" in out_of(capsys, "cache", "clear", URL, "--dir", str(cache_root))
    assert not Path(path).exists()


def test_warm_brings_no_store_into_the_page_cache(capsys: pytest.CaptureFixture[str]) -> None:
    assert "local files" in out_of(capsys, "warm", URL, "--page-cache", code=2)


def test_shuffle_measures_a_set_in_a_store(capsys: pytest.CaptureFixture[str]) -> None:
    assert "with their neighbour" in out_of(capsys, "plan", URL, "--shuffle", "block", "--batch-size", "8")


def test_no_set_there_is_a_message(capsys: pytest.CaptureFixture[str]) -> None:
    words = out_of(capsys, "info", f"s3://{BUCKET}/nothing", code=1)
    assert f"fastload info: s3://{BUCKET}/nothing is not a packed dataset" in words
