"""The columns beside the pictures of other programs' Arrow files, as ``pack`` takes a table's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from fastload.errors import FormatError
from fastload.packing.arrow_rows import OBJECTS, ArrowRows
from fastload.packing.rows import FailedSample, PartialSample
from fastload.packing.stored import TableFile
from fastload.packing.table_samples import open_table, told_by
from fastload.sample.fields import Label
from fastload.sample.schema import Field
from fastload.shard.arrow import are_lists_alone, read_lists
from fastload.shard.columns import Chunk
from fastload.shard.formats import Foreign, Located, Readable, Values, damage_reported
from fastload.shard.index import RECORD

# ---- The columns beside the pictures of other programs' Arrow files, as in ``pack`` -----------------


def foreign_table(
    shards: Sequence[Path], fields: Mapping[str, str], column: str | None
) -> ForeignTable | None:
    """Return the table that these files are; None: only its picture and label are wanted, which is so
    unless it has objects or its fields are named.

    Raises:
        PackError: no field can hold a column, or the files have different columns.
    """
    schema = _schema_of(shards[0])
    if not fields and OBJECTS not in schema.names and not are_lists_alone(schema, column):
        return None
    files = [TableFile(str(path), path.stat().st_size, str(path)) for path in shards]
    rows = ArrowRows(files, str(shards[0].parent), b"")
    with damage_reported(shards[0], "table"):
        if column is not None and column in rows.names() and column not in rows.pictures():
            kind = "images" if are_lists_alone(schema, column) else "image"
            fields = {column: kind, **fields}
        return ForeignTable(rows, fields)


def _schema_of(path: Path) -> pa.Schema:
    """Return the schema of an Arrow file, without reading more."""
    with damage_reported(path, "Arrow IPC stream or file"), pa.memory_map(str(path)) as file:
        is_file = file.read(6) == b"ARROW1"
        file.seek(0)
        opened = pa.ipc.open_file(file) if is_file else pa.ipc.open_stream(file)
        return opened.schema


class ForeignTable:
    """The table of :func:`foreign_table`; the files must be asked for in order."""

    def __init__(self, rows: ArrowRows, fields: Mapping[str, str]) -> None:
        self._table = open_table(rows, told_by(fields))
        self._start = 0

    def completed(self, path: Path, foreign: Foreign, column: str | None, module: Readable) -> Foreign:
        """Return what the next file says, with its fields.

        Args:
            path: the file.
            foreign: what ``module`` knows of it.
            column: the column of the pictures in the index; None: the first.
            module: the module of its format.
        """
        with damage_reported(path, "table"):
            return self._completed(path, foreign, column, module)

    def _completed(self, path: Path, foreign: Foreign, column: str | None, module: Readable) -> Foreign:
        schema, fields = self._table.schema, dict[str, Values]()
        pictures = [field for field in schema if field.storage == "record"]
        first = next((field for field in pictures if field.name == column), schema.index_field)
        if foreign.in_lists and first is not None:
            raise FormatError(
                f"{path}: {column!r} has lists of pictures, and {first.name!r} is a picture of each sample. "
                f"Leave --column out, or leave that out: --field {first.name}=none."
            )
        assert foreign.in_lists or first is not None  # a file of others is indexed for its pictures
        values, bad, lessened = self._encoded(len(foreign.located.offsets))
        bad = {**bad, **foreign.bad}
        for field in schema:
            if field in (first, schema.label_field):
                continue
            if field.storage == "records":
                chunk, wrong = read_lists(path, field.name)
                bad = {**bad, **{at: f"field {field.name!r}: {reason}" for at, reason in wrong.items()}}
                fields[field.name] = Values(field, chunk)
            elif field in pictures:
                fields[field.name] = _pictures(field, module.read_foreign(path, field.name, {}).located)
            else:
                fields[field.name] = Values(field, Chunk.of(values[field.name]))
        done = replace(foreign, fields=fields, bad=bad, lessened=lessened)
        if first is not None:
            name = first.name if "image" in fields or first.name == "image" else "image"
            done = replace(done, name=name, kind=first.kind)
        label = schema.label_field
        if label is None or not isinstance(label.kind, Label):
            return replace(done, labels=None, classes=())
        numbers = np.frombuffer(b"".join(values[label.name]), "<i4").astype(np.int64)
        return replace(done, labels=numbers, classes=label.kind.classes)

    def _encoded(
        self, count: int
    ) -> tuple[dict[str, list[bytes]], dict[int, str], dict[int, Sequence[tuple[str, str]]]]:
        """Return the values of the next samples, by field, which of these are wrong, and what was left out
        of others."""
        schema = self._table.schema
        values: dict[str, list[bytes]] = {
            field.name: [] for field in schema if field.storage not in ("record", "records")
        }
        bad, lessened = dict[int, str](), dict[int, Sequence[tuple[str, str]]]()
        for number, sample in enumerate(self._table.samples(self._start, self._start + count)):
            try:
                if isinstance(sample, FailedSample):
                    raise ValueError(str(sample.error))
                if isinstance(sample, PartialSample):
                    lessened[number] = sample.left_out
                    sample = sample.sample
                encoded = {name: schema[name].encode(sample[name]) for name in values}
                schema.check_rows([encoded.get(name) for name in schema.names])
            except (ValueError, TypeError) as error:
                bad.setdefault(number, str(error).removesuffix("."))
                encoded = {name: _blank(schema[name]) for name in values}
            for name, data in encoded.items():
                values[name].append(data)
        self._start += count
        return values, bad, lessened


def _blank(field: Field) -> bytes:
    """Return the stand-in for the value of a record that is left out."""
    return bytes(field.item_bytes) if field.storage == "fixed" else b""


def _pictures(field: Field, located: Located) -> Values:
    records = np.zeros(len(located.offsets), RECORD)
    records["offset"], records["label"] = located.offsets, -1
    return Values(field, Chunk(np.zeros(0, np.uint8), located.lengths, records))
