"""Loaders' clocks for Prometheus: a small server of its text format, off until somebody calls :func:`serve`.

::

    from fastload.integrations.prometheus import serve

    with serve({"train": train_loader, "val": val_loader}, port=9400):
        train()

and ``curl localhost:9400/metrics``. The clocks are read when they are asked for, by a thread of the server's.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from fastload._version import __version__
from fastload.machine.threads import start_beside

if TYPE_CHECKING:
    from fastload.loader.data_loader import DataLoader

__all__ = ["StatsServer", "metrics", "serve"]

_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_PATIENCE = 10.0  # seconds for a client that says nothing

# Name without the prefix, type, help, and where the number is in loader.stats().
_NUMBERS = (
    ("samples_total", "counter", "Samples delivered to the training loop.", "samples"),
    ("batches_total", "counter", "Batches delivered to the training loop.", "data_wait/count"),
    ("data_wait_seconds_total", "counter", "Time that the loop waited for data.", "data_wait/seconds"),
    ("faults_total", "counter", "Bad samples met.", "faults"),
    ("encoded_bytes_total", "counter", "Encoded bytes that were decoded.", "bytes"),
    ("threads", "gauge", "Decoding threads at once.", "threads"),
    ("first_batch_seconds", "gauge", "From the first next() to its batch.", "first_batch_seconds"),
    ("storage_requests_total", "counter", "Requests to storage.", "read_ahead/requests"),
    ("storage_read_bytes_total", "counter", "Bytes asked of storage.", "read_ahead/bytes"),
    ("read_buffer_bytes", "gauge", "Buffers of what was read ahead.", "read_ahead/buffer_bytes"),
    ("cache_hits_total", "counter", "Records found in the node cache.", "cache/hits"),
    ("cache_misses_total", "counter", "Records not found in the node cache.", "cache/misses"),
    ("cache_bytes", "gauge", "The node cache's files, once for all processes.", "cache/bytes"),
    ("transfer_seconds_total", "counter", "Time of copies to the device.", "stages/transfer/seconds"),
    ("transfer_bytes_total", "counter", "Bytes copied to the device.", "stages/transfer/bytes"),
)
_FOUND = ("resident", "ahead", "late")  # of read_ahead
_Rows = list[tuple[str, float]]


def serve(
    loaders: DataLoader[Any] | Mapping[str, DataLoader[Any]],
    port: int = 9400,
    host: str = "127.0.0.1",
) -> StatsServer:
    """Serve the clocks of loaders until the server is closed.

    Args:
        loaders: one, or several by name, which becomes the label ``loader``. They are not kept alive.
        port: 0: any that is free; see ``.port``. Ranks of one node need one each.
        host: this machine only, by default; ``"0.0.0.0"``: from anywhere, without any protection.

    Raises:
        OSError: the port is taken.
    """
    named = loaders if isinstance(loaders, Mapping) else {"train": loaders}
    return StatsServer(named, host, port)


class StatsServer:
    """See :func:`serve`. ``close()``, or leaving its ``with``, ends it."""

    def __init__(self, loaders: Mapping[str, DataLoader[Any]], host: str, port: int) -> None:
        known = {name: weakref.ref(loader) for name, loader in loaders.items()}

        class Handler(BaseHTTPRequestHandler):
            timeout = _PATIENCE
            server_version, sys_version = f"fastload/{__version__}", ""

            def do_GET(self) -> None:
                if self.path.partition("?")[0] not in ("/metrics", "/"):
                    self.send_error(404, "There is /metrics only")
                    return
                here = {name: loader for name, find in known.items() if (loader := find()) is not None}
                body = metrics(here).encode()
                self.send_response(200)
                self.send_header("Content-Type", _TYPE)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *arguments: Any) -> None:
                """Not into the training's output."""

        try:
            self._server = ThreadingHTTPServer((host, port), Handler)
        except OSError as error:
            raise OSError(
                error.errno,
                f"The server of statistics cannot listen on {host}:{port} ({error.strerror}). Choose another "
                "port (ranks of one node need one each), or 0 for any that is free",
            ) from error
        self._server.daemon_threads = True
        self._thread = start_beside(self._server.serve_forever, "fastload-stats", self._server.shutdown)

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._server.server_address[1])

    def close(self) -> None:
        """End it. Idempotent."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> StatsServer:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def metrics(loaders: Mapping[str, DataLoader[Any]]) -> str:
    """Prometheus' text format 0.0.4 of the loaders' clocks; seconds and bytes, as its conventions have it."""
    stats = {name: (loader.stats(), loader._arranged.known()[0].rank) for name, loader in loaders.items()}
    lines = []
    for name, kind, words, path in _NUMBERS:
        lines += _family(name, kind, words, [row for each in stats.items() for row in _row(*each, path)])
    stages, decoded, ahead, looked = _Rows(), _Rows(), _Rows(), _Rows()
    for loader, (known, rank) in stats.items():
        for name, stage in known["stages"].items():
            if name != "transfer":
                own = {"stage": "idle" if name == "prefetch" else name}
                stages.append((_labels(loader, rank, own), stage["seconds"]))
        for name, count in known["decoded"].items():
            if name != "warnings":
                decoded.append((_labels(loader, rank, {"path": name}), count))
        ahead.append((_labels(loader, rank, {}), known["stages"]["decode"]["count"] - known["samples"]))
        found = {where: known["read_ahead"][where] for where in _FOUND if where in known["read_ahead"]}
        looked += [(_labels(loader, rank, {"where": where}), count) for where, count in found.items()]
    lines += _family("stage_seconds_total", "counter", "Threads' time by stage, summed over them.", stages)
    lines += _family("decoded_samples_total", "counter", "Samples by what decoded them.", decoded)
    lines += _family("samples_ahead", "gauge", "Samples decoded and not yet delivered.", ahead)
    lines += _family("records_total", "counter", "Records looked for, by where each was found.", looked)
    return "".join(f"{line}\n" for line in lines)


def _row(loader: str, known: tuple[Mapping[str, Any], int], path: str) -> _Rows:
    """The number at ``path``; nothing where it is not counted."""
    value: Any = known[0]
    for name in path.split("/"):
        value = value.get(name) if isinstance(value, Mapping) else None
    return [(_labels(loader, known[1], {}), value)] if isinstance(value, (int, float)) else []


def _family(name: str, kind: str, words: str, rows: _Rows) -> list[str]:
    if not rows:
        return []
    full = f"fastload_{name}"
    head = [f"# HELP {full} {words}", f"# TYPE {full} {kind}"]
    return [*head, *(f"{full}{labels} {value!r}" for labels, value in rows)]


def _labels(loader: str, rank: int, more: Mapping[str, str]) -> str:
    def escaped(text: str) -> str:
        return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

    given = {"loader": loader, "rank": str(rank), **more}
    return "{" + ",".join(f'{name}="{escaped(str(value))}"' for name, value in given.items()) + "}"
