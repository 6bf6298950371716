"""The servers of these tests: SeaweedFS answers ranges, the fault server breaks what it shall."""

from __future__ import annotations

import http.client
import time

import pytest
from fault_server import Fault, FaultServer, Rule
from object_server import ObjectServer

DATA = bytes(range(256)) * 1000
RANGE = {"Range": "bytes=10-100009"}


def fetched(server: FaultServer, path: str = "/b/o", **headers: str) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of a GET."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=100)
    try:
        connection.request("GET", path, headers={**RANGE, **headers})
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


def test_a_range_is_served_exactly() -> None:
    with FaultServer({"/b/o": DATA}) as server:
        status, headers, body = fetched(server)
    assert (status, body) == (206, DATA[10:100010])
    assert headers["Content-Range"] == f"bytes 10-100009/{len(DATA)}"


def test_rules_choose_requests() -> None:
    with FaultServer({"/b/o": DATA}) as server:
        server.rules.append(Rule(Fault(status=503, headers={"Retry-After": "1"}), every=2, skip=1, times=2))
        assert [fetched(server)[0] for _ in range(8)] == [206, 206, 503, 206, 503, 206, 206, 206]
        assert len(server.requests) == 8


def test_the_same_bytes_meet_a_fault_so_often() -> None:
    with FaultServer({"/b/o": DATA}) as server:
        server.rules.append(Rule(Fault(status=503), most=2))
        asked = ["bytes=0-9", "bytes=9-20", "bytes=5-9", "bytes=10-30", "bytes=10-30", "bytes=40-50", ""]
        assert [fetched(server, Range=one)[0] for one in asked] == [503, 503, 206, 503, 206, 503, 200]


def test_bodies_are_cut_and_damaged() -> None:
    with FaultServer({"/b/o": DATA}) as server:
        server.rules.append(Rule(Fault(close_after=70_000), times=1))
        with pytest.raises(http.client.IncompleteRead) as cut:
            fetched(server)
        assert len(cut.value.partial) == 70_000
        server.rules.append(Rule(Fault(reset_after=0), times=1))
        with pytest.raises(ConnectionResetError):
            fetched(server)
        server.rules.append(Rule(Fault(damage=True), times=1))
        assert fetched(server)[2] != DATA[10:100010]
        server.rules.append(Rule(Fault(half=True), times=1))
        assert fetched(server)[2] == DATA[10:50010]
        server.rules.append(Rule(Fault(ignore_range=True), times=1))
        assert fetched(server)[::2] == (200, DATA)
        assert fetched(server)[2] == DATA[10:100010]


def test_stalls_last_until_the_client_goes() -> None:
    with FaultServer({"/b/o": DATA}) as server:
        server.rules.append(Rule(Fault(hang=True)))
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=0.3)
        connection.request("GET", "/b/o")
        with pytest.raises(TimeoutError):
            connection.getresponse()
        connection.close()


def test_latency_and_bandwidth_are_kept() -> None:
    with FaultServer({"/b/o": DATA}, latency=0.05, bandwidth=1e6) as server:
        before = time.monotonic()
        fetched(server)
        assert time.monotonic() - before >= 0.14


def test_a_store_goes_away_and_comes_back() -> None:
    with FaultServer({"/b/o": DATA}) as server:
        server.stop()
        with pytest.raises(ConnectionRefusedError):
            fetched(server)
        server.start()
        assert fetched(server)[0] == 206


def test_seaweedfs_behind_it(object_server: ObjectServer) -> None:
    object_server.make_bucket("faults", {"a/b c.bin": DATA})
    with FaultServer(upstream=object_server.endpoint.removeprefix("http://")) as server:
        own = object_server.client()
        url = own.generate_presigned_url("get_object", Params={"Bucket": "faults", "Key": "a/b c.bin"})
        path = url.removeprefix(object_server.endpoint)
        host = object_server.endpoint.removeprefix("http://")
        status, _, body = fetched(server, path, Host=host)
        assert (status, body) == (206, DATA[10:100010])
        server.rules.append(Rule(Fault(status=403)))
        assert fetched(server, path, Host=host)[0] == 403
