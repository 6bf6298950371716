"""``fastload info FOLDER``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from fastload.cli.entry_rows import entry_json, entry_rows
from fastload.cli.output import human_bytes, print_json, print_table, sides_row
from fastload.pack.entry_facts import entry_facts
from fastload.pack.summary import Summary
from fastload.shard.dataset import PackedFiles

__all__ = ["add", "run"]

_CHUNK = 1 << 16  # index entries at a time


def add(verbs: Any) -> None:
    """Declare the verb."""
    parser = verbs.add_parser(
        "info", help="what a packed dataset holds", description="What a packed dataset holds."
    )
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="a packed dataset")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")


def run(arguments: argparse.Namespace) -> int:
    """Print the facts of a packed dataset."""
    dataset = PackedFiles(arguments.folder)
    manifest, summary = dataset.manifest, Summary()
    records = dataset.records
    for start in range(0, len(records), _CHUNK):
        summary.add(records[start : start + _CHUNK])
    entries = entry_facts(dataset)
    if arguments.json:
        print_json(
            {
                "id": dataset.id,
                "format": manifest.format,
                "records": manifest.num_records,
                "bytes": manifest.data_bytes,
                "classes": list(manifest.classes),
                "shards": [{"file": s.file, "size": s.size, "records": s.records} for s in manifest.shards],
                "codecs": summary.codecs,
                "sides": summary.sides(),
                "entries": entry_json(entries),
                "skipped": manifest.skipped,
                "options": dict(manifest.options),
                "writer": manifest.writer,
            }
        )
        return 0
    sizes = [shard.size for shard in manifest.shards]
    shown = ", ".join(manifest.classes[:5]) + (", ..." if len(manifest.classes) > 5 else "")
    rows = [
        ("id", dataset.id),
        ("records", f"{manifest.num_records}, {human_bytes(manifest.data_bytes)}"),
        ("classes", f"{len(manifest.classes)}: {shown}" if manifest.classes else "none"),
        ("shards", f"{len(sizes)} {manifest.format}, {human_bytes(sum(sizes))}"),
        ("codecs", ", ".join(f"{name} {count}" for name, count in summary.codecs.items())),
        ("sizes", sides_row(summary.sides())),
        *entry_rows(entries),
        ("skipped", str(manifest.skipped)),
        ("writer", manifest.writer),
    ]
    print_table(str(dataset.folder), rows)
    return 0
