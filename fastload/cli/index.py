"""``fastload index PATH... --output FOLDER``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from fastload.cli.output import human_bytes, print_json, print_table
from fastload.pack.foreign import IndexOptions, index_files

__all__ = ["add", "run"]


def add(verbs: Any) -> None:
    """Declare the verb."""
    parser = verbs.add_parser(
        "index",
        help="index Arrow, LMDB or HDF5 files that others wrote, in place",
        description="Build an index over files that others wrote, without copying them: HF datasets "
        "folders and .arrow files, LMDB of encoded images, HDF5 of encoded images or uint8 pixels.",
    )
    parser.add_argument("paths", metavar="PATH", nargs="+", help="files, or folders of them, of one format")
    parser.add_argument("--output", metavar="FOLDER", required=True, help="where index and manifest go")
    parser.add_argument("--column", metavar="NAME", help="Arrow column or HDF5 dataset of the images")
    parser.add_argument(
        "--labels", metavar="FILE", type=Path, help=".csv or .jsonl of path (the key) and label"
    )
    parser.add_argument(
        "--on-error", choices=("raise", "skip"), default="raise", help="records that are no images"
    )
    parser.add_argument("--restart", action="store_true", help="replace an index that FOLDER holds")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")


def run(arguments: argparse.Namespace) -> int:
    """Index, and print what was found."""
    options = IndexOptions(arguments.column, arguments.labels, arguments.on_error, arguments.restart)
    manifest = index_files(arguments.paths, arguments.output, options)
    if arguments.json:
        print_json(
            {
                "output": arguments.output,
                "id": manifest.id,
                "format": manifest.format,
                "records": manifest.num_records,
                "bytes": manifest.data_bytes,
                "classes": len(manifest.classes),
                "shards": len(manifest.shards),
                "codecs": dict(manifest.codecs),
                "skipped": manifest.skipped,
            }
        )
        return 0
    rows = [
        ("records", f"{manifest.num_records} in {len(manifest.classes)} classes"),
        ("bytes", f"{human_bytes(manifest.data_bytes)} in {len(manifest.shards)} {manifest.format} files"),
        ("codecs", ", ".join(f"{name} {count}" for name, count in manifest.codecs.items())),
        ("skipped", str(manifest.skipped)),
    ]
    print_table(arguments.output, rows)
    return 0
