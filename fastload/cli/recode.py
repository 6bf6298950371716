"""``fastload recode FOLDER``: convert JPEGs to coefficient records, or back, in place."""

from __future__ import annotations

import argparse
from typing import Any

from fastload.cli.arguments import at_least_one
from fastload.cli.output import contents_json, contents_rows, entry_json, entry_rows, print_json, print_table
from fastload.cli.progress import PackProgress
from fastload.machine.sizes import human_bytes
from fastload.packing.coefficients import DEFAULT_FORM, FACTS, FORM_HELP, FORMS, NOTE, said_of
from fastload.packing.recode import RecodeResult, recode


def add(verbs: Any) -> None:
    """Declare the verb."""
    parser = verbs.add_parser(
        "recode",
        help="convert a packed dataset's JPEGs to coefficient records, or back",
        description="Convert a packed dataset's JPEGs to coefficient records in place, or back to the "
        "identical JPEGs. An interruption at any moment leaves the set intact; run the same command again to "
        "resume. Until it is done, both old and new shards take up space.",
    )
    parser.add_argument("folder", metavar="FOLDER", help="packed dataset")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--coefficients", choices=FORMS, nargs="?", const=DEFAULT_FORM, help=FORM_HELP)
    what.add_argument("--jpeg", action="store_true", help="convert back to the identical JPEGs")
    parser.add_argument(
        "--num-proc",
        type=at_least_one,
        metavar="N",
        help="processes (default: one per CPU, fewer for small sets)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.add_argument("--quiet", action="store_true", help="show no progress")


def run(arguments: argparse.Namespace) -> int:
    """Recode, and print the result."""
    form = None if arguments.jpeg else arguments.coefficients or DEFAULT_FORM
    with PackProgress(arguments.quiet or arguments.json) as progress:
        result = recode(arguments.folder, form, arguments.num_proc, progress)
    if arguments.json:
        print_json({"dataset": _facts(result)})
        return 0
    title = f"{result.output}" + (" is already in this form" if result.was_so else "")
    print_table(title, _rows(result, form))
    return 0


def _rows(result: RecodeResult, form: str | None) -> list[tuple[str, str]]:
    manifest = result.manifest
    rows = contents_rows(manifest, "shard") + said_of(manifest.options)
    if form is not None:
        rows.append(("", NOTE))
    rows += entry_rows(result.entries)
    if not result.was_so:
        rate = result.bytes_before / max(result.seconds, 1e-9)
        rows.append(("time", f"{result.seconds:.1f} s, {human_bytes(rate)}/s"))
        rows.append(("id", f"{manifest.id}: caches of the set before recoding are not used for it"))
    return rows


def _facts(result: RecodeResult) -> dict[str, Any]:
    manifest = result.manifest
    return {
        "output": str(result.output),
        **contents_json(manifest),
        FACTS: manifest.options.get(FACTS),
        "entries": entry_json(result.entries),
        "bytes_before": result.bytes_before,
        "was_so": result.was_so,
        "seconds": round(result.seconds, 3),
    }
