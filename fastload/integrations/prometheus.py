"""Loaders' clocks for Prometheus: a collector, and a server that is off until :func:`serve` is called.

::

    from fastload.integrations.prometheus import serve

    with serve({"train": train_loader, "val": val_loader}, port=9400):
        train()

Then ``curl localhost:9400/metrics`` shows them. With a registry of your own, register a
:class:`LoaderCollector` there. The clocks are read when they are requested.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from http.server import ThreadingHTTPServer
from typing import Any

from fastload.extras import need
from fastload.integrations.stats_stream import sources
from fastload.loader.view import viewed
from fastload.machine.threads import start_beside

need("prometheus_client", "fastload.integrations.prometheus")
from prometheus_client import CollectorRegistry, MetricsHandler, generate_latest  # noqa: E402
from prometheus_client.core import CounterMetricFamily as Counter  # noqa: E402
from prometheus_client.core import GaugeMetricFamily as Gauge  # noqa: E402
from prometheus_client.core import Metric  # noqa: E402

_PATIENCE = 10.0  # seconds to wait for a silent client
_FOUND = ("resident", "ahead", "late")  # keys of read_ahead
_Rows = Mapping[str, float]  # numbers by the value of an additional label


def serve(
    loaders: Any,
    port: int = 9400,
    host: str = "127.0.0.1",
) -> StatsServer:
    """Serve the clocks of loaders until the server is closed.

    Args:
        loaders: one, or several by name, which becomes the label ``loader``. They are not kept alive.
        port: 0 for any free one (see ``.port``). Ranks of one node need one each.
        host: by default this machine only; ``"0.0.0.0"``: anywhere, without any protection.

    Raises:
        TypeError: one is not a fastload.DataLoader.
        OSError: the port is in use.
    """
    named = loaders if isinstance(loaders, Mapping) else {"train": loaders}
    return StatsServer(named, host, port)


class LoaderCollector:
    """A collector for a registry: ``prometheus_client.REGISTRY.register(LoaderCollector(...))``.

    Args:
        loaders: by name, which becomes the label ``loader``. They are not kept alive, and a loader that is
            gone has no numbers.
    """

    def __init__(self, loaders: Mapping[str, Any]) -> None:
        given = {name: viewed(loader, "LoaderCollector").loader for name, loader in loaders.items()}
        self._known = {name: weakref.ref(loader) for name, loader in given.items()}

    def describe(self) -> Iterable[Metric]:
        """Return every family without numbers, so that a second collector in one registry is an error."""
        return [make(f"fastload_{name}", words) for name, make, words, *_ in _FAMILIES]

    def collect(self) -> Iterator[Metric]:
        """Yield the families that have numbers, in seconds and bytes, as is Prometheus' convention."""
        known = {name: kept() for name, kept in self._known.items()}
        here = {name: viewed(each, "LoaderCollector") for name, each in known.items() if each is not None}
        stats = {name: (each.stats(), each.place_of_rank()[0].rank) for name, each in here.items()}
        for name, make, words, label, find in _FAMILIES:
            family = make(f"fastload_{name}", words, labels=("loader", "rank", *((label,) if label else ())))
            for title, (known, rank) in stats.items():
                rows = _at(known, find) if isinstance(find, str) else find(known)
                for own, value in rows.items():
                    family.add_metric((title, str(rank), *((own,) if label else ())), value)
            if family.samples:
                yield family


class StatsServer:
    """The server that :func:`serve` starts; ``close()``, or leaving its ``with``, stops it."""

    def __init__(self, loaders: Mapping[str, Any], host: str, port: int) -> None:
        class Handler(MetricsHandler):
            registry, timeout = _registry(loaders), _PATIENCE

        try:
            self._server = ThreadingHTTPServer((host, port), Handler)
        except OSError as error:
            raise OSError(
                error.errno,
                f"The server of statistics cannot listen on {host}:{port} ({error.strerror}). Choose another "
                "port (ranks of one node need one each), or 0 for any that is free",
            ) from error
        self._server.daemon_threads = True
        # prometheus_client's start_http_server would leave its thread until the interpreter exits.
        self._thread = start_beside(self._server.serve_forever, "fastload-stats", self._server.shutdown)

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._server.server_address[1])

    def close(self) -> None:
        """Stop the server. Idempotent."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> StatsServer:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def metrics(loaders: Mapping[str, Any]) -> str:
    """Return the loaders' clocks in Prometheus' text format."""
    return generate_latest(_registry(loaders)).decode()


def _registry(loaders: Mapping[str, Any]) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(LoaderCollector(loaders))
    return registry


def _at(known: Mapping[str, Any], path: str) -> _Rows:
    """Return the number at ``path``, or nothing if it is not counted."""
    value: Any = known
    for name in path.split("/"):
        value = value.get(name) if isinstance(value, Mapping) else None
    return {"": value} if isinstance(value, (int, float)) else {}


def _stages(known: Mapping[str, Any]) -> _Rows:
    stages = {name: stage["seconds"] for name, stage in known["stages"].items() if name != "transfer"}
    return {"idle" if name == "prefetch" else name: seconds for name, seconds in stages.items()}


def _decoded(known: Mapping[str, Any]) -> _Rows:
    return {path: count for path, count in known["decoded"].items() if path != "warnings"}


def _ahead(known: Mapping[str, Any]) -> _Rows:
    return {"": known["stages"]["decode"]["count"] - known["samples"]}


def _found(known: Mapping[str, Any]) -> _Rows:
    return {where: known["read_ahead"][where] for where in _FOUND if where in known["read_ahead"]}


def _of_sources(what: str, known: Mapping[str, Any]) -> _Rows:
    return {name: source[what] for name, source in sources(known).items()}


# Name without the prefix (a counter gets "_total"), type, help, a label beside loader and rank, and where the
# numbers are in loader.stats().
_Family = type[Counter] | type[Gauge]
_FAMILIES: tuple[tuple[str, _Family, str, str, str | Callable[[Mapping[str, Any]], _Rows]], ...] = (
    ("samples", Counter, "Samples delivered to the training loop.", "", "samples"),
    ("batches", Counter, "Batches delivered to the training loop.", "", "data_wait/count"),
    ("data_wait_seconds", Counter, "Time that the loop waited for data.", "", "data_wait/seconds"),
    ("faults", Counter, "Bad samples met.", "", "faults"),
    ("encoded_bytes", Counter, "Encoded bytes that were decoded.", "", "bytes"),
    ("threads", Gauge, "Decoding threads at once.", "", "threads"),
    ("first_batch_seconds", Gauge, "From the first next() to its batch.", "", "first_batch_seconds"),
    ("storage_requests", Counter, "Requests to storage.", "", "read_ahead/requests"),
    ("storage_read_bytes", Counter, "Bytes requested from storage.", "", "read_ahead/bytes"),
    ("read_buffer_bytes", Gauge, "Buffers of what was read ahead.", "", "read_ahead/buffer_bytes"),
    ("cache_hits", Counter, "Records found in the node cache.", "", "cache/hits"),
    ("cache_misses", Counter, "Records not found in the node cache.", "", "cache/misses"),
    ("cache_bytes", Gauge, "The node cache's files, once for all processes.", "", "cache/bytes"),
    ("transfer_seconds", Counter, "Time of copies to the device.", "", "stages/transfer/seconds"),
    ("transfer_bytes", Counter, "Bytes copied to the device.", "", "stages/transfer/bytes"),
    ("stage_seconds", Counter, "Threads' time by stage, summed over them.", "stage", _stages),
    ("decoded_samples", Counter, "Samples by what decoded them.", "path", _decoded),
    ("samples_ahead", Gauge, "Samples decoded and not yet delivered.", "", _ahead),
    ("records", Counter, "Records looked for, by where each was found.", "where", _found),
    ("world_size", Gauge, "Ranks that divide the samples.", "", "world/size"),
    ("world_changes", Counter, "Changes of the ranks, by reshard().", "", "world/changes"),
    ("generation", Gauge, "Generation of the set that is read.", "", "generation"),
    (
        "source_samples",
        Gauge,
        "Samples so far by source of a mixture.",
        "source",
        partial(_of_sources, "samples"),
    ),
    ("source_share", Gauge, "Share of each source so far.", "source", partial(_of_sources, "share")),
    ("source_wish", Gauge, "Share that each source should have.", "source", partial(_of_sources, "wish")),
    ("source_passes", Gauge, "Passes over each source so far.", "source", partial(_of_sources, "pass")),
)
