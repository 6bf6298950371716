"""A table of any columns as samples with fields."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice, repeat, zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from fastload.errors import PackError
from fastload.machine.paths import exists, is_file
from fastload.packing.listing import Row
from fastload.packing.options import PackOptions
from fastload.packing.pictures import path_of
from fastload.packing.rows import FailedSample, Notes, PartialSample, Rows, Sample
from fastload.packing.sample_rows import SampleRows, row_of
from fastload.packing.stored import Source, StorePlace
from fastload.packing.stored_rows import StoredRows
from fastload.packing.table_columns import (
    Column,
    Typed,
    picture_kind,
    refuse_lost_pictures,
    refuse_numbers_alone,
    value_of,
    without_bad,
)
from fastload.packing.table_files import Row as TableRow
from fastload.packing.table_files import TableReader, open_rows, table_sets, table_suffix
from fastload.packing.tables import LABEL_NAMES, PATH_NAMES, has_header, has_number_labels, table_path
from fastload.sample.fields import Image, Images, Json, Kind, Label, Mask
from fastload.sample.schema import Field, Schema, field_of
from fastload.shard.suffixes import TABLES

SCHEMA_SUFFIX = ".schema.json"  # the schema of a.jsonl is in a.schema.json, if that exists
_LOOKED_AT = 16  # values of a large column


def open_tables(source: Source, options: PackOptions) -> Sequence[tuple[str, Rows]]:
    """Return split and rows of each table, or set of tables, with more than paths and labels or with columns
    that the options name; nothing for anything else.

    Raises:
        PackError: the tables are not one set, or no field can hold a column.
    """
    named = told_by(dict(options.fields))
    sets = table_sets(source)
    settings = named, options.limit, options.schema
    if sets:
        _refuse_root(source, options)
        tables = [open_table(reader, *settings, options.root_folder()) for _, reader in sets]
        return list(zip((split for split, _ in sets), of_same_classes(tables), strict=True))
    if isinstance(source, StorePlace):
        _refuse_root(source, options)
        return _stored_table(source, named, options) if source.kind == "table" else []
    path = Path(source).absolute()
    if not is_file(path) or not _wants_fields(path, options):
        return []
    return [("", open_table(path, *settings, options.root_folder()))]


def _refuse_root(source: Source, options: PackOptions) -> None:
    if options.root is not None and isinstance(source, StorePlace):
        raise PackError(
            f"root is for a table on this machine, whose pictures are here, too. Found: {source}. Copy the "
            "table, or leave root out: paths start from the folder of the table."
        )


def _wants_fields(path: Path, options: PackOptions) -> bool:
    return bool(options.fields) or options.schema is not None or has_fields(path)


def _stored_table(
    place: StorePlace, named: Mapping[str, ColumnSpec | None], options: PackOptions
) -> Sequence[tuple[str, Rows]]:
    folder = place.table
    path = folder.path / place.location.name
    with folder.opening():
        if not _wants_fields(path, options):
            return []
        table = open_table(path, named, options.limit, options.schema)
    return [("", StoredRows("", table, folder, (open_tables, str(place), options)))]


def has_fields(path: Path) -> bool:
    """Whether a table has more than paths and class labels, which alone ``source.py`` packs."""
    suffix = table_suffix(path)
    if suffix in TABLES or (suffix and exists(schema_file(path))):
        return True
    try:
        with open(path, encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
            if suffix == ".csv":
                names = {name.strip().lower() for name in next(csv.reader(file), [])}
                known = names & {*PATH_NAMES, *LABEL_NAMES}
                if len(names) > len(known) and (bool(known & {*PATH_NAMES}) or len(names) > 2):
                    return True
            elif suffix == ".jsonl":
                rows = (json.loads(line) for line in file if line.strip())
                if any(isinstance(row, dict) and not set(row) <= {"path", "label"} for row in rows):
                    return True
        if suffix == ".json":
            return True
        return suffix in (".csv", ".jsonl") and has_header(path) and has_number_labels(path)
    except (ValueError, RecursionError, csv.Error):
        return False  # reported where it is read


def schema_file(path: Path) -> Path:
    """Return where the schema of a table may lie."""
    return path.with_name(path.stem + SCHEMA_SUFFIX)


class ColumnSpec(NamedTuple):
    """The named kind of a column and what goes with it; see :class:`fastload.Field`."""

    kind: Kind
    of: str | None = None
    source: Any = None

    @classmethod
    def by(cls, field: Field) -> ColumnSpec:
        """Return the specification that a field gives."""
        return cls(field.kind, field.of, field.source)


def told_by(words: Mapping[str, str]) -> dict[str, ColumnSpec | None]:
    """Parse ``--field NAME=KIND``: what is named for each column; None: it is left out.

    Raises:
        PackError: there is no such kind.
    """
    try:
        return {
            name: None if word.strip() == "none" else ColumnSpec.by(field_of("column", word))
            for name, word in words.items()
        }
    except (ValueError, TypeError) as error:
        raise PackError(str(error)) from None


class TableRows(SampleRows):
    """The rows of a table as samples.

    Args:
        reader: the table.
        schema: the fields.
        columns: each field's column.
        count: the number of samples.
        notes: what became of columns that no field has as they were.
        is_confined: paths do not leave the root.
    """

    walks = False

    def __init__(
        self, reader: TableReader, schema: Schema, columns: tuple[str, ...], count: int,
        notes: tuple[str, ...] = (), is_confined: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(reader.root, schema)
        self._is_confined = is_confined
        self.reader, self.columns, self.notes, self._count = reader, columns, notes, count
        self.containers = reader.containers

    def __len__(self) -> int:
        return self._count

    def samples(self, start: int, stop: int | None) -> Iterator[Sample | FailedSample | PartialSample]:
        end = self._count if stop is None else min(stop, self._count)
        rows = islice(self.reader.walk(start, self.columns), max(end - start, 0))
        for number, row in enumerate(rows, start + 1):
            yield self._sample(row, number)

    def _sample(self, row: TableRow, number: int) -> Sample | FailedSample | PartialSample:
        values, reader = {}, self.reader
        for field, column in zip(self.schema, self.columns, strict=True):
            value = row.get(column)
            is_picture = isinstance(field.kind, (Image, Images, Mask))
            if not reader.is_local and is_picture and any(map(_is_a_path, _flat([value]))):
                return FailedSample(ValueError(f"field {field.name!r}: the table has a path and no bytes"))
            lost = self._outside(value) if is_picture and self._is_confined else None
            if lost is not None:
                where = f"field {field.name!r}, row {number}: {lost!r}"
                return FailedSample(ValueError(f"{where} leads out of {os.fsdecode(self.root)}, the root"))
            try:
                values[field.name] = value_of(field.kind, value, reader.texts, reader.json_texts)
            except ValueError as error:
                return FailedSample(ValueError(f"field {field.name!r}, row {number}: {error}"))
        return without_bad(values, self.schema) if reader.objects() else values

    def _outside(self, value: Any) -> str | None:
        """Return the first path that leads out of the root."""
        paths = map(path_of, filter(_is_a_path, _flat([value])))
        texts = (os.fsdecode(path) for path in paths if path is not None)
        return next((text for text in texts if os.path.isabs(table_path(self.root, text))), None)

    def settings(self) -> dict[str, Any]:
        return {"table": self.reader.digest()}

    def listed(self, notes: Notes) -> Iterator[Row]:
        """Yield the files that each row names, or for a row without any its bytes in the table."""
        pairs = zip(self.schema, self.columns, strict=True)
        kinds = ("record", "records")
        paths = [self.reader.paths(column) for field, column in pairs if field.storage in kinds]
        rows = (repeat(Row(b"", *known), count) for count, *known in self.reader.row_bytes(self.columns))
        named = zip_longest(*paths)
        for row in islice(chain.from_iterable(rows), self._count):
            files = [path for path in map(path_of, _flat(next(named, ()))) if path is not None]
            yield row_of(self.root, files) if files else row


def _flat(values: Iterable[Any]) -> Iterator[Any]:
    """Yield values, and those of lists one by one."""
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from value
        else:
            yield value


def _is_a_path(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, Mapping) and value.get("bytes") is None)


def open_table(
    path: Path | TableReader,
    named: Mapping[str, ColumnSpec | None],
    limit: int | None = None,
    wanted: Schema | None = None,
    root: bytes | None = None,
) -> TableRows:
    """Walk a table once to tell what its columns hold, and open it.

    Args:
        path: the table, or its rows.
        named: columns that are not guessed (None: leave the column out).
        limit: only the first this many rows are samples.
        wanted: the fields, each from the column of its name; all other columns are left out.
        root: the folder that paths start from and do not leave; None: the table's own, which they may leave.

    Raises:
        PackError: a damaged table, columns that no field can hold, or no column of pictures.
    """
    rows = open_rows(path) if isinstance(path, Path) else path
    rows = rows if root is None else rows.at(root)
    declared = _said_by(rows)
    fields_of = _columns_of(wanted, rows) if wanted is not None else {}
    unsure = rows.unsure() if wanted is None else ""
    if unsure and unsure not in named:
        raise PackError(
            f"{rows.where}: boxes of objects are left, top, width, height in most sets, and these may as "
            f"well be corners. Say which: --field {unsure}='boxes(xywh)' or --field {unsure}='boxes(xyxy)'."
        )
    from_fields = {name: ColumnSpec.by(f) for name, f in fields_of.items()}
    named = {**declared, **named} if wanted is None else from_fields

    types = rows.types(named.keys()) if wanted is None else {}

    def column_of(name: str) -> Column:
        spec = named.get(name)
        kind = None if spec is None else spec.kind
        return Column(name, rows.texts, kind, spec == declared.get(name), types.get(name))

    columns = {name: column_of(name) for name in rows.names()}
    count = _look_through(rows, columns, column_of, limit)
    missing = sorted(set(named) - set(columns))
    if missing:
        raise PackError(f"{rows.where} has no column {missing[0]!r}; its columns: {', '.join(columns)}.")
    taken = [name for name in columns if named.get(name, ...) is not None] if wanted is None else fields_of
    kinds = {name: columns[name].kind(rows.root, rows.where) for name in taken}

    def field_name(column: str) -> str:
        if wanted is not None:
            return fields_of[column].name
        return column if column in declared else _field_name(column, kinds[column], kinds)

    def field(column: str) -> Field:
        spec = named.get(column) or ColumnSpec(
            kinds[column], source=_type_of(types.get(column), kinds[column])
        )
        return Field(field_name(column), kinds[column], spec.of, spec.source)

    try:
        schema = Schema(tuple(map(field, kinds)))
    except (ValueError, TypeError) as error:
        raise PackError(f"{rows.where}: {error} Say which column is what: --field NAME=image.") from None
    if not schema.has_pictures:
        for name in kinds:
            if named.get(name) is None:
                refuse_lost_pictures(name, columns[name].texts_seen, rows.where, os.fsdecode(rows.root))
    if wanted is None and not any(named.values()):
        refuse_numbers_alone(schema, rows.where)
    notes = (columns[name].note(kind) for name, kind in kinds.items())
    return TableRows(rows, schema, tuple(kinds), count, tuple(filter(None, notes)), root is not None)


def _type_of(typed: Typed | None, kind: Kind) -> Any:
    """Return a field's ``source``: a column type that the kind does not have, for unpacking."""
    if typed is None or not typed.restored or isinstance(kind, (Image, Images, Mask, Label)):
        return None
    is_other = typed.converted or (isinstance(kind, Json) and typed.name not in ("string", "null"))
    return {"arrow": typed.name} if is_other or typed.name.startswith("fixed_size_binary") else None


def of_same_classes(tables: list[TableRows]) -> list[TableRows]:
    """Give tables of splits a label's names in any of them, so that a label means the same in all."""
    for name in tables[0].schema.names:
        kinds = [table.schema[name].kind for table in tables if name in table.schema.names]
        classes = [kind.classes for kind in kinds if isinstance(kind, Label)]
        if len(set(classes)) < 2:
            continue
        numbers = all(text.isdecimal() for text in classes[0])
        names = max(classes, key=len) if numbers else tuple(sorted({text for c in classes for text in c}))
        for table in tables:
            label = Label(names)
            fields = (replace(each, kind=label) if each.name == name else each for each in table.schema)
            table.schema = Schema(tuple(fields))
    return tables


def _look_through(
    rows: TableReader, columns: dict[str, Column], column_of: Callable[[str], Column], limit: int | None
) -> int:
    """Show the columns their values (large columns only the first ones); return the number of samples."""
    known = rows.count()
    if known is None:
        count = 0
        for row in islice(rows.walk(), limit):
            for name in row:
                if name not in columns:
                    columns[name] = column_of(name)
                    columns[name].skip(count)
            for name, column in columns.items():
                column.see(row.get(name))
            count += 1
        return count
    open_ones = [name for name, column in columns.items() if not column.is_known]
    large = [name for name in open_ones if name in rows.large()]
    for names, most in ((large, _LOOKED_AT), ([name for name in open_ones if name not in large], limit)):
        if names:
            for row in islice(rows.walk(0, names), most):
                for name in names:
                    columns[name].see(row[name])
    return known if limit is None else min(known, limit)


def _columns_of(schema: Schema, rows: TableReader) -> dict[str, Field]:
    """Return the columns of a schema's fields, in order; the first image's may be called ``path``."""
    names = rows.names() or list(next(rows.walk(), {}))
    paths = [name for name in names if name.lower() in PATH_NAMES and name not in schema.names]
    columns = {}
    for field in schema:
        is_path = field.name not in names and field is schema.index_field and bool(paths)
        columns[paths[0] if is_path else field.name] = field
    return columns


def _field_name(column: str, kind: Kind, kinds: Mapping[str, Kind]) -> str:
    """Return the column's name; ``image`` for pictures in a column called ``path`` or the like."""
    is_first = isinstance(kind, Image) and column.lower() in PATH_NAMES and "image" not in kinds
    others = [
        name for name, other in kinds.items() if isinstance(other, Image) and name.lower() in PATH_NAMES
    ]
    return "image" if is_first and others[0] == column else column


def _said_by(rows: TableReader) -> Mapping[str, ColumnSpec | None]:
    """Return what a schema beside the table says, or class names in the table."""
    beside = None if rows.path is None else schema_file(rows.path)
    if beside is not None and exists(beside):
        try:
            return {
                field.name: ColumnSpec.by(field)
                for field in Schema.from_json(beside.read_text(encoding="utf-8"))
            }
        except (ValueError, TypeError) as error:
            raise PackError(f"{beside} is not a schema: {error}") from None
    pictures = {name: picture_kind(name, ()) for name in rows.pictures()}
    pictures |= {name: Images() for name in rows.picture_lists()}
    kinds = pictures | {name: Label(tuple(names)) for name, names in rows.classes().items()}
    objects = {name: ColumnSpec.by(field) for name, field in rows.objects().items()}
    return {name: ColumnSpec(kind) for name, kind in kinds.items()} | objects
