"""Ports for the servers of tests, of which several processes run at once."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack

__all__ = ["free_port", "free_ports"]

_FIRST, _BESIDE = 10_000, 10_000
_END = 32_768 - _BESIDE  # Linux gives the ports from 32,768 on to whoever asks for any
_choice = random.Random()  # not the one that tests seed


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on, nor on the ones 10,000 above, where SeaweedFS has its own protocol.

    Nobody is given one of them by the kernel before the server starts that they are for.
    """
    found: list[int] = []
    with ExitStack() as stack:
        while len(found) < count:
            port = _choice.randrange(_FIRST, _END)
            try:
                for number in (port, port + _BESIDE):
                    stack.enter_context(socket.create_server(("127.0.0.1", number)))
            except OSError:
                continue
            found.append(port)
    return found


def free_port() -> int:
    """One of them."""
    return free_ports(1)[0]
