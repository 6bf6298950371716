"""``fastload verify FOLDER``."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from dataclasses import asdict
from typing import Any

from fastload.cli.arguments import add_storage_options, options_for
from fastload.cli.on_ray import RAY_HELP, ray_cluster
from fastload.cli.output import counted, print_json, print_lines
from fastload.packing.problems import Problem
from fastload.packing.verify import Spread, has_entries, manifest_at, verify
from fastload.shard.manifest import ENTRIES_NAME

__all__ = ["add", "run"]


def add(verbs: Any) -> None:
    """Declare the verb."""
    parser = verbs.add_parser(
        "verify",
        help="check every checksum of a packed dataset",
        description="Check index, shards, every record's CRC-32C, every field's values and the entry points' "
        "checksums; exit code 1 if anything is wrong.",
    )
    parser.add_argument("folder", metavar="FOLDER", help="a packed dataset, or its URL")
    add_storage_options(parser)
    parser.add_argument("--decode", action="store_true", help="decode every record, too")
    parser.add_argument("--entries", action="store_true", help="compute all entry points again, too")
    parser.add_argument("--ray", metavar="ADDRESS", help=f"records and entry points: {RAY_HELP}")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of lines")


def run(arguments: argparse.Namespace) -> int:
    """Print all problems."""
    options = options_for(arguments, arguments.folder)
    with ExitStack() as stack:
        spread: Spread | None = None
        if arguments.ray is not None:
            spread = stack.enter_context(ray_cluster(arguments.ray)).in_order
        problems, records = verify(
            arguments.folder, arguments.decode, None, arguments.entries, spread, options
        )
    found = sum(problem.count for problem in problems)
    if arguments.json:
        print_json(
            {"ok": not found, "records": records, "found": found, "problems": [*map(_facts, problems)]}
        )
    else:
        there = has_entries(arguments.folder, options)
        checks = [
            ("CRC-32C", True),
            ("values of all fields", bool(manifest_at(arguments.folder, options).fields)),
            ("decoding", arguments.decode),
            ("entry points", arguments.entries and there),
        ]
        how = ", ".join(name for name, done in checks if done)
        if arguments.entries and not there:
            advice = f"'fastload index {arguments.folder} --entries' makes them"
            print_lines(
                [f"{arguments.folder}: there are no entry points ({ENTRIES_NAME}) to check; {advice}"]
            )
        whole = f"{counted(records, 'record')} {'is' if records == 1 else 'are'} whole ({how})"
        verdict = counted(found, "problem") if problems else whole
        print_lines([*map(_line, problems), f"{arguments.folder}: {verdict}"])
    return 1 if problems else 0


def _facts(problem: Problem) -> dict[str, Any]:
    facts = {name: value for name, value in asdict(problem).items() if value not in ("", None)}
    return facts if problem.count > 1 else {name: facts[name] for name in facts if name != "count"}


def _line(problem: Problem) -> str:
    where = [problem.shard]
    if problem.sample is not None:
        where.append(f"sample {problem.sample} ({problem.key}) at byte {problem.offset}")
    return ", ".join(filter(None, where)) + f": {problem.reason}"
