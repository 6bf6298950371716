"""A store that points elsewhere: the request follows, what a user has given for the store alone does not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fault_server import Fault, FaultServer, Rule
from quick_stores import DATA, MakeStore

from fastload.errors import RemoteError, ShardError
from fastload.remote.opening import open_store

SECRETS = {
    "Authorization": "Bearer geheim",
    "Cookie": "session=geheim",
    "X-Api-Key": "geheim",
    "PRIVATE-TOKEN": "geheim",
    "X-JFrog-Art-Api": "geheim",
    "x-anything": "geheim",
}
STATUSES = (301, 302, 303, 307, 308)


@pytest.fixture
def other() -> Iterator[FaultServer]:
    """Another server with the object, at another path, too."""
    with FaultServer({"/bucket/object": DATA, "/elsewhere": DATA}) as running:
        yield running


def points_to(address: str, status: int = 302, method: str = "GET", path: str = "/bucket") -> Rule:
    return Rule(Fault(status=status, headers={"Location": address}, body=b"moved"), path, method)


def sent(server: FaultServer) -> list[set[str]]:
    """Which of the secret headers each request had."""
    names = {name.lower() for name in SECRETS}
    return [names & request.headers.keys() for request in server.requests]


def is_geheim(server: FaultServer) -> bool:
    return any("geheim" in str(request) for request in server.requests)


@pytest.mark.parametrize("status", STATUSES)
@pytest.mark.parametrize("call", ["range", "whole", "head"])
def test_no_header_follows_to_another_port(
    server: FaultServer, other: FaultServer, make_store: MakeStore, status: int, call: str
) -> None:
    method = "HEAD" if call == "head" else "GET"
    server.rules.append(points_to(f"{other.url}/elsewhere", status, method))
    store = make_store(headers=list(SECRETS.items()))
    if call == "range":
        assert store.get("object", 10, 5_010) == DATA[10:5_010]
    elif call == "whole":
        assert store.get("object") == DATA
    else:
        assert store.head("object")[0] == len(DATA)
    assert sent(server) == [{name.lower() for name in SECRETS}]
    assert [request.method for request in other.requests] == [method]
    assert sent(other) == [set()]
    assert not is_geheim(other)


def test_another_name_of_the_host_is_another_host(
    server: FaultServer, other: FaultServer, make_store: MakeStore
) -> None:
    """As browsers and curl see it, though both are this machine."""
    server.rules.append(points_to(f"http://localhost:{server.port}/elsewhere"))
    server.objects["/elsewhere"] = DATA
    assert make_store(headers=list(SECRETS.items())).get("object", 0, 10) == DATA[:10]
    assert sent(server) == [{name.lower() for name in SECRETS}, set()]


@pytest.mark.parametrize(
    "address", ["/elsewhere", "//127.0.0.1:{port}/elsewhere", "HTTP://127.0.0.1:{port}/elsewhere"]
)
def test_the_same_server_gets_them(server: FaultServer, make_store: MakeStore, address: str) -> None:
    server.objects["/elsewhere"] = DATA
    server.rules.append(points_to(address.format(port=server.port)))
    assert make_store(headers=list(SECRETS.items())).get("object", 0, 10) == DATA[:10]
    assert sent(server) == [{name.lower() for name in SECRETS}] * 2


def test_back_on_the_first_server_they_are_there_again(
    server: FaultServer, other: FaultServer, make_store: MakeStore
) -> None:
    server.objects["/back"] = DATA
    server.rules.append(points_to(f"{other.url}/on"))
    other.rules.append(points_to(f"{server.url}/back", path="/on"))
    assert make_store(headers=list(SECRETS.items())).get("object", 0, 10) == DATA[:10]
    assert sent(server) == [{name.lower() for name in SECRETS}] * 2
    assert sent(other) == [set()]


def test_a_store_that_refuses_without_them_says_why(server: FaultServer, other: FaultServer) -> None:
    server.rules.append(points_to(f"{other.url}/elsewhere"))
    other.rules.append(Rule(Fault(status=401)))
    words = (
        f"401 Unauthorized by {other.url}, which was redirected to and gets no headers of storage_options.*"
        "Open the set by its address there"
    )
    with pytest.raises(RemoteError, match=words):
        open_store(server.url, {"headers": SECRETS}).get("bucket/object", 0, 10)
    assert not is_geheim(other)


def test_a_circle_ends(server: FaultServer, make_store: MakeStore) -> None:
    server.rules.append(points_to("/bucket/object"))
    with pytest.raises(ShardError, match="more than 5 redirections. It was tried once"):
        make_store().get("object", 0, 10)
    assert len(server.requests) == 6


@pytest.mark.parametrize("address", ["ftp://127.0.0.1/x", "file:///etc/passwd", "gopher://127.0.0.1/x"])
def test_other_protocols_are_not_followed(server: FaultServer, make_store: MakeStore, address: str) -> None:
    server.rules.append(points_to(address))
    with pytest.raises(ShardError, match="not http:// or https://. It was tried once"):
        make_store().get("object", 0, 10)


def test_what_is_signed_is_not_redirected(
    server: FaultServer, other: FaultServer, make_store: MakeStore
) -> None:
    """A signature is of one host, and S3 answers so where a bucket is in another region."""
    server.rules.append(points_to(f"{other.url}/elsewhere", 307))
    store = make_store(signing="sigv4", region="us-east-1", access_key="key", secret_key="geheim")
    with pytest.raises(ShardError, match=r"307 Temporary Redirect \(moved\).*Check the region"):
        store.get("object", 0, 10)
    assert other.requests == []
