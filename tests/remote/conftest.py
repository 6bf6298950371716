"""Stores of these tests, on the fault server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from fault_server import FaultServer
from quick_stores import DATA, MakeStore, quick

from fastload._native import _C


@pytest.fixture
def server() -> Iterator[FaultServer]:
    """A server with /bucket/object, which is DATA."""
    with FaultServer({"/bucket/object": DATA}) as running:
        yield running


@pytest.fixture
def make_store(server: FaultServer) -> Iterator[MakeStore]:
    """Makes stores on the server, unsigned unless told, which are closed in the end."""
    made: list[_C.RemoteStore] = []

    def make(*, schedule: _C.Schedule | None = None, **options: Any) -> _C.RemoteStore:
        options = {"signing": "none", **options}
        url = server.url + "/bucket"
        made.append(_C.RemoteStore(url, "s3://bucket", schedule=schedule or quick(), **options))
        return made[-1]

    yield make
    for store in made:
        store.close()
