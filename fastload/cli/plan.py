"""``fastload plan PLACE``."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from fastload.cache.traffic import CachePlace, Job, Link, Traffic, epoch_traffic, first_batch_seconds
from fastload.cli.arguments import add_storage_options, at_least_one, options_for, place
from fastload.cli.output import counted, human_bytes, print_json, print_table
from fastload.machine.sizes import parse_size
from fastload.sampler import default_blocks
from fastload.shard.dataset import PackedFiles

__all__ = ["add", "run"]

# What the core's client keeps in flight at most, and round trips to connect (TCP; with TLS 1.3 one more).
_IN_FLIGHT = 256
_CONNECTING = {"https": 2, "http": 1}
_GET = 0.0004  # dollars a thousand GETs: S3 Standard, us-east-1
_STEADY = 1000  # an epoch so late that the caches have what they ever will


def add(verbs: Any) -> None:
    """Declare the verb."""
    parser = verbs.add_parser(
        "plan",
        help="what a job will read, wait for and pay, before it runs",
        description="Computes what a training job moves from storage, without reading more than the set's "
        "tables: bytes, requests and dollars an epoch; seconds to the first batch; disk and memory. Without "
        "a cache, with one on each node, and with one that all nodes share. Nothing is measured: what the "
        "link can do is what you say.",
    )
    parser.add_argument("folder", metavar="PLACE", type=place, help="a packed dataset, or its URL")
    add_storage_options(parser)
    add = parser.add_argument
    add("--ranks", type=at_least_one, default=1, metavar="N", help="training processes in all (default 1)")
    add("--nodes", type=at_least_one, default=1, metavar="M", help="machines that they run on (default 1)")
    add("--epochs", type=at_least_one, default=90, metavar="E", help="epochs of the job (default 90)")
    add(
        "--batch-size",
        type=at_least_one,
        default=256,
        metavar="B",
        help="samples a rank and step (default 256)",
    )
    add(
        "--size",
        type=at_least_one,
        default=224,
        metavar="PX",
        help="side of the pictures in a batch (default 224)",
    )
    add("--shuffle", choices=("exact", "block"), default="exact", help="order of an epoch (default exact)")
    add(
        "--cache",
        type=_size,
        metavar="SIZE",
        help='room for records of each cache, such as "800GB" (default: the set)',
    )
    add(
        "--latency", type=_positive, default=20.0, metavar="MS", help="to an answer's first byte (default 20)"
    )
    add(
        "--bandwidth",
        type=_size,
        default=1_250_000_000,
        metavar="SIZE",
        help="a second and node (default 1.25GB)",
    )
    add("--rate", type=_positive, metavar="N", help="samples a second that a rank's step can take")
    add("--price-requests", type=_price, default=_GET, metavar="USD", help=f"of 1000 GETs (default {_GET})")
    add(
        "--price-gb",
        type=_price,
        default=0.0,
        metavar="USD",
        help="of a GB read (default 0: the same region)",
    )
    add("--json", action="store_true", help="print one JSON object instead of a table")


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
    dataset = PackedFiles(arguments.folder, storage_options=options_for(arguments, arguments.folder))
    job, link = _job(dataset, arguments), _link(arguments)
    room = job.data_bytes if arguments.cache is None else arguments.cache
    places: tuple[tuple[str, CachePlace], ...] = (
        ("no cache", "none"),
        ("a cache on each node", "node"),
        ("a cache that all nodes share", "shared"),
    )
    found = {name: _epochs(job, link, room, kind, arguments.epochs) for name, kind in places}
    first, memory = first_batch_seconds(job, link), _memory(dataset, arguments)
    if arguments.json:
        facts = {"id": dataset.id, "cache_bytes": room, "first_batch_seconds": first, "memory_bytes": memory}
        print_json(_body(arguments, job, found, facts))
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
        (
            "memory",
            f"{human_bytes(memory)} a rank for batches and reading ahead (float32, {arguments.size} px)",
        ),
        ("cache", f"{human_bytes(room)}, {100 * min(1.0, room / max(1, job.data_bytes)):.0f}% of the set"),
    ]
    for name, epochs in found.items():
        rows += [(name, line) for line in _lines(epochs, arguments)]
    if arguments.rate is not None:
        rows += [("waiting", line) for line in _verdict(job, found, arguments)]
    print_table(str(arguments.folder), rows)
    return 0


def _job(dataset: PackedFiles, arguments: argparse.Namespace) -> Job:
    manifest, records = dataset.manifest, 1
    if arguments.shuffle == "block":
        records = default_blocks(len(dataset), manifest.data_bytes, None, None)[0]
    return Job(
        len(dataset),
        manifest.data_bytes,
        # The manifest is small, and of a set in a store perhaps still on its way to the node's disk.
        sum(path.stat().st_size for path in dataset.folder.glob("*.fli")),
        arguments.nodes,
        arguments.batch_size * (arguments.ranks // arguments.nodes),
        records,
    )


def _link(arguments: argparse.Namespace) -> Link:
    scheme = str(arguments.folder).partition("://")[0]
    return Link(
        arguments.latency / 1000,
        arguments.bandwidth,
        _IN_FLIGHT,
        _CONNECTING.get(scheme, _CONNECTING["https"]),
    )


def _memory(dataset: PackedFiles, arguments: argparse.Namespace) -> int:
    """What a rank's loader says that it will allocate."""
    from fastload import DataLoader, PackedDataset
    from fastload import transforms as T

    opened = PackedDataset(arguments.folder, storage_options=options_for(arguments, arguments.folder))
    picture = T.Compose([T.RandomResizedCrop(arguments.size), T.Normalize((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))])
    with DataLoader(
        opened, arguments.batch_size, True, transform=picture, cache=None, rank=0, world_size=1
    ) as loader:
        return loader.memory_plan()["total"]


def _epochs(job: Job, link: Link, room: float, kind: CachePlace, epochs: int) -> dict[str, Traffic]:
    """The first epoch, the second, and a late one; and all of them together."""
    each = [epoch_traffic(job, link, room, kind, epoch) for epoch in range(1, min(epochs, _STEADY) + 1)]
    rest = max(0, epochs - _STEADY)
    total = [
        sum(getattr(one, part) for one in each) + rest * getattr(each[-1], part)
        for part in ("bytes", "requests", "seconds")
    ]
    found = {"epoch 1": each[0]}
    if epochs > 1 and each[1] != each[0]:
        found["epoch 2"] = each[1]
    if each[-1] != each[min(1, len(each) - 1)]:
        found[f"epoch {epochs}"] = each[-1]
    hits = 1 - total[1] * job.request_records / max(1, job.records * epochs)
    return found | {f"all {epochs}": Traffic(total[0], total[1], hits, total[2])}


def _dollars(traffic: Traffic, arguments: argparse.Namespace) -> float:
    return float(
        traffic.requests / 1000 * arguments.price_requests + traffic.bytes / 1e9 * arguments.price_gb
    )


def _lines(epochs: Mapping[str, Traffic], arguments: argparse.Namespace) -> Iterator[str]:
    for name, one in epochs.items():
        yield (
            f"{name}: {human_bytes(one.bytes)} in {one.requests:.0f} requests, "
            f"${_dollars(one, arguments):.2f}, {one.seconds:.3g} s of reading, "
            f"{100 * one.hits:.0f}% from the cache"
        )


def _verdict(
    job: Job, found: Mapping[str, Mapping[str, Traffic]], arguments: argparse.Namespace
) -> Iterator[str]:
    """Whether steps that take so many samples a second wait for the link."""
    step = job.records / (arguments.rate * arguments.ranks)
    yield f"an epoch of steps takes {step:.3g} s"
    for cache, epochs in found.items():
        waits = [name for name, one in epochs.items() if name.startswith("epoch") and one.seconds > step]
        yield f"{cache}: " + (
            f"steps wait for the link in {', '.join(waits)}" if waits else "no step waits for the link"
        )


def _body(
    arguments: argparse.Namespace,
    job: Job,
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
