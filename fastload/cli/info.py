"""``fastload info FOLDER``."""

from __future__ import annotations

import argparse
from typing import Any

from fastload.cli.arguments import add_storage_options, options_for, place
from fastload.cli.entry_rows import entry_json, entry_rows
from fastload.cli.field_rows import field_rows
from fastload.cli.output import classes_row, human_bytes, ignored_rows, print_json, print_table, sides_row
from fastload.cli.progress import LookProgress
from fastload.packing.coefficients import said_of
from fastload.packing.entry_facts import entry_facts
from fastload.packing.field_facts import field_facts
from fastload.packing.index_runs import IndexRuns
from fastload.packing.summary import Summary
from fastload.shard.dataset import PackedFiles

__all__ = ["add", "run"]


def add(verbs: Any) -> None:
    """Declare the verb."""
    parser = verbs.add_parser(
        "info", help="what a packed dataset holds", description="What a packed dataset holds."
    )
    parser.add_argument("folder", metavar="FOLDER", type=place, help="a packed dataset, or its URL")
    add_storage_options(parser)
    parser.add_argument(
        "--all",
        action="store_true",
        help="look at every record of a very large set, too, where a part tells what is shown as 'about'",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")


def run(arguments: argparse.Namespace) -> int:
    """Print the facts of a packed dataset."""
    dataset = PackedFiles(arguments.folder, storage_options=options_for(arguments, arguments.folder))
    manifest, summary = dataset.manifest, Summary()
    with LookProgress(len(dataset), quiet=arguments.json) as progress:
        runs = IndexRuns(dataset, arguments.all, progress.advanced)
        for records in runs.entries():
            summary.add(records)
    entries = entry_facts(dataset, IndexRuns(dataset, arguments.all))
    fields = []
    if arguments.json or not dataset.schema.is_plain:
        fields = field_facts(dataset, IndexRuns(dataset, arguments.all))
    codecs = summary.codecs if runs.whole else dict(manifest.codecs)
    if arguments.json:
        print_json(
            {
                "id": dataset.id,
                "format": manifest.format,
                "records": manifest.num_records,
                "bytes": manifest.data_bytes,
                "classes": list(manifest.classes),
                "fields": fields,
                "shards": [{"file": s.file, "size": s.size, "records": s.records} for s in manifest.shards],
                "codecs": codecs,
                "looked_at": runs.looked,
                "sides": summary.sides(),
                "entries": entry_json(entries),
                "skipped": manifest.skipped,
                "ignored": dict(manifest.ignored),
                "options": dict(manifest.options),
                "writer": manifest.writer,
            }
        )
        return 0
    sizes = [shard.size for shard in manifest.shards]
    rows = [
        ("id", dataset.id),
        ("records", f"{manifest.num_records}, {human_bytes(manifest.data_bytes)}"),
        classes_row(dataset.schema, summary.unlabelled),
        ("shards", f"{len(sizes)} {manifest.format}, {human_bytes(sum(sizes))}"),
        ("codecs", ", ".join(f"{name} {count}" for name, count in codecs.items())),
        ("sizes", ("" if runs.whole else "about ") + sides_row(summary.sides())),
        *said_of(manifest.options),
        *entry_rows(entries),
        *field_rows(fields, not runs.whole),
        *ignored_rows(manifest.ignored),
        ("skipped", str(manifest.skipped)),
        ("writer", manifest.writer),
    ]
    if not runs.whole:
        part = f"{runs.looked} of {len(dataset)} records, spread over the set; --all looks at every one"
        rows.append(("looked at", part))
    print_table(dataset.where, rows)
    return 0
