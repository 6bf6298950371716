"""``fastload unpack FOLDER OUTPUT``."""

from __future__ import annotations

import argparse
from typing import Any

from fastload.cli.output import counted, print_json, print_lines
from fastload.packing.unpack import unpack

__all__ = ["add", "run"]


def add(verbs: Any) -> None:
    """Declare the verb."""
    parser = verbs.add_parser(
        "unpack",
        help="write a packed dataset back to a folder",
        description="Write every record back to a file of the same name and bytes, in class folders.",
    )
    parser.add_argument("folder", metavar="FOLDER", help="a packed dataset")
    parser.add_argument("output", metavar="OUTPUT", help="folder to make")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a line")


def run(arguments: argparse.Namespace) -> int:
    """Unpack, and say how many files were written."""
    count = unpack(arguments.folder, arguments.output)
    if arguments.json:
        print_json({"files": count, "output": str(arguments.output)})
    else:
        print_lines([f"{counted(count, 'file')} in {arguments.output}"])
    return 0
