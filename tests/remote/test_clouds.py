"""Google's and Azure's stores. There is no server of theirs here: what they share is tried with obstore's S3
store on a server that speaks S3, and what is signed for Google on a server that takes any signature."""

from __future__ import annotations

import json
import multiprocessing
import pickle
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from fault_server import Fault, FaultServer, Rule
from object_server import ACCESS_KEY, REGION, SECRET_KEY, ObjectServer
from process import HANG

from fastload import PackedDataset
from fastload.errors import ObjectMissing, RemoteError, StateError
from fastload.remote.location import Location
from fastload.remote.opening import open_store
from fastload.remote.store import Listed
from fastload.shard.dataset import PackedFiles

obstore = pytest.importorskip("obstore", reason="needs obstore")

from fastload.remote.clouds import CloudStore  # noqa: E402


class S3Likeness(CloudStore):
    """The same code over a server that speaks S3."""

    def _new_store(self, config: dict[str, Any]) -> Any:
        return obstore.store.S3Store(
            self.root.host,
            endpoint=config["endpoint"],
            access_key_id=ACCESS_KEY,
            secret_access_key=SECRET_KEY,
            region=REGION,
            client_options={"allow_http": True},
        )


@pytest.fixture(scope="module")
def bucket(object_server: ObjectServer) -> str:
    """An empty bucket."""
    object_server.make_bucket("clouds")
    return "clouds"


@pytest.fixture
def store(object_server: ObjectServer, bucket: str) -> CloudStore:
    """A store by obstore."""
    return S3Likeness(Location("gs", bucket), {"endpoint": object_server.endpoint})


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A service account of Google's, as its file has it."""
    path = tmp_path_factory.mktemp("keys") / "key.pem"
    subprocess.run(["openssl", "genrsa", "-out", str(path), "2048"], check=True, capture_output=True)
    return {
        "type": "service_account", "client_email": "me@birds.iam.gserviceaccount.com", "private_key_id": "1",
        "private_key": path.read_text(), "project_id": "birds", "token_uri": "http://127.0.0.1:9/token",
    }  # fmt: skip


def test_objects_are_written_listed_read_and_removed(store: CloudStore, tmp_path: Path) -> None:
    assert store.put("a/x", b"0123456789")
    assert not store.put("a/x", b"other", if_absent=True)
    assert store.put("a/y z", b"1", if_absent=True)
    (tmp_path / "file").write_bytes(bytes(range(256)) * 40_000)  # more than a part
    store.upload("ab", tmp_path / "file")
    facts = store.head("a/x")
    assert facts is not None
    assert facts.size == 10
    assert facts.etag
    assert store.get("a/x") == b"0123456789"
    assert store.get("a/x", 3, 5) == b"34"
    with pytest.raises(RemoteError, match="an object of 10 bytes, and 9 at most may come"):
        store.get("a/x", most=9)
    assert store.get("a/y z") == b"1"
    assert store.get("ab", 256 * 20_000, 256 * 20_000 + 3) == b"\x00\x01\x02"
    assert [*store.list("a")] == [Listed("a/x", 10), Listed("a/y z", 1), Listed("ab", 256 * 40_000)]
    assert [each.path for each in store.list("a/x")] == ["a/x"]
    store.delete("ab")
    store.delete("ab")
    assert store.head("ab") is None
    with pytest.raises(ObjectMissing, match="gs://clouds/nothing does not exist"):
        store.get("nothing")
    assert pickle.loads(pickle.dumps(store)).get("a/x", 1, 2) == b"1"


def test_an_address_that_is_denied_is_signed_anew(store: CloudStore) -> None:
    store.put("denied", b"0123")
    url = store._signed_urls(["denied"])["denied"]
    store.core(["denied"]).set_urls({"denied": url.replace("Signature=", "Signature=0")})
    assert store.get("denied", 1, 3) == b"12"


def in_a_child(store: CloudStore, queue: Any) -> None:
    """Read what was signed, then ask obstore."""
    found = [store.get("forked")]
    try:
        store.head("forked")
    except StateError as error:
        found.append(str(error).encode())
    queue.put(found)


def test_after_fork_there_is_an_error_where_obstore_would_hang(store: CloudStore) -> None:
    store.put("forked", b"0123")
    store.core(["forked"])
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    process = context.Process(target=in_a_child, args=(store, queue))
    process.start()
    data, words = queue.get(timeout=HANG)
    process.join()
    assert data == b"0123"
    assert b"hangs in a forked process. Use the start method 'spawn'" in words


@pytest.fixture
def google(packed: PackedDataset) -> Iterator[FaultServer]:
    """A server that takes any signature, with a set."""
    objects = {
        f"/birds/set/{path.relative_to(packed.folder).as_posix()}": path.read_bytes()
        for path in packed.folder.rglob("*")
        if path.is_file()
    }
    with FaultServer(objects) as server:
        yield server


def test_a_set_is_read_by_signed_addresses(
    google: FaultServer, account: dict[str, str], packed: PackedDataset, monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:  # fmt: skip
    monkeypatch.setenv("FASTLOAD_SETS_DIR", str(tmp_path))
    key = json.dumps({**account, "gcs_base_url": google.url})
    dataset = PackedFiles("gs://birds/set", entries=False, storage_options={"service_account_key": key})
    assert [dataset.read(i) for i in range(52)] == [packed.read(i) for i in range(52)]
    signed = [request.path for request in google.requests if "/data" in request.path]
    assert signed
    assert all("X-Goog-Signature=" in path for path in signed)


def test_azure_is_signed_for(monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"account_name": "birds", "account_key": "c2VjcmV0"}
    store = CloudStore(Location("az", "box"), options)
    url = urlsplit(store._signed_urls(["a/x"])["a/x"])
    assert (url.netloc, url.path) == ("birds.blob.core.windows.net", "/box/a/x")
    assert "sig=" in url.query
    assert store.core().name == "az://box"
    assert "c2VjcmV0" not in repr(store) + repr(vars(store)["_given"])


SAS = "sv=2022-11-02&ss=b&srt=co&sp=rl&se=2030-01-01T00:00:00Z&sig=a%2Bb%2Fgeheim%3D"
SENT = "sv=2022-11-02&ss=b&srt=co&sp=rl&se=2030-01-01T00%3A00%3A00Z&sig=a%2Bb%2Fgeheim%3D"


@pytest.fixture
def azure(packed: PackedDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultServer]:
    """A server with a set in a container, as an account of Azure's emulator has it."""
    monkeypatch.setenv("FASTLOAD_SETS_DIR", str(tmp_path / "sets"))
    for name in ("AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_SAS_KEY", "AZURE_STORAGE_ACCOUNT_KEY"):
        monkeypatch.delenv(name, raising=False)
    objects = {
        f"/birds/box/a set/{path.relative_to(packed.folder).as_posix()}": path.read_bytes()
        for path in packed.folder.rglob("*")
        if path.is_file()
    }
    with FaultServer(objects) as server:
        yield server


def endpoint(server: FaultServer) -> dict[str, str]:
    return {"account_name": "birds", "endpoint": f"{server.url}/birds"}


@pytest.mark.parametrize(
    ("options", "environment"),
    [
        ({"sas_token": SAS}, {}),
        ({"sas_token": f"?{SAS}"}, {}),
        ({"sas_token": unquote(SAS)}, {}),  # as some pages show it
        ({"azure_storage_sas_key": SAS}, {}),
        ({}, {"AZURE_STORAGE_SAS_TOKEN": SAS}),
        ({"sas_token": SAS}, {"AZURE_STORAGE_SAS_TOKEN": "sv=1&sig=other"}),
    ],
)
def test_a_set_is_read_by_a_sas_token(
    azure: FaultServer,
    packed: PackedDataset,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, str],
    environment: dict[str, str],
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    given = {**endpoint(azure), **options}
    dataset = PackedFiles("az://box/a set", entries=False, storage_options=given)
    assert [dataset.read(i) for i in range(52)] == [packed.read(i) for i in range(52)]
    assert pickle.loads(pickle.dumps(dataset)).read(7) == packed.read(7)
    assert {request.path.partition("?")[2] for request in azure.requests} == {SENT}
    assert all("authorization" not in request.headers for request in azure.requests)
    assert "geheim" not in repr(dataset) + repr(dataset.store)


def test_a_key_signs_where_there_are_both(azure: FaultServer) -> None:
    options = {**endpoint(azure), "account_key": "c2VjcmV0", "sas_token": SAS}
    query = urlsplit(CloudStore(Location("az", "box"), options)._signed_urls(["x"])["x"]).query
    assert "sig=" in query
    assert "geheim" not in query


def test_a_sas_token_that_is_denied_is_said_and_not_shown(azure: FaultServer) -> None:
    azure.rules.append(Rule(Fault(status=403, body=b"<Code>AuthenticationFailed</Code>")))
    store = CloudStore(Location("az", "box"), {**endpoint(azure), "sas_token": SAS})
    words = r"az://box/x could not be read: 403 Forbidden \(AuthenticationFailed\).*Check the credentials"
    with pytest.raises(RemoteError, match=words) as caught:
        store.get("x")
    assert "geheim" not in f"{caught.value!r} {caught.value.__cause__!r}"


@pytest.mark.parametrize("start", ["a set/index.fli", "\u00fc +#%&?.json"])
def test_names_are_encoded(azure: FaultServer, start: str) -> None:
    azure.objects[f"/birds/box/{start}"] = b"0123"
    store = CloudStore(Location("az", "box"), {**endpoint(azure), "sas_token": SAS})
    assert store.get(start, 1, 3) in (b"12", azure.objects[f"/birds/box/{start}"][1:3])


def test_public_objects_lie_where_the_endpoint_is(azure: FaultServer) -> None:
    azure.objects["/birds/box/x"] = b"0123"
    store = CloudStore(Location("az", "box"), {**endpoint(azure), "anon": True})
    assert store.get("x") == b"0123"
    assert [request.path for request in azure.requests] == ["/birds/box/x"]


def test_public_objects_need_no_signature() -> None:
    store = CloudStore(Location("gs", "public"), {"anon": True})
    assert store.core(["x"]).name == "gs://public"
    assert store._signed == set()


def test_options_of_no_meaning_are_refused() -> None:
    with pytest.raises(ValueError, match="storage_options of gs:// has no 'sekret'") as caught:
        open_store("gs://bucket", {"sekret": "geheim"})
    assert "geheim" not in str(caught.value)


def test_credentials_that_are_not_there_are_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "none.json"
    with pytest.raises((RemoteError, ValueError), match="gs://bucket"):
        open_store("gs://bucket", {"service_account_path": str(path)}).get("x")
