"""Uncompressed Parquet files that others wrote: where their pictures lie."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet

from fastload.errors import FormatError
from fastload.shard.arrow import image_column, path_keys
from fastload.shard.formats import Foreign, Kinds, Located, damage_reported
from fastload.shard.parquet_pages import ChunkReader

__all__ = ["data_file", "read_foreign"]


def data_file(path: Path) -> Path:
    """The file itself."""
    return path


def read_foreign(path: Path, column: str | None, kinds: Kinds) -> Foreign:
    """Byte ranges and names of the pictures of a Parquet file; its other columns are read as a table.

    Raises:
        FormatError: damage; no column of pictures; pages that are compressed, or values that share bytes.
    """
    with damage_reported(path, "Parquet file"), open(path, "rb", buffering=0) as file:
        opened = parquet.ParquetFile(path, pre_buffer=False)
        name = image_column(path, opened.schema_arrow, column)
        located = _located(path, file.fileno(), opened, name)
        return Foreign(located, keys=_keys(opened, name))


def _keys(opened: Any, name: str) -> list[str] | None:
    kind = opened.schema_arrow.field(name).type
    if not pa.types.is_struct(kind) or kind.get_field_index("path") < 0:
        return None
    return path_keys(opened.read(columns=[f"{name}.path"]).column(name).chunks)


def _located(path: Path, descriptor: int, opened: Any, name: str) -> Located:
    kind = opened.schema_arrow.field(name).type
    wanted = f"{name}.bytes" if pa.types.is_struct(kind) else name
    schema, metadata = opened.schema, opened.metadata
    number = next((i for i in range(len(schema.names)) if schema.column(i).path == wanted), -1)
    column = schema.column(number) if number >= 0 else None
    if column is None or column.physical_type != "BYTE_ARRAY" or column.max_repetition_level:
        raise FormatError(f"{path}: the column {name!r} does not hold the bytes of one picture a row.")
    parts = []
    size = os.fstat(descriptor).st_size
    for group in range(metadata.num_row_groups):
        chunk = metadata.row_group(group).column(number)
        if chunk.compression != "UNCOMPRESSED":
            raise FormatError(
                f"{path} cannot be indexed: the pages of {name!r} are compressed ({chunk.compression}), so "
                f"no picture in them is a plain range of bytes; 'fastload pack {path} OUTPUT' packs it."
            )
        start = min(at for at in (chunk.dictionary_page_offset, chunk.data_page_offset) if at)
        stop = min(start + chunk.total_compressed_size, size)
        try:
            reader = ChunkReader(descriptor, start, stop, column.max_definition_level)
            parts.append(reader.ranges(chunk.num_values))
        except FormatError as error:
            raise FormatError(
                f"{path} cannot be indexed: row group {group} of {name!r}: {error}. 'fastload pack {path} "
                "OUTPUT' packs what can be read."
            ) from None
    nothing = np.zeros(0, np.uint64)
    offsets = np.concatenate([nothing, *(part[0] for part in parts)])
    if len(np.unique(offsets)) != len(offsets):
        raise FormatError(
            f"{path} cannot be indexed: rows of {name!r} share the bytes of one picture, in a dictionary; "
            f"'fastload pack {path} OUTPUT' packs it."
        )
    return Located(offsets, np.concatenate([nothing, *(part[1] for part in parts)]))
