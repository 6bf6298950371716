"""``fastload warm DATASET...``: bring packed datasets into the node's memory, or onto its disk.

Exit codes: 0 all is warm; 1 an error; 2 wrong usage; 3 only a part is warm, because of the limit or the
memory, or because a stopped process has claimed the rest; 4 all but records that cannot be read; 130
interrupted (run it again to resume).
"""

from __future__ import annotations

import argparse
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fastload.cache.opening import Streams, all_streams
from fastload.cache.settings import CacheSetting, parse_setting
from fastload.cache.tiers import COEFFICIENTS, check_decoded, coefficient_target, fill_target, tier_of
from fastload.cache.warming import PAGE_CACHE, WarmJob, WarmResult, plan_jobs, run_job
from fastload.cli.arguments import add_storage_options, at_least_one, at_least_zero, options_for, place
from fastload.cli.output import print_json, print_lines
from fastload.cli.progress import WarmProgress
from fastload.dataset.generations import order_of, refuse_nodes
from fastload.machine.cpu import find_budget
from fastload.machine.sizes import counted, human_bytes, parse_size
from fastload.sampler import BlockSampler, Partition, Sampler, block_sampler, default_blocks
from fastload.shard.dataset import PackedFiles

PARTLY, UNREADABLE = 3, 4
_READERS = 16  # threads that wait for storage
_SHOWN_FAILURES = 5


def add(verbs: Any) -> None:
    """Declare the verb."""
    parser = verbs.add_parser(
        "warm",
        help="bring packed datasets into the node's memory before a job",
        description="Bring packed datasets into the node's memory: into the node cache (a tmpfs), where "
        "every DataLoader of this user finds them, or into the page cache. The better one is chosen, unless "
        "--to, --page-cache or --cache (a tier on a local disk) says which. Several commands on a node "
        "divide the work; if killed, run it again to resume.",
        epilog="Exit codes: 0 all is warm; 1 error; 2 wrong usage; 3 only a part is warm, because of the "
        "limit or the memory, or because a stopped process has claimed the rest; 4 all is warm "
        "except records that cannot be read; 130 interrupted.",
    )
    parser.add_argument(
        "datasets", metavar="DATASET", nargs="+", type=place, help="packed datasets, or their URLs"
    )
    add_storage_options(parser)
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--to", metavar="DIR", type=Path, help="folder of the node cache to warm, in memory")
    where.add_argument("--page-cache", action="store_true", help="warm the page cache instead")
    where.add_argument(
        "--cache",
        metavar="DIR:SIZE",
        type=_disk,
        help="warm a tier on a local disk instead, written as in DataLoader(cache=...), such as "
        "/nvme/fastload:800GB. One command at a time on each node",
    )
    option = parser.add_argument
    option(
        "--decoded",
        metavar="SIDE",
        type=_side,
        help="keep decoded pictures whose longer side is at most SIDE pixels, or 'full': for "
        "DataLoader(cache=Cache(decoded=SIDE))",
    )
    option(
        "--coefficients",
        action="store_true",
        help="keep JPEGs as coefficient records, which decode faster to the same pixels: for "
        "DataLoader(cache=Cache(format='coefficients'))",
    )
    option(
        "--fields",
        metavar="NAME,...",
        type=lambda text: text.split(","),
        help="warm only the pictures of these fields (default: all)",
    )
    option("--limit", metavar="SIZE", type=_size, help="memory limit, such as 64GB")
    _add_order(option)
    option(
        "--threads",
        metavar="N",
        type=_threads,
        help=f"threads to read (default {_READERS}), or to decode or transcode (default: one per usable CPU)",
    )
    option("--json", action="store_true", help="print one JSON object instead of lines")


def _add_order(option: Any) -> None:
    """Declare the options for the records that ranks read."""
    ranks_help = "warm only what ranks A to B of W read in one epoch, such as 0-7/32"
    option("--ranks", metavar="A-B/W", type=_ranks, help=ranks_help)
    option(
        "--batch-size", metavar="N", type=at_least_one, help="with --ranks: batch size of a rank (default 1)"
    )
    option("--seed", metavar="S", type=int, help="with --ranks: the loader's seed (default 0)")
    option("--epoch", metavar="E", type=at_least_zero, help="with --ranks: the epoch (default 0)")
    option(
        "--shuffle",
        choices=("exact", "block", "none"),
        help="with --ranks: the loader's shuffle (default exact)",
    )
    of_block = (("size", "block"), ("window", "window"), ("nodes", "nodes"))
    for name, word in of_block:
        option(
            f"--{word}",
            metavar="N",
            type=at_least_one,
            help=f"with --shuffle block: Block({name}=N) of the loader",
        )


def _size(text: str) -> int:
    try:
        return parse_size(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _disk(text: str) -> CacheSetting:
    setting = parse_setting(text) if "/" in text else CacheSetting()
    if setting.disk is None:
        raise argparse.ArgumentTypeError(
            f"is a folder on a local disk and a size, such as /nvme/fastload:800GB. Found: {text}."
        )
    return setting


def _side(text: str) -> int | str:
    side = int(text) if text.isdigit() else text
    try:
        check_decoded(side)
    except (TypeError, ValueError) as error:
        raise argparse.ArgumentTypeError(str(error).replace("Cache.decoded", "SIDE")) from None
    return side


def _threads(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= 1024:
        raise argparse.ArgumentTypeError(f"threads must be in [1, 1024]. Found: {text}.")
    return int(text)


def _ranks(text: str) -> tuple[range, int]:
    match = re.fullmatch(r"(\d+)(?:-(\d+))?/(\d+)", text)
    first, last, world = (int(match[1]), int(match[2] or match[1]), int(match[3])) if match else (1, 0, 0)
    if not first <= last < world:
        raise argparse.ArgumentTypeError(f"ranks are A-B/W or A/W, A <= B < W. Found: {text!r}.")
    return range(first, last + 1), world


def run(arguments: argparse.Namespace) -> int:
    """Warm one dataset after the other."""
    _settle_order(arguments)
    datasets = [
        PackedFiles(given, storage_options=options_for(arguments, given)) for given in arguments.datasets
    ]
    stored = next((dataset.where for dataset in datasets if dataset.location is not None), None)
    if stored is not None and arguments.page_cache:
        raise SystemExit(
            f"fastload warm: --page-cache is for local files. Found: {stored}. Leave it out, or "
            "give the node cache's folder, --to DIR."
        )
    side = arguments.decoded
    _check_place(arguments)
    streams = _streams(datasets, arguments.fields)
    makes = side is not None or arguments.coefficients
    threads = arguments.threads or (find_budget().threads if makes else _READERS)
    tier = COEFFICIENTS if arguments.coefficients else tier_of(side)
    chosen = arguments.to is not None or arguments.limit is not None
    root = arguments.to.absolute() if arguments.to is not None else None
    asked = [f"--to {arguments.to}"] * (root is not None)
    asked += [f"--limit {arguments.limit}B"] * (arguments.limit is not None)
    setting = CacheSetting("on" if chosen else "auto", limit=arguments.limit, root=root, text=" ".join(asked))
    setting = arguments.cache or setting

    def wanted(dataset: PackedFiles) -> npt.NDArray[np.int64] | None:
        return _ids_of_ranks(dataset, arguments) if arguments.ranks is not None else None

    def first(dataset: PackedFiles) -> npt.NDArray[np.bool_]:
        own = np.zeros(dataset.num_ids, np.bool_)
        own[_ids_of_ranks(dataset, arguments)] = True
        return own

    began = time.monotonic()
    results = []
    kept = first if arguments.nodes > 1 else None  # what ranks read in one epoch, they read in all
    with WarmProgress(quiet=arguments.json) as progress:
        for job in plan_jobs(datasets, setting, wanted, arguments.page_cache, tier, streams, kept):
            if makes and job.cache is not None and job.field is None:
                shown = job.dataset.shown
                job.target = (
                    coefficient_target(job.cache, shown=shown)
                    if arguments.coefficients
                    else fill_target(job.cache, side, shown=shown)
                )
            line = f"{_name(job)} into {job.place or 'nothing'} ({job.reason})"
            progress.started(_short_name(job), job.data_bytes, line)
            results.append((job, run_job(job, threads, progress.advanced)))
    seconds = time.monotonic() - began
    if arguments.json:
        print_json({"seconds": seconds, "sets": [_facts(job, result) for job, result in results]})
    else:
        for job, result in results:
            print_lines(_lines(job, result))
    if not all(result.is_whole for _, result in results):
        return PARTLY
    return UNREADABLE if any(result.failures for _, result in results) else 0


def _check_place(arguments: argparse.Namespace) -> None:
    """Refuse what goes with the node cache alone, with a message."""
    side = arguments.decoded
    elsewhere = "--page-cache" if arguments.page_cache else "--cache" if arguments.cache is not None else None
    if side is not None and elsewhere:
        raise SystemExit(f"fastload warm: --decoded is for the node cache; leave out {elsewhere}.")
    if arguments.coefficients and (side is not None or elsewhere):
        other = "--decoded" if side is not None else elsewhere
        raise SystemExit(f"fastload warm: --coefficients and {other} exclude each other. Leave one out.")
    if arguments.limit is not None and arguments.cache is not None:
        raise SystemExit("fastload warm: --cache DIR:SIZE has a size. Leave out --limit.")


def _settle_order(arguments: argparse.Namespace) -> None:
    """Set the defaults of the options that go with --ranks, which none may be given without.

    Raises:
        SystemExit: wrong usage, with a message.
    """
    defaults = {"batch_size": 1, "seed": 0, "epoch": 0, "shuffle": "exact"}
    names = [f"--{name.replace('_', '-')}" for name in defaults if getattr(arguments, name) is not None]
    if names and arguments.ranks is None:
        raise SystemExit(
            f"fastload warm: {', '.join(names)} only says which records --ranks A-B/W reads; without --ranks "
            "the whole set is warmed. Add --ranks, or leave it out."
        )
    for name, default in defaults.items():
        if getattr(arguments, name) is None:
            setattr(arguments, name, default)
    blocks = [f"--{name}" for name in ("block", "window", "nodes") if getattr(arguments, name) is not None]
    if blocks and arguments.shuffle != "block":
        raise SystemExit(
            f"fastload warm: {', '.join(blocks)} only says which blocks --shuffle block reads. Add --shuffle "
            "block and --ranks A-B/W, or leave it out."
        )
    arguments.nodes = arguments.nodes or 1


def _ids_of_ranks(dataset: PackedFiles, arguments: argparse.Namespace) -> npt.NDArray[np.int64]:
    """Return the sample ids that these ranks read in the epoch, ascending."""
    ranks, world = arguments.ranks
    n, seen = dataset.num_ids, np.zeros(dataset.num_ids, np.bool_)
    for rank in ranks:
        try:
            partition = Partition(arguments.batch_size, rank, world, padding="repeat")
            sampler = _sampler(dataset, partition, arguments)
        except ValueError as error:
            raise SystemExit(f"fastload warm: {error}") from None
        for step in range(sampler.num_batches(arguments.epoch)):
            ids = sampler.batch(arguments.epoch, 0, step).ids
            seen[ids[(ids >= 0) & (ids < n)]] = True
    return np.flatnonzero(seen).astype(np.int64)


def _sampler(dataset: PackedFiles, partition: Partition, arguments: argparse.Namespace) -> Sampler:
    if arguments.shuffle == "block":
        given, nodes = (arguments.block, arguments.window), arguments.nodes
        if nodes > 1:
            refuse_nodes([dataset])
            shape = default_blocks(dataset.num_ids, dataset.manifest.read_bytes, *given, nodes)
            return block_sampler(dataset.num_ids, arguments.seed, shape, nodes, partition)
        return BlockSampler(order_of(dataset, arguments.seed, True, given), partition)
    return Sampler(order_of(dataset, arguments.seed, arguments.shuffle == "exact"), partition)


def _streams(datasets: list[PackedFiles], fields: list[str] | None) -> Streams:
    """Return the streams of records to warm.

    Raises:
        SystemExit: no dataset has pictures of a field, with a message.
    """
    if fields is None:
        return all_streams(datasets)
    named: dict[str, str | None] = {name: name for name in all_streams(datasets) if name is not None}
    firsts = (dataset.schema.index_field for dataset in datasets)
    named |= {first.name: None for first in firsts if first is not None}
    unknown = [name for name in fields if name not in named]
    if unknown:
        legal = ", ".join(sorted(named))
        raise SystemExit(
            f"fastload warm: --fields: no pictures are called {unknown[0]!r}. Legal are: {legal}."
        )
    return tuple(dict.fromkeys(named[name] for name in fields))


def _short_name(job: WarmJob) -> str:
    return job.dataset.where.rstrip("/").rpartition("/")[2]


def _name(job: WarmJob) -> str:
    return job.dataset.where + (f", field {job.field!r}" if job.field is not None else "")


def _kind_of_place(job: WarmJob) -> str:
    if job.tier is not None:
        return "disk"
    return "page cache" if job.place == PAGE_CACHE else "cache" if job.place else "memory"


def _facts(job: WarmJob, result: WarmResult) -> dict[str, Any]:
    counts, first = result.counts, job.dataset.schema.index_field
    return {
        "dataset": job.dataset.where,
        "id": job.dataset.id,
        "field": job.field or (first.name if first is not None else None),
        "place": _kind_of_place(job),
        "path": job.place if job.place not in ("", PAGE_CACHE) else None,
        "reason": job.reason,
        "whole": result.is_whole,
        "seconds": result.seconds,
        **{name: counts[name] for name in counts if name not in ("claimed_chunks", "waits")},
        "failures": [{"sample": sample, "reason": reason} for sample, reason in result.failures],
    }


def _lines(job: WarmJob, result: WarmResult) -> list[str]:
    counts = result.counts
    warm = counts["there_bytes"] + counts["put_bytes"]
    rate = counts["put_bytes"] / result.seconds / 1e9 if result.seconds > 0 else 0.0
    lines = [
        f"{_name(job)}: {human_bytes(warm)} warm in {job.place or 'memory'} "
        f"after {result.seconds:.1f} s: {human_bytes(counts['put_bytes'])} from the source "
        f"({rate:.2f} GB/s), {human_bytes(counts['there_bytes'])} already there"
    ]
    if counts["no_room_records"] > 0:
        lines.append(f"  no room for {counted(counts['no_room_records'], 'record')}")
    if counts["claimed_records"] > 0:
        lines.append(
            f"  {counted(counts['claimed_records'], 'record')} claimed by another process, which has put "
            f"none there for a minute: it may have been stopped. Continue it or end it ('fuser' shows who "
            f"has {job.place} open), and warm the set again"
        )
    for sample, reason in result.failures[:_SHOWN_FAILURES]:
        lines.append(f"  sample {sample}: {reason}")
    if counts["failed_records"] > _SHOWN_FAILURES:
        lines.append(f"  in total, {counted(counts['failed_records'], 'record')} could not be read")
    return lines
