"""A server behind a line of stated latency and bandwidth (tests/reference/fault_server.py), as a process.

    with Line(upstream="127.0.0.1:8333", latency=0.02, bandwidth=100e6) as line:
        ...  # line.url; line.counts(); line.ranges()

Standard library only: the interpreters of other loaders start it, too. Its process is in a session of its
own, so what it takes does not count as the loader's.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[2] / "tests" / "reference"))

from fault_server import FaultServer

__all__ = ["OBJECT", "Counts", "Line"]

OBJECT = 64_000_000  # bytes of the one object there is without a folder and without an upstream


@dataclass(frozen=True)
class Counts:
    """What the server has answered so far; bytes are those of bodies."""

    requests: int
    bytes: int


class Line:
    """See above. A folder's files, another server's objects, or one object of OBJECT bytes."""

    def __init__(
        self, folder: Path | None = None, *, upstream: str = "", latency: float = 0.0, bandwidth: float = 0.0
    ) -> None:
        command = [sys.executable, __file__, f"--latency={latency}", f"--bandwidth={bandwidth}"]
        command += [f"--upstream={upstream}"] if upstream else []
        command += [] if folder is None else [f"--folder={folder}"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        self.url = str(self._ask("url"))

    def __enter__(self) -> Line:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def _ask(self, what: str) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(what, file=self._process.stdin, flush=True)
        return json.loads(self._process.stdout.readline())

    def counts(self) -> Counts:
        """Requests and bytes so far."""
        return Counts(*self._ask("counts"))

    def ranges(self) -> list[tuple[str, int, int]]:
        """Path, first byte and end of each range that was asked for, in order."""
        return [(path, first, end) for path, first, end in self._ask("ranges")]

    def stop(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()


def answer(server: FaultServer, question: str) -> Any:
    """To a line of the input."""
    if question == "url":
        return server.url
    if question == "counts":
        return len(server.requests), server.body_bytes
    found = []
    for request in list(server.requests):
        first, _, last = request.headers.get("range", "").removeprefix("bytes=").partition("-")
        if first and last:
            found.append((request.path, int(first), int(last) + 1))
    return found


def serve() -> None:
    """Serve until the input ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--latency", type=float, default=0.0)
    parser.add_argument("--bandwidth", type=float, default=0.0)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--upstream", default="")
    given = parser.parse_args()
    alone = given.folder is None and not given.upstream
    with FaultServer(
        {"/object": os.urandom(OBJECT)} if alone else None,
        folder=given.folder,
        upstream=given.upstream,
        latency=given.latency,
        bandwidth=given.bandwidth,
    ) as server:
        for question in sys.stdin:
            print(json.dumps(answer(server, question.strip())), flush=True)


if __name__ == "__main__":
    serve()
