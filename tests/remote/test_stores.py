"""What every store does, whatever it is."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fault_server import FaultServer
from object_server import ObjectServer
from process import in_child

from fastload._native import _C
from fastload.errors import ObjectMissing, RemoteError
from fastload.remote.location import Location
from fastload.remote.opening import open_store
from fastload.remote.store import Listed, Store


@pytest.fixture(scope="module")
def bucket(object_server: ObjectServer) -> str:
    """An empty bucket."""
    object_server.make_bucket("stores")
    return "stores"


@pytest.fixture(params=["file", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Store, Location]:
    """A store, and an empty place in it."""
    if request.param == "file":
        location = Location.parse(f"file://{tmp_path}")
        return open_store(location), location
    server: ObjectServer = request.getfixturevalue("object_server")
    location = Location.parse(f"s3://{request.getfixturevalue('bucket')}/{tmp_path.name}")
    return open_store(location, server.storage_options), location


def test_an_object_comes_back(place: tuple[Store, Location]) -> None:
    store, at = place
    path = (at / "folder/x").path
    assert store.head(path) is None
    assert store.put(path, b"0123456789")
    facts = store.head(path)
    assert facts is not None
    assert facts.size == 10
    assert facts.etag
    assert store.get(path) == b"0123456789"
    assert store.get(path, 3, 5) == b"34"
    assert store.get(path, 7) == b"789"
    assert store.get(path, most=10) == b"0123456789"
    with pytest.raises(RemoteError, match="9 at most"):
        store.get(path, most=9)
    assert store.put(path, b"anders")
    changed = store.head(path)
    assert changed is not None
    assert (changed.size, changed.etag != facts.etag) == (6, True)


def test_an_empty_object_is_one(place: tuple[Store, Location]) -> None:
    store, at = place
    path = (at / "empty").path
    store.put(path, b"")
    assert store.get(path) == b""
    assert [*store.list(at.path)] == [Listed(path, 0)]


def test_if_absent_leaves_what_is_there(place: tuple[Store, Location]) -> None:
    store, at = place
    path = (at / "x").path
    assert store.put(path, b"first", if_absent=True)
    assert not store.put(path, b"second", if_absent=True)
    assert store.get(path) == b"first"
    assert [each.path for each in store.list(at.path)] == [path]


def test_what_is_missing_is_said(place: tuple[Store, Location]) -> None:
    store, at = place
    path = (at / "nothing").path
    with pytest.raises(ObjectMissing, match="nothing"):
        store.get(path)
    with pytest.raises(ObjectMissing, match="nothing"):
        store.get(path, 0, 4)
    store.delete(path)
    assert [*store.list(at.path)] == []


def test_a_range_behind_the_end_is_an_error(place: tuple[Store, Location]) -> None:
    store, at = place
    path = (at / "x").path
    store.put(path, b"0123")
    with pytest.raises(RemoteError, match="x"):
        store.get(path, 2, 8)


def test_listing_is_by_prefix_and_in_order(place: tuple[Store, Location]) -> None:
    store, at = place
    for name in ("b/2", "b/10", "a", "bb", "c/d/e"):
        store.put((at / name).path, name.encode())

    def names(prefix: str) -> list[str]:
        return [each.path[len(at.path) + 1 :] for each in store.list(f"{at.path}/{prefix}")]

    assert names("") == ["a", "b/10", "b/2", "bb", "c/d/e"]
    assert names("b") == ["b/10", "b/2", "bb"]
    assert names("b/") == ["b/10", "b/2"]
    assert names("none/") == []
    assert [each.size for each in store.list(f"{at.path}/b/")] == [4, 3]


def test_a_file_is_uploaded_and_deleted(place: tuple[Store, Location], tmp_path: Path) -> None:
    store, at = place
    data = bytes(range(256)) * 4096
    (tmp_path / "source").write_bytes(data)
    path = (at / "copy").path
    store.upload(path, tmp_path / "source")
    assert store.get(path) == data
    assert store.get(path, 1 << 19, (1 << 19) + 3) == b"\x00\x01\x02"
    store.delete(path)
    assert store.head(path) is None


class Slow:
    """Makes things slowly, so that all threads come to it before the first is made; and counts them."""

    def __init__(self, make: Callable[..., Any]) -> None:
        self._make = make
        self.made = 0

    def __call__(self, *args: Any, **options: Any) -> Any:
        self.made += 1
        time.sleep(0.2)
        return self._make(*args, **options)


def made_by(kind: str, server: FaultServer, patch: pytest.MonkeyPatch) -> tuple[Store, list[Slow]]:
    """A new store, and what may be made of each thing that costs something."""
    core = Slow(_C.RemoteStore)
    if kind == "s3":
        import fastload.remote.s3 as module

        options = {"key": "a", "secret": "b", "endpoint_url": server.url}  # the client says the region
        store: Any = module.S3Store(Location("s3", "bucket"), options)
        client, session = Slow(store._new_client), Slow(store._session)
        patch.setattr(store, "_new_client", client)
        patch.setattr(store, "_session", session)
        counted = [core, client]
    elif kind == "http":
        import fastload.remote.http as module  # type: ignore[no-redef]

        store, counted = module.HttpStore(Location.parse(server.url)), [core]  # type: ignore[attr-defined]
    elif kind == "az":
        import fastload.remote.clouds as module  # type: ignore[no-redef]

        options = {"account_name": "a", "sas_token": "sv=1&sig=x", "endpoint": server.url}
        store, counted = module.CloudStore(Location("az", "bucket"), options), [core]  # type: ignore[attr-defined]
    else:
        import fastload.remote.hub as module  # type: ignore[no-redef]

        options = {"endpoint": server.url}
        commit = "0" * 40
        store = module.HubStore(Location.parse("hf://datasets/me/birds"), options, commit)  # type: ignore[attr-defined]
        counted = [core]
    patch.setattr(module, "_C", SimpleNamespace(RemoteStore=core))
    return store, counted


@pytest.mark.parametrize("kind", ["s3", "http", "az", "hf"])
def test_32_threads_make_one_client(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the pool does that fetches a shard's files with a new store."""
    pytest.importorskip({"s3": "botocore", "az": "obstore", "hf": "huggingface_hub"}.get(kind, "os"))
    with FaultServer({"/bucket/x": b"1"}) as server:
        store, counted = made_by(kind, server, monkeypatch)
        everyone = threading.Barrier(32)

        def use(_: int) -> Any:
            everyone.wait(100)
            return store.core()

        with ThreadPoolExecutor(32) as pool:
            cores = {id(core) for core in pool.map(use, range(32))}
        assert len(cores) == 1
        assert [each.made for each in counted] == [1] * len(counted)


def test_32_threads_make_one_client_that_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("botocore")
    with FaultServer() as server:
        store, (_, client) = made_by("s3", server, monkeypatch)
        everyone = threading.Barrier(32)

        def use(_: int) -> Any:
            everyone.wait(100)
            return store._client  # type: ignore[attr-defined]

        with ThreadPoolExecutor(32) as pool:
            assert len({id(found) for found in pool.map(use, range(32))}) == 1
        assert client.made == 1


def test_a_child_that_is_forked_while_a_client_is_made_makes_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """It inherits a lock that is held by a thread that it does not have."""
    with FaultServer({"/x": b"123"}) as server:
        store, (core,) = made_by("http", server, monkeypatch)
        thread = threading.Thread(target=store.core)
        thread.start()
        while not core.made:
            time.sleep(0.001)

        def read() -> None:
            assert store.get("x") == b"123"

        assert in_child(read) == 0
        thread.join()


def test_a_store_pickles(place: tuple[Store, Location]) -> None:
    store, at = place
    path = (at / "x").path
    store.put(path, b"1")
    again = pickle.loads(pickle.dumps(store))
    assert again.root == store.root
    assert again.get(path) == b"1"


def test_options_of_no_meaning_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="file:// takes no storage_options. Found: key"):
        open_store(f"file://{tmp_path}", {"key": "geheim"})


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    store = open_store(f"file://{tmp_path}")
    with pytest.raises(RemoteError, match="cannot be written"):
        store.put(f"{tmp_path}/file/x"[1:], b"1")
    with pytest.raises(RemoteError, match="cannot be written"):
        store.upload(f"{tmp_path}/y"[1:], tmp_path / "missing")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]
