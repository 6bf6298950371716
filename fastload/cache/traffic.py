"""An epoch's traffic from storage: bytes, requests and seconds, by arithmetic, before anything runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fastload.cache.disk_files import expected_hits

CachePlace = Literal["none", "node", "shared"]

# Sequential requests before the first batch: the manifest, index and entry points, records.
_REQUESTS = 3
_STEADY = 1000  # an epoch so late that the caches are as full as they will be


@dataclass(frozen=True)
class TrafficJob:
    """A training job, as storage sees it.

    Args:
        records: samples per epoch, over all nodes.
        data_bytes: bytes of all their records.
        table_bytes: bytes that each node reads once: index, entry points, columns.
        nodes: machines, each of which reads an equal part of every epoch.
        batch: samples per step on one node.
        request_records: samples whose records one request returns.
        is_sticky: whether each node reads the same part of the set in every epoch.
    """

    records: int
    data_bytes: int
    table_bytes: int
    nodes: int
    batch: int
    request_records: int
    is_sticky: bool = False

    @property
    def record(self) -> float:
        """Mean bytes of a record."""
        return self.data_bytes / max(1, self.records)


@dataclass(frozen=True)
class Link:
    """The connection between a node and storage.

    Args:
        latency: seconds to the first byte of an answer.
        bandwidth: bytes per second per node.
        in_flight: maximum number of concurrent requests.
        connecting: round trips before a new connection's first request.
    """

    latency: float
    bandwidth: float
    in_flight: int
    connecting: int


@dataclass(frozen=True)
class Traffic:
    """The traffic of one epoch.

    Args:
        bytes: from storage, over all nodes.
        requests: over all nodes.
        hits: share of the samples that come from the cache.
        seconds: a node's minimum time for its part, waiting for nothing else.
    """

    bytes: float
    requests: float
    hits: float
    seconds: float


def _hits(job: TrafficJob, cache_bytes: float, place: CachePlace, epoch: int) -> float:
    """Return the share of an epoch (the first is 1) in the cache: what was read before, as far as it fits."""
    if place == "none" or epoch < 2 or not job.data_bytes:
        return 0.0
    share = min(1.0, cache_bytes / job.data_bytes)
    if place == "shared":
        return share
    part = 1 / job.nodes
    seen: float = 1.0 if job.is_sticky else 1 - (1 - part) ** (epoch - 1)  # share of the samples, by one node
    return min(seen, expected_hits(share, part, job.is_sticky))


def epoch_traffic(job: TrafficJob, link: Link, cache_bytes: float, place: CachePlace, epoch: int) -> Traffic:
    """Return what an epoch costs.

    Every sample is read once per epoch, in a new random order each time, by a random node or always the same.

    Args:
        cache_bytes: room for records: per node, or in total if ``place`` is ``"shared"``.
        epoch: 1 is the first, which finds the cache empty.
    """
    hits = _hits(job, cache_bytes, place, epoch)
    moved = (1 - hits) * job.records * job.record
    # A request is saved only if everything it would return is in the cache.
    requests = job.records / job.request_records * (1 - hits**job.request_records)
    waiting = requests * link.latency / link.in_flight
    return Traffic(moved, requests, hits, max(moved / link.bandwidth, waiting) / job.nodes)


def job_traffic(
    job: TrafficJob, link: Link, cache_bytes: float, place: CachePlace, epochs: int
) -> dict[str, Traffic]:
    """Return the traffic of the first, second and last epoch, as far as they differ, and of all, by name."""
    each = [epoch_traffic(job, link, cache_bytes, place, n) for n in range(1, min(epochs, _STEADY) + 1)]
    times = [1] * (len(each) - 1) + [1 + epochs - len(each)]

    def total(part: str) -> float:
        return float(sum(n * getattr(one, part) for n, one in zip(times, each, strict=True)))

    epochs_by_name = {"epoch 1": each[0]}
    if epochs > 1 and each[1] != each[0]:
        epochs_by_name["epoch 2"] = each[1]
    if each[-1] != each[min(1, len(each) - 1)]:
        epochs_by_name[f"epoch {epochs}"] = each[-1]
    every = Traffic(total("bytes"), total("requests"), total("hits") / epochs, total("seconds"))
    return epochs_by_name | {f"all {epochs}": every}


def first_batch_seconds(job: TrafficJob, link: Link) -> float:
    """Return the time from opening a set, nothing of which is on any node, to the first batch's bytes."""
    trips = _REQUESTS + link.connecting
    return trips * link.latency + (job.table_bytes + job.batch * job.record) / link.bandwidth
