"""Datasets of version 1.1 for tests: written part by part, and read the slow, obvious way from FORMAT.md."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from index_reference import RECORD as RECORD_PARTS
from index_reference import crc32c_reference
from pictures import encoded, picture
from PIL import Image as PilImage

from fastload._native import _C
from fastload.errors import DecodeError
from fastload.sample.fields import (
    Array,
    Boxes,
    Bytes,
    Image,
    Json,
    Keypoints,
    Label,
    Mask,
    Polygons,
    Scalar,
    Text,
)
from fastload.sample.schema import Field, Schema
from fastload.shard.columns import write_column
from fastload.shard.index import RECORD, write_index
from fastload.shard.manifest import Manifest, Shard, column_name, entries_of, fields_digest

SHARD = "records.bin"


def crc(data: bytes) -> int:
    return int(_C.crc32c(np.frombuffer(data, np.uint8))) if data else 0


def record_entries(pictures: Sequence[bytes], first: int, labels: Sequence[int] | None = None) -> np.ndarray:
    """Index entries of pictures that lie back to back from byte ``first`` on."""
    records = np.zeros(len(pictures), RECORD)
    records["length"] = [len(picture) for picture in pictures]
    records["offset"] = np.cumsum(records["length"], dtype=np.uint64) - records["length"] + first
    records["crc32c"] = [crc(picture) for picture in pictures]
    records["label"] = -1 if labels is None else labels
    names = list(_C.CODECS)
    for number, data in enumerate(pictures):
        try:
            codec, *facts = _C.probe(np.frombuffer(data, np.uint8))
        except DecodeError:
            continue  # codec 0: not recognised
        records[number]["codec"] = names.index(codec)
        for name, value in zip(("width", "height", "channels", "flags"), facts, strict=True):
            records[number][name] = value
    return records


RICH = Schema.of(
    {
        "image": Image(), "label": Label(("cat", "dog", "eel")), "mask": Mask(classes=("sky", "road")),
        "second": Image(1), "weight": Scalar("float64"), "kept": Scalar("bool"),
        "pose": Array("float32", (2, 3)), "track": Array("int16", (None, 2)), "boxes": Boxes("xywh"),
        "outlines": Polygons(), "areas": Polygons("rle"), "points": Keypoints(3), "caption": Text(),
        "blob": Bytes(), "notes": Json(), "attribute": Label(),
    }
)  # fmt: skip


def rich_samples(count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Samples of the schema RICH: every kind of field, every third one without objects."""
    rng = np.random.default_rng(seed)
    return [_rich_sample(rng, number) for number in range(count)]


def _rich_sample(rng: np.random.Generator, number: int) -> dict[str, Any]:
    width, height, objects = 40 + number % 9, 36 + number % 7, int(rng.integers(1, 5)) if number % 3 else 0
    ids = rng.integers(0, 3, (height, width), np.uint8)
    area = rng.integers(0, 2, (4, 5))
    runs = [len(list(run)) for _, run in itertools.groupby(area.ravel(order="F").tolist())]
    return {
        "image": encoded(picture(seed=number, width=width, height=height), quality=80),
        "label": number % 4 - 1,
        "mask": encoded(PilImage.fromarray(ids), "PNG"),
        "second": encoded(picture(seed=number + 1, width=24, height=20).convert("L"), "PNG"),
        "weight": float(rng.normal()),
        "kept": bool(number % 2),
        "pose": rng.normal(size=(2, 3)).astype(np.float32),
        "track": rng.integers(-99, 99, (objects, 2), np.int16),
        "boxes": rng.uniform(0, 30, (objects, 4)).astype(np.float32),
        "outlines": [
            [rng.uniform(0, 30, (3 + one, 2)).astype(np.float32)] * (one % 3) for one in range(objects)
        ],
        "areas": [{"size": [4, 5], "counts": [0] * int(area[0, 0]) + runs}] * objects,
        "points": np.abs(rng.normal(size=(objects, 3, 3))).astype(np.float32),
        "caption": "a picture, \u00fc\U0001f600 " * objects,
        "blob": rng.bytes(objects * 5),
        "notes": {"number": number, "list": [1.5, None, "x"]} if objects else None,
        "attribute": int(rng.integers(-1, 2**31 - 1)),
    }


def write_field_set(folder: Path, schema: Any, samples: Sequence[Mapping[str, Any]], part: int = 7) -> Path:
    """A whole dataset of ``samples`` (values by field; pictures as bytes of image files), in ``folder``.

    Args:
        part: how many samples each part has that the writers get.
    """
    schema = Schema.of(schema)
    folder.mkdir(parents=True, exist_ok=True)
    count = len(samples)
    values = {field.name: [field.encode(sample[field.name]) for sample in samples] for field in schema}
    label = schema.label_field
    labels = None if label is None else [int.from_bytes(v, "little", signed=True) for v in values[label.name]]
    records: dict[str, np.ndarray] = {}
    shard = b""
    for field in schema:
        if field.storage == "record":
            own = labels if field == schema.index_field else None
            records[field.name] = record_entries(values[field.name], len(shard), own)
            shard += b"".join(values[field.name])
    (folder / SHARD).write_bytes(shard)
    files = {}
    for number, field in schema.columns:
        path = folder / column_name(number)
        found = records.get(field.name)
        files[field.name] = write_parts(path, field, values[field.name], part, found)
    entries = entries_of(schema, files)
    main = records[schema.index_field.name]
    keys = [[b"%04d" % number for number in range(count)]]
    write_index(folder / "index.fli", [main], keys, fields_digest(entries))
    index = _C.Index(str(folder / "index.fli"))
    Manifest(
        format="arrow",
        num_records=count,
        data_bytes=int(main["length"].sum()),
        classes=() if label is None else label.kind.classes,  # type: ignore[attr-defined]
        shards=(Shard(SHARD, len(shard), count),),
        index_size=(folder / "index.fli").stat().st_size,
        index_crc=index.digest,
        fields=entries,
    ).write(folder)
    return folder


def write_parts(
    path: Path, field: Field, values: Sequence[bytes], part: int = 7, records: np.ndarray | None = None
) -> Any:
    """``write_column`` of encoded values, a part at a time."""
    starts = range(0, len(values), part)
    if field.storage == "ragged":
        lengths = [np.array([len(value) for value in values[at : at + part]], np.int64) for at in starts]
        return write_column(
            path, field, len(values), (), lengths, [b"".join(values[at : at + part]) for at in starts]
        )
    if records is None:
        shape = (-1, *field.item_shape)
        records = np.frombuffer(b"".join(values), field.item_dtype).reshape(shape)
    return write_column(path, field, len(values), [records[at : at + part] for at in starts])


# ---- writers that are wrong, or lie ------------------------------------------------------------


def republished(folder: Path, name: str, write: Callable[[Path, Any], Any]) -> None:
    """Let ``write`` write a field's file anew, and make index and manifest fit, as a wrong writer would."""
    manifest = Manifest.read(folder)
    position = manifest.schema.position(name)
    file = write(folder / f"field-{position:02}.fli", manifest.schema[name])
    entries = [dict(entry) for entry in manifest.fields]
    entries[position] |= {"size": file.size, "digest": file.digest}
    resealed(folder, entries)


def resealed(folder: Path, entries: Any, records: Any = None) -> None:
    """Write index and manifest for these fields, with all digests right."""
    manifest = Manifest.read(folder)
    if records is None:
        records = _C.Index(str(folder / "index.fli")).records().view(RECORD)[:, 0].copy()
    keys = [[b"%04d" % number for number in range(len(records))]]
    write_index(folder / "index.fli", [records], keys, fields_digest(entries))
    facts = {name: getattr(manifest, name) for name in manifest.__dataclass_fields__}
    facts |= {"fields": tuple(entries), "index_crc": _C.Index(str(folder / "index.fli")).digest}
    Manifest(**facts).write(folder)


# ---- the slow reader ----------------------------------------------------------------------------


@dataclass
class Frame:
    """A table file, in parts."""

    count: int
    spacing: int
    fields_digest: bytes
    fixed: bytes  # the data region
    values: list[bytes]  # by the table
    digest: int


def read_frame(path: Path, magic: bytes, has_table: bool) -> Frame:
    """Read and check a table file; AssertionError if anything breaks FORMAT.md."""
    data = path.read_bytes()
    assert data[:8] == magic
    assert np.frombuffer(data, "<u2", 2, 8).tolist() == [1, 0]
    assert int.from_bytes(data[12:16], "little") == 128
    numbers = [int(n) for n in np.frombuffer(data, "<u8", 8, 16)]
    count, data_offset, data_size, page_bytes, table_at, bytes_at, pages_at, file_size = numbers
    spacing, _, pages_crc, header_crc = (
        int.from_bytes(data[at : at + 4], "little") for at in (80, 84, 120, 124)
    )
    assert data[104:120] == bytes(16)
    assert header_crc == crc32c_reference(data[:124])
    assert file_size == len(data)
    assert pages_at == data_offset + data_size
    pages = np.frombuffer(data, "<u4", -(-data_size // page_bytes), pages_at)
    assert pages_at + pages.nbytes == file_size
    assert pages_crc == crc32c_reference(pages.tobytes())
    for number, found in enumerate(pages.tolist()):
        begin = data_offset + number * page_bytes
        assert found == crc(data[begin : min(begin + page_bytes, pages_at)])
    values = []
    if has_table:
        ends = np.frombuffer(data, "<u8", count + 1, table_at).tolist()
        values = [data[bytes_at + a : bytes_at + b] for a, b in itertools.pairwise(ends)]
    else:
        assert table_at == bytes_at == pages_at
    digest = crc32c_reference(data[:128] + pages.tobytes())
    return Frame(count, spacing, data[88:104], data[data_offset:pages_at], values, digest)


def read_field_set(folder: Path) -> tuple[list[dict[str, Any]], list[dict[str, bytes]]]:
    """The manifest's fields, and of each sample the bytes of its values; everything is checked."""
    manifest = json.loads((folder / "dataset.json").read_text(encoding="utf-8"))
    assert manifest["fastload"] == [1, 1]
    fields, count = manifest["fields"], manifest["num_records"]
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"))
    index = read_frame(folder / "index.fli", b"FLINDEX1", True)
    assert index.fields_digest == hashlib.blake2b(text.encode(), digest_size=16).digest()
    assert index.fixed[-64:] == index.fields_digest + bytes(48)
    assert index.digest == manifest["index_crc"]
    shards = [(folder / shard["file"]).read_bytes() for shard in manifest["shards"]]
    samples: list[dict[str, bytes]] = [{} for _ in range(count)]
    for field in fields:
        if field["stored"] == "column":
            path = folder / field["file"]
            ragged = is_ragged(field)
            frame = read_frame(path, b"FLFIELD1", ragged)
            assert (frame.digest, path.stat().st_size) == (field["digest"], field["size"])
            assert frame.count == count
            width = frame.spacing
            assert (width == 0) == ragged
            values = frame.values or [frame.fixed[at * width : (at + 1) * width] for at in range(count)]
        else:
            values = [index.fixed[at * 32 : (at + 1) * 32] for at in range(count)]
        for sample, value in zip(samples, values, strict=True):
            if field["stored"] == "label":
                sample[field["name"]] = value[16:20]
            elif field["kind"] in ("image", "mask"):
                sample[field["name"]] = _picture(value, shards)
            else:
                sample[field["name"]] = value
    return fields, samples


def is_ragged(field: Mapping[str, Any]) -> bool:
    if field["kind"] == "array":
        return field["shape"][0] is None
    return field["kind"] in ("boxes", "polygons", "keypoints", "text", "bytes", "json")


def _picture(entry: bytes, shards: list[bytes]) -> bytes:
    offset, length, wanted, _, shard, *_ = np.frombuffer(entry, RECORD_PARTS)[0].tolist()
    data = shards[shard][offset : offset + length]
    assert crc(data) == wanted
    return data
