"""``fastload plan PLACE``: predict what a job will read, wait for and pay."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from fastload.cache.opening import all_streams, stream_bytes
from fastload.cache.traffic import CachePlace, Link, Traffic, TrafficJob, first_batch_seconds, job_traffic
from fastload.cli import cores
from fastload.cli.arguments import add_storage_options, at_least_one, options_for, place
from fastload.cli.output import print_json, print_table
from fastload.dataset.generations import order_of
from fastload.machine.sizes import counted, human_bytes, parse_size
from fastload.sampler import BlockSampler, Partition, Sampler, block_sampler, default_blocks
from fastload.sampler.quality import Quality, measure
from fastload.shard.dataset import PackedFiles

if TYPE_CHECKING:
    from fastload import PackedDataset


# Requests that the core's client keeps in flight, and round trips to connect (TCP; TLS 1.3 adds one).
_IN_FLIGHT = 256
_CONNECTING = {"https": 2, "http": 1}
_LEAST_SECONDS = 1e-3  # nobody waits for a shorter time
_GET = 0.0004  # dollars per thousand GETs: S3 Standard, us-east-1


def add(verbs: Any) -> None:
    """Declare the verb."""
    parser = verbs.add_parser(
        "plan",
        help="predict what a job will read, wait for and pay",
        description="Compute what a training job will move from storage: bytes, requests and dollars per "
        "epoch; seconds to the first batch; disk and memory; without a cache, with one on each node, and "
        "with one that all nodes share; on several nodes also for shuffle=Block(nodes=M), by which each node "
        "reads the same part in every epoch. Only the set's tables are read, and nothing is measured: you "
        "state latency and bandwidth. With --shuffle block, also how well these orders mix the set. With "
        "--gpu, only how many CPU cores the GPU needs.",
    )
    parser.add_argument("folder", metavar="PLACE", type=place, help="packed dataset, or its URL")
    add_storage_options(parser)
    option = parser.add_argument
    option("--ranks", type=at_least_one, default=1, metavar="N", help="training processes in all (default 1)")
    option("--nodes", type=at_least_one, default=1, metavar="M", help="machines in all (default 1)")
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
        help="side of the pictures in a batch, in pixels (default 224)",
    )
    _add_order(option)
    option(
        "--cache",
        type=_size,
        metavar="SIZE",
        help='size of each cache, such as "800GB" (default: the whole set)',
    )
    _add_link(option)
    cores.add_gpu(option)
    option("--json", action="store_true", help="print one JSON object instead of a table")


def _add_order(option: Any) -> None:
    """Declare the options for the order of an epoch."""
    option(
        "--shuffle",
        choices=("exact", "block"),
        default="exact",
        help="order of an epoch (default exact). With block, the plan compares its mixing with a uniform "
        "shuffle and with none: distinct classes in a batch of all ranks; chi-square of its classes, 1 for "
        "independent draws; share of samples whose neighbour on disk is in the same batch; mean distance "
        "between the places on disk and in the epoch",
    )
    count: dict[str, Any] = {"type": at_least_one, "metavar": "N"}
    option("--block", **count, help="records that --shuffle block reads together (default: about 1 MiB)")
    option("--window", **count, help="records that --shuffle block mixes at a time (default: about 256 MiB)")
    option("--seed", type=int, metavar="S", help="the loader's seed, for --shuffle block (default 0)")


def _add_link(option: Any) -> None:
    """Declare the assumed speed and price of the storage, and the speed of the training step."""
    option(
        "--latency",
        type=_positive,
        default=20.0,
        metavar="MS",
        help="milliseconds from a request to the first byte of the answer (default 20)",
    )
    option(
        "--bandwidth",
        type=_size,
        default=1_250_000_000,
        metavar="SIZE",
        help="bytes per second that each node gets (default 1.25GB)",
    )
    option("--rate", type=_positive, metavar="N", help="samples per second of one rank's training step")
    price: dict[str, Any] = {"type": _price, "metavar": "USD"}
    option("--price-requests", default=_GET, **price, help=f"dollars per 1000 GETs (default {_GET})")
    option("--price-gb", default=0.0, **price, help="dollars per GB read (default 0, as in the same region)")


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
    if arguments.gpu is not None or arguments.network is not None:
        return cores.run(arguments)
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
    caches = _caches(dataset, arguments, job, link, room)
    first, (memory, words) = first_batch_seconds(job, link), _memory(dataset, arguments, blocks)
    mixing = None if blocks is None else _mixing(dataset, arguments, blocks)
    if arguments.json:
        facts = {"id": dataset.id, "cache_bytes": room, "first_batch_seconds": first, "memory_bytes": memory}
        body = _body(arguments, job, caches, facts)
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
        ("network", f"{human_bytes(link.bandwidth)}/s per node, {arguments.latency:g} ms, as given"),
        ("first batch", f"after about {first:.2f} s"),
        ("memory", words),
        ("cache", f"{human_bytes(room)}, {100 * min(1.0, room / max(1, job.data_bytes)):.0f}% of the set"),
    ]
    for name, epochs in caches.items():
        rows += _named(name, _lines(epochs, arguments))
    if blocks is not None and mixing is not None:
        rows += _named("mixing", _mixing_lines(blocks, mixing, job.data_bytes / max(1, job.records)))
    if arguments.rate is not None:
        rows += _named("waiting", _verdict(job, caches, arguments))
    print_table(str(arguments.folder), rows)
    return 0


def _caches(
    dataset: PackedFiles, arguments: argparse.Namespace, job: TrafficJob, link: Link, room: int
) -> dict[str, dict[str, Traffic]]:
    """Return the traffic by cache and epoch, by name; on several nodes also that of blocks dealt to them."""
    jobs: list[tuple[str, CachePlace, TrafficJob]] = [
        ("no cache", "none", job),
        ("a cache on each node", "node", job),
        ("a cache that all nodes share", "shared", job),
    ]
    if _can_deal(dataset, arguments):
        block, _ = _shape(dataset, arguments, arguments.nodes)
        dealt = replace(job, request_records=block, is_sticky=True)
        jobs.insert(2, (f"a cache on each node, {_dealt(arguments)}", "node", dealt))
    return {name: job_traffic(each, link, room, kind, arguments.epochs) for name, kind, each in jobs}


def _can_deal(dataset: PackedFiles, arguments: argparse.Namespace) -> bool:
    """Whether a loader would take ``Block(nodes=)`` of these nodes."""
    return arguments.nodes > 1 and not len(dataset.dropped)


def _dealt(arguments: argparse.Namespace) -> str:
    return f"Block(nodes={arguments.nodes})"


def _check_order(arguments: argparse.Namespace) -> None:
    options = [name for name in ("block", "window", "seed") if getattr(arguments, name) is not None]
    if options and arguments.shuffle != "block":
        raise SystemExit(
            f"fastload plan: --{', --'.join(options)} only says how --shuffle block mixes. Add --shuffle "
            "block, or leave it out."
        )


def _blocks(dataset: PackedFiles, arguments: argparse.Namespace) -> tuple[int, int] | None:
    """Return (records per block, records per window) of a block shuffle; None for another order."""
    return None if arguments.shuffle != "block" else _shape(dataset, arguments, 1)


def _shape(dataset: PackedFiles, arguments: argparse.Namespace, nodes: int) -> tuple[int, int]:
    given, read_bytes = (arguments.block, arguments.window), dataset.manifest.read_bytes
    try:
        return default_blocks(dataset.num_ids, read_bytes, *given, nodes)
    except ValueError as error:
        raise SystemExit(f"fastload plan: {error}") from None


def _mixing(
    dataset: PackedFiles, arguments: argparse.Namespace, blocks: tuple[int, int]
) -> dict[str, Quality] | None:
    """Measure how well each order mixes, in batches of all ranks; None for an empty set."""
    n, seed = len(dataset), arguments.seed or 0
    if not n:
        return None
    partition = Partition(min(arguments.batch_size * arguments.ranks, n))
    samplers: dict[str, Sampler] = {
        "uniform": Sampler(order_of(dataset, seed, True), partition),
        "block": BlockSampler(order_of(dataset, seed, True, blocks), partition),
    }
    if _can_deal(dataset, arguments):
        shape = _shape(dataset, arguments, arguments.nodes)
        samplers[_dealt(arguments)] = block_sampler(n, seed, shape, arguments.nodes, partition)
    samplers["none"] = Sampler(order_of(dataset, seed, False), partition)
    return {name: measure(sampler, dataset.labels) for name, sampler in samplers.items()}


def _mixing_lines(blocks: tuple[int, int], mixing: Mapping[str, Quality], mean: float) -> Iterator[str]:
    block, window = blocks
    yield (
        f"blocks of {counted(block, 'record')} ({human_bytes(block * mean)}), windows of {window} "
        f"({human_bytes(window * mean)})"
    )
    for name, quality in mixing.items():
        yield (
            f"{name}: {quality.classes:.1f} classes per batch, chi-square {quality.class_chi2:.3f}, "
            f"{100 * quality.together:.1f}% with their neighbour, distance {quality.distance:.3f}"
        )


def _mixing_body(blocks: tuple[int, int], mixing: Mapping[str, Quality]) -> dict[str, Any]:
    orders = {name: asdict(quality) for name, quality in mixing.items()}
    return {"block": blocks[0], "window": blocks[1], "orders": orders}


def _job(dataset: PackedFiles, arguments: argparse.Namespace, blocks: tuple[int, int] | None) -> TrafficJob:
    return TrafficJob(
        len(dataset),
        sum(stream_bytes(dataset, stream) for stream in all_streams([dataset])),
        # Not the manifest: it is small, and a store's may still be on its way to the node's disk.
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
    """Return the bytes that a rank's loader will allocate, also in words; None if that cannot be known."""
    from fastload import Block, DataLoader, Ranks
    from fastload import transforms as T

    picture = T.Compose([T.RandomResizedCrop(arguments.size), T.Normalize((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))])
    options: dict[str, Any] = {"shuffle": True if blocks is None else Block(*blocks), "cache": None}
    options["ranks"] = Ranks(0, arguments.ranks)
    with DataLoader(dataset, arguments.batch_size, transform=picture, **options) as loader:
        try:
            total = loader.memory_plan()["total"]
        except ValueError as error:
            return None, f"not known in advance: {error}"
    words = f"{human_bytes(total)} per rank for batches and read-ahead (float32, {arguments.size} px)"
    return total, words


def _dollars(traffic: Traffic, arguments: argparse.Namespace) -> float:
    return float(
        traffic.requests / 1000 * arguments.price_requests + traffic.bytes / 1e9 * arguments.price_gb
    )


def _named(name: str, lines: Iterator[str]) -> list[tuple[str, str]]:
    """Return table rows, of which the first has the name."""
    return [(name if number == 0 else "", line) for number, line in enumerate(lines)]


def _seconds(seconds: float) -> str:
    """Return a time in words, "no time" if nobody waits for it."""
    return f"{seconds:.3g} s" if seconds >= _LEAST_SECONDS else "no time"


def _lines(epochs: Mapping[str, Traffic], arguments: argparse.Namespace) -> Iterator[str]:
    for name, traffic in epochs.items():
        yield (
            f"{name}: {human_bytes(traffic.bytes)} in {traffic.requests:.0f} requests, "
            f"${_dollars(traffic, arguments):.2f}, {_seconds(traffic.seconds)} of reading, "
            f"{100 * traffic.hits:.0f}% from the cache"
        )


def _verdict(
    job: TrafficJob, caches: Mapping[str, Mapping[str, Traffic]], arguments: argparse.Namespace
) -> Iterator[str]:
    """Yield whether steps of ``--rate`` samples per second wait for the network."""
    step = job.records / (arguments.rate * arguments.ranks)
    yield f"the steps of an epoch take {_seconds(step)}"
    for cache, epochs in caches.items():
        waits = [name for name, each in epochs.items() if name.startswith("epoch") and each.seconds > step]
        yield f"{cache}: " + (
            f"steps wait for the network in {', '.join(waits)}" if waits else "no step waits for the network"
        )


def _body(
    arguments: argparse.Namespace,
    job: TrafficJob,
    caches: Mapping[str, Mapping[str, Traffic]],
    facts: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the plan for ``--json``."""
    names = (
        "ranks", "nodes", "epochs", "batch_size", "shuffle", "latency", "bandwidth", "price_requests",
        "price_gb",
    )  # fmt: skip
    places = {
        cache: {name: asdict(each) | {"dollars": _dollars(each, arguments)} for name, each in epochs.items()}
        for cache, epochs in caches.items()
    }
    return {
        **facts,
        **{name: getattr(arguments, name) for name in names},
        "job": asdict(job),
        "caches": places,
    }
