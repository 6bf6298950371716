"""An HTTP server for tests and benchmarks that does what stores out there do on bad days.

It serves objects from memory or from a folder, or hands requests on to another server (SeaweedFS, say), and
breaks those that its rules name. Latency and bandwidth are those of a line that all connections share::

    with FaultServer(upstream="127.0.0.1:8333") as server:
        server.rules.append(Rule(Fault(status=503, headers={"Retry-After": "1"}), every=10))
        ...  # http://127.0.0.1:{server.port}
"""

from __future__ import annotations

import http.client
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from range_answers import Answer, folder_answer, memory_answer

CHUNK = 64 << 10
NO_BODY = ("HEAD",)


@dataclass(frozen=True)
class Fault:
    """What goes wrong with an answer; several things at once if they are given."""

    delay: float = 0.0  # seconds until it begins
    status: int = 0  # this one, in place of the server's
    body: bytes = b""  # of such a status
    headers: dict[str, str] = field(default_factory=dict)  # replaced or added; "": left out
    hang: bool = False  # nothing is ever answered
    reset_after: int = -1  # so many bytes of the body, then a reset
    close_after: int = -1  # so many bytes of the body, then the end
    stall_after: int = -1  # so many bytes of the body, then nothing more
    ignore_range: bool = False  # the whole object, with 200
    half: bool = False  # 206 with half of the range, which it says
    damage: bool = False  # a byte of the body is another one
    linger: float = 0.02  # seconds in which the client may read what came before a reset


@dataclass
class Rule:
    """Which requests meet a fault: of those that match, each ``every``-th after ``skip``, ``times`` times.

    Args:
        most: how often the same bytes meet it; a client that asks again some times gets them in the end.
    """

    fault: Fault
    path: str = ""  # a part of it
    method: str = "GET"
    every: int = 1
    skip: int = 0
    times: int | None = None
    most: int | None = None
    seen: int = 0
    done: int = 0
    met: list[range] = field(default_factory=list)

    def takes(self, request: Request) -> bool:
        """Whether this request is one; counts it."""
        if request.method != self.method or self.path not in request.path:
            return False
        self.seen += 1
        if self.seen <= self.skip or (self.seen - self.skip) % self.every != 0:
            return False
        if self.times is not None and self.done >= self.times:
            return False
        if self.most is not None:
            asked = request.asked
            if sum(asked.start < one.stop and one.start < asked.stop for one in self.met) >= self.most:
                return False
            self.met.append(asked)
        self.done += 1
        return True


@dataclass(frozen=True)
class Request:
    """One request as it came."""

    method: str
    path: str  # with the query, percent-encoded
    headers: dict[str, str]  # names in small letters
    body: bytes
    time: float  # time.monotonic()

    @property
    def asked(self) -> range:
        """The bytes that it asks for; all that there can be if it names none, or only their beginning."""
        begin, _, last = self.headers.get("range", "").removeprefix("bytes=").partition("-")
        return range(int(begin or 0), int(last or sys.maxsize - 1) + 1)


class FaultServer:
    """See above. ``requests`` has all that came; ``stop`` and ``start``: a store goes away for a while."""

    def __init__(
        self,
        objects: dict[str, bytes] | None = None,
        *,
        folder: Path | None = None,
        upstream: str = "",
        latency: float = 0.0,
        bandwidth: float = 0.0,
    ) -> None:
        """Start it: ``objects`` by path ("/bucket/key"), latency in s, bandwidth in bytes/s (0: any)."""
        self.objects = {} if objects is None else objects
        self.folder, self.upstream = folder, upstream
        self.latency, self.bandwidth = latency, bandwidth
        self.rules: list[Rule] = []
        self.requests: list[Request] = []
        self.body_bytes = 0  # sent
        self.connections = 0
        self._lock = threading.Lock()
        self._free_at = 0.0  # when the line is free again
        self._open: set[socket.socket] = set()
        self._listener: socket.socket | None = None
        # Held until the end, without listening, so that the port is nobody else's while the server is away.
        self._held = _bound(0)
        self.port: int = self._held.getsockname()[1]
        self.start()

    def __enter__(self) -> FaultServer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()
        self._held.close()

    @property
    def url(self) -> str:
        """Where it is, without a path."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Listen, on the same port each time."""
        self._listener = _bound(self.port)
        self._listener.listen(1024)
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def stop(self) -> None:
        """Refuse connections, and reset those that are open."""
        if self._listener is not None:
            with suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._listener = None
        with self._lock:
            left = list(self._open)
        for connection in left:
            _reset(connection)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._open.add(connection)
                self.connections += 1
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        upstream = http.client.HTTPConnection(self.upstream) if self.upstream else None
        try:
            with connection, connection.makefile("rb") as lines:
                while (request := _read_request(connection, lines)) is not None:
                    if not self._answer(connection, request, upstream):
                        break
        except OSError:
            return  # the client, or stop(), has ended it
        finally:
            if upstream is not None:
                upstream.close()
            with self._lock:
                self._open.discard(connection)

    def _answer(
        self, connection: socket.socket, request: Request, upstream: http.client.HTTPConnection | None
    ) -> bool:
        """Whether the connection may go on."""
        with self._lock:
            self.requests.append(request)
            fault = next((rule.fault for rule in self.rules if rule.takes(request)), Fault())
        time.sleep(self.latency + fault.delay)
        if fault.hang:
            return _wait_for_end(connection)
        if fault.status:
            sent = {"Content-Length": str(len(fault.body)), **fault.headers}
            head = _head(fault.status, {name: value for name, value in sent.items() if value})
            connection.sendall(head + (b"" if request.method in NO_BODY else fault.body))
            return True
        answer = self._found(request, fault, upstream)
        headers = {**answer.headers, **fault.headers}
        connection.sendall(_head(answer.status, {name: value for name, value in headers.items() if value}))
        return request.method in NO_BODY or self._send_body(connection, answer, fault)

    def _found(self, request: Request, fault: Fault, upstream: http.client.HTTPConnection | None) -> Answer:
        wanted = "" if fault.ignore_range else request.headers.get("range", "")
        if fault.half and wanted:
            first, last = (int(word) for word in wanted.removeprefix("bytes=").split("-"))
            wanted = f"bytes={first}-{(first + last) // 2}"
        if upstream is not None:
            return _handed_on(request, wanted, upstream)
        if self.folder is not None:
            return folder_answer(self.folder, request.path, wanted)
        return memory_answer(self.objects, request.path, wanted)

    def _send_body(self, connection: socket.socket, answer: Answer, fault: Fault) -> bool:
        ends = [at for at in (fault.reset_after, fault.close_after, fault.stall_after) if at >= 0]
        left = min(ends, default=1 << 62)
        damaged = fault.damage
        for piece in answer.pieces(CHUNK):
            part = piece[:left]
            if damaged:
                part, damaged = bytes([part[0] ^ 1]) + bytes(part[1:]), False
            self._take_turn(len(part))
            connection.sendall(part)
            with self._lock:
                self.body_bytes += len(part)
            left -= len(part)
            if left == 0:
                break
        if fault.stall_after >= 0:
            return _wait_for_end(connection)
        if fault.reset_after >= 0:
            time.sleep(fault.linger)  # a reset takes away what was sent and not read
            _reset(connection)
        return not ends

    def _take_turn(self, count: int) -> None:
        """Wait until the line has carried what others sent before."""
        if not self.bandwidth:
            return
        with self._lock:
            begin = max(time.monotonic(), self._free_at)
            self._free_at = begin + count / self.bandwidth
            wait = self._free_at - time.monotonic()
        if wait > 0.001:
            time.sleep(wait)


def _bound(port: int) -> socket.socket:
    """A socket at a port (0: any) of loopback, which others of this server's may share until one listens."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind(("127.0.0.1", port))
    return made


def _read_request(connection: socket.socket, lines: object) -> Request | None:
    readline, read = lines.readline, lines.read  # type: ignore[attr-defined]
    first = readline().decode("latin-1").split()
    if len(first) != 3:
        return None
    headers = {}
    while (line := readline().decode("latin-1").strip()) != "":
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    if headers.get("expect", "").lower() == "100-continue":
        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
    body = b""
    if headers.get("transfer-encoding", "").lower() == "chunked":
        while (size := int(readline(), 16)) > 0:
            body += read(size)
            readline()
        readline()
    elif "content-length" in headers:
        body = read(int(headers["content-length"]))
    return Request(first[0], first[1], headers, body, time.monotonic())


def _handed_on(request: Request, wanted: str, upstream: http.client.HTTPConnection) -> Answer:
    """The upstream's answer; the client's own signature and Host go with the request."""
    skipped = {"range", "connection", "expect", "transfer-encoding", "content-length"}
    upstream.putrequest(request.method, request.path, skip_host=True, skip_accept_encoding=True)
    for name, value in request.headers.items():
        if name not in skipped:
            upstream.putheader(name, value)
    if wanted:
        upstream.putheader("range", wanted)
    if request.body or "content-length" in request.headers:
        upstream.putheader("content-length", str(len(request.body)))
    upstream.endheaders(request.body or None)
    response = upstream.getresponse()
    headers = {name: value for name, value in response.getheaders() if name.lower() not in
               {"connection", "transfer-encoding", "keep-alive"}}  # fmt: skip
    if request.method in NO_BODY:
        response.read()
        return Answer(response.status, headers, iter(()))
    if response.length is None:  # chunked: small, a list or an error
        data = response.read()
        headers["Content-Length"] = str(len(data))
        return Answer(response.status, headers, iter([data]))
    return Answer(response.status, headers, _pieces(response))


def _pieces(response: http.client.HTTPResponse) -> Iterator[bytes]:
    while data := response.read(CHUNK):
        yield data


def _head(status: int, headers: dict[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} {http.client.responses.get(status, '?')}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def _wait_for_end(connection: socket.socket) -> bool:
    """Until the client, or stop(), closes the connection."""
    while connection.recv(1 << 16):
        pass
    return False


def _reset(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.shutdown(socket.SHUT_RD)  # wakes the thread that reads from it
    with suppress(OSError):
        connection.close()
