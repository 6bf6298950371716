"""``fastload info FOLDER``: print what a packed dataset holds."""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from fastload.cli.arguments import add_storage_options, options_for, place
from fastload.cli.output import (
    bytes_words,
    classes_row,
    entry_json,
    entry_rows,
    field_rows,
    ignored_rows,
    lerobot_rows,
    print_json,
    print_table,
    sides_row,
)
from fastload.cli.progress import LookProgress
from fastload.machine.sizes import human_bytes
from fastload.packing.coefficients import said_of
from fastload.packing.facts import IndexRuns, Summary, entry_facts, field_facts
from fastload.packing.named_sets import opened_sets
from fastload.shard.dataset import PackedFiles


def add(verbs: Any) -> None:
    """Declare the verb."""
    parser = verbs.add_parser(
        "info",
        help="show what a packed dataset holds",
        description="Show what a packed dataset holds, or each dataset in a folder.",
    )
    parser.add_argument("folder", metavar="FOLDER", type=place, help="packed dataset, or its URL")
    add_storage_options(parser)
    parser.add_argument(
        "--all",
        action="store_true",
        help="look at every record of a very large set; otherwise figures marked 'about' come from a sample",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")


def run(arguments: argparse.Namespace) -> int:
    """Print the facts of a packed dataset, or of each in a folder."""
    options = options_for(arguments, arguments.folder)
    datasets = list(opened_sets(arguments.folder, options).values())
    if arguments.json:
        facts = [_facts(dataset, arguments) for dataset in datasets]
        many = [{"folder": dataset.where, **each} for dataset, each in zip(datasets, facts, strict=True)]
        print_json(facts[0] if len(facts) == 1 else {"datasets": many})
        return 0
    for dataset in datasets:
        print_table(dataset.where, _rows(dataset, arguments.all))
    return 0


def _facts(dataset: PackedFiles, arguments: argparse.Namespace) -> dict[str, Any]:
    manifest, looked = dataset.manifest, _Looked(dataset, arguments.all, quiet=True)
    return {
        "id": dataset.id,
        "seal": manifest.seal,
        "format": manifest.format,
        "records": manifest.num_records,
        "generation": manifest.generation,
        "generations": [{"id": one.id, "records": one.records} for one in manifest.generations],
        "dropped": len(dataset.dropped),
        "bytes": manifest.data_bytes,
        "classes": list(manifest.classes),
        "runs": _runs_facts(dataset),
        "fields": field_facts(dataset, IndexRuns(dataset, arguments.all)),
        "shards": [{"file": s.file, "size": s.size, "records": s.records} for s in manifest.shards],
        "codecs": looked.codecs,
        "looked_at": looked.runs.looked,
        "sides": looked.summary.sides(),
        "entries": entry_json(looked.entries),
        "skipped": manifest.skipped,
        "ignored": dict(manifest.ignored),
        "options": dict(manifest.options),
        "writer": manifest.writer,
    }


def _generation_rows(dataset: PackedFiles) -> list[tuple[str, str]]:
    """Return table rows of a set that has grown, or from which samples were dropped."""
    manifest = dataset.manifest
    if manifest.generation == 1:
        return []
    earlier = ", ".join(str(len(dataset.at(number))) for number in range(1, manifest.generation))
    rows = [("generation", f"{manifest.generation}; earlier ones had {earlier} samples")]
    if len(dataset.dropped):
        rows.append(("dropped", f"{len(dataset.dropped)} samples, so {len(dataset)} are left"))
    return rows


def _runs_facts(dataset: PackedFiles) -> dict[str, Any] | None:
    """Return what orders a set, and how many samples its runs have; None: nothing does."""
    runs = dataset.runs
    if runs is None:
        return None
    lengths = np.sort(np.diff(runs.begins))
    sizes = {"min": lengths[0], "median": lengths[(len(lengths) - 1) // 2], "max": lengths[-1]}
    return {"by": str(runs.spec), "count": len(runs), **{name: int(size) for name, size in sizes.items()}}


def _runs_rows(dataset: PackedFiles) -> list[tuple[str, str]]:
    facts = _runs_facts(dataset)
    if facts is None:
        return []
    sizes = f"{facts['min']} / {facts['median']} / {facts['max']} samples (min / median / max)"
    return [("runs", f"{facts['count']} by {facts['by']}, of {sizes}")]


class _Looked:
    """What a dataset's index says; of a very large set, only a part is read."""

    def __init__(self, dataset: PackedFiles, everything: bool, quiet: bool) -> None:
        self.summary = Summary()
        with LookProgress(dataset.num_ids, quiet=quiet) as progress:
            self.runs = IndexRuns(dataset, everything, progress.advanced)
            for records in self.runs.entries():
                self.summary.add(records)
        self.entries = entry_facts(dataset, IndexRuns(dataset, everything))
        self.codecs = self.summary.codecs if self.runs.whole else dict(dataset.manifest.codecs)


def _rows(dataset: PackedFiles, everything: bool) -> list[tuple[str, str]]:
    manifest, looked = dataset.manifest, _Looked(dataset, everything, quiet=False)
    fields = [] if dataset.schema.is_plain else field_facts(dataset, IndexRuns(dataset, everything))
    sizes, whole = [shard.size for shard in manifest.shards], looked.runs.whole
    rows = [
        ("id", dataset.id),
        *_generation_rows(dataset),
        ("records", f"{manifest.num_records}, {bytes_words(manifest)}"),
        classes_row(dataset.schema, looked.summary.unlabelled),
        *_runs_rows(dataset),
        ("shards", f"{len(sizes)} {manifest.format}, {human_bytes(sum(sizes))}"),
        ("codecs", ", ".join(f"{name} {count}" for name, count in looked.codecs.items())),
        ("sizes", ("" if whole else "about ") + sides_row(looked.summary.sides())),
        *lerobot_rows(manifest.options),
        *said_of(manifest.options),
        *entry_rows(looked.entries),
        *field_rows(fields, not whole),
        ("skipped", str(manifest.skipped)),
        *ignored_rows(manifest.ignored),
        ("writer", manifest.writer),
    ]
    if not whole:
        part = f"{looked.runs.looked} of {dataset.num_ids} records, spread over the set"
        rows.append(("looked at", f"{part}; --all looks at every one"))
    return rows
