"""``fastload unpack FOLDER OUTPUT``: write a packed dataset back to files."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fastload.cli.arguments import add_storage_options, options_for
from fastload.cli.output import print_json, print_lines
from fastload.machine.sizes import counted
from fastload.packing.unpack import LAYOUTS, STEM, TABLES, Unpacked, unpack_sets


def add(verbs: Any) -> None:
    """Declare the verb."""
    parser = verbs.add_parser(
        "unpack",
        help="write a packed dataset back to a folder",
        description="Write every record to a file with its original name and bytes, in class folders. "
        "Samples with other fields become pictures and samples.jsonl with the values, which packs to the "
        "same set. A folder of datasets gives a folder of each, by its name.",
    )
    parser.add_argument(
        "folder", metavar="FOLDER", help="packed dataset, folder of datasets, or the URL of either"
    )
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
    done = unpack_sets(
        arguments.folder,
        arguments.output,
        table=arguments.table,
        as_=arguments.as_,
        storage_options=options,
    )
    if arguments.json:
        facts = [_facts(each, arguments) for each in done]
        print_json(facts[0] if len(facts) == 1 else {"datasets": facts})
        return 0
    for each in done:
        print_lines(_lines(each, arguments))
    return 0


def _place(unpacked: Unpacked, arguments: argparse.Namespace) -> Path:
    """Return the folder of a set's files, below the output as it was given."""
    return Path(arguments.output) / unpacked.name


def _facts(unpacked: Unpacked, arguments: argparse.Namespace) -> dict[str, Any]:
    runs = unpacked.dataset.manifest.runs
    words = {} if runs is None else {"runs": str(runs.spec)}
    return {"files": len(unpacked.dataset), "output": str(_place(unpacked, arguments)), **words}


def _lines(unpacked: Unpacked, arguments: argparse.Namespace) -> Iterator[str]:
    """Yield how many files were written, and how a set with runs is packed again."""
    manifest, source = unpacked.dataset.manifest, _place(unpacked, arguments)
    yield f"{counted(len(unpacked.dataset), 'file')} in {source}"
    if manifest.runs is not None:
        source = source / f"{STEM}.{arguments.table}" if manifest.fields and arguments.as_ is None else source
        command = f"'fastload pack {source} OUTPUT --runs {manifest.runs.spec}' packs them again"
        yield f"{command}, with the runs that the set has."
