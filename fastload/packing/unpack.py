"""A packed set unpacked: pictures as files by name, and the fields of samples as a table."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TextIO

import numpy as np

from fastload.errors import FastloadError, PackError
from fastload.machine.paths import exists, is_dir, is_symlink
from fastload.packing.annotations.coco_unpack import unpack_coco, unpack_panoptic
from fastload.packing.annotations.unpacked_files import AS_TABLE, safe_path, write_new, written
from fastload.packing.annotations.voc import unpack_voc
from fastload.packing.annotations.yolo import unpack_yolo
from fastload.packing.fetched import in_windows, left_of
from fastload.packing.files import (
    ESCAPED,
    decode_key,
    encode_key,
    make_folder,
    publish_folder,
    remove,
    temporary_of,
)
from fastload.packing.named_sets import opened_sets
from fastload.packing.pictures import NUMPY_SUFFIX, pixels_of, png_file
from fastload.packing.rows import FRAMES, carried_by
from fastload.packing.table_samples import SCHEMA_SUFFIX
from fastload.sample.fields import Text
from fastload.sample.plain import plain_value
from fastload.sample.schema import Field
from fastload.shard.codecs import RAW, suffix_of
from fastload.shard.columns import Chunk
from fastload.shard.dataset import PackedFiles
from fastload.shard.index import RECORD
from fastload.shard.suffixes import is_image

# ---- Samples of any fields as files and a table, which pack to the same set again -------------------

TableFormat = Literal["jsonl", "csv", "parquet"]
TABLES: tuple[TableFormat, ...] = ("jsonl", "csv", "parquet")
STEM = "samples"
_AS_PATHS = ("record", "records")  # storages of pictures, which the table has as paths
_AT_ONCE = 1000  # rows of a Parquet table in memory
Row = dict[str, Any]  # paths of pictures, lists of paths, bytes of values


def unpack_fields(dataset: PackedFiles, folder: Path, table: TableFormat) -> None:
    """Write every sample below ``folder``: pictures as files, the other values in ``samples.jsonl`` (or
    ``.csv``, ``.parquet``), the schema in ``samples.schema.json``.

    Raises:
        FormatError: keys are not safe paths.
        PackError: two records have the same name.
        ChecksumError: records are damaged.
    """
    files = _Files(dataset, os.fsencode(folder))
    name = f"{STEM}.{table}"
    write_new(os.fsencode(folder), f"{STEM}{SCHEMA_SUFFIX}".encode(), dataset.schema.to_json().encode())
    with _TABLES[table](folder / name, dataset) as add:
        for sample, part in _left(dataset):
            row: Row = {}
            for field in dataset.schema:
                data = part.value_bytes(field.name, sample)
                if field.storage == "record":
                    row[field.name] = files.write(field, sample, data)
                elif field.storage == "records":
                    row[field.name] = files.write_list(field, sample, field.decode(data))
                else:
                    row[field.name] = data
            add(row)


def _left(dataset: PackedFiles) -> Iterator[tuple[int, PackedFiles]]:
    """Yield the samples that were not dropped, each with the dataset to read it from."""
    return ((sample, part) for ids, part in in_windows(dataset) for sample in left_of(dataset, ids))


class _Files:
    """A place for each picture: under its key in the index field, else in a folder named like its field."""

    def __init__(self, dataset: PackedFiles, root: bytes) -> None:
        self._dataset, self._root = dataset, root
        self._index = dataset.schema.index_field
        self._is_video = FRAMES in dataset.manifest.options  # keys name rows, not files
        kinds = ("record", "records")
        others = [f.name for f in dataset.schema if f.storage in kinds and f != self._index]
        first = {f"{STEM}.{table}" for table in TABLES} | {f"{STEM}{SCHEMA_SUFFIX}"}
        first |= {carried.name for carried in carried_by(dataset)}
        wanted = set(others)
        for sample in left_of(dataset, range(dataset.num_ids)) if others else ():
            part = dataset.key(sample).split("/")[0]
            if part.rstrip("_") in wanted:
                first.add(part)
        self._folders = {name: _free(name, first) for name in others}

    def write(self, field: Field, sample: int, data: bytes) -> str:
        """Write a picture; return its path below the folder."""
        record = self._record(field, sample)
        data, suffix = _record_file(record, data)
        key = decode_key(
            self._dataset.index.key(sample), bool(self._dataset.record(sample)["flags"] & ESCAPED)
        )
        if field == self._index:
            is_named = not self._is_video and not _lacks(key, suffix, record)
            path = safe_path(key) + (b"" if is_named else suffix)
            if not written(self._root, path, data):
                raise PackError(
                    f"two records have the name {os.fsdecode(path)!r}; they cannot both become files."
                )
            return os.fsdecode(path)
        below = os.fsencode(self._folders[field.name]) + b"/"
        path = below + safe_path(key) + (b"" if key.lower().endswith(suffix) else suffix)
        if not written(self._root, path, data):  # samples of one image have different masks
            path = below + f"{sample:08d}".encode() + suffix
            write_new(self._root, path, data)
        return os.fsdecode(path)

    def write_list(
        self, field: Field, sample: int, pictures: list[bytes | None] | None
    ) -> list[str | None] | None:
        """Write a list of pictures; return their paths below the folder, None where there is no picture."""
        if pictures is None:
            return None
        key = decode_key(
            self._dataset.index.key(sample), bool(self._dataset.record(sample)["flags"] & ESCAPED)
        )
        entries = self._dataset.list_records(field.name, sample)
        assert entries is not None
        below, paths = os.fsencode(self._folders[field.name]) + b"/", list[str | None]()
        for place, (data, entry) in enumerate(zip(pictures, entries, strict=True)):
            if data is None:
                paths.append(None)
                continue
            ending = f".{place}{suffix_of(int(entry['codec']))}".encode()
            path = below + safe_path(key) + ending
            if not written(self._root, path, data):  # keys may repeat
                path = below + f"{sample:08d}".encode() + ending
                write_new(self._root, path, data)
            paths.append(os.fsdecode(path))
        return paths

    def _record(self, field: Field, sample: int) -> np.void:
        if field == self._index:
            return self._dataset.record(sample)
        column_record: np.void = np.frombuffer(self._dataset.columns[field.name].record(sample), RECORD)[0]
        return column_record


def _free(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    return name


def _lacks(key: bytes, suffix: bytes, record: np.void) -> bool:
    """Whether a key needs a suffix to name its file, as for pixels, which were no file."""
    return int(record["codec"]) == RAW and not key.lower().endswith(suffix)


def _record_file(record: np.void, data: bytes) -> tuple[bytes, bytes]:
    """Return a record as a file, and the file's suffix."""
    codec = int(record["codec"])
    if codec != RAW:
        return data, suffix_of(codec).encode()
    pixels = pixels_of(record, data)
    if pixels.shape[2] in (1, 3):
        return png_file(pixels), b".png"
    out = io.BytesIO()
    np.save(out, pixels)
    return out.getvalue(), NUMPY_SUFFIX


Add = Callable[[Row], None]


def _write_line(file: TextIO, row: Row) -> None:
    file.write(json.dumps(row) + "\n")


@contextmanager
def _jsonl(path: Path, dataset: PackedFiles) -> Iterator[Add]:
    with open(path, "x", encoding="utf-8") as file:
        yield lambda row: _write_line(file, _plain(dataset, row))


@contextmanager
def _csv(path: Path, dataset: PackedFiles) -> Iterator[Add]:
    with open(path, "x", encoding="utf-8", errors="surrogateescape", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(dataset.schema.names)

        def cell(field: Field, value: Any) -> Any:
            if value == "" and isinstance(field.kind, Text) and field.kind.null:
                raise PackError(
                    f"the field {field.name!r} has empty texts and may have none, and a CSV cannot tell them "
                    "apart. Unpack to --table jsonl or parquet."
                )
            if isinstance(value, (list, dict, bool)) or (field.kind.name == "json" and value is not None):
                return json.dumps(value)
            return value

        yield lambda row: writer.writerow(
            [cell(dataset.schema[name], value) for name, value in _plain(dataset, row).items()]
        )


@contextmanager
def _parquet(path: Path, dataset: PackedFiles) -> Iterator[Add]:
    import pyarrow as pa
    import pyarrow.parquet as parquet

    from fastload.packing.arrow_rows import is_kept, restored
    from fastload.shard.arrow import array_of, type_named, type_of

    def type_in_table(field: Field) -> Any:
        """Return string for pictures' paths, else the type that the column had, or its kind's own."""
        if field.storage in _AS_PATHS:
            return pa.string() if field.storage == "record" else pa.list_(pa.string())
        words = field.source.get("arrow") if isinstance(field.source, Mapping) else None
        wanted = type_named(words) if isinstance(words, str) else None
        return wanted if wanted is not None and is_kept(wanted) else type_of(field)

    fields = dataset.schema.fields
    kinds = [type_in_table(field) for field in fields]
    schema = pa.schema(list(zip(dataset.schema.names, kinds, strict=True)))
    rows: list[Row] = []

    def column(field: Field, kind: Any) -> Any:
        values = [row[field.name] for row in rows]
        if field.storage in _AS_PATHS:
            return pa.array(values, kind)
        if kind == type_of(field):
            return array_of(field, Chunk.of(values))
        return restored([plain_value(field, value) for value in values], kind)

    with parquet.ParquetWriter(path, schema) as writer:

        def flush() -> None:
            if rows:
                columns = [column(field, kind) for field, kind in zip(fields, kinds, strict=True)]
                writer.write_table(pa.table(columns, schema=schema))
                rows.clear()

        def add(row: Row) -> None:
            rows.append(row)
            if len(rows) == _AT_ONCE:
                flush()

        yield add
        flush()


_TABLES: dict[TableFormat, Callable[[Path, PackedFiles], Any]] = {
    "jsonl": _jsonl,
    "csv": _csv,
    "parquet": _parquet,
}


def _plain(dataset: PackedFiles, row: Row) -> Row:
    """Return the row as JSON values."""
    return {
        name: value if dataset.schema[name].storage in _AS_PATHS else plain_value(dataset.schema[name], value)
        for name, value in row.items()
    }


# ---- ``fastload unpack`` ----------------------------------------------------------------------------

#: Layouts that a set can be unpacked to if it was packed from them.
LAYOUTS = {"coco": unpack_coco, "panoptic": unpack_panoptic, "yolo": unpack_yolo, "voc": unpack_voc}


@dataclass(frozen=True)
class Unpacked:
    """A set that was unpacked, and the name of its folder below the output; "": that itself."""

    name: str
    dataset: PackedFiles


def unpack(
    folder: str | os.PathLike[str],
    output: str | os.PathLike[str],
    table: TableFormat = "jsonl",
    storage_options: Mapping[str, Any] | None = None,
    as_: str | None = None,
) -> int:
    """Unpack as :func:`unpack_sets` does; return how many records were written."""
    return sum(len(each.dataset) for each in unpack_sets(folder, output, table, storage_options, as_))


def unpack_sets(
    folder: str | os.PathLike[str],
    output: str | os.PathLike[str],
    table: TableFormat = "jsonl",
    storage_options: Mapping[str, Any] | None = None,
    as_: str | None = None,
) -> list[Unpacked]:
    """Write every record under its name into class folders below ``output``.

    A ``folder`` that is no set and has some in it, as train/ and val/, gives each of them a folder of its
    name below ``output``, as ``pack`` does the other way.

    For samples with other fields, the pictures become files and the values a table, "jsonl", "csv" or
    "parquet": ``samples.jsonl``, which packs to the same set. ``folder`` may be a URL, with
    ``storage_options``; ``output`` may not.

    ``as_``: "coco", "panoptic", "yolo" or "voc" writes the files of that layout again, with the same
    content, if the set was packed from such files. No set becomes files of another layout.

    ``output`` appears when everything is written. Records of raw pixels become PNG files, which can be
    packed again.

    Raises:
        FormatError: keys are not safe paths.
        PackError: ``output`` exists and is not empty, two records have the same name, or the set was not
            packed from files of the layout ``as_`` or does not have all that they said.
        ChecksumError: records are damaged.
    """
    if as_ is not None and as_ not in LAYOUTS:
        raise PackError(f"as_ is {as_!r}, must be one of {', '.join(LAYOUTS)}.")
    datasets = opened_sets(folder, storage_options)
    for name in filter(None, datasets):
        safe_path(os.fsencode(name))  # a store's names may be ".."
    for dataset in datasets.values():
        if as_ is not None and dataset.manifest.generations:
            raise PackError(
                f"{dataset.where} has grown or lost samples since it was packed: --as {as_} gives back the "
                f"files that it was packed from. {AS_TABLE}"
            )
    if "://" in os.fspath(output):
        raise PackError(f"unpack writes to a folder of this machine. Found: {output}. Copy it from there.")
    final = Path(output).absolute()
    try:
        taken = is_symlink(final) or (exists(final) and (not is_dir(final) or any(final.iterdir())))
    except OSError as error:
        raise PackError(f"cannot unpack into {final}: {error}.") from error
    if taken:
        raise PackError(f"{final} exists and is not an empty folder; choose another.")
    if is_dir(final.parent) and Path(os.path.realpath(folder)) in Path(os.path.realpath(final)).parents:
        raise PackError(f"the output {final} lies inside the set {folder}; choose a folder outside it.")
    temporary = temporary_of(final)
    try:
        make_folder(final.parent)
        remove(temporary)
        temporary.mkdir()
        for name, dataset in datasets.items():
            (temporary / name).mkdir(exist_ok=True)
            _unpack_set(dataset, temporary / name, table, as_)
        publish_folder(temporary, final)
    except OSError as error:
        if isinstance(error, FastloadError):
            raise
        raise PackError(f"cannot unpack into {final}: {error}.") from error
    finally:
        remove(temporary)
    return [Unpacked(name, dataset) for name, dataset in datasets.items()]


def _unpack_set(dataset: PackedFiles, folder: Path, table: TableFormat, as_: str | None) -> None:
    if as_ is not None:
        LAYOUTS[as_](dataset, folder)
    elif dataset.manifest.fields:
        unpack_fields(dataset, folder, table)
    else:
        _unpack_plain(dataset, folder)
    for carried in carried_by(dataset):
        carried.write(folder)


def _unpack_plain(dataset: PackedFiles, folder: Path) -> None:
    for sample, part in _left(dataset):
        data = part.read(sample)
        file, _ = _record_file(dataset.record(sample), data)
        write_new(os.fsencode(folder), _target(dataset, sample), file)


def _target(dataset: PackedFiles, sample: int) -> bytes:
    record = dataset.record(sample)
    key = safe_path(decode_key(dataset.index.key(sample), bool(record["flags"] & ESCAPED)))
    codec = int(record["codec"])
    if codec == RAW:
        key += b".png"
    elif dataset.manifest.options.get("indexed") and not is_image(key):
        key += suffix_of(codec).encode()
    label = int(record["label"])
    if label < 0 or not dataset.classes:
        return key
    name = dataset.manifest.classes[label].encode()
    first = encode_key(key.split(b"/")[0])[0] if b"/" in key else b""
    return key if first == name else safe_path(name) + b"/" + key
