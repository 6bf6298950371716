"""dataset.json: what is written, word by word, and everything that is refused when it is read."""

from __future__ import annotations

import hashlib
import json
import locale
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import fastload.shard.manifest
from fastload.errors import FormatError, FormatVersionError, ShardError
from fastload.shard.manifest import (
    ENTRIES_NAME,
    INDEX_NAME,
    MANIFEST_NAME,
    MAX_BYTES,
    MAX_NUMBERED,
    SECOND_INDEX,
    Manifest,
    Shard,
    names_fit,
)

FIELDS: tuple[dict[str, Any], ...] = (
    {"name": "image", "kind": "image", "channels": 3, "bits": 8, "stored": "index"},
    {"name": "label", "kind": "label", "stored": "label"},
)
PLAIN = Manifest(
    format="arrow",
    num_records=3,
    data_bytes=60,
    classes=("a", "ü"),
    shards=(Shard("x-0.arrow", 40, 2), Shard("x-1.arrow", 20, 1)),
    index_size=4500,
    index_crc=123456,
    codecs={"jpeg": 3},
    options={"shuffle": 7},
    skipped=2,
    writer="fastload 0.1.0",
)
BODY: dict[str, Any] = {
    "fastload": [1, 0],
    "format": "arrow",
    "num_records": 3,
    "data_bytes": 60,
    "classes": ["a", "ü"],
    "shards": [
        {"file": "x-0.arrow", "size": 40, "records": 2},
        {"file": "x-1.arrow", "size": 20, "records": 1},
    ],
    "index_size": 4500,
    "index_crc": 123456,
    "codecs": {"jpeg": 3},
    "options": {"shuffle": 7},
    "skipped": 2,
    "writer": "fastload 0.1.0",
}


def id_of(body: dict[str, Any]) -> str:
    """As FORMAT.md says it."""
    shards = [[shard["file"], shard["size"], shard["records"]] for shard in body["shards"]]
    facts = [body["num_records"], body["index_size"], body["index_crc"], body["classes"], shards]
    return hashlib.blake2b(
        json.dumps(facts, separators=(",", ":"), ensure_ascii=True).encode(), digest_size=16
    ).hexdigest()


def parsed(**changes: Any) -> Manifest:
    """What is read of ``BODY`` with changes, under the id that they give."""
    body = {**BODY, **changes}
    return Manifest.parse("here/dataset.json", json.dumps({"id": id_of(body), **body}).encode())


def written(folder: Path, manifest: Manifest) -> dict[str, Any]:
    manifest.write(folder)
    return dict(json.loads((folder / "dataset.json").read_text(encoding="utf-8")))


def test_what_is_written(tmp_path: Path) -> None:
    assert written(tmp_path, PLAIN) == {"id": id_of(BODY), **BODY}
    text = (tmp_path / "dataset.json").read_bytes()
    assert text.endswith(b"\n}\n")
    assert text.startswith(b'{\n "fastload": [\n  1,\n  0\n ],\n "id": ')
    assert "ü".encode() in text
    assert os.listdir(tmp_path) == ["dataset.json"]


def test_what_is_written_is_utf_8_in_any_locale(tmp_path: Path) -> None:
    before = locale.setlocale(locale.LC_CTYPE)
    locale.setlocale(locale.LC_CTYPE, "C")
    try:
        PLAIN.write(tmp_path)
    finally:
        locale.setlocale(locale.LC_CTYPE, before)
    assert Manifest.read(tmp_path).classes == ("a", "ü")


def test_what_was_written_comes_back(tmp_path: Path) -> None:
    manifests = [
        PLAIN,
        replace(PLAIN, classes=(), shards=(), codecs={}, options={}, skipped=0, writer=""),
        replace(PLAIN, index="index-2.fli", same_as=("0" * 32, "1" * 32), left_out=4),
    ]
    for manifest in manifests:
        manifest.write(tmp_path)
        again = Manifest.read(tmp_path)
        assert again == manifest
        assert again.id == manifest.id


def test_what_is_not_there_is_not_written(tmp_path: Path) -> None:
    assert not written(tmp_path, PLAIN).keys() & {"fields", "left_out", "index", "same_as"}
    more = replace(PLAIN, left_out=4, index="index-2.fli", same_as=("0" * 32,))
    body = written(tmp_path, more)
    assert (body["left_out"], body["index"], body["same_as"]) == (4, "index-2.fli", ["0" * 32])


def test_it_is_on_the_device_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Temporary name, fsync, rename, fsync of the folder: in this order."""
    calls: list[str] = []
    rename = os.replace

    def fsync(descriptor: int) -> None:
        name = os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}"))
        whole = name == tmp_path.name or (tmp_path / name).read_bytes().endswith(b"}\n")
        calls.append(f"fsync {'folder' if name == tmp_path.name else name} {whole}")

    def replaced(source: Any, target: Any) -> None:
        calls.append(f"rename {os.path.basename(source)} {os.path.basename(target)}")
        rename(source, target)

    monkeypatch.setattr(fastload.shard.manifest.os, "fsync", fsync)
    monkeypatch.setattr(fastload.shard.manifest.os, "replace", replaced)
    before = len(os.listdir("/proc/self/fd"))
    PLAIN.write(tmp_path)
    assert len(os.listdir("/proc/self/fd")) == before
    assert calls == [
        "fsync .tmp-dataset.json True",
        "rename .tmp-dataset.json dataset.json",
        "fsync folder True",
    ]


@pytest.mark.parametrize(
    ("changes", "version"),
    [
        ({}, (1, 0)),
        ({"fields": FIELDS}, (1, 1)),
        ({"fields": (*FIELDS, {"name": "t", "kind": "texts", "stored": "column"})}, (1, 2)),
        ({"fields": ({"name": "t", "kind": "texts", "stored": "column"},)}, (1, 5)),
        ({"fields": (*FIELDS, {"name": "t", "kind": "images", "stored": "column"})}, (1, 5)),
        ({"index": "index-2.fli"}, (1, 3)),
        ({"codecs": {"coefficients": 1}}, (1, 3)),
        ({"options": {"coefficients": "fast"}}, (1, 3)),
        ({"index": "index-2.fli", "fields": FIELDS}, (1, 3)),
    ],
)
def test_the_version_that_readers_need(changes: dict[str, Any], version: tuple[int, int]) -> None:
    assert replace(PLAIN, **changes).version == version


def test_its_id_is_of_what_the_data_are() -> None:
    assert PLAIN.id == id_of(BODY)
    same = [{"format": "lmdb"}, {"data_bytes": 61}, {"codecs": {}}, {"options": {}}, {"skipped": 0}]
    same += [{"writer": ""}, {"left_out": 1}, {"index": "index-2.fli"}, {"same_as": ("0" * 32,)}]
    assert {replace(PLAIN, **changes).id for changes in same} == {PLAIN.id}
    other = [{"num_records": 4}, {"index_size": 1}, {"index_crc": 1}, {"classes": ("ü", "a")}]
    other += [{"shards": PLAIN.shards[:1]}, {"shards": PLAIN.shards[::-1]}]
    other += [
        {"shards": (replace(PLAIN.shards[0], **{name: 9}), PLAIN.shards[1])} for name in ("size", "records")
    ]
    assert len({replace(PLAIN, **changes).id for changes in other} | {PLAIN.id}) == 9


def test_where_its_files_are() -> None:
    assert (MANIFEST_NAME, INDEX_NAME) == ("dataset.json", "index.fli")
    assert (SECOND_INDEX, ENTRIES_NAME) == ("index-2.fli", "entries.fli")
    assert MAX_NUMBERED == 1_000_000
    assert PLAIN.index_name == "index.fli"
    assert replace(PLAIN, index="index-2.fli").index_name == "index-2.fli"
    assert not PLAIN.in_store
    assert not replace(PLAIN, shards=()).in_store
    assert replace(PLAIN, shards=(Shard("s3://bucket/x.tar", 1, 1), *PLAIN.shards)).in_store
    assert not replace(PLAIN, shards=(*PLAIN.shards, Shard("s3://bucket/x.tar", 1, 1))).in_store


def test_a_set_without_fields_is_plain() -> None:
    assert PLAIN.is_plain
    assert [field.name for field in PLAIN.schema] == ["image", "label"]
    more = {
        "name": "note",
        "kind": "text",
        "stored": "column",
        "file": "field-02.fli",
        "size": 9,
        "digest": 1,
    }
    assert replace(PLAIN, fields=FIELDS).is_plain
    assert not replace(PLAIN, fields=(*FIELDS, more)).is_plain


@pytest.mark.parametrize("name", sorted({"id", *BODY}))
def test_no_field_may_be_missing(name: str) -> None:
    body = {"id": id_of(BODY), **BODY}
    del body[name]
    with pytest.raises(FormatError, match="here/dataset.json"):
        Manifest.parse("here/dataset.json", json.dumps(body).encode())


def test_what_a_manifest_need_not_say() -> None:
    short = Manifest("arrow", 3, 60, ("a", "ü"), PLAIN.shards, 4500, 123456)
    assert short == replace(PLAIN, codecs={}, options={}, skipped=0, writer="")
    assert (short.fields, short.left_out, short.index, short.same_as) == ((), 0, "", ())


def test_every_field_is_read() -> None:
    assert parsed() == PLAIN
    more = parsed(left_out=4, index="index-2.fli", same_as=["0" * 32])
    assert more == replace(PLAIN, left_out=4, index="index-2.fli", same_as=("0" * 32,))
    assert isinstance(more.same_as, tuple)
    assert parsed(novelty=1) == PLAIN


@pytest.mark.parametrize("major", [0, 2])
def test_another_major_version_is_refused(major: int) -> None:
    found = f"has format version {major}; this fastload reads 1"
    with pytest.raises(FormatVersionError, match=found):
        parsed(fastload=[major, 0])
    assert parsed(fastload=[1, 99]) == PLAIN


@pytest.mark.parametrize("index", ["index.fli", "index-3.fli", "../index-2.fli"])
def test_another_index_is_refused(index: str) -> None:
    with pytest.raises(FormatError, match="'index' must be 'index-2.fli', or not be there. Found: "):
        parsed(index=index)


def test_another_id_is_refused() -> None:
    with pytest.raises(FormatError, match=f"says id '{'0' * 32}', its contents give '{PLAIN.id}'"):
        parsed(id="0" * 32)


def test_what_is_no_json_says_so() -> None:
    for data in (b"", b"{", b"[" * 200_000, b"\xff"):
        with pytest.raises(FormatError, match="here/dataset.json is not valid JSON"):
            Manifest.parse("here/dataset.json", data)
    with pytest.raises(FormatError, match="lacks or damages a field: KeyError"):
        Manifest.parse("here/dataset.json", b"{}")


def test_fields_that_break_a_rule_are_refused() -> None:
    with pytest.raises(FormatError, match="'fields' is not valid"):
        parsed(fields=[{**FIELDS[0], "kind": "novelty"}])
    with pytest.raises(FormatError, match="'classes' has names, and there is no label"):
        parsed(fields=[FIELDS[0]])
    assert parsed(fields=[FIELDS[0]], classes=[]).schema.label_field is None


def test_a_folder_without_a_manifest_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="is not a packed dataset: there is no such folder. 'fastload pack"):
        Manifest.read(tmp_path / "nothing")
    (tmp_path / "file").write_text("x")
    with pytest.raises(FormatError, match="is not a packed dataset: it is a file. Pass the folder"):
        Manifest.read(tmp_path / "file")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FormatError, match="it has no dataset.json. Make one with 'fastload pack SOURCE"):
        Manifest.read(tmp_path / "empty")


@pytest.mark.parametrize("count", [1, 5, 6])
def test_a_folder_of_packed_datasets_names_them(tmp_path: Path, count: int) -> None:
    for i in range(count):
        (tmp_path / f"set{i}").mkdir()
        PLAIN.write(tmp_path / f"set{i}")
    names = ", ".join(f"set{i}" for i in range(min(count, 5))) + (", ..." if count > 5 else "")
    with pytest.raises(FormatError) as caught:
        Manifest.read(tmp_path)
    assert f"folders in it are packed datasets ({names}). Pass one of them: " in str(caught.value)
    assert str(caught.value).endswith(f"{str(tmp_path / 'set0')!r}.")


def test_a_manifest_that_cannot_be_read_is_an_error_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "dataset.json").mkdir()
    with pytest.raises(ShardError, match=r"dataset.json cannot be read: Is a directory\."):
        Manifest.read(tmp_path)


def test_a_manifest_has_so_many_bytes_at_most(tmp_path: Path) -> None:
    path = tmp_path / "dataset.json"
    with open(path, "wb") as file:
        file.truncate(MAX_BYTES + 1)
    assert MAX_BYTES == 64 << 20
    with pytest.raises(FormatError, match=f"is larger than {MAX_BYTES} bytes; it is not a manifest"):
        Manifest.read(tmp_path)
    with open(path, "wb") as file:
        file.truncate(MAX_BYTES)
    with pytest.raises(FormatError, match="is not valid JSON"):
        Manifest.read(tmp_path)


def test_names_that_fit_can_be_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a smaller limit, which is what all of it is about: never one byte more than a reader takes."""
    monkeypatch.setattr(fastload.shard.manifest, "MAX_BYTES", 1 << 17)
    for classes, shards, fields in ((2500, 0, 0), (0, 600, 0), (0, 0, 700), (900, 250, 200)):
        for size in (1, 2, 3):
            manifest = replace(
                PLAIN,
                classes=tuple(f"ü\n{'x' * (i % 30)}" for i in range(classes * size // 2)),
                shards=tuple(Shard(f"n-{i}" * 3, 2**40, 2**30) for i in range(shards * size // 2)),
                fields=tuple(
                    {"name": f"f{i}", "kind": "number", "stored": "index"} for i in range(fields * size // 2)
                ),
            )
            wrong = names_fit(manifest.classes, [shard.file for shard in manifest.shards], manifest.fields)
            if wrong is None:
                manifest.write(tmp_path)
                assert (tmp_path / "dataset.json").stat().st_size <= 1 << 17
                continue
            with pytest.raises(FormatError, match="would have about"):
                manifest.write(tmp_path)


def test_names_that_do_not_fit_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fastload.shard.manifest, "MAX_BYTES", 1 << 17)  # half of it is kept for the rest
    assert names_fit(["x" * 58] * 1023, []) is None
    wrong = names_fit(["x" * 58] * 1024, ["shard"] * 3, FIELDS)
    assert wrong is not None
    assert wrong.startswith("dataset.json with the names of 1024 classes, 3 shards and 2 fields would have")
    assert "and may have 131072. Use shorter names" in wrong
    assert names_fit(["x" * 58] * 1024, []) is not None
    assert names_fit(["ü" * 29] * 1023, []) is None  # as they are written: in UTF-8
    assert names_fit(["ü" * 29] * 1024, []) is not None
    assert names_fit([], ["x" * 20] * 655) is None
    assert names_fit([], ["x" * 20] * 656) is not None
    room = (1 << 16) - len(json.dumps([{"name": ""}], indent=1))
    assert names_fit([], [], [{"name": "x" * room}]) is None
    assert names_fit([], [], [{"name": "x" * (room + 1)}]) is not None
    assert names_fit([], [], [{"name": "ü" * (room // 2)}]) is None
