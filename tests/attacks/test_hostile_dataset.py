"""Indexes and manifests that lie with valid checksums give clear errors, at once."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from attack_rules import Rule, breaks
from hostile_index import DATA_OFFSET, entries, index_bytes, write_dataset
from pack_trees import encoded

from fastload import PackedDataset
from fastload.errors import FastloadError, FormatError, FormatVersionError
from fastload.packing.unpack import unpack
from fastload.packing.verify import verify
from fastload.shard.manifest import MANIFEST_NAME, Manifest, Shard

CLIMB = Rule(
    "FORMAT.md",
    "Keys",
    "a reader that writes files MUST refuse keys that are absolute or have empty, `.` or `..` parts or a NUL",
)
ENTRY = Rule(
    "FORMAT.md",
    "Records",
    "A reader MUST check `shard`, `offset` and `length` against the manifest before it touches the shard",
)
FILES = Rule("FORMAT.md", "dataset.json", "and a shard file of another size")
HEADER = Rule(
    "FORMAT.md",
    "Header",
    "A reader MUST check magic, `header_crc`, version, `file_size` and that every region lies inside "
    "the file",
)
IDS = Rule("FORMAT.md", "dataset.json", "A reader MUST refuse a manifest whose `id` differs")
MAJOR = Rule(
    "FORMAT.md", "dataset.json", "A reader MUST refuse another major version and MUST accept any minor one"
)
OBJECT = Rule("FORMAT.md", "dataset.json", "One JSON object, UTF-8, at most 64 MiB")
OVERLAP = Rule("FORMAT.md", "Records", "Records MUST NOT overlap.")
PAGES = Rule("FORMAT.md", "Page table", "A reader MUST check a page before it uses a value from it")
SUMS = Rule("FORMAT.md", "dataset.json", "sum of the lengths of the index's records")
TABLE = Rule("FORMAT.md", "Table and bytes", "`num_records + 1` u64 that do not fall")
UNIQUE = Rule("FORMAT.md", "Keys", "Keys are UTF-8 and SHOULD be unique.")
VALUES = Rule("FORMAT.md", "Records", "`label` MUST be -1 or, if there are classes, below their number.")

BLOBS = [encoded(i) for i in range(5)]
KEYS = [b"c/%d.jpg" % i for i in range(5)]
SIZE = sum(map(len, BLOBS))


def read_all(folder: Path) -> list[bytes]:
    dataset = PackedDataset(folder)
    return [dataset.read(i) for i in range(len(dataset))]


def test_the_forger_can_be_honest(tmp_path: Path) -> None:
    folder = write_dataset(tmp_path / "a", BLOBS, index_bytes(entries(BLOBS), KEYS))
    assert read_all(folder) == BLOBS
    assert verify(folder) == ([], 5)


@breaks(ENTRY)
@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("offset", SIZE, "lies outside its shard"),
        ("offset", SIZE - 1, "lies outside its shard"),
        ("offset", 2**63, "lies outside its shard"),
        ("offset", 2**64 - 1, "lies outside its shard"),
        ("offset", 2**64 - 100, "lies outside its shard"),
        ("length", 0, "has length 0"),
        ("length", 2**32 - 1, "lies outside its shard"),
        ("length", SIZE + 1, "lies outside its shard"),
        ("shard", 1, "names a shard that does not exist"),
        ("shard", 2**32 - 1, "names a shard that does not exist"),
        ("crc32c", 0, "CRC-32C is"),
    ],
)
def test_entries_that_lead_elsewhere(tmp_path: Path, field: str, value: int, reason: str) -> None:
    records = entries(BLOBS)
    records[field][2] = value
    folder = write_dataset(tmp_path / "a", BLOBS, index_bytes(records, KEYS))
    with pytest.raises(FastloadError):
        PackedDataset(folder).read(2)
    problems, _ = verify(folder)
    assert any(
        problem.sample == 2 and problem.key == "c/2.jpg" and reason in problem.reason for problem in problems
    )
    with pytest.raises(FastloadError):
        unpack(folder, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@breaks(VALUES)
@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [("label", -2, "label outside"), ("label", 2**31 - 1, "label outside"), ("codec", 9, "unknown codec")],
)
def test_entries_with_values_out_of_range(tmp_path: Path, field: str, value: int, reason: str) -> None:
    records = entries(BLOBS)
    records[field][3] = value
    folder = write_dataset(tmp_path / "a", BLOBS, index_bytes(records, KEYS), classes=("a", "b"))
    problems, _ = verify(folder)
    assert [problem.sample for problem in problems if reason in problem.reason] == [3]


@breaks(OVERLAP)
def test_overlaps(tmp_path: Path) -> None:
    records = entries(BLOBS)
    records["offset"][4] -= 1
    records["offset"][1] = records["offset"][0]
    folder = write_dataset(tmp_path / "a", BLOBS, index_bytes(records, KEYS))
    found = {problem.sample for problem in verify(folder)[0] if "overlaps sample" in problem.reason}
    assert found == {1, 4}


HUGE = (2**31, 2**32, 2**59, 2**63, 2**64 - 1)


@breaks(HEADER)
@pytest.mark.parametrize(
    "header",
    [
        *({"num_records": value} for value in (6, 1000, *HUGE)),
        *({"data_size": value} for value in (0, 64, *HUGE)),
        *({"data_offset": value} for value in (0, 100, 127, 4097, *HUGE)),
        *({"page_bytes": value} for value in (0, 1, 7, *HUGE)),
        *({"table_offset": value} for value in (0, 4097, *HUGE)),
        *({"bytes_offset": value} for value in (0, DATA_OFFSET, *HUGE)),
        *({"pages_offset": value} for value in (0, *HUGE)),
        *({"file_size": value} for value in (0, 128, *HUGE)),
        {"header_bytes": 0}, {"header_bytes": 2**32 - 1}, {"major": 2}, {"major": 0}, {"magic": b"FLINDEX2"},
        {"pages_crc": 1}, {"header_crc": 1},
    ],
)  # fmt: skip
def test_headers_that_lie(tmp_path: Path, header: dict[str, Any]) -> None:
    index = index_bytes(entries(BLOBS), KEYS, **header)
    folder = write_dataset(tmp_path / "a", BLOBS, index)
    with pytest.raises(FastloadError):
        PackedDataset(folder)
    problems, _ = verify(folder)
    assert problems


@breaks(TABLE)
@pytest.mark.parametrize(
    "offsets", [[0, 7, 5, 21, 28, 35], [0, 7, 14, 21, 28, 2**63], [2**64 - 1, 0, 0, 0, 0, 0], [99999] * 6]
)
def test_keys_outside_the_index(tmp_path: Path, offsets: list[int]) -> None:
    folder = write_dataset(tmp_path / "a", BLOBS, index_bytes(entries(BLOBS), KEYS, offsets))
    problems, _ = verify(folder)
    assert any("damaged key" in problem.reason for problem in problems)
    with pytest.raises(FastloadError):
        unpack(folder, tmp_path / "out")


@breaks(CLIMB)
@pytest.mark.parametrize("key", [b"../../etc/x", b"/etc/x", b"c/../../x", b"c\0/x", b"", b"c//x"])
@pytest.mark.parametrize("flags", [0, 0x80])
def test_keys_that_climb_out(tmp_path: Path, key: bytes, flags: int) -> None:
    if flags:
        key = b"".join(b"%%%02X" % byte for byte in key)
    records = entries(BLOBS)
    records["flags"][4] = flags
    folder = write_dataset(tmp_path / "a", BLOBS, index_bytes(records, [*KEYS[:4], key]))
    with pytest.raises(FormatError, match="no path below a folder"):
        unpack(folder, tmp_path / "deep" / "out")
    assert sorted(path.name for path in tmp_path.rglob("*")) == sorted(
        ["a", "deep", "dataset.json", "index.fli", "shard.bin"]
    )


@breaks(CLIMB)
@pytest.mark.parametrize("name", ["../x", "/abs", "a/../../b", "."])
def test_class_names_that_climb_out(tmp_path: Path, name: str) -> None:
    records = entries(BLOBS)
    records["label"] = 0
    folder = write_dataset(
        tmp_path / "a", BLOBS, index_bytes(records, [b"x%d" % i for i in range(5)]), classes=(name,)
    )
    with pytest.raises(FormatError, match="no path below a folder"):
        unpack(folder, tmp_path / "deep" / "out")


@breaks(UNIQUE)
def test_keys_that_are_file_and_folder_at_once(tmp_path: Path) -> None:
    keys = [b"a", b"a/b", b"c", b"d", b"e"]
    folder = write_dataset(tmp_path / "a", BLOBS, index_bytes(entries(BLOBS), keys))
    with pytest.raises(FastloadError, match="cannot unpack"):
        unpack(folder, tmp_path / "out")
    folder = write_dataset(tmp_path / "b", BLOBS, index_bytes(entries(BLOBS), [b"same"] * 5))
    with pytest.raises(FastloadError, match="two records have the name 'same'"):
        unpack(folder, tmp_path / "out")


@breaks(FILES)
@pytest.mark.parametrize("kind", ["fifo", "folder", "device", "missing"])
def test_shards_that_are_no_files(tmp_path: Path, kind: str) -> None:
    folder = write_dataset(tmp_path / "a", BLOBS, index_bytes(entries(BLOBS), KEYS))
    shard = folder / "shard.bin"
    shard.unlink()
    make = {"fifo": os.mkfifo, "folder": os.mkdir, "device": lambda p: os.symlink("/dev/zero", p)}
    make.get(kind, lambda p: None)(shard)
    problems, _ = verify(folder)
    assert any(problem.shard == "shard.bin" for problem in problems)
    with pytest.raises(FastloadError):
        read_all(folder)


@breaks(FILES)
@pytest.mark.parametrize(
    "change",
    [
        {"num_records": 4}, {"num_records": 10**12}, {"index_crc": 5},
        {"shards": ()}, {"shards": (Shard("shard.bin", SIZE - 1, 5),)},
    ],
)  # fmt: skip
def test_manifests_that_do_not_fit(tmp_path: Path, change: dict[str, Any]) -> None:
    folder = write_dataset(tmp_path / "a", BLOBS, index_bytes(entries(BLOBS), KEYS), **change)
    problems, _ = verify(folder)
    assert problems
    with pytest.raises((FastloadError, ValueError)):
        read_all(folder)


@breaks(SUMS)
@pytest.mark.parametrize(
    "change", [{"data_bytes": 1}, {"shards": (Shard("shard.bin", SIZE, 3),)}, {"index_size": 9}]
)
def test_sums_that_do_not_fit(tmp_path: Path, change: dict[str, Any]) -> None:
    folder = write_dataset(tmp_path / "a", BLOBS, index_bytes(entries(BLOBS), KEYS), **change)
    assert verify(folder)[0]


def manifest_text(folder: Path) -> str:
    return (folder / MANIFEST_NAME).read_text()


@breaks(OBJECT)
@pytest.mark.parametrize(
    "text",
    [
        "", "{", "null", "[]", "3", '"x"', "{}", "[" * 200_000, '{"fastload": []}', '{"fastload": [1, 0]}',
        '{"fastload": [1, 0], "shards": [{}]}', '{"fastload": [1, 0], "shards": 7}', "\ufeff{}", "NaN",
        "\udcff",
    ],
)  # fmt: skip
def test_manifests_that_are_none(tmp_path: Path, text: str) -> None:
    (tmp_path / MANIFEST_NAME).write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(FormatError):
        Manifest.read(tmp_path)


@breaks(OBJECT)
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("fastload", None), ("id", None), ("id", "0" * 32), ("num_records", "x"),
        ("num_records", None), ("num_records", 6), ("classes", None), ("classes", ["x"]), ("shards", [[]]),
        ("shards", None), ("shards", [{"file": "a"}]), ("index_size", None), ("index_crc", []),
        ("data_bytes", "x"), ("skipped", {}), ("codecs", 3), ("options", 3),
    ],
)  # fmt: skip
def test_fields_of_the_manifest_are_checked(tmp_path: Path, field: str, value: object) -> None:
    folder = write_dataset(tmp_path / "a", BLOBS, index_bytes(entries(BLOBS), KEYS))
    body = json.loads(manifest_text(folder))
    for changed in ({**body, field: value}, {k: v for k, v in body.items() if k != field}):
        (folder / MANIFEST_NAME).write_text(json.dumps(changed))
        with pytest.raises(FormatError):
            Manifest.read(folder)


@breaks(MAJOR)
def test_a_newer_major_version_says_so(tmp_path: Path) -> None:
    folder = write_dataset(tmp_path / "a", BLOBS, index_bytes(entries(BLOBS), KEYS))
    body = json.loads(manifest_text(folder))
    (folder / MANIFEST_NAME).write_text(json.dumps({**body, "fastload": [2, 0]}))
    with pytest.raises(FormatVersionError, match="Upgrade fastload"):
        Manifest.read(folder)
    (folder / MANIFEST_NAME).write_text(json.dumps({**body, "fastload": [1, 7], "novelty": {"x": 1}}))
    assert len(PackedDataset(folder)) == 5  # a newer minor version adds what may be ignored


@breaks(IDS)
def test_an_edited_manifest_is_noticed(tmp_path: Path) -> None:
    folder = write_dataset(tmp_path / "a", BLOBS, index_bytes(entries(BLOBS), KEYS), classes=("a", "b"))
    (folder / MANIFEST_NAME).write_text(manifest_text(folder).replace('"b"', '"c"'))
    with pytest.raises(FormatError, match="says id"):
        Manifest.read(folder)


@breaks(PAGES)
def test_random_index_damage(tmp_path: Path) -> None:
    """Random changes of 1 to 8 bytes: each is an error or leaves every record as it was."""
    honest = index_bytes(entries(BLOBS), KEYS)
    folder, rng = write_dataset(tmp_path / "a", BLOBS, honest), np.random.default_rng(0)
    unnoticed = 0
    for _ in range(3000):
        data = bytearray(honest)
        at = int(rng.integers(0, len(data) - 8))
        data[at : at + int(rng.integers(1, 9))] = rng.bytes(int(rng.integers(1, 9)))
        (folder / "index.fli").write_bytes(data)
        try:
            assert read_all(folder) == BLOBS
            unnoticed += 1
            assert data[:128] == honest[:128]
            assert data[DATA_OFFSET:] == honest[DATA_OFFSET:]
        except FastloadError:
            continue
    assert unnoticed > 0  # the padding between header and data belongs to nobody
