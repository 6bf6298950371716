"""``fastload verify FOLDER...``: check every checksum of packed datasets."""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack
from dataclasses import asdict
from typing import Any

from fastload.cli.arguments import add_storage_options, options_for
from fastload.cli.output import print_json, print_lines
from fastload.cli.pack import RAY_HELP, ray_cluster
from fastload.errors import FormatError
from fastload.machine.sizes import counted
from fastload.packing.fetched import Spread
from fastload.packing.named_sets import has_entries, manifest_at, sets_in
from fastload.packing.verify import Problem, verify
from fastload.shard.manifest import ENTRIES_NAME


def add(verbs: Any) -> None:
    """Declare the verb."""
    parser = verbs.add_parser(
        "verify",
        help="check every checksum of a packed dataset",
        description="Check index, shards, every record's CRC-32C, every field's values and the entry points' "
        "checksums. Exit code 1 if anything is wrong.",
    )
    parser.add_argument(
        "folder", metavar="FOLDER", nargs="+", help="packed dataset, folder of datasets, or the URL of either"
    )
    add_storage_options(parser)
    parser.add_argument("--decode", action="store_true", help="also decode every record")
    parser.add_argument("--entries", action="store_true", help="also recompute all entry points")
    parser.add_argument(
        "--ray", metavar="ADDRESS", help=f"{RAY_HELP}; its machines need the folder or reach the store"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of lines")


def run(arguments: argparse.Namespace) -> int:
    """Check the datasets, and print all problems."""
    results: list[tuple[str, list[Problem], int]] = []
    with ExitStack() as stack:
        spread: Spread | None = None
        if arguments.ray is not None:
            spread = stack.enter_context(ray_cluster(arguments.ray)).in_order
        for folder in _folders(arguments):
            options = options_for(arguments, folder)
            problems, records = verify(folder, arguments.decode, arguments.entries, spread, options)
            results.append((folder, problems, records))
            if not arguments.json:
                _print(folder, problems, records, arguments)
    if arguments.json:
        facts = [_body(*result) for result in results]
        many = {"ok": all(each["ok"] for each in facts), "datasets": facts}
        print_json(
            many if len(facts) > 1 else {name: facts[0][name] for name in facts[0] if name != "folder"}
        )
    elif not arguments.decode and not any(problems for _, problems, _ in results):
        sys.stderr.write(
            "Not checked: whether the pictures decode (--decode). A picture that was damaged before packing "
            "has the checksum of its damaged bytes.\n"
        )
    return 1 if any(problems for _, problems, _ in results) else 0


def _folders(arguments: argparse.Namespace) -> list[str]:
    """Return the given datasets; for a folder that is not one itself, those in it."""
    datasets = []
    for folder in arguments.folder:
        try:
            manifest_at(folder, options_for(arguments, folder))
            datasets.append(folder)
        except FormatError:
            datasets += sets_in(folder, options_for(arguments, folder)).values() or [folder]
    return datasets


def _body(folder: str, problems: list[Problem], records: int) -> dict[str, Any]:
    count = sum(problem.count for problem in problems)
    facts = [*map(_facts, problems)]
    return {"folder": folder, "ok": not count, "records": records, "found": count, "problems": facts}


_ADVICE = (
    "Restore the files that are named from a copy, or pack the source again into another folder; if they "
    "are read in place, index them again: 'fastload index ... --restart'."
)


def _print(folder: str, problems: list[Problem], records: int, arguments: argparse.Namespace) -> None:
    options = options_for(arguments, folder)
    have_entries = has_entries(folder, options)
    checks = [
        ("CRC-32C", True),
        ("values of all fields", bool(manifest_at(folder, options).fields)),
        ("decoding", arguments.decode),
        ("entry points", arguments.entries and have_entries),
    ]
    how = ", ".join(name for name, done in checks if done)
    if arguments.entries and not have_entries:
        advice = f"'fastload index {folder} --entries' makes them"
        print_lines([f"{folder}: there are no entry points ({ENTRIES_NAME}) to check; {advice}"])
    intact = f"{counted(records, 'record')} {'is' if records == 1 else 'are'} intact ({how})"
    verdict = counted(sum(problem.count for problem in problems), "problem") if problems else intact
    print_lines([*map(_line, problems), f"{folder}: {verdict}", *([_ADVICE] if problems else [])])


def _facts(problem: Problem) -> dict[str, Any]:
    facts = {name: value for name, value in asdict(problem).items() if value not in ("", None)}
    return facts if problem.count > 1 else {name: facts[name] for name in facts if name != "count"}


def _line(problem: Problem) -> str:
    where = [problem.shard]
    if problem.sample is not None:
        where.append(f"sample {problem.sample} ({problem.key}) at byte {problem.offset}")
    return ", ".join(filter(None, where)) + f": {problem.reason}"
