"""``fastload shuffle FOLDER``."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from fastload.cli.arguments import add_storage_options, at_least_one, options_for, place
from fastload.cli.output import counted, human_bytes, print_json, print_lines
from fastload.sampler import BlockOrder, BlockSampler, Partition, Sampler, default_blocks, make_sampler
from fastload.sampler.quality import Quality, measure
from fastload.shard.dataset import PackedFiles

__all__ = ["add", "run"]

_COLUMNS = {
    "classes": "classes a batch",
    "class_chi2": "chi-square",
    "together": "with neighbour",
    "distance": "distance",
}


def add(verbs: Any) -> None:
    """Declare the verb."""
    parser = verbs.add_parser(
        "shuffle",
        help="how well shuffle='block' mixes a packed dataset",
        description="How well shuffle='block' mixes a packed dataset, beside a uniform shuffle and none: "
        "distinct classes in a batch; chi-square of a batch's classes, 1 for independent draws; share of "
        "samples with their neighbour on disk in the same batch; mean distance between place on disk and "
        "in the epoch.",
    )
    parser.add_argument("folder", metavar="FOLDER", type=place, help="a packed dataset, or its URL")
    add_storage_options(parser)
    parser.add_argument(
        "--block", type=at_least_one, metavar="N", help="records read together (default: about 1 MiB)"
    )
    parser.add_argument(
        "--window", type=at_least_one, metavar="N", help="records mixed at a time (default: about 256 MiB)"
    )
    parser.add_argument(
        "--batch-size",
        type=at_least_one,
        default=256,
        metavar="N",
        help="samples per step, over all ranks; at most the size of the set (default 256)",
    )
    parser.add_argument("--seed", type=int, metavar="S", default=0, help="the loader's seed (default 0)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")


def run(arguments: argparse.Namespace) -> int:
    """Measure the three orders."""
    dataset = PackedFiles(
        arguments.folder, entries=False, storage_options=options_for(arguments, arguments.folder)
    )
    n, data_bytes = len(dataset), dataset.manifest.data_bytes
    try:
        block, window = default_blocks(n, data_bytes, arguments.block, arguments.window)
        partition = Partition(max(1, min(arguments.batch_size, n)))
    except ValueError as error:
        raise SystemExit(f"fastload shuffle: {error}") from None
    samplers: dict[str, Sampler] = {
        "uniform": make_sampler(n, partition, shuffle=True, seed=arguments.seed),
        "block": BlockSampler(BlockOrder(n, arguments.seed, block, window), partition),
        "none": make_sampler(n, partition, shuffle=False, seed=arguments.seed),
    }
    found = {name: measure(sampler, dataset.labels) for name, sampler in samplers.items()}
    mean, together = data_bytes / max(1, n), counted(block, "record")
    if arguments.json:
        orders = {name: asdict(quality) for name, quality in found.items()}
        sizes = {"block": block, "window": window, "batch_size": partition.batch_size}
        print_json({"id": dataset.id, **sizes, "window_bytes": round(window * mean), "orders": orders})
        return 0
    print_lines(
        [
            f"{dataset.where}: blocks of {together} ({human_bytes(block * mean)}), windows of {window} "
            f"({human_bytes(window * mean)}), batches of {partition.batch_size}",
            "  ".join(["shuffle".ljust(8), *_COLUMNS.values()]),
            *(_row(name, quality) for name, quality in found.items()),
        ]
    )
    return 0


def _row(name: str, quality: Quality) -> str:
    values = asdict(quality)
    cells = [f"{values[key]:.{1 if key == 'classes' else 3}f}".rjust(len(_COLUMNS[key])) for key in _COLUMNS]
    return "  ".join([name.ljust(8), *cells])
