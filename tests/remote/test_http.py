"""Sets on web servers."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fault_server import Fault, FaultServer, Rule

from fastload import PackedDataset
from fastload.errors import FormatError, ObjectMissing, RemoteError
from fastload.packing.verify import verify
from fastload.remote.http import HttpStore
from fastload.remote.location import Location
from fastload.remote.opening import open_store
from fastload.shard.dataset import PackedFiles


@pytest.fixture
def server(packed: PackedDataset) -> Iterator[FaultServer]:
    """A web server with a set, and an object whose name has to be encoded."""
    objects = {
        f"/some sets/a/{path.relative_to(packed.folder).as_posix()}": path.read_bytes()
        for path in packed.folder.rglob("*")
        if path.is_file()
    }
    with FaultServer({**objects, "/x": b"0123456789"}) as server:
        yield server


@pytest.fixture(autouse=True)
def sets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the node keeps sets."""
    monkeypatch.setenv("FASTLOAD_SETS_DIR", str(tmp_path / "sets"))


def test_a_set_is_read(server: FaultServer, packed: PackedDataset) -> None:
    dataset = PackedFiles(f"{server.url}/some%20sets/a")
    assert [dataset.read(i) for i in range(52)] == [packed.read(i) for i in range(52)]
    assert dataset.where == f"{server.url}/some%20sets/a"
    assert verify(dataset.where, decode=True) == ([], 52)


def test_objects_and_ranges(server: FaultServer) -> None:
    store = open_store(server.url)
    assert store.get("x") == b"0123456789"
    assert store.get("x", 3, 6) == b"345"
    assert store.get("x", 8) == b"89"
    assert store.get("x", most=10) == b"0123456789"
    with pytest.raises(RemoteError, match="an object of 10 bytes, and 9 at most may come"):
        store.get("x", most=9)
    assert store.head("nothing") is None
    with pytest.raises(ObjectMissing, match=f"{server.url}/nothing does not exist"):
        store.get("nothing")
    facts = pickle.loads(pickle.dumps(store)).head("x")
    assert facts.size == 10


def test_headers_and_token_go_with_every_request(server: FaultServer) -> None:
    options = {"headers": {"X-Project": "birds"}, "token": "geheim"}
    store = open_store(server.url, options)
    store.head("x")
    store.get("x", 0, 2)
    for request in server.requests:
        assert (request.headers["x-project"], request.headers["authorization"]) == ("birds", "Bearer geheim")
    assert len(server.requests) == 2
    assert "geheim" not in repr(store) + repr(vars(store)["_given"])


def test_no_set_and_no_rights_are_said(server: FaultServer) -> None:
    with pytest.raises(FormatError, match=f"{server.url}/nothing is not a packed dataset"):
        PackedFiles(f"{server.url}/nothing")
    server.rules.append(Rule(Fault(status=403)))
    server.rules.append(Rule(Fault(status=403), method="HEAD"))
    with pytest.raises(RemoteError, match="403"):
        PackedFiles(f"{server.url}/some%20sets/a")


def test_a_server_that_is_not_there_is_said_at_once() -> None:
    with pytest.raises(RemoteError, match="http://127.0.0.1:9 cannot be reached: .*Connection refused"):
        PackedFiles("http://127.0.0.1:9/set")


@pytest.mark.parametrize(
    "call",
    [
        lambda store: store.list(""),
        lambda store: store.put("y", b""),
        lambda store: store.upload("y", Path("x")),
        lambda store: store.delete("x"),
    ],
)
def test_web_servers_are_read_only(call: Any) -> None:
    with pytest.raises(RemoteError, match="http://host cannot .*: a web server is read only.*endpoint_url"):
        call(HttpStore(Location.parse("http://host")))


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({"key": "geheim"}, ValueError, "https:// has no 'key'. Legal are: headers, token, ca_file"),
        ({"headers": ["a"]}, TypeError, "must be a dict of texts"),
        ({"headers": {"a": "geheim\nb"}}, ValueError, "'a'] has a line break"),
        ({"headers": {"authorization": "geheim"}, "token": "geheim"}, ValueError, "Pass one"),
    ],
)
def test_options_of_no_meaning_are_refused(options: Any, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words.replace("]", r"\]")) as caught:
        open_store("https://host", options)
    assert "geheim" not in str(caught.value)
