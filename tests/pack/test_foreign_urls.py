"""``fastload index`` of tars in stores: the index, and what is read by it, is that of the same files here."""

from __future__ import annotations

import json
import pickle
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fault_server import Fault, FaultServer, Rule
from object_server import ObjectServer
from pack_trees import encoded
from tar_reference import captioned, write_tar

from fastload import DataLoader, PackedDataset, transforms
from fastload.cli import main
from fastload.errors import FastloadError, FormatError, LocationError, PackError
from fastload.packing import foreign_files as foreign_stored
from fastload.packing.fetched import fetch_object
from fastload.packing.foreign import IndexOptions, index_files
from fastload.packing.unpack import unpack
from fastload.packing.verify import verify

BUCKET = "tars"
CROP = transforms.RandomResizedCrop(24)


@pytest.fixture(scope="module")
def tars(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three tars, and an index of them where they are."""
    folder = tmp_path_factory.mktemp("tars")
    for k in range(3):
        write_tar(folder / f"{k:03d}.tar", captioned(7, 7 * k), tarfile.PAX_FORMAT)
    index_files([folder], folder / "index")
    return folder


@pytest.fixture
def web(tars: Path) -> Iterator[FaultServer]:
    """A web server that has them."""
    objects = {f"/laion/{path.name}": path.read_bytes() for path in tars.glob("*.tar")}
    with FaultServer(objects) as running:
        yield running


def _without_late_requests(web: FaultServer) -> None:
    """End all connections: in one, the second try of a slow read may still wait, to be counted later."""
    web.stop()
    web.start()


def same(found: PackedDataset, wanted: PackedDataset) -> None:
    """Records, further values and batches."""
    assert len(found) == len(wanted)
    for i in range(len(wanted)):
        assert (found.read(i), found.key(i)) == (wanted.read(i), wanted.key(i))
        assert [found.value(n, i) for n in ("txt", "json")] == [wanted.value(n, i) for n in ("txt", "json")]
    given: dict[str, Any] = {"shuffle": True, "seed": 5, "transform": CROP, "cache": "off"}
    with DataLoader(found, 8, **given) as ours, DataLoader(wanted, 8, **given) as theirs:
        for one, other in zip(ours, theirs, strict=True):
            assert torch.equal(one["image"], other["image"])
            assert one["txt"] == other["txt"]


def test_by_http_it_is_the_index_of_the_same_files(tars: Path, web: FaultServer, tmp_path: Path) -> None:
    url = f"{web.url}/laion/{{000..002}}.tar"
    manifest = index_files([url], tmp_path / "out")
    assert [shard.file for shard in manifest.shards] == [f"{web.url}/laion/00{k}.tar" for k in range(3)]
    for name in ("index.fli", "entries.fli", "field-01.fli", "field-02.fli"):
        assert (tmp_path / "out" / name).read_bytes() == (tars / "index" / name).read_bytes()
    found = PackedDataset(tmp_path / "out")
    assert found.where == str(tmp_path / "out")
    same(found, PackedDataset(tars / "index"))
    same(pickle.loads(pickle.dumps(found)), PackedDataset(tars / "index"))
    assert verify(tmp_path / "out", decode=True, entries=True) == ([], 21)
    unpack(tmp_path / "out", tmp_path / "back")
    assert (tmp_path / "back" / "000000009.jpg").read_bytes() == encoded(9)
    _without_late_requests(web)
    before = len(web.requests)
    assert index_files([url], tmp_path / "out") == manifest  # sizes and etags alone are asked
    assert {request.method for request in web.requests[before:]} == {"HEAD"}


def test_a_tar_that_is_replaced_meanwhile_is_not_indexed(
    web: FaultServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def replaced_meanwhile(store: Any, path: str, size: int, file: Path) -> None:
        fetch_object(store, path, size, file)
        web.objects["/laion/001.tar"] = b"other"

    monkeypatch.setattr(foreign_stored, "fetch_object", replaced_meanwhile)
    with pytest.raises(PackError, match=r"/laion/001\.tar was changed while it was indexed\. Index it again"):
        index_files([f"{web.url}/laion/001.tar"], tmp_path / "out", IndexOptions(num_proc=1))
    assert list((tmp_path / "out").iterdir()) == []


def test_an_index_of_objects_from_the_command_line(
    tars: Path,
    object_server: ObjectServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    object_server.make_bucket(BUCKET, {f"a/{p.name}": p.read_bytes() for p in tars.glob("*.tar")})
    said = []
    for name, value in object_server.storage_options.items():
        if name not in ("key", "secret"):
            said += ["--storage-option", f"{name}={value}"]
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, object_server.environment[name])
    out = str(tmp_path / "out")
    assert main(["index", f"s3://{BUCKET}/a", "--output", out, "--json", *said]) == 0
    assert json.loads(capsys.readouterr().out)["records"] == 21
    assert main(["verify", out, "--json", *said]) == 0
    assert main(["index", out, "--entries", "32", "--json", *said]) == 0
    same(PackedDataset(out, storage_options=object_server.storage_options), PackedDataset(tars / "index"))
    client = object_server.client()
    for path in Path(out).iterdir():  # beside the tars it is a set of the store, too
        client.put_object(Bucket=BUCKET, Key=f"index/{path.name}", Body=path.read_bytes())
    monkeypatch.setenv("FASTLOAD_SETS_DIR", str(tmp_path / "sets"))
    stored = PackedDataset(f"s3://{BUCKET}/index", storage_options=object_server.storage_options)
    same(stored, PackedDataset(tars / "index"))
    client.put_object(Bucket=BUCKET, Key="a/001.tar", Body=b"other")
    options = IndexOptions(storage_options=object_server.storage_options, entries=32)
    with pytest.raises(PackError, match="a file in the store has other contents now; --restart replaces it"):
        index_files([f"s3://{BUCKET}/a/"], tmp_path / "out", options)
    problems, _ = verify(tmp_path / "out", storage_options=object_server.storage_options)
    assert any("has 5 bytes, the manifest says" in problem.reason for problem in problems)


def test_what_cannot_be(tars: Path, web: FaultServer, tmp_path: Path) -> None:
    at, out = f"{web.url}/laion", tmp_path / "out"
    cut = (tars / "000.tar").read_bytes()
    web.objects |= {"/laion/cut.tar": cut[:-700], "/laion/not.tar": b"\x1f\x8b" + cut}
    cases: list[tuple[list[str], type[FastloadError], str]] = [
        ([f"{at}/000.tar", str(tars / "001.tar")], PackError, "of a store and of this machine cannot share"),
        ([f"{at}/000.tar", "s3://other/1.tar"], PackError, "files of several stores cannot share an index"),
        ([f"{at}/none.tar"], FormatError, rf"{at}/none.tar does not exist"),
        ([at], FormatError, r"a web server has no listing.*\{00000..00099\}.tar"),
        ([f"{at}/a.parquet"], FormatError, "of files in a store uncompressed tars are indexed"),
        ([f"{at}/cut.tar"], FormatError, rf"^{at}/cut.tar, byte .*cut off"),
        ([f"{at}/not.tar"], FormatError, "gzip.*on a machine that has it 'fastload pack not.tar OUTPUT --as"),
    ]
    for paths, kind, words in cases:
        with pytest.raises(kind, match=words) as raised:
            index_files(paths, out)
        assert str(out) not in str(raised.value)
    with pytest.raises(LocationError, match="storage_options are for URLs"):
        index_files([tars], out, IndexOptions(storage_options={"token": "x"}))
    with pytest.raises(LocationError, match="storage_options are for URLs"):
        PackedDataset(tars / "index", storage_options={"token": "x"})
    assert not list(out.glob(".fastload*/*"))


def test_shards_of_several_stores_are_refused(tars: Path, tmp_path: Path) -> None:
    manifest = PackedDataset(tars / "index").manifest
    files = ("http://a/1.tar", "http://b/1.tar", "http://a/2.tar")
    shards = tuple(replace(shard, file=file) for shard, file in zip(manifest.shards, files, strict=True))
    (tmp_path / "index.fli").write_bytes((tars / "index" / "index.fli").read_bytes())
    replace(manifest, shards=shards).write(tmp_path)
    with pytest.raises(FormatError, match=r"'http://b/1.tar' is not in http://a"):
        PackedDataset(tmp_path)


def test_bytes_that_change_under_way_are_found(web: FaultServer, tmp_path: Path) -> None:
    index_files([f"{web.url}/laion/000.tar"], tmp_path / "out", IndexOptions(entries=None))
    data = np.frombuffer(web.objects["/laion/000.tar"], np.uint8).copy()
    record = PackedDataset(tmp_path / "out").record(3)
    data[int(record["offset"]) + 100] ^= 1
    web.objects["/laion/000.tar"] = data.tobytes()
    with pytest.raises(FastloadError, match=r"000.tar"):
        PackedDataset(tmp_path / "out").read(3)


def test_a_store_that_fails_is_asked_for_the_rest_alone(web: FaultServer, tmp_path: Path) -> None:
    web.rules.append(Rule(Fault(status=403), path="/laion/001.tar"))
    options = IndexOptions(entries=None)
    with pytest.raises(FastloadError, match="403"):
        index_files([f"{web.url}/laion/{{000,001}}.tar"], tmp_path / "out", options)
    assert not list(tmp_path.glob("out/.fastload-pack/*.tar"))
    web.rules.clear()
    _without_late_requests(web)
    before = len(web.requests)
    assert index_files([f"{web.url}/laion/{{000,001}}.tar"], tmp_path / "out", options).num_records == 14
    assert {r.path for r in web.requests[before:] if r.method == "GET"} == {"/laion/001.tar"}


def test_several_processes_fetch(tars: Path, web: FaultServer, tmp_path: Path) -> None:
    index_files([f"{web.url}/laion/{{000..002}}.tar"], tmp_path / "out", IndexOptions(num_proc=2))
    assert (tmp_path / "out" / "index.fli").read_bytes() == (tars / "index" / "index.fli").read_bytes()
