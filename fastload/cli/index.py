"""``fastload index PATH... --output FOLDER`` and ``fastload index FOLDER --entries PIXELS``."""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from fastload.cli.arguments import add_storage_options, at_least_one, field_argument, options_for
from fastload.cli.output import (
    ALPHA_HELP,
    ENTRIES_HELP,
    RUNS_HELP,
    contents_json,
    contents_rows,
    entry_json,
    entry_rows,
    print_json,
    print_table,
    spacing_argument,
)
from fastload.cli.pack import RAY_HELP, ray_cluster
from fastload.cli.progress import PackProgress
from fastload.errors import PackError
from fastload.packing.entries import DEFAULT_SPACING, Maker, entries_by, index_stored_entries
from fastload.packing.facts import entry_facts
from fastload.packing.foreign import IndexOptions, index_entries, index_files
from fastload.packing.ray import RayCluster
from fastload.sample.fields import ALPHA
from fastload.sample.fields import EXIF as KIND_EXIF
from fastload.shard.dataset import PackedFiles

_UNSET = -1


def add(verbs: Any) -> None:
    """Declare the verb."""
    parser = verbs.add_parser(
        "index",
        help="index existing Arrow, LMDB, HDF5, tar or MDS files in place; make entry points",
        description="With --output: index existing files without copying them: HF datasets folders and "
        ".arrow files, LMDB of encoded images, HDF5 of encoded images or uint8 pixels, WebDataset tars, MDS "
        "shards. Without --output: make or remove the entry points of a packed or indexed dataset's JPEGs.",
    )
    parser.add_argument(
        "paths", metavar="PATH", nargs="+",
        help="files of one format, folders of them, or URLs of tars; {000..099} expands to many names. "
        "Without --output: a dataset or its URL",
    )  # fmt: skip
    add_storage_options(parser)
    parser.add_argument("--output", metavar="FOLDER", help="folder for the index and manifest")
    parser.add_argument(
        "--entries",
        type=spacing_argument,
        nargs="?",
        const=DEFAULT_SPACING,
        default=_UNSET,
        metavar="PIXELS",
        help=ENTRIES_HELP,
    )
    parser.add_argument("--column", metavar="NAME", help="column or HDF5 dataset of the images")
    parser.add_argument(
        "--labels", metavar="FILE", type=Path, help=".csv or .jsonl file of paths (the keys) and labels"
    )
    parser.add_argument(
        "--field", action="append", default=[], metavar="NAME=KIND",
        help="kind of a column, or of tar members by suffix: seg.png=mask, txt=none; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--exif", choices=KIND_EXIF, default="ignore",
        help="turn: decode images as EXIF turns them; other fields refer to the turned images (default: "
        "%(default)s)",
    )  # fmt: skip
    parser.add_argument("--alpha", choices=ALPHA, default="drop", help=ALPHA_HELP)
    parser.add_argument("--runs", metavar="BY[:ORDER[:TIME]]", help=RUNS_HELP)
    parser.add_argument(
        "--on-error",
        choices=("raise", "skip"),
        default="raise",
        help="stop at a record that is not an image, or leave it out (default: raise)",
    )
    parser.add_argument(
        "--num-proc", type=at_least_one, metavar="N",
        help="reading processes (default: one per CPU, fewer for small files, one for tables)",
    )  # fmt: skip
    parser.add_argument("--restart", action="store_true", help="replace the index in FOLDER")
    parser.add_argument(
        "--ray", metavar="ADDRESS", help=f"{RAY_HELP}; its machines need the files or reach the store"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")


def run(arguments: argparse.Namespace) -> int:
    """Make the index or the entry points, and print what the dataset holds."""
    if len(arguments.paths) == 1 and "://" in arguments.paths[0] and arguments.output is None:
        return _in_store(arguments)
    if "://" in str(arguments.output):
        raise PackError(
            f"an index is written to a local folder. Found: {arguments.output}. Upload the folder "
            "afterwards; 'fastload pack' writes to URLs."
        )
    storage = options_for(arguments, arguments.paths[0])
    with PackProgress(quiet=arguments.json) as progress, ExitStack() as stack:
        maker, cluster = _spread(arguments, progress, stack)
        if arguments.output is None:
            folder = _only_entries(arguments, progress, maker)
        else:
            folder = Path(arguments.output)
            spacing = DEFAULT_SPACING if arguments.entries == _UNSET else arguments.entries
            options = IndexOptions(
                arguments.column, arguments.labels, tuple(map(field_argument, arguments.field)),
                arguments.on_error, arguments.restart, spacing, storage, arguments.num_proc,
                arguments.exif, arguments.alpha, arguments.runs,
            )  # fmt: skip
            finished = None if cluster is None else cluster.as_finished
            index_files(arguments.paths, folder, options, progress, maker, finished)
    _print(PackedFiles(folder, storage_options=storage), str(folder), arguments.json)
    return 0


def _spread(
    arguments: argparse.Namespace, progress: PackProgress, stack: ExitStack
) -> tuple[Maker | None, RayCluster | None]:
    """Return the maker of entry points on a Ray cluster, and that; None: this machine does the work."""
    if arguments.ray is None:
        return None, None
    cluster = stack.enter_context(ray_cluster(arguments.ray))
    options = options_for(arguments, arguments.paths[0])
    return entries_by(cluster.in_order, progress, options), cluster


def _in_store(arguments: argparse.Namespace) -> int:
    """Make or remove the entry points of a set in a store."""
    url, options = arguments.paths[0], options_for(arguments, arguments.paths[0])
    if arguments.entries == _UNSET:
        raise PackError(
            f"a set in a store takes only --entries, which makes or removes entry points. Found: {url}."
        )
    with PackProgress(quiet=arguments.json) as progress, ExitStack() as stack:
        maker, _ = _spread(arguments, progress, stack)
        failed = index_stored_entries(url, options, arguments.entries, progress, maker)
    dataset = PackedFiles(url, storage_options=options)
    if failed:
        where = dataset.folder / dataset.manifest.entries_name
        sys.stderr.write(f"{failed} " + (
            "The existing entry points stay.\n" if arguments.entries is None
            else f"The entry points are used on this node only: {where}.\n"
        ))  # fmt: skip
    _print(dataset, url, arguments.json)
    return 0


def _only_entries(arguments: argparse.Namespace, progress: PackProgress, maker: Maker | None) -> Path:
    if arguments.entries == _UNSET or len(arguments.paths) != 1:
        raise PackError(
            "an index of other files needs --output FOLDER; to make entry points, give the folder of one "
            "dataset and --entries."
        )
    folder = Path(arguments.paths[0])
    index_entries(folder, arguments.entries, progress, maker, options_for(arguments, folder))
    return folder


def _print(dataset: PackedFiles, title: str, as_json: bool) -> None:
    manifest, entries = dataset.manifest, entry_facts(dataset)
    if as_json:
        print_json(
            {
                "output": title,
                **contents_json(manifest),
                "entries": entry_json(entries),
                "skipped": manifest.skipped,
            }
        )
        return
    rows = [
        *contents_rows(manifest, "file", int((dataset.records["label"] < 0).sum())),
        *entry_rows(entries),
        ("skipped", str(manifest.skipped)),
    ]
    print_table(title, rows)
