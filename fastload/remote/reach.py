"""Whether a store can be reached at all, asked before its reader, which is patient, waits for it."""

from __future__ import annotations

import socket
import urllib.request
from urllib.parse import urlsplit

from fastload.errors import RemoteError

__all__ = ["check_reach"]

_SECONDS = 10.0


def check_reach(base: str, place: str, advice: str) -> None:
    """Connect once. A name that is spelled wrong is an error at once then, and not after a minute.

    Args:
        base: the store's address.
        place: what messages call it.
        advice: what to look at.

    Raises:
        RemoteError: nobody listens there, or there is no such host.
    """
    parts = urlsplit(base)
    host = parts.hostname or ""
    if parts.scheme in urllib.request.getproxies() and not urllib.request.proxy_bypass(host):
        return  # the proxy finds it
    try:
        port = parts.port or (443 if parts.scheme == "https" else 80)
        socket.create_connection((host, port), _SECONDS).close()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise RemoteError(f"{place} cannot be reached: {parts.netloc}: {reason}. {advice}") from error
