"""Fields that lie: manifests and field files as an attacker would send them, with all checksums right."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from attack_rules import Rule, breaks
from field_sets import RICH, crc, republished, resealed, rich_samples, write_field_set

from fastload.errors import FastloadError, FormatError
from fastload.packing.verify import verify
from fastload.shard.columns import write_column
from fastload.shard.dataset import PackedFiles
from fastload.shard.index import HEADER, RECORD
from fastload.shard.manifest import ColumnFile, Manifest

MEMORY = Rule("SECURITY.md", "What is trusted", "take memory without a bound")
COLUMN = Rule(
    "FORMAT.md",
    "field-NN.fli",
    "A reader MUST check `spacing`, and before it uses a ragged value that the table's entries do "
    "not fall, lie inside the region and cut no row in two.",
)
DIGEST = Rule(
    "FORMAT.md",
    "Fields",
    "A reader MUST refuse a dataset where either differs, and one with a digest in the header that "
    "is not zero and no `fields`.",
)
ENTRIES = Rule(
    "FORMAT.md",
    "field-NN.fli",
    "The rules of index.fli hold for them, among them that no record overlaps another, of the index "
    "or of any field",
)
SETTINGS = Rule(
    "FORMAT.md",
    "Fields",
    "A reader MUST refuse other settings of `stored`, settings that are missing or not legal, and a "
    "field's file of another size, digest or number of records",
)

COUNT = 6
BOXES, WEIGHT, MASK = (RICH.position(name) for name in ("boxes", "weight", "mask"))


@pytest.fixture
def rich(tmp_path: Path) -> Path:
    return write_field_set(tmp_path / "set", RICH, rich_samples(COUNT))


def entries_of(folder: Path) -> list[dict[str, Any]]:
    return [dict(entry) for entry in Manifest.read(folder).fields]


# ---- the manifest's fields ----------------------------------------------------------------------

LIES: dict[str, Any] = {
    "a file outside of the folder": {BOXES: {"file": "../field-08.fli"}},
    "an absolute file": {BOXES: {"file": "/etc/passwd"}},
    "another field's file": {BOXES: {"file": f"field-{WEIGHT:02}.fli"}},
    "a file that is a list": {BOXES: {"file": ["field-08.fli"]}},
    "a size below 0": {BOXES: {"size": -1}},
    "a size of 2^63": {BOXES: {"size": 2**63}},
    "a size that is a bool": {BOXES: {"size": True}},
    "a size that is text": {BOXES: {"size": "4"}},
    "a digest of 2^32": {BOXES: {"digest": 2**32}},
    "a digest that is missing": {BOXES: {"digest": None}},
    "a kind that does not exist": {BOXES: {"kind": "cuboids"}},
    "a kind that is an object": {BOXES: {"kind": {}}},
    "a setting that does not exist": {BOXES: {"format": "yxyx"}},
    "a setting of another type": {BOXES: {"relative": "no"}},
    "a dtype that runs code": {WEIGHT: {"dtype": "O"}},
    "a dtype of two": {WEIGHT: {"dtype": "f4,f4"}},
    "a dtype that is an object": {WEIGHT: {"dtype": {"names": ["a"], "formats": ["O"]}}},
    "a shape of 2^60 numbers": {RICH.position("pose"): {"shape": [2**30, 2**30]}},
    "a shape below 0": {RICH.position("pose"): {"shape": [-2, 3]}},
    "a shape that is a number": {RICH.position("pose"): {"shape": 2.5}},
    "no points": {RICH.position("points"): {"points": 0}},
    "classes that are text": {MASK: {"classes": "abc"}},
    "classes that are numbers": {MASK: {"classes": [1, 2]}},
    "classes that are nothing": {MASK: {"classes": None}},
    "a name with a slash": {BOXES: {"name": "a/b"}},
    "a name of dots": {BOXES: {"name": ".."}},
    "no name": {BOXES: {"name": ""}},
    "a name that is a number": {BOXES: {"name": 3}},
    "a name twice": {BOXES: {"name": "weight"}},
    "the name of a batch's own key": {BOXES: {"name": "valid"}},
    "a column stored in the index": {BOXES: {"stored": "index"}},
    "an image stored as a column": {0: {"stored": "column"}},
    "a second label as the label": {RICH.position("attribute"): {"stored": "label"}},
    "stored that is an object": {BOXES: {"stored": {}}},
}


@breaks(SETTINGS)
@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_a_manifest_that_lies_is_refused_when_it_is_read(rich: Path, lie: Any) -> None:
    entries = entries_of(rich)
    for number, change in lie.items():
        entries[number] |= change
    resealed(rich, entries)
    with pytest.raises(FormatError, match="'fields' is not valid"):
        PackedFiles(rich)
    with pytest.raises(FormatError):
        verify(rich)


@breaks(SETTINGS)
@pytest.mark.parametrize(
    "fields",
    [
        3, "abc", {"a": 1}, [3], [None], [[]], [{}], [{"name": "a"}],
        [{"name": "a", "kind": "text", "stored": "column"}],
        [{"name": "a", "kind": "text"}] * 200,
    ],
    ids=repr,
)  # fmt: skip
def test_fields_that_are_something_else(rich: Path, fields: Any) -> None:
    body = json.loads((rich / "dataset.json").read_text())
    (rich / "dataset.json").write_text(json.dumps(body | {"fields": fields}))
    with pytest.raises(FormatError):
        PackedFiles(rich)


@breaks(SETTINGS)
@pytest.mark.parametrize("depth", [50, 900, 100_000])
def test_fields_nested_deeply(rich: Path, depth: int) -> None:
    body = json.loads((rich / "dataset.json").read_text())
    text = json.dumps(body)
    deep = "[" * depth + "]" * depth
    (rich / "dataset.json").write_text(text.replace('"kind": "text"', f'"deep": {deep}, "kind": "text"', 1))
    with pytest.raises(FormatError):
        PackedFiles(rich)


@breaks(DIGEST)
def test_fields_that_were_taken_out(rich: Path) -> None:
    body = json.loads((rich / "dataset.json").read_text())
    del body["fields"]
    (rich / "dataset.json").write_text(json.dumps(body | {"fastload": [1, 0]}))
    with pytest.raises(FormatError, match="the manifest's 'fields' have digest none, the index has"):
        PackedFiles(rich)
    assert any("digest none" in problem.reason for problem in verify(rich)[0])


@breaks(DIGEST)
def test_fields_that_were_put_in(rich: Path, folder: Path, tmp_path: Path) -> None:
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    body = json.loads((tmp_path / "dataset.json").read_text())
    fields = [{"name": "a", "kind": "image", "channels": 3, "bits": 8, "stored": "index"}]
    (tmp_path / "dataset.json").write_text(json.dumps(body | {"fields": fields, "classes": []}))
    with pytest.raises(FormatError):
        PackedFiles(tmp_path)


@breaks(DIGEST)
def test_fields_that_were_changed(rich: Path) -> None:
    body = json.loads((rich / "dataset.json").read_text())
    body["fields"][BOXES]["format"] = "cxcywh"
    (rich / "dataset.json").write_text(json.dumps(body))
    with pytest.raises(FormatError, match="'fields' have digest"):
        PackedFiles(rich)


@breaks(DIGEST)
@pytest.mark.parametrize("tail", [bytes(16), b"0123456789abcdef"])
def test_an_index_whose_two_digests_differ(rich: Path, tail: bytes) -> None:
    data = bytearray((rich / "index.fli").read_bytes())
    at = int(np.frombuffer(data[:128], HEADER)[0]["pages_offset"]) - 64
    data[at : at + 16] = tail
    (rich / "index.fli").write_bytes(data)
    with pytest.raises(FormatError, match=f"the index has {tail.hex()}"):
        PackedFiles(rich)


# ---- field files --------------------------------------------------------------------------------


def tampered(table: dict[int, int] | None = None, **header: Any) -> Any:
    """A writer that changes the file that is there: header fields, table entries; CRCs are made to fit."""

    def write(path: Path, field: Any) -> ColumnFile:
        data = bytearray(path.read_bytes())
        head = np.frombuffer(data[:128], HEADER)[0].copy()
        for number, value in (table or {}).items():
            at = int(head["table_offset"]) + 8 * number
            data[at : at + 8] = value.to_bytes(8, "little")
        begin, end, page = (int(head[name]) for name in ("data_offset", "pages_offset", "page_bytes"))
        parts = [bytes(data[at : min(at + page, end)]) for at in range(begin, end, page)]
        pages = b"".join(crc(part).to_bytes(4, "little") for part in parts)
        data[end:] = pages
        head["pages_crc"] = crc(pages)
        for name, value in header.items():
            head[name] = value
        head["header_crc"] = crc(head.tobytes()[:-4])
        data[:128] = head.tobytes()
        path.write_bytes(data)
        return ColumnFile(path.name, len(data), crc(bytes(data[:128]) + pages))

    return write


HUGE = (2**31, 2**32, 2**59, 2**63, 2**64 - 1)
FILES: dict[str, tuple[str, Any]] = {
    **{f"{name} {value}": ("boxes", tampered(**{name: value}))
       for name in ("num_records", "table_offset", "bytes_offset", "data_size") for value in (1, *HUGE)},
    **{f"{value} values of one width": ("weight", tampered(num_records=value)) for value in (1000, *HUGE)},
    **{f"values of {value} bytes": ("weight", tampered(spacing=value)) for value in (0, 1, 4, 2**32 - 1)},
    "rows that say they have one width": ("boxes", tampered(spacing=16)),
    "a table that falls": ("boxes", tampered({1: 2**40, 2: 0})),
    "a table that leaves the file": ("boxes", tampered(dict.fromkeys(range(1, COUNT + 1), 2 ** 63))),
    "a table that wraps": ("boxes", tampered(dict.fromkeys(range(1, COUNT + 1), 2 ** 64 - 16))),
    "a table that cuts a row": ("boxes", tampered(dict.fromkeys(range(1, COUNT + 1), 8))),
    "an index in a field's place": ("boxes", tampered(magic=b"FLINDEX1")),
    "another major version": ("boxes", tampered(major=2)),
    "fewer values than the index": ("weight", tampered(num_records=COUNT - 1)),
}  # fmt: skip


@breaks(COLUMN)
@pytest.mark.parametrize(("name", "write"), FILES.values(), ids=FILES)
def test_a_file_that_lies_is_refused_when_it_is_used(rich: Path, name: str, write: Any) -> None:
    republished(rich, name, write)
    dataset = PackedFiles(rich)
    with pytest.raises(FastloadError):
        [dataset.value(name, sample) for sample in range(COUNT)]
    problems, _ = verify(rich)
    assert [problem.shard for problem in problems] == [f"field-{RICH.position(name):02}.fli"]


@breaks(ENTRIES)
@pytest.mark.parametrize(
    "change",
    [
        *({"offset": value} for value in HUGE), {"length": 0}, {"length": 2**32 - 1}, {"shard": 1},
        {"shard": 2**32 - 1}, {"crc32c": 7}, {"length": 3},
    ],
    ids=str,
)  # fmt: skip
def test_entries_that_lead_elsewhere(rich: Path, change: dict[str, int]) -> None:
    column = PackedFiles(rich).columns["mask"]
    entries = np.frombuffer(b"".join(column.record(number) for number in range(COUNT)), RECORD).copy()
    for name, value in change.items():
        entries[name][2] = value
    republished(rich, "mask", lambda path, field: write_column(path, field, COUNT, [entries]))
    dataset = PackedFiles(rich)
    with pytest.raises(FastloadError):
        dataset.value("mask", 2)
    assert dataset.value("mask", 1) == rich_samples(COUNT)[1]["mask"]
    problems, _ = verify(rich)
    assert 2 in {problem.sample for problem in problems}  # and who it overlaps


# ---- values -------------------------------------------------------------------------------------

BOMBS: dict[str, tuple[str, bytes]] = {
    "as many objects as 32 bits can say": ("outlines", b"\xff" * 4),
    "one object of as many polygons": ("outlines", b"\1\0\0\0" + b"\xff" * 4),
    "a polygon of as many points": ("outlines", b"\1\0\0\0" * 2 + b"\xff" * 4),
    "as many areas as 32 bits can say": ("areas", b"\xff" * 4),
    "an area of 2^62 pixels": ("areas", np.array([1, 2**31 - 1, 2**31 - 1, 1, 9], "<u4").tobytes()),
    "JSON of 100 000 levels": ("notes", b"[" * 100_000 + b"]" * 100_000),
    "JSON of a number of 10 000 digits": ("notes", b"9" * 10_000),
    "text that ends within a letter": ("caption", "\u00fc".encode()[:1]),
}


@breaks(MEMORY)
@pytest.mark.parametrize(("name", "data"), BOMBS.values(), ids=BOMBS)
def test_values_that_would_burst(rich: Path, name: str, data: bytes) -> None:
    lengths = np.array([len(data)] + [0] * (COUNT - 1))
    republished(rich, name, lambda path, field: write_column(path, field, COUNT, (), [lengths], [data]))
    dataset = PackedFiles(rich)
    tracemalloc.start()
    try:
        with pytest.raises(FormatError, match=f"Field '{name}'"):
            dataset.schema[name].check_bytes(dataset.value_bytes(name, 0))
        assert tracemalloc.get_traced_memory()[1] < 20 << 20
    finally:
        tracemalloc.stop()
    assert [problem.sample for problem in verify(rich)[0]] == [0]
