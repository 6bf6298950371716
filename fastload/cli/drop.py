"""``fastload drop FOLDER IDS``: mark samples as dropped."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from fastload.cli.output import print_json, print_table
from fastload.errors import PackError
from fastload.packing.drop import DropResult, drop, ids_of_keys, parse_ids
from fastload.shard.dataset import PackedFiles

# ---- ``fastload drop FOLDER IDS`` -------------------------------------------------------------------


def add(verbs: Any) -> None:
    """Declare the verb."""
    parser = verbs.add_parser(
        "drop",
        help="leave samples of a packed dataset out, without deleting them",
        description="Mark samples as dropped: loaders leave them out, the others keep their ids and their "
        "order. Nothing is deleted; 'fastload pack FOLDER OUTPUT' makes a set without them. Jobs that have "
        "the set open go on with it as it was.",
    )
    parser.add_argument("folder", metavar="FOLDER", help="packed dataset")
    parser.add_argument("ids", metavar="ID", nargs="*", help="sample ids and inclusive ranges: 5 17-20")
    parser.add_argument("--ids", dest="ids_file", metavar="FILE", help="file of ids and ranges")
    parser.add_argument("--keys", metavar="FILE", help="file of keys, one per line")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")


def run(arguments: argparse.Namespace) -> int:
    """Drop, and print the result."""
    words = list(arguments.ids)
    if arguments.ids_file is not None:
        words += _text(arguments.ids_file).split()
    ids = [parse_ids(words, PackedFiles(arguments.folder, entries=False).num_ids)]
    if arguments.keys is not None:
        ids.append(
            ids_of_keys(arguments.folder, [line for line in _text(arguments.keys).splitlines() if line])
        )
    found = np.concatenate(ids)
    if not len(found):
        raise PackError("drop needs sample ids, --ids FILE or --keys FILE. Found: none, or empty files.")
    result = drop(arguments.folder, found)
    if arguments.json:
        print_json({"dataset": _facts(result)})
        return 0
    print_table(str(result.output), _rows(result))
    return 0


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PackError(f"{path} cannot be read: {error}.") from None


def _rows(result: DropResult) -> list[tuple[str, str]]:
    again = f"; {result.before} were dropped before" if result.before else ""
    generations = (
        f"{result.manifest.generation}: a loader without a state reads it; a job that has a state of "
    )
    return [
        ("dropped", f"{result.dropped} samples{again}"),
        ("left", f"{result.left} of {result.manifest.num_records} samples, with their ids and order"),
        ("generation", f"{generations}an earlier one goes on with that"),
    ]


def _facts(result: DropResult) -> dict[str, Any]:
    return {
        "output": str(result.output),
        "id": result.manifest.id,
        "generation": result.manifest.generation,
        "records": result.manifest.num_records,
        "dropped": result.dropped,
        "dropped_before": result.before,
        "left": result.left,
    }
