"""``fastload pack --plan-only`` and ``--shards``: one of several packs of the same dataset."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from fastload.cli.on_ray import RAY_HELP
from fastload.cli.output import counted, human_bytes, print_json, print_table
from fastload.cli.progress import PackProgress
from fastload.packing.cluster.packer import Share, pack_shares, plan_shares
from fastload.packing.cluster.shares import Shares, ranges
from fastload.packing.options import PackOptions

__all__ = ["add_steps", "run_share"]


def add_steps(parser: argparse.ArgumentParser) -> None:
    """Declare the options that do less than a whole pack."""
    steps = parser.add_mutually_exclusive_group()
    steps.add_argument("--dry-run", action="store_true", help="only say what would be done")
    steps.add_argument(
        "--plan-only", action="store_true", help="only list the source and plan the shards, for --shards"
    )
    steps.add_argument(
        "--shards",
        metavar="WHICH",
        help="pack only these shards of the plan (0-99, or 0-9,40-49), or one share (3/16: the fourth of "
        "sixteen), beside other packs, here or on other machines; --publish comes last",
    )
    steps.add_argument("--ray", metavar="ADDRESS", help=RAY_HELP)
    steps.add_argument(
        "--publish", action="store_true", help="make the dataset from shards that were packed by --shards"
    )


def run_share(arguments: argparse.Namespace, options: PackOptions) -> int:
    """Plan, or pack some shards, and print how far the whole is."""
    with PackProgress(arguments.quiet or arguments.json) as progress:
        if arguments.plan_only:
            share = plan_shares(arguments.source, arguments.output, options, progress)
        else:
            shares = Shares.parse(arguments.shards)
            share = pack_shares(arguments.source, arguments.output, shares, options, progress)
    if arguments.json:
        facts = {**asdict(share), "output": str(share.output), "asked": ranges(share.asked)}
        print_json({"share": facts})
        return 0
    print_table(str(share.output), _rows(share, arguments.plan_only))
    return 0


def _rows(share: Share, plan_only: bool) -> list[tuple[str, str]]:
    rows = [
        ("plan", f"{counted(share.files, 'file')}, {human_bytes(share.bytes)}, in "
                 f"{counted(share.shards, 'shard')}, 0 to {share.shards - 1}"),
    ]  # fmt: skip
    if not plan_only:
        what = ranges(share.asked) or "none"
        rows.append(
            ("these", f"{what}: {share.written} packed, {len(share.asked) - share.written} there before")
        )
    if share.published:
        rows.append(("all", "published already"))
    elif share.finished < share.shards:
        rows.append(("all", f"{share.finished} of {share.shards} are there"))
    else:
        rows.append(("all", "there; the same command with --publish in place of --shards makes the dataset"))
    return rows
