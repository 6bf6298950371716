"""verify and info of datasets with fields: every wrong value is listed, every field is counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from field_sets import RICH, SHARD, record_entries, republished, resealed, rich_samples, write_field_set

from fastload.cli import main
from fastload.packing import facts as module
from fastload.packing.facts import IndexRuns, field_facts
from fastload.packing.verify import verify
from fastload.sample.fields import Array, Boxes, Image, Keypoints, Label, Mask, Scalar, Text
from fastload.sample.schema import Schema
from fastload.shard.columns import write_column
from fastload.shard.dataset import PackedFiles
from fastload.shard.index import RECORD
from fastload.shard.manifest import Manifest

COUNT = 12


@pytest.fixture
def rich(tmp_path: Path) -> Path:
    return write_field_set(tmp_path / "set", RICH, rich_samples(COUNT))


def test_a_whole_set_has_no_problems(rich: Path) -> None:
    assert verify(rich, decode=True) == ([], COUNT)


def test_verify_says_what_it_checked(rich: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(rich)]) == 0
    assert capsys.readouterr().out == f"{rich}: {COUNT} records are intact (CRC-32C, values of all fields)\n"


def test_every_wrong_number_is_listed(rich: Path) -> None:
    boxes = np.zeros((COUNT, 4), np.float32)
    boxes[3, 2], boxes[7, 0] = -1, np.nan

    def write(path: Path, field: Any) -> Any:
        lengths = np.full(COUNT, 16)
        lengths[0], lengths[1] = 0, 32  # the second sample has two
        return write_column(path, field, COUNT, (), [lengths], [boxes.tobytes()])

    republished(rich, "boxes", write)
    found = {(problem.sample, problem.key, problem.shard): problem.reason for problem in verify(rich)[0]}
    name = f"field-{RICH.position('boxes'):02}.fli"
    assert found == {
        (3, "0003", name): "field 'boxes' must have widths and heights of at least 0. "
        "Found: [0.0, 0.0, -1.0, 0.0] in row 0",
        (7, "0007", name): "field 'boxes' must be finite. Found: [nan, 0.0, 0.0, 0.0] in row 0",
    }


@pytest.mark.parametrize(
    ("name", "values", "words"),
    [
        ("kept", np.full(COUNT, 2, np.uint8).view(bool), "field 'kept' must be 0 or 1. Found: [2]"),
        ("attribute", np.full(COUNT, -2, np.int32), "must be from -1 to 2147483646, a class index or none"),
    ],
)
def test_wrong_values_of_one_width(rich: Path, name: str, values: Any, words: str) -> None:
    republished(rich, name, lambda path, field: write_column(path, field, COUNT, [values]))
    problems, _ = verify(rich)
    assert [problem.sample for problem in problems] == list(range(COUNT))
    assert all(words in problem.reason for problem in problems)


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("caption", b"\xff\xfe", "Field 'caption' (text): 2 bytes that are no value"),
        ("notes", b'{"b": 1}', "Field 'notes' (json): 8 bytes that are not the canonical ones"),
        ("outlines", b"\1\0\0\0", "Field 'outlines' (polygons): 4 bytes that are no value"),
        ("areas", b"\1\0\0\0" * 5, "Field 'areas'"),
        ("points", np.array([0, 0, -1] * 3, "<f4").tobytes(), "visibilities of at least 0"),
    ],
)
def test_wrong_objects(rich: Path, name: str, data: bytes, words: str) -> None:
    lengths = np.zeros(COUNT, np.int64)
    lengths[5] = len(data)
    republished(rich, name, lambda path, field: write_column(path, field, COUNT, (), [lengths], [data]))
    problems, _ = verify(rich)
    if name == "areas":  # height and width 1, one run of 1: legal
        assert problems == []
        return
    assert [problem.sample for problem in problems] == [5]
    assert words in problems[0].reason


def test_records_of_further_fields_are_checked(rich: Path) -> None:
    dataset = PackedFiles(rich)
    entry = np.frombuffer(dataset.columns["mask"].record(4), RECORD)[0]
    data = bytearray((rich / SHARD).read_bytes())
    data[int(entry["offset"]) + 3] ^= 1
    (rich / SHARD).write_bytes(data)
    problems, _ = verify(rich)
    assert [(problem.sample, problem.key, problem.offset) for problem in problems] == [
        (4, "0004", int(entry["offset"]))
    ]
    assert problems[0].reason.startswith("field 'mask': ")
    assert "CRC-32C" in problems[0].reason


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"shard": 1}, "field 'mask': names a shard that does not exist"),
        ({"length": 0}, "field 'mask': has length 0"),
        ({"offset": 2**63}, "field 'mask': lies outside its shard"),
        ({"label": 0}, "field 'mask': has a label outside the classes"),
        ({"codec": 99}, "field 'mask': has an unknown codec"),
        ({"offset": 0}, "overlaps sample"),
    ],
)
def test_entries_of_further_fields_are_checked(rich: Path, change: dict[str, int], words: str) -> None:
    column = PackedFiles(rich).columns["mask"]
    entries = np.frombuffer(b"".join(column.record(number) for number in range(COUNT)), RECORD).copy()
    for name, value in change.items():
        entries[name][2] = value
    republished(rich, "mask", lambda path, field: write_column(path, field, COUNT, [entries]))
    assert any(words in problem.reason for problem in verify(rich)[0])


def test_records_that_two_fields_share(tmp_path: Path) -> None:
    schema = Schema.of({"a": Image(), "b": Image()})
    samples = rich_samples(3)
    folder = write_field_set(tmp_path, schema, [{"a": one["image"], "b": one["second"]} for one in samples])
    entries = record_entries([one["image"] for one in samples], 0)
    republished(folder, "b", lambda path, field: write_column(path, field, 3, [entries]))
    reasons = [problem.reason for problem in verify(folder)[0]]
    assert len(reasons) == 3
    assert all("of another field" in reason for reason in reasons)


def test_files_of_fields_that_are_not_the_manifests(rich: Path) -> None:
    weight, boxes = (rich / f"field-{RICH.position(name):02}.fli" for name in ("weight", "boxes"))
    write_column(weight, RICH["weight"], COUNT, [np.zeros(COUNT)])
    data = bytearray(boxes.read_bytes())
    data[4096] ^= 1
    boxes.write_bytes(data)
    (rich / f"field-{RICH.position('caption'):02}.fli").unlink()
    reasons = {problem.shard: problem.reason for problem in verify(rich)[0]}
    assert set(reasons) == {weight.name, boxes.name, f"field-{RICH.position('caption'):02}.fli"}
    assert "does not belong to this manifest" in reasons[weight.name]
    assert "CRC-32C" in reasons[boxes.name]


def test_pictures_are_decoded_as_their_fields_say(tmp_path: Path) -> None:
    samples = rich_samples(3)
    pictures = [{"a": one["image"], "m": one["mask"], "g": one["second"]} for one in samples]
    pictures[1]["m"] = samples[1]["image"]  # a JPEG has no ids
    folder = write_field_set(tmp_path, {"a": Image(), "m": Mask(), "g": Image(1)}, pictures)
    assert verify(folder) == ([], 3)
    problems, _ = verify(folder, decode=True)
    assert [(problem.sample, problem.reason.split(": ")[:2]) for problem in problems] == [
        (1, ["field 'm'", "does not decode"])
    ]


def test_labels_where_there_is_no_label_field(tmp_path: Path) -> None:
    folder = write_field_set(tmp_path, {"image": Image(), "n": Text()}, [
        {"image": one["image"], "n": one["caption"]} for one in rich_samples(3)
    ])  # fmt: skip
    records = PackedFiles(folder).records.copy()
    records["label"][1] = 0
    resealed(folder, Manifest.read(folder).fields, records)
    assert [(p.sample, p.reason) for p in verify(folder)[0]] == [(1, "has a label outside the classes")]


def test_another_digest_of_fields(rich: Path) -> None:
    manifest = Manifest.read(rich)
    facts = {name: getattr(manifest, name) for name in manifest.__dataclass_fields__}
    other = [dict(entry) for entry in manifest.fields]
    other[RICH.position("boxes")]["format"] = "xyxy"
    Manifest(**(facts | {"fields": tuple(other)})).write(rich)
    assert any("'fields' have digest" in problem.reason for problem in verify(rich)[0])


# ---- info ---------------------------------------------------------------------------------------


def test_facts_are_what_numpy_finds(rich: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SAMPLES", 5)
    monkeypatch.setattr(module, "_BYTES", 100)
    samples = rich_samples(COUNT)
    dataset = PackedFiles(rich)
    facts = {one["name"]: one for one in field_facts(dataset, IndexRuns(dataset))}
    assert list(facts) == list(RICH.names)
    boxes = [sample["boxes"] for sample in samples]
    rows, flat = [len(one) for one in boxes], np.concatenate([one.ravel() for one in boxes])
    assert facts["boxes"] == {
        "name": "boxes", "kind": "boxes(xywh)", "file": f"field-{RICH.position('boxes'):02}.fli",
        "rows": {"total": sum(rows), "min": min(rows), "mean": round(np.mean(rows), 3), "max": max(rows)},
        "without": rows.count(0), "min": flat.min(), "max": flat.max(),
    }  # fmt: skip
    weights = [sample["weight"] for sample in samples]
    assert (facts["weight"]["min"], facts["weight"]["max"]) == (min(weights), max(weights))
    captions = [len(sample["caption"].encode()) for sample in samples]
    assert facts["caption"]["bytes"]["total"] == sum(captions)
    assert facts["caption"]["without"] == captions.count(0)
    labels = [sample["label"] for sample in samples]
    assert facts["label"] == {
        "name": "label", "kind": "label", "classes": 3, "file": "index.fli", "without": labels.count(-1),
        "different": len(set(labels) - {-1}), "min": 0, "max": 2,
    }  # fmt: skip
    assert facts["mask"]["classes"] == 2
    assert facts["mask"]["bytes"] == sum(len(sample["mask"]) for sample in samples)
    assert facts["mask"]["sides"]["width"]["max"] == 48
    assert json.loads(json.dumps(facts)) == facts


def test_numbers_that_are_none(tmp_path: Path) -> None:
    picture = rich_samples(1)[0]["image"]
    values = [float("nan"), 2.0, float("-inf")]
    folder = write_field_set(
        tmp_path, {"a": Image(), "x": Scalar("float32")}, [{"a": picture, "x": value} for value in values]
    )
    dataset = PackedFiles(folder)
    found = field_facts(dataset, IndexRuns(dataset))[1]
    assert (found["nan"], found["min"], found["max"]) == (1, "-inf", 2.0)


def test_info_shows_each_field(rich: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", str(rich)]) == 0
    shown = capsys.readouterr().out
    for name in RICH.names:
        assert f"field {name} " in shown
    assert "boxes(xywh): " in shown
    assert "rows per sample (min 0, max " in shown
    assert main(["info", str(rich), "--json"]) == 0
    fields = json.loads(capsys.readouterr().out)["fields"]
    assert [field["name"] for field in fields] == list(RICH.names)


def test_no_samples(tmp_path: Path) -> None:
    schema = {"a": Image(), "m": Mask(), "l": Label(), "s": Scalar("int8"), "b": Boxes(), "t": Text(),
              "x": Array("int8", (None,)), "k": Keypoints(2)}  # fmt: skip
    folder = write_field_set(tmp_path, schema, [])
    dataset = PackedFiles(folder)
    assert [one["name"] for one in field_facts(dataset, IndexRuns(dataset))] == list(schema)
    assert verify(folder) == ([], 0)
