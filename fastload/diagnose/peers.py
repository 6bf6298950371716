"""The exchange between the ranks of a node whose scripts are watched: an abstract socket, nothing on disk."""

from __future__ import annotations

import contextlib
import hashlib
import os
import selectors
import socket
import struct
import time
from collections.abc import Mapping

from fastload.diagnose.rank_facts import RankFacts

_MOST = 1 << 16  # bytes of one rank's facts
_RUN = ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT")


def address(environment: Mapping[str, str], parent: int) -> str:
    """Return the socket's name: the same for all ranks that ``parent``, their launcher, has started."""
    run = hashlib.sha256(repr([environment.get(name) for name in _RUN]).encode()).hexdigest()[:16]
    return f"\0fastload-doctor-{os.geteuid()}-{parent}-{run}"


def _is_ours(connection: socket.socket) -> bool:
    """Whether the other end is of the same user: anybody may open an abstract socket."""
    size = struct.calcsize("3i")
    _, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return bool(user == os.geteuid())


class FirstRank:
    """The end of the node's first rank: it receives the others' facts, and tells them that it is over.

    Args:
        name: see :func:`address`.
        others: the number of other ranks on this node.
    """

    def __init__(self, name: str, others: int) -> None:
        self.facts: list[RankFacts] = []
        self._others = others
        self._silent = 0  # ranks that have gone without a word
        self._received: dict[socket.socket, bytearray] = {}
        self._open: list[socket.socket] = []
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.setblocking(False)
        try:
            self._listener.bind(name)
            self._listener.listen(max(1, others))
        except OSError:  # a launcher has started a second first rank
            self._others = 0

    def has_all(self) -> bool:
        """Receive what has come, without waiting; return whether nothing more will come."""
        with contextlib.suppress(OSError):
            while self._others:
                connection, _ = self._listener.accept()
                if _is_ours(connection):
                    connection.setblocking(False)
                    self._open.append(connection)
                    self._received[connection] = bytearray()
        for connection in list(self._received):
            self._receive(connection)
        return len(self.facts) + self._silent >= self._others

    def _receive(self, connection: socket.socket) -> None:
        received = self._received[connection]
        try:
            while part := connection.recv(_MOST):
                received += part
                if len(received) > _MOST:
                    break
        except BlockingIOError:
            return
        except OSError:
            received.clear()
        del self._received[connection]
        try:
            self.facts.append(RankFacts.from_json(received.decode()))
        except (ValueError, TypeError, AttributeError, KeyError):
            self._silent += 1

    def wait(self, seconds: float) -> None:
        """Wait until all have answered, for ``seconds`` at most."""
        end = time.monotonic() + seconds
        while not self.has_all() and time.monotonic() < end:
            time.sleep(0.02)

    def close(self) -> None:
        """Tell the others that it is over; idempotent."""
        self.has_all()
        for connection in (*self._open, self._listener):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)  # workers may hold it open
            connection.close()
        self._open.clear()
        self._received.clear()


class OtherRank:
    """The end of another rank, which connects as soon as the first one listens."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._connection: socket.socket | None = None
        self._is_over = False

    def __enter__(self) -> OtherRank:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._connection is not None:
            self._connection.close()

    def tell(self, facts: RankFacts) -> None:
        """Send this rank's facts."""
        connection = self._connected()
        if connection is not None:
            with contextlib.suppress(OSError):
                connection.sendall(facts.to_json().encode())
                connection.shutdown(socket.SHUT_WR)

    def is_over(self) -> bool:
        """Whether the first rank has ended, without waiting."""
        connection = self._connected()
        if connection is not None and not self._is_over:
            with selectors.DefaultSelector() as selector:
                selector.register(connection, selectors.EVENT_READ)
                self._is_over = bool(selector.select(0))  # it sends nothing: this is the end
        return self._is_over

    def _connected(self) -> socket.socket | None:
        if self._connection is None:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                connection.settimeout(5.0)
                connection.connect(self._name)
            except OSError:  # it does not listen yet, or is on another node
                connection.close()
                return None
            if not _is_ours(connection):
                connection.close()
                return None
            self._connection = connection
        return self._connection
