"""What only S3 stores have: credentials, parts, pages, errors in the store's words."""

from __future__ import annotations

import gc
import os
import pickle
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fault_server import Fault, FaultServer, Rule
from object_server import ObjectServer

import fastload.remote.s3 as s3
from fastload.errors import ObjectMissing, RemoteError
from fastload.remote.location import Location
from fastload.remote.opening import open_store
from fastload.remote.options import S3Options
from fastload.remote.s3 import S3Store

BUCKET = "only-s3"
ROOT = Location("s3", BUCKET)


@pytest.fixture(scope="module")
def server(object_server: ObjectServer) -> ObjectServer:
    """With the bucket."""
    object_server.make_bucket(BUCKET)
    return object_server


@pytest.fixture
def store(server: ObjectServer) -> S3Store:
    """The bucket."""
    return S3Store(ROOT, server.storage_options)


@pytest.fixture
def broken(server: ObjectServer) -> Iterator[FaultServer]:
    """A server before it that fails as it is told."""
    with FaultServer(upstream=server.endpoint.removeprefix("http://")) as front:
        yield front


@pytest.fixture
def no_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing is found anywhere."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def parts_left(server: ObjectServer) -> list[Any]:
    """Uploads that were begun and neither ended nor removed."""
    found: list[Any] = server.client().list_multipart_uploads(Bucket=BUCKET).get("Uploads", [])
    return found


def small_parts(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(s3, "_LARGE", size)
    monkeypatch.setattr(s3, "_PART", size)


def test_a_large_file_goes_in_parts(
    server: ObjectServer, broken: FaultServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_parts(monkeypatch, 5 << 20)
    data = os.urandom((16 << 20) + 77)
    (tmp_path / "large").write_bytes(data)
    store = S3Store(ROOT, {**server.storage_options, "endpoint_url": broken.url})
    store.upload("parts/large", tmp_path / "large")
    assert store.get("parts/large") == data
    sent = [request.path for request in broken.requests if request.method == "PUT"]
    assert sorted(path.partition("partNumber=")[2][:1] for path in sent) == ["1", "2", "3", "4"]
    assert parts_left(server) == []


def test_a_failed_upload_leaves_no_object_and_no_parts(
    server: ObjectServer, broken: FaultServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_parts(monkeypatch, 5 << 20)
    (tmp_path / "large").write_bytes(bytes(16 << 20))
    broken.rules.append(Rule(Fault(status=403), path="partNumber=3", method="PUT"))
    store = S3Store(ROOT, {**server.storage_options, "endpoint_url": broken.url})
    with pytest.raises(RemoteError, match="s3://only-s3/parts/failed cannot be written: .*403"):
        store.upload("parts/failed", tmp_path / "large")
    assert store.head("parts/failed") is None
    assert parts_left(server) == []


def test_a_listing_has_more_than_a_page(store: S3Store, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"pages/{number:02d}" for number in range(12)]
    for name in names:
        store.put(name, b"1")
    client = store._client
    pages = client.get_paginator("list_objects_v2")
    paginate, count = pages.paginate, []

    def in_threes(**wanted: Any) -> Any:
        for page in paginate(**wanted, PaginationConfig={"PageSize": 3}):
            count.append(len(page["Contents"]))
            yield page

    monkeypatch.setattr(pages, "paginate", in_threes)
    monkeypatch.setattr(client, "get_paginator", lambda name: pages)
    assert [each.path for each in store.list("pages/")] == names
    assert count == [3, 3, 3, 3]


def test_no_such_bucket_is_said(server: ObjectServer) -> None:
    store = S3Store(Location("s3", "no-such-bucket"), server.storage_options)
    with pytest.raises(RemoteError, match="s3://no-such-bucket/x cannot be read.*No such bucket"):
        store.get("x")
    with pytest.raises(RemoteError, match="No such bucket"):
        [*store.list("")]


@pytest.mark.parametrize("other", [{"secret": "wrong"}, {"key": "nobody"}])
def test_wrong_keys_are_said_and_not_shown(server: ObjectServer, other: dict[str, str]) -> None:
    store = S3Store(ROOT, {**server.storage_options, **other})
    with pytest.raises(RemoteError, match="cannot be read: .*403.*Check key and secret") as caught:
        store.get("x")
    shown = f"{caught.value} {store!r} {store._options!r}"
    assert not any(secret in shown for secret in ("testsecret", "wrong", "nobody"))


def test_no_credentials_at_all_is_said(server: ObjectServer, no_credentials: None) -> None:
    store = S3Store(ROOT, {"endpoint_url": server.endpoint, "region": "us-east-1"})
    with pytest.raises(RemoteError, match="Unable to locate credentials.*'anon': True"):
        store.get("x")


def test_an_unknown_profile_is_said(no_credentials: None) -> None:
    with pytest.raises(RemoteError, match="nobodys.*AWS_PROFILE"):
        S3Store(ROOT, {"profile": "nobodys"}).head("x")


def test_a_profile_has_credentials_and_endpoint(
    server: ObjectServer, no_credentials: None, tmp_path: Path
) -> None:
    words = server.storage_options
    (tmp_path / "config").write_text(
        f"[profile mine]\nregion = {words['region']}\nendpoint_url = {words['endpoint_url']}\n"
        f"aws_access_key_id = {words['key']}\naws_secret_access_key = {words['secret']}\n"
    )
    store = S3Store(ROOT, {"profile": "mine", "addressing_style": "path"})
    assert store.put("by-profile", b"1")
    assert pickle.loads(pickle.dumps(store)).get("by-profile") == b"1"


def test_the_environment_has_them(
    server: ObjectServer, no_credentials: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    store = open_store(f"s3://{BUCKET}")
    assert store.put("by-environment", b"1")
    assert store.get("by-environment") == b"1"


ANSWERS = [
    (301, "PermanentRedirect", "<Region>eu-west-3</Region>", "region 'eu-west-3'"),
    (403, "AccessDenied", "", "do not permit that"),
    (403, "RequestTimeTooSkewed", "", "clock is wrong"),
    (400, "ExpiredToken", "", "credentials have expired"),
    (403, "InvalidObjectState", "", "archived"),
]


@pytest.mark.parametrize(("status", "code", "more", "words"), ANSWERS)
def test_the_stores_words_lead_to_advice(
    broken: FaultServer, server: ObjectServer, status: int, code: str, more: str, words: str
) -> None:
    body = f"<Error><Code>{code}</Code><Message>as it is</Message>{more}</Error>".encode()
    broken.rules.append(Rule(Fault(status=status, body=body)))
    store = S3Store(ROOT, {**server.storage_options, "endpoint_url": broken.url})
    with pytest.raises(RemoteError, match=rf"s3://only-s3/x cannot be read: .*{code} \(as it is\).*{words}"):
        store.get("x")


def test_a_store_that_is_not_there_is_said() -> None:
    options = {"key": "a", "secret": "b", "region": "us-east-1", "endpoint_url": "http://127.0.0.1:9"}
    with pytest.raises(RemoteError, match="127.0.0.1:9: Connection refused. Check endpoint_url"):
        S3Store(ROOT, options).head("x")


def test_the_same_words_as_other_libraries() -> None:
    wanted = S3Options("a", "b", "c", None, "eu-west-3", "http://h")
    for given in (
        {"key": "a", "secret": "b", "token": "c", "region": "eu-west-3", "endpoint_url": "http://h"},
        {
            "aws_access_key_id": "a", "aws_secret_access_key": "b", "aws_session_token": "c",
            "client_kwargs": {"region_name": "eu-west-3", "endpoint_url": "http://h"},
        },
    ):  # fmt: skip
        assert S3Options.parse(given) == wanted
    assert S3Options.parse({"anon": "true", "verify": True}) == S3Options(anon=True)
    assert S3Options.parse({"verify": "/etc/ca.pem"}).ca_file == "/etc/ca.pem"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"sekret": "geheim"}, "has no 'sekret'. Legal are: key, secret, token"),
        ({"key": "geheim"}, "both key and secret, or neither"),
        ({"key": "geheim", "secret": "geheim", "anon": True}, "exclude each other"),
        ({"endpoint_url": "host:80"}, "endpoint_url must be a URL"),
        ({"verify": False}, "certificates are always checked"),
        ({"region": "a", "region_name": "b"}, "says 'region' twice"),
    ],
)
def test_options_that_cannot_be_are_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        open_store(ROOT, given)
    assert "geheim" not in str(caught.value)


@pytest.mark.parametrize("given", [{"key": 3}, {"anon": 3}, {"client_kwargs": 3}])
def test_options_of_other_types_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="storage_options"):
        open_store(ROOT, given)


def test_missing_objects_are_told_from_missing_rights(store: S3Store) -> None:
    with pytest.raises(ObjectMissing, match="s3://only-s3/nothing does not exist"):
        store.get("nothing")


def test_other_credentials_are_looked_for_when_a_request_is_denied(
    server: ObjectServer, no_credentials: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A role's, or those of SSO, expire while a job runs; here a file has others meanwhile."""
    monkeypatch.setattr(s3, "_RENEWAL_SECONDS", 0.0)
    words = server.storage_options

    def write(secret: str) -> None:
        text = f"[default]\naws_access_key_id = {words['key']}\naws_secret_access_key = {secret}\n"
        (tmp_path / "credentials").write_text(text)

    write(words["secret"])
    store = S3Store(ROOT, {"endpoint_url": words["endpoint_url"], "region": words["region"]})
    store.put("renewed", b"0123")
    assert store.get("renewed", 0, 2) == b"01"
    store.core().set_credentials(words["key"], "expired")
    assert store.get("renewed", 2, 4) == b"23"
    write("wrong")
    store.core().set_credentials(words["key"], "expired")
    with pytest.raises(RemoteError, match="s3://only-s3/renewed"):
        store.get("renewed", 2, 4)


def test_the_core_does_not_keep_a_store(server: ObjectServer) -> None:
    store = S3Store(ROOT, server.storage_options)
    store.put("dropped", b"1")
    assert store.get("dropped") == b"1"
    core, left = store.core(), weakref.ref(store)
    del store
    gc.collect()
    assert left() is None
    assert core.get("dropped") == b"1"
