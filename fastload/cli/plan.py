"""``fastload plan PLACE``."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from fastload.cache.opening import all_streams, stream_bytes
from fastload.cache.traffic import CachePlace, Link, Traffic, TrafficJob, first_batch_seconds, job_traffic
from fastload.cli.arguments import add_storage_options, at_least_one, options_for, place
from fastload.cli.output import print_json, print_table
from fastload.machine.sizes import counted, human_bytes, parse_size
from fastload.sampler import BlockOrder, BlockSampler, Partition, Sampler, default_blocks, make_sampler
from fastload.sampler.quality import Quality, measure
from fastload.shard.dataset import PackedFiles

if TYPE_CHECKING:
    from fastload import PackedDataset


# What the core's client keeps in flight at most, and round trips to connect (TCP; with TLS 1.3 one more).
_IN_FLIGHT = 256
_CONNECTING = {"https": 2, "http": 1}
_LEAST_SECONDS = 1e-3  # below it a time is none that anybody waits for
_GET = 0.0004  # dollars a thousand GETs: S3 Standard, us-east-1


def add(verbs: Any) -> None:
    """Declare the verb."""
    parser = verbs.add_parser(
        "plan",
        help="what a job will read, wait for and pay, before it runs",
        description="Computes what a training job moves from storage, without reading more than the set's "
        "tables: bytes, requests and dollars per epoch; seconds to the first batch; disk and memory. Without "
        "a cache, with one on each node, and with one that all nodes share. Nothing is measured: what the "
        "link can do is what you say. With --shuffle block also how well that mixes the set.",
    )
    parser.add_argument("folder", metavar="PLACE", type=place, help="a packed dataset, or its URL")
    add_storage_options(parser)
    option = parser.add_argument
    option("--ranks", type=at_least_one, default=1, metavar="N", help="training processes in all (default 1)")
    option("--nodes", type=at_least_one, default=1, metavar="M", help="machines that they run on (default 1)")
    option("--epochs", type=at_least_one, default=90, metavar="E", help="epochs of the job (default 90)")
    option(
        "--batch-size",
        type=at_least_one,
        default=256,
        metavar="B",
        help="samples per rank and step (default 256)",
    )
    option(
        "--size",
        type=at_least_one,
        default=224,
        metavar="PX",
        help="side of the pictures in a batch (default 224)",
    )
    _add_order(option)
    option(
        "--cache",
        type=_size,
        metavar="SIZE",
        help='room for records in each cache, such as "800GB" (default: all of the set)',
    )
    _add_link(option)
    option("--json", action="store_true", help="print one JSON object instead of a table")


def _add_order(option: Any) -> None:
    """Declare the order of an epoch."""
    option(
        "--shuffle",
        choices=("exact", "block"),
        default="exact",
        help="order of an epoch (default exact). With block the plan also says how well that mixes, beside a "
        "uniform shuffle and none: distinct classes in a batch of all ranks; chi-square of its classes, 1 "
        "for independent draws; share of samples with their neighbour on disk in the same batch; mean "
        "distance between place on disk and in the epoch",
    )
    whole: dict[str, Any] = {"type": at_least_one, "metavar": "N"}
    option("--block", **whole, help="records that --shuffle block reads together (default: about 1 MiB)")
    option("--window", **whole, help="records that it mixes at a time (default: about 256 MiB)")
    option("--seed", type=int, metavar="S", help="the loader's seed, for --shuffle block (default 0)")


def _add_link(option: Any) -> None:
    """Declare what the link to the storage, and the step, are taken to do, and to cost."""
    option(
        "--latency",
        type=_positive,
        default=20.0,
        metavar="MS",
        help="milliseconds from a request to the first byte of its answer (default 20)",
    )
    option(
        "--bandwidth",
        type=_size,
        default=1_250_000_000,
        metavar="SIZE",
        help="bytes per second that each node gets (default 1.25GB)",
    )
    option("--rate", type=_positive, metavar="N", help="samples per second that a rank's step can take")
    option(
        "--price-requests",
        type=_price,
        default=_GET,
        metavar="USD",
        help=f"price of 1000 GETs (default {_GET})",
    )
    option(
        "--price-gb",
        type=_price,
        default=0.0,
        metavar="USD",
        help="price of reading one GB (default 0: the same region)",
    )


def _size(text: str) -> int:
    try:
        return parse_size(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _positive(text: str) -> float:
    number = _price(text)
    if number == 0:
        raise argparse.ArgumentTypeError("must be more than 0. Found: 0.")
    return number


def _price(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < 1e12:
        raise argparse.ArgumentTypeError(f"must be a number, at least 0. Found: {text}.")
    return number


def run(arguments: argparse.Namespace) -> int:
    """Print the plan."""
    if arguments.ranks % arguments.nodes:
        raise SystemExit(
            f"fastload plan: --ranks must be a multiple of --nodes. Found: {arguments.ranks} ranks on "
            f"{arguments.nodes} nodes."
        )
    _check_order(arguments)
    from fastload import PackedDataset

    dataset: PackedDataset[Any] = PackedDataset(
        arguments.folder, storage_options=options_for(arguments, arguments.folder)
    )
    blocks = _blocks(dataset, arguments)
    job, link = _job(dataset, arguments, blocks), _link(arguments)
    room = job.data_bytes if arguments.cache is None else arguments.cache
    places: tuple[tuple[str, CachePlace], ...] = (
        ("no cache", "none"),
        ("a cache on each node", "node"),
        ("a cache that all nodes share", "shared"),
    )
    found = {name: job_traffic(job, link, room, kind, arguments.epochs) for name, kind in places}
    first, (memory, words) = first_batch_seconds(job, link), _memory(dataset, arguments, blocks)
    mixing = None if blocks is None else _mixing(dataset, arguments, blocks)
    if arguments.json:
        facts = {"id": dataset.id, "cache_bytes": room, "first_batch_seconds": first, "memory_bytes": memory}
        body = _body(arguments, job, found, facts)
        print_json(body if blocks is None or mixing is None else body | _mixing_body(blocks, mixing))
        return 0
    rows = [
        ("set", f"{job.records} records, {human_bytes(job.data_bytes)}"),
        ("tables", f"{human_bytes(job.table_bytes)}, read once by each node and kept on its disk"),
        (
            "job",
            f"{counted(arguments.ranks, 'rank')} on {counted(arguments.nodes, 'node')}, "
            f"{counted(arguments.epochs, 'epoch')}",
        ),
        ("link", f"{human_bytes(link.bandwidth)}/s a node, {arguments.latency:g} ms, as given"),
        ("first batch", f"after about {first:.2f} s"),
        ("memory", words),
        ("cache", f"{human_bytes(room)}, {100 * min(1.0, room / max(1, job.data_bytes)):.0f}% of the set"),
    ]
    for name, epochs in found.items():
        rows += _named(name, _lines(epochs, arguments))
    if blocks is not None and mixing is not None:
        rows += _named("mixing", _mixing_lines(blocks, mixing, job.data_bytes / max(1, job.records)))
    if arguments.rate is not None:
        rows += _named("waiting", _verdict(job, found, arguments))
    print_table(str(arguments.folder), rows)
    return 0


def _check_order(arguments: argparse.Namespace) -> None:
    given = [name for name in ("block", "window", "seed") if getattr(arguments, name) is not None]
    if given and arguments.shuffle != "block":
        raise SystemExit(
            f"fastload plan: --{', --'.join(given)} only says how --shuffle block mixes. Add --shuffle "
            "block, or leave it out."
        )


def _blocks(dataset: PackedFiles, arguments: argparse.Namespace) -> tuple[int, int] | None:
    """(records a block, records a window) of a block shuffle."""
    if arguments.shuffle != "block":
        return None
    try:
        return default_blocks(len(dataset), dataset.manifest.data_bytes, arguments.block, arguments.window)
    except ValueError as error:
        raise SystemExit(f"fastload plan: {error}") from None


def _mixing(
    dataset: PackedFiles, arguments: argparse.Namespace, blocks: tuple[int, int]
) -> dict[str, Quality] | None:
    """How well each order mixes, in batches of all ranks; None of an empty set."""
    n, seed = len(dataset), arguments.seed or 0
    if not n:
        return None
    partition = Partition(min(arguments.batch_size * arguments.ranks, n))
    samplers: dict[str, Sampler] = {
        "uniform": make_sampler(n, partition, shuffle=True, seed=seed),
        "block": BlockSampler(BlockOrder(n, seed, *blocks), partition),
        "none": make_sampler(n, partition, shuffle=False, seed=seed),
    }
    return {name: measure(sampler, dataset.labels) for name, sampler in samplers.items()}


def _mixing_lines(blocks: tuple[int, int], mixing: Mapping[str, Quality], mean: float) -> Iterator[str]:
    block, window = blocks
    yield (
        f"blocks of {counted(block, 'record')} ({human_bytes(block * mean)}), windows of {window} "
        f"({human_bytes(window * mean)})"
    )
    for name, one in mixing.items():
        yield (
            f"{name}: {one.classes:.1f} classes a batch, chi-square {one.class_chi2:.3f}, "
            f"{100 * one.together:.1f}% with their neighbour, distance {one.distance:.3f}"
        )


def _mixing_body(blocks: tuple[int, int], mixing: Mapping[str, Quality]) -> dict[str, Any]:
    orders = {name: asdict(quality) for name, quality in mixing.items()}
    return {"block": blocks[0], "window": blocks[1], "orders": orders}


def _job(dataset: PackedFiles, arguments: argparse.Namespace, blocks: tuple[int, int] | None) -> TrafficJob:
    return TrafficJob(
        len(dataset),
        sum(stream_bytes(dataset, stream) for stream in all_streams([dataset])),
        # The manifest is small, and of a set in a store perhaps still on its way to the node's disk.
        sum(path.stat().st_size for path in dataset.folder.glob("*.fli")),
        arguments.nodes,
        arguments.batch_size * (arguments.ranks // arguments.nodes),
        1 if blocks is None else blocks[0],
    )


def _link(arguments: argparse.Namespace) -> Link:
    scheme = str(arguments.folder).partition("://")[0]
    return Link(
        arguments.latency / 1000,
        arguments.bandwidth,
        _IN_FLIGHT,
        _CONNECTING.get(scheme, _CONNECTING["https"]),
    )


def _memory(
    dataset: PackedDataset[Any], arguments: argparse.Namespace, blocks: tuple[int, int] | None
) -> tuple[int | None, str]:
    """What a rank's loader says that it will allocate, and in words; None where it cannot be known."""
    from fastload import Block, DataLoader
    from fastload import transforms as T

    picture = T.Compose([T.RandomResizedCrop(arguments.size), T.Normalize((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))])
    options: dict[str, Any] = {"shuffle": True if blocks is None else Block(*blocks), "cache": None}
    ranks = {"rank": 0, "world_size": arguments.ranks}
    with DataLoader(dataset, arguments.batch_size, transform=picture, **options, **ranks) as loader:
        try:
            found = loader.memory_plan()["total"]
        except ValueError as error:
            return None, f"not known before: {error}"
    words = f"{human_bytes(found)} a rank for batches and reading ahead (float32, {arguments.size} px)"
    return found, words


def _dollars(traffic: Traffic, arguments: argparse.Namespace) -> float:
    return float(
        traffic.requests / 1000 * arguments.price_requests + traffic.bytes / 1e9 * arguments.price_gb
    )


def _named(name: str, lines: Iterator[str]) -> list[tuple[str, str]]:
    """Table rows of which the first has the name."""
    return [(name if number == 0 else "", line) for number, line in enumerate(lines)]


def _seconds(seconds: float) -> str:
    """A time as far as anybody could measure it."""
    return f"{seconds:.3g} s" if seconds >= _LEAST_SECONDS else "no time"


def _lines(epochs: Mapping[str, Traffic], arguments: argparse.Namespace) -> Iterator[str]:
    for name, one in epochs.items():
        yield (
            f"{name}: {human_bytes(one.bytes)} in {one.requests:.0f} requests, "
            f"${_dollars(one, arguments):.2f}, {_seconds(one.seconds)} of reading, "
            f"{100 * one.hits:.0f}% from the cache"
        )


def _verdict(
    job: TrafficJob, found: Mapping[str, Mapping[str, Traffic]], arguments: argparse.Namespace
) -> Iterator[str]:
    """Whether steps that take so many samples per second wait for the link."""
    step = job.records / (arguments.rate * arguments.ranks)
    yield f"an epoch of steps takes {_seconds(step)}"
    for cache, epochs in found.items():
        waits = [name for name, one in epochs.items() if name.startswith("epoch") and one.seconds > step]
        yield f"{cache}: " + (
            f"steps wait for the link in {', '.join(waits)}" if waits else "no step waits for the link"
        )


def _body(
    arguments: argparse.Namespace,
    job: TrafficJob,
    found: Mapping[str, Mapping[str, Traffic]],
    facts: Mapping[str, Any],
) -> dict[str, Any]:
    """The plan as JSON."""
    names = (
        "ranks",
        "nodes",
        "epochs",
        "batch_size",
        "shuffle",
        "latency",
        "bandwidth",
        "price_requests",
        "price_gb",
    )
    places = {
        cache: {name: asdict(one) | {"dollars": _dollars(one, arguments)} for name, one in epochs.items()}
        for cache, epochs in found.items()
    }
    return {
        **facts,
        **{name: getattr(arguments, name) for name in names},
        "job": asdict(job),
        "caches": places,
    }
