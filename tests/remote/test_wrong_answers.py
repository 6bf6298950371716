"""Answers that are no answers: their words come with the first one, and what cannot become right ends
soon."""

from __future__ import annotations

import http.server
import re
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fault_server import Fault, FaultServer, Rule
from quick_stores import DATA, MakeStore

from fastload import DataLoader, PackedDataset
from fastload import transforms as T
from fastload.errors import FormatError, ObjectMissing, RemoteError, SampleError, ShardError
from fastload.remote.opening import open_store
from fastload.shard.dataset import PackedFiles

WRONG = {
    "range ignored": (Fault(ignore_range=True), "the range was ignored"),
    "another range": (
        Fault(headers={"Content-Range": "bytes 7-10006/1004000"}),
        "bytes 7-10006 in place of 0-9999",
    ),
    "no range named": (Fault(headers={"Content-Range": ""}), "206 without a Content-Range"),
    "an empty body": (
        Fault(status=206, headers={"Content-Range": "bytes 0-9999/1004000"}),
        "a length of 0 bytes",
    ),
    "no content": (Fault(status=204), "204 without a Content-Range"),
    "a page": (
        Fault(status=200, body=b"<html>", headers={"Content-Type": "text/html; charset=utf-8"}),
        "200 with an HTML page",
    ),
}  # fmt: skip


@pytest.fixture(autouse=True)
def sets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the node keeps sets."""
    monkeypatch.setenv("FASTLOAD_SETS_DIR", str(tmp_path / "sets"))


@pytest.mark.parametrize("fault", WRONG)
def test_the_words_come_with_the_first_answer(server: FaultServer, make_store: MakeStore, fault: str) -> None:
    said: list[tuple[int, str]] = []
    server.rules.append(Rule(WRONG[fault][0], times=3))
    store = make_store(warn=lambda text: said.append((len(server.requests), text)))
    assert store.get("object", 0, 10_000) == DATA[:10_000]
    assert store.get("object", 0, 10_000) == DATA[:10_000]
    [(requests, text)] = said  # once
    assert requests <= 3  # the next tries may have been sent; five are needed in all
    assert re.search(f"s3://bucket/object, bytes 0-9999 does not come: .*({WRONG[fault][1]})", text)
    assert "It is asked for again, for 100.0 s at most" in text


@pytest.mark.parametrize("fault", [Fault(status=503), Fault(reset_after=10), Fault(close_after=0)])
def test_what_passes_needs_no_words(server: FaultServer, make_store: MakeStore, fault: Fault) -> None:
    said: list[str] = []
    server.rules.append(Rule(fault, times=3))
    assert make_store(warn=said.append).get("object", 0, 10_000) == DATA[:10_000]
    assert said == []


def test_a_warning_that_fails_harms_nothing(
    server: FaultServer, make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    hooked: list[Any] = []
    monkeypatch.setattr("sys.unraisablehook", hooked.append)
    server.rules.append(Rule(Fault(ignore_range=True), times=1))
    assert make_store(warn=lambda text: 1 / 0).get("object", 0, 10_000) == DATA[:10_000]
    assert [one.exc_type for one in hooked] == [ZeroDivisionError]


@pytest.mark.flaky(reruns=2)  # on a busy machine a whole body may be under way before it is seen
def test_a_server_without_ranges_is_known_soon(server: FaultServer, make_store: MakeStore) -> None:
    """After the tries, not after the patience: 100 seconds here."""
    server.rules.append(Rule(Fault(ignore_range=True, headers={"Accept-Ranges": ""})))
    words = "this server gives no byte ranges. It was tried 6 times.*nginx.*copy it to a local folder"
    with pytest.raises(ShardError, match=words):
        make_store().get("object", 5, 10_000)
    assert len(server.requests) == 6
    assert server.body_bytes < 6 * len(DATA)  # each is ended when that is seen


def test_one_that_has_given_a_range_may_give_another(server: FaultServer, make_store: MakeStore) -> None:
    store = make_store()
    store.get("object", 5, 10_000)
    server.rules.append(Rule(Fault(ignore_range=True, headers={"Accept-Ranges": ""}), times=10))
    assert store.get("object", 5, 10_000) == DATA[5:10_000]


@pytest.fixture
def plain_server(folder: Path) -> Iterator[str]:
    """Python's own web server, which knows no ranges, with a set."""
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_address[1]}"
        running.shutdown()


def test_pythons_web_server(plain_server: str) -> None:
    dataset = PackedDataset(plain_server)
    with (
        pytest.warns(UserWarning, match="does not come: 200 .* gives no byte ranges. It is asked for again"),
        pytest.raises(SampleError, match="gives no byte ranges. It was tried 6 times") as caught,
        DataLoader(dataset, 4, transform=T.CenterCrop(16), num_workers=1, on_error="skip") as loader,
    ):
        next(iter(loader))
    assert "on_error" not in str(caught.value)


PAGES = [
    b"<!DOCTYPE html>\n<html><body>Please log in</body></html>",
    b"\xef\xbb\xbf \n<!-- x -->\n<HTML lang='en'>",
    b"<html>",
]


@pytest.mark.parametrize("body", PAGES)
@pytest.mark.parametrize("headers", [{}, {"Transfer-Encoding": "chunked", "Content-Length": ""}])
def test_a_login_page_in_place_of_a_manifest_is_said(body: bytes, headers: dict[str, str]) -> None:
    if headers:
        body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    with FaultServer({"/set/dataset.json": b"{}"}) as server:
        server.rules.append(
            Rule(Fault(status=200, body=body, headers={"Content-Type": "text/html", **headers}))
        )
        words = "/set/dataset.json is an HTML page, not a manifest: .*login page.*in a browser.*headers"
        with pytest.raises(FormatError, match=words):
            PackedFiles(f"{server.url}/set")


def test_a_page_in_a_folder_is_said(tmp_path: Path) -> None:
    (tmp_path / "dataset.json").write_bytes(PAGES[0])
    with pytest.raises(FormatError, match="is an HTML page, not a manifest: it was saved from a web page"):
        PackedFiles(tmp_path)


def test_an_answer_in_chunks_is_read(server: FaultServer, make_store: MakeStore) -> None:
    """Whole objects need no length: the last chunk is the end. One without it is cut."""
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (DATA[:1000], DATA[1000:1500]))
    answer = {"Transfer-Encoding": "chunked", "Content-Length": ""}
    server.rules.append(Rule(Fault(status=200, body=chunks + b"0\r\n\r\n", headers=answer), times=2))
    assert make_store().get("object") == DATA[:1500]
    with pytest.raises(ShardError, match="more than the 1499 bytes that may come. It was tried once"):
        make_store().get("object", most=1499)


def asked(server: FaultServer) -> list[str]:
    return [request.method for request in server.requests]


S3 = {"key": "a", "secret": "b", "region": "us-east-1"}
STORES: dict[str, Callable[[FaultServer], tuple[str, dict[str, Any]]]] = {
    "http": lambda server: (f"{server.url}/bucket", {}),
    "s3": lambda server: ("s3://bucket", {"endpoint_url": server.url, **S3}),
}


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("call", ["get", "head"])
def test_a_store_that_never_answers_is_given_up_once(server: FaultServer, kind: str, call: str) -> None:
    """Not looked at by another request, with a patience of its own, when the first one's is used up."""
    url, options = STORES[kind](server)
    busy = Fault(status=503, headers={"Retry-After": "3600"})  # beyond any patience
    server.rules += [Rule(busy), Rule(busy, method="HEAD")]
    path = "bucket/object" if kind == "http" else "object"
    with pytest.raises(RemoteError, match="503 Service Unavailable"):
        getattr(open_store(url, options), call)(path)
    assert asked(server) == ["HEAD" if call == "head" else "GET"]


@pytest.mark.parametrize("kind", STORES)
def test_what_is_not_there_is_said_by_the_first_answer(server: FaultServer, kind: str) -> None:
    url, options = STORES[kind](server)
    store = open_store(url, options)
    for path in ("nothing", "bucket/nothing"):
        with pytest.raises(ObjectMissing, match="nothing does not exist"):
            store.get(path, 0, 3)
        assert store.head(path) is None
    if kind == "http":
        assert asked(server) == ["GET", "HEAD"] * 2
