"""``fastload unpack FOLDER OUTPUT``: write a packed dataset back to files."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from fastload.cli.arguments import add_storage_options, options_for
from fastload.cli.output import print_json, print_lines
from fastload.machine.sizes import counted
from fastload.packing.unpack import LAYOUTS, STEM, TABLES, unpack
from fastload.packing.verify import manifest_at


def add(verbs: Any) -> None:
    """Declare the verb."""
    parser = verbs.add_parser(
        "unpack",
        help="write a packed dataset back to a folder",
        description="Write every record to a file with its original name and bytes, in class folders. "
        "Samples with other fields become pictures and samples.jsonl with the values, which packs to the "
        "same set.",
    )
    parser.add_argument("folder", metavar="FOLDER", help="packed dataset, or its URL")
    add_storage_options(parser)
    parser.add_argument("output", metavar="OUTPUT", help="folder to create")
    parser.add_argument(
        "--table", choices=TABLES, default="jsonl",
        help="file format of the values, if samples have more fields than image and label (default: "
        "%(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--as", dest="as_", choices=LAYOUTS,
        help="write the original pictures and annotations again, if the set was packed from this layout",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a line")


def run(arguments: argparse.Namespace) -> int:
    """Unpack, and print how many files were written."""
    options = options_for(arguments, arguments.folder)
    count = unpack(
        arguments.folder,
        arguments.output,
        table=arguments.table,
        as_=arguments.as_,
        storage_options=options,
    )
    manifest = manifest_at(arguments.folder, options)
    runs, source = manifest.runs, Path(arguments.output)
    source = source / f"{STEM}.{arguments.table}" if manifest.fields and arguments.as_ is None else source
    if arguments.json:
        words = {} if runs is None else {"runs": str(runs.spec)}
        print_json({"files": count, "output": str(arguments.output), **words})
    else:
        again = []
        if runs is not None:
            command = f"'fastload pack {source} OUTPUT --runs {runs.spec}' packs them again"
            again = [f"{command}, with the runs that the set has."]
        print_lines([f"{counted(count, 'file')} in {arguments.output}", *again])
    return 0
