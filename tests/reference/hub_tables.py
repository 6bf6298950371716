"""Parquet and Arrow files as Hugging Face's ``datasets`` writes them to the Hub."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet

CLASSES = ("crow", "jay", "robin")
FEATURES = {"image": {"_type": "Image"}, "label": {"names": list(CLASSES), "_type": "ClassLabel"}}
IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def table(images: Sequence[bytes | None], first: int = 0, **further: Sequence[Any]) -> pa.Table:
    """Pictures with their names, labels, and what else there is."""
    pictures = [{"bytes": data, "path": f"bird{first + i}.jpg"} for i, data in enumerate(images)]
    labels = [(first + i) % len(CLASSES) for i in range(len(images))]
    columns = {"image": pa.array(pictures, IMAGE), "label": pa.array(labels, pa.int64())}
    metadata = {"huggingface": json.dumps({"info": {"features": FEATURES}})}
    return pa.table({**columns, **further}).replace_schema_metadata(metadata)


def parquet_bytes(rows: pa.Table, group: int = 5) -> bytes:
    """As a file with so many rows a row group."""
    file = io.BytesIO()
    parquet.write_table(rows, file, row_group_size=group)
    return file.getvalue()


def arrow_bytes(rows: pa.Table, stream: bool = True, batch: int = 5) -> bytes:
    """As an IPC stream or file."""
    file = io.BytesIO()
    make = pa.ipc.new_stream if stream else pa.ipc.new_file
    with make(file, rows.schema) as writer:
        writer.write_table(rows, batch)
    return file.getvalue()
