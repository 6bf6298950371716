"""field-NN.fli and the manifest's fields: what was written comes back, by the core and by the slow reader."""

from __future__ import annotations

import hashlib
import json
import pickle
import re
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from field_sets import RICH, read_field_set, read_frame, rich_samples, write_field_set, write_parts
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_pack import plain_pack

from fastload._native import _C
from fastload.errors import ChecksumError, FormatError, ShardTruncated
from fastload.sample.fields import Array, Boxes, Image, Label, Scalar, Text
from fastload.sample.schema import Field, Schema
from fastload.shard.columns import PAGE_BYTES, write_column
from fastload.shard.dataset import PackedFiles
from fastload.shard.index import DATA_OFFSET, RECORD
from fastload.shard.manifest import Manifest, entries_of, fields_digest, schema_of

COUNT = 20
NUMBER, TEXT, PICTURE = Field("a", Scalar("int16")), Field("a", Text()), Field("a", Image())


@pytest.fixture(scope="module")
def rich(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_field_set(tmp_path_factory.mktemp("rich") / "set", RICH, rich_samples(COUNT))


def test_the_slow_reader_finds_every_value(rich: Path) -> None:
    fields, samples = read_field_set(rich)
    assert [field["name"] for field in fields] == list(RICH.names)
    wanted = rich_samples(COUNT)
    assert len(samples) == COUNT
    for sample, value in zip(samples, wanted, strict=True):
        assert sample == {name: RICH[name].encode(value[name]) for name in RICH.names}


def test_the_dataset_finds_every_value(rich: Path) -> None:
    dataset = PackedFiles(rich)
    assert dataset.schema == RICH
    assert dataset.classes == ["cat", "dog", "eel"]
    assert (
        repr(dataset) == f"PackedFiles({str(rich)!r}, 20 records, 3 classes, fields {', '.join(RICH.names)})"
    )
    _, samples = read_field_set(rich)
    for number, sample in enumerate(samples):
        for name in RICH.names:
            assert dataset.value_bytes(name, number) == sample[name]
    original = rich_samples(COUNT)[4]
    np.testing.assert_array_equal(dataset.value("boxes", 4), original["boxes"])
    assert dataset.value("notes", 4) == original["notes"]
    assert dataset.value("label", 4) == original["label"]
    with pytest.raises(KeyError, match="no field 'depth'"):
        dataset.value("depth", 0)
    with pytest.raises(IndexError, match="20 samples"):
        dataset.value("boxes", 20)


def test_columns_are_opened_when_they_are_asked_for(rich: Path) -> None:
    dataset = PackedFiles(rich)
    assert list(dataset.columns) == [field.name for _, field in RICH.columns]
    assert dataset.columns._opened == {}
    dataset.value("caption", 3)
    assert list(dataset.columns._opened) == ["caption"]
    again = pickle.loads(pickle.dumps(dataset))
    assert again.columns._opened == {}
    assert again.value("caption", 3) == dataset.value("caption", 3)


def test_readers_of_version_1_0_see_image_and_label(rich: Path) -> None:
    manifest = json.loads((rich / "dataset.json").read_text())
    old = {key: value for key, value in manifest.items() if key != "fields"}
    facts = [old["num_records"], old["index_size"], old["index_crc"], old["classes"]]
    facts.append([[shard["file"], shard["size"], shard["records"]] for shard in old["shards"]])
    text = json.dumps(facts, separators=(",", ":"))
    assert old["id"] == hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
    records = PackedFiles(rich).records
    assert records["label"].tolist() == [number % 4 - 1 for number in range(COUNT)]
    assert set(records["codec"].tolist()) == {1}


def test_plain_sets_are_version_1_0_byte_for_byte(tmp_path: Path) -> None:
    """The hashes are those of the files that fastload 0.1.0 wrote."""
    folder = plain_pack(tmp_path, jpeg_likes(), [0, 1, -1, 1], ("a", "\u00fc"), probe=False).folder
    manifest = json.loads((folder / "dataset.json").read_text(encoding="utf-8"))
    assert manifest["fastload"] == [1, 0]
    assert "fields" not in manifest
    found = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest()[:16] for name in GOLDEN}
    assert found == GOLDEN
    dataset = PackedFiles(folder)
    assert dataset.schema == Schema.plain(("a", "\u00fc"))
    assert dataset.schema.is_plain
    assert len(dataset.columns) == 0
    assert [dataset.value("label", number) for number in range(4)] == [0, 1, -1, 1]
    assert dataset.value("image", 2) == jpeg_likes()[2]


def jpeg_likes() -> list[bytes]:
    return [b"\xff\xd8\xff" + bytes([number] * (10 + number)) for number in range(4)]


GOLDEN = {"dataset.json": "46079b6a337100bd", "index.fli": "c9ec67f2bde49264"}
GOLDEN_FIELDS = {
    "dataset.json": "804cf21e579d9ac2",
    "index.fli": "2acf69d053a071e6",
    "field-02.fli": "cd6320cce87eed09",
    "field-03.fli": "7945422c02a3590e",
    "field-04.fli": "b41d74fb2f950a32",
}


def test_version_1_1_byte_for_byte(tmp_path: Path) -> None:
    schema = {
        "image": Image(),
        "label": Label(("a",)),
        "size": Scalar("int16"),
        "boxes": Boxes(),
        "depth": Image(1),
    }
    samples = [
        {
            "image": blob,
            "label": number % 2 - 1,
            "size": number,
            "boxes": [[0, 0, 1, number]] * number,
            "depth": blob,
        }
        for number, blob in enumerate(jpeg_likes())
    ]
    folder = write_field_set(tmp_path, schema, samples)
    found = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest()[:16] for name in GOLDEN_FIELDS}
    assert found == GOLDEN_FIELDS


@settings(deadline=None, max_examples=25)
@given(st.lists(st.binary(max_size=40), max_size=30), st.integers(1, 9))
def test_ragged_values_whatever_the_parts(
    tmp_path_factory: pytest.TempPathFactory, values: list[bytes], part: int
) -> None:
    path = tmp_path_factory.mktemp("column") / "field-07.fli"
    field = Field("blob", "bytes")  # type: ignore[arg-type]
    file = write_parts(path, field, values, part)
    assert (file.file, file.size) == (path.name, path.stat().st_size)
    column = _C.Column(str(path), "ragged", 1)
    assert [column.value(number) for number in range(len(values))] == values
    frame = read_frame(path, b"FLFIELD1", True)
    assert (frame.values, frame.spacing, frame.digest) == (values, 0, file.digest)
    column.verify()


@settings(deadline=None, max_examples=25)
@given(st.lists(st.integers(-(2**15), 2**15 - 1), max_size=40), st.integers(1, 9))
def test_fixed_values_whatever_the_parts(
    tmp_path_factory: pytest.TempPathFactory, values: list[int], part: int
) -> None:
    path = tmp_path_factory.mktemp("column") / "field-01.fli"
    field = Field("number", Scalar("int16"))
    encoded = [field.encode(value) for value in values]
    file = write_parts(path, field, encoded, part)
    column = _C.Column(str(path), "fixed", 2)
    assert [field.decode(column.value(number)) for number in range(len(values))] == values
    frame = read_frame(path, b"FLFIELD1", False)
    assert frame.fixed[: 2 * len(values)] == b"".join(encoded)
    assert (frame.spacing, frame.digest) == (2, file.digest)


@pytest.mark.parametrize(
    ("field", "parts", "message"),
    [
        (
            Field("a", Scalar("int16")),
            {"fixed": [np.zeros(3, np.int16)]},
            "must have 4 values, one per sample. Found: 3",
        ),
        (NUMBER, {"fixed": [np.zeros(5, np.int16)]}, "Found: 5."),
        (NUMBER, {"fixed": [np.zeros(4, np.int32)]}, "dtype int16. Found: (4,) int32."),
        (Field("a", Array("int16", (2,))), {"fixed": [np.zeros(4, np.int16)]}, "shape ('n', 2)"),
        (Field("a", Image()), {"fixed": [np.zeros((4, 32), np.uint8)]}, "Found: (4, 32) uint8."),
        (
            Field("a", Boxes()),
            {"lengths": [np.array([16, 0, 8, 16])]},
            "a multiple of 16. Found: 8 for sample 2.",
        ),
        (TEXT, {"lengths": [np.array([1]), np.array([1, -1])]}, "Found: -1 for sample 2."),
        (TEXT, {"lengths": [np.array([2**30 + 1])]}, "Found: 1073741825 for sample 0."),
        (
            TEXT,
            {"lengths": [np.ones(4, int)], "chunks": [b"abc"]},
            "come to 4 bytes. Found: 3.",
        ),
    ],
)
def test_parts_that_do_not_fit_leave_no_file(
    tmp_path: Path, field: Field, parts: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        write_column(tmp_path / "field-01.fli", field, 4, **parts)
    assert list(tmp_path.iterdir()) == []


def test_a_source_that_fails_leaves_no_file(tmp_path: Path) -> None:
    def chunks() -> Iterator[bytes]:
        yield b"ab"
        raise RuntimeError("the source failed")

    with pytest.raises(RuntimeError, match="the source failed"):
        write_column(tmp_path / "field-01.fli", TEXT, 2, (), [np.array([2, 2])], chunks())
    assert list(tmp_path.iterdir()) == []


def test_memory_does_not_grow_with_the_samples(tmp_path: Path) -> None:
    field, part = Field("boxes", Boxes()), 20_000

    def peak(parts: int) -> int:
        tracemalloc.start()
        lengths = (np.full(part, 7 * 16) for _ in range(parts))
        chunks = (bytes(part * 7 * 16) for _ in range(parts))
        write_column(tmp_path / "field-01.fli", field, parts * part, (), lengths, chunks)
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    few = peak(2)
    assert peak(12) < few * 1.2
    assert len(_C.Column(str(tmp_path / "field-01.fli"), "ragged", 16)) == 12 * part


def test_an_empty_column(tmp_path: Path) -> None:
    for field, storage, width in (
        (TEXT, "ragged", 1), (NUMBER, "fixed", 2), (PICTURE, "record", 1),
    ):  # fmt: skip
        write_column(tmp_path / "field-01.fli", field, 0)
        assert len(_C.Column(str(tmp_path / "field-01.fli"), storage, width)) == 0


def test_entries_of_records_must_be_records(tmp_path: Path) -> None:
    write_column(
        tmp_path / "field-01.fli", Field("a", Image()), 3, [np.zeros(2, RECORD), np.zeros(1, RECORD)]
    )
    assert _C.Column(str(tmp_path / "field-01.fli"), "record").record(2) == bytes(32)


# ---- the manifest's fields ----------------------------------------------------------------------


def test_fields_say_the_schema(rich: Path) -> None:
    manifest = Manifest.read(rich)
    assert manifest.version == (1, 1)
    assert manifest.schema == RICH
    assert schema_of(manifest.fields, RICH["label"].kind.classes) == RICH  # type: ignore[attr-defined]
    assert [entry["stored"] for entry in manifest.fields][:4] == ["index", "label", "column", "column"]
    assert entries_of(Schema.plain(("a",)), {}) == []
    assert fields_digest([]) == b""
    shuffled = [dict(reversed(entry.items())) for entry in manifest.fields]
    assert fields_digest(shuffled) == fields_digest(manifest.fields)


def test_the_id_covers_the_fields(tmp_path: Path) -> None:
    picture = jpeg_likes()[0]

    def id_of(name: str, kind: Any, value: Any) -> str:
        folder = tmp_path / f"{len(list(tmp_path.iterdir()))}"
        write_field_set(folder, {"image": Image(), name: kind}, [{"image": picture, name: value}])
        return PackedFiles(folder).id

    kinds = [
        ("a", Scalar("int8"), 1),
        ("a", Scalar("int8"), 2),
        ("a", Scalar("uint8"), 1),
        ("b", Scalar("int8"), 1),
    ]
    assert len({id_of(*kind) for kind in kinds}) == len(kinds)
    assert id_of(*kinds[0]) == id_of(*kinds[0])


def test_another_column_of_the_same_size_is_found(rich: Path, tmp_path: Path) -> None:
    folder = copied(rich, tmp_path)
    position = RICH.position("weight")
    field = RICH["weight"]
    write_column(folder / f"field-{position:02}.fli", field, COUNT, [np.zeros(COUNT)])
    dataset = PackedFiles(folder)
    with pytest.raises(FormatError, match=r"field-04.fli does not belong to this manifest: it has 20 values"):
        dataset.value("weight", 0)
    assert dataset.value("caption", 0) == ""


def test_a_column_of_another_size_is_found_at_opening(rich: Path, tmp_path: Path) -> None:
    folder = copied(rich, tmp_path)
    with open(folder / "field-04.fli", "ab") as file:
        file.write(b"x")
    with pytest.raises(
        ShardTruncated, match=r"field-04.fli \(field 'weight'\) has \d+ bytes, the manifest says"
    ):
        PackedFiles(folder)
    (folder / "field-04.fli").unlink()
    with pytest.raises(ShardTruncated, match=r"field-04.fli \(field 'weight'\) is missing"):
        PackedFiles(folder)


def copied(source: Path, target: Path) -> Path:
    for path in source.iterdir():
        (target / path.name).write_bytes(path.read_bytes())
    return target


def test_only_the_pages_that_are_used_are_read(tmp_path: Path) -> None:
    count = 3 * PAGE_BYTES // 2
    path = tmp_path / "field-01.fli"
    write_column(path, NUMBER, count, [np.arange(count).astype(np.int16)])
    data = bytearray(path.read_bytes())
    data[DATA_OFFSET + PAGE_BYTES + 5] ^= 1  # the second of three pages
    path.write_bytes(data)
    column = _C.Column(str(path), "fixed", 2)
    assert column.value(0) == b"\0\0"
    assert column.value(count - 1) == np.int16(count - 1).tobytes()
    with pytest.raises(ChecksumError):
        column.value(PAGE_BYTES // 2)
    with pytest.raises(ChecksumError):
        column.verify()
