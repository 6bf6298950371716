"""RemoteStore's answers when nothing goes wrong, and its signatures."""

from __future__ import annotations

import datetime
import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import pytest
from fault_server import Fault, FaultServer, Rule
from object_server import ACCESS_KEY, REGION, SECRET_KEY, ObjectServer
from process import HANG
from quick_stores import DATA, MakeStore, quick

from fastload._native import _C
from fastload.errors import ShardError

SIGNED = {"signing": "sigv4", "region": REGION, "access_key": ACCESS_KEY, "secret_key": SECRET_KEY}
ODD_KEY = "a b/ü+c&d=(1)~'.bin"


def test_heads_and_ranges(make_store: MakeStore) -> None:
    store = make_store()
    size, etag = store.head("object")
    assert size == len(DATA)
    assert etag.startswith('"')
    assert store.head("no-object") is None
    assert store.get("object") == DATA
    assert store.get("object", 1000) == DATA[1000:]
    assert store.get("object", 5, 77) == DATA[5:77]
    assert store.get("object", 9, 9) == b""
    assert store.counts()["retries"] == 0


def test_an_empty_object(server: FaultServer, make_store: MakeStore) -> None:
    server.objects["/bucket/empty"] = b""
    assert make_store().get("empty") == b""


def test_long_ranges_are_cut(server: FaultServer, make_store: MakeStore) -> None:
    assert make_store(schedule=quick(part=100_000)).get("object", 50_000, 900_001) == DATA[50_000:900_001]
    lengths = [[int(word) for word in r.headers["range"][6:].split("-")] for r in server.requests]
    assert sorted(last + 1 - first for first, last in lengths) == [50_001] + 8 * [100_000]


def test_connections_are_used_again(server: FaultServer, make_store: MakeStore) -> None:
    store = make_store()
    for _ in range(20):
        store.get("object", 0, 1000)
    assert server.connections == 1


def test_signed_requests_are_accepted(object_server: ObjectServer) -> None:
    object_server.make_bucket("signed", {ODD_KEY: DATA, "x": b"1"})
    store = _C.RemoteStore(object_server.endpoint + "/signed", "s3://signed", **SIGNED)
    assert store.get(ODD_KEY, 10, 500) == DATA[10:500]
    assert store.head("x")[0] == 1
    assert store.head("y") is None
    wrong = _C.RemoteStore(
        object_server.endpoint + "/signed", "s3://signed", **{**SIGNED, "secret_key": "other"}
    )
    with pytest.raises(ShardError, match=r"403 Forbidden \(SignatureDoesNotMatch\).*Check the credentials"):
        wrong.get("x")
    wrong.set_credentials(ACCESS_KEY, SECRET_KEY)
    assert wrong.get("x") == b"1"
    store.close()
    wrong.close()


@pytest.mark.parametrize("token", ["", "a-token/+="])
def test_signatures_are_botocores(server: FaultServer, make_store: MakeStore, token: str) -> None:
    """botocore signs what was sent, and comes to the same signature."""
    from botocore.auth import S3SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    path = "/bucket/" + ODD_KEY
    server.objects[path] = DATA
    assert make_store(token=token, **SIGNED).get(ODD_KEY) == DATA
    sent = server.requests[-1]
    assert sent.path == quote(path, safe="/-_.~")
    assert sent.headers["x-amz-content-sha256"] == "UNSIGNED-PAYLOAD"
    assert sent.headers.get("x-amz-security-token", "") == token
    time = sent.headers["x-amz-date"]
    names = sent.headers["authorization"].split("SignedHeaders=")[1].split(",")[0].split(";")
    request = AWSRequest("GET", server.url + sent.path, {name: sent.headers[name] for name in names})
    request.context["timestamp"] = time
    auth = S3SigV4Auth(Credentials(ACCESS_KEY, SECRET_KEY, token or None), "s3", REGION)
    to_sign = auth.string_to_sign(request, auth.canonical_request(request))
    assert sent.headers["authorization"].endswith("Signature=" + auth.signature(to_sign, request))
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    assert time <= now


def test_presigned_addresses(server: FaultServer, make_store: MakeStore) -> None:
    asked: list[str] = []
    made: list[_C.RemoteStore] = []

    def renew(path: str) -> None:
        asked.append(path)
        made[0].set_urls({path: f"{server.url}/bucket/{path}?signature={len(asked)}"})

    store = make_store(signing="presigned", renew=renew)
    made.append(store)
    assert store.head("object")[0] == len(DATA)
    assert store.get("object", 0, 10) == DATA[:10]
    assert asked == ["object"]
    server.rules.append(Rule(Fault(status=403, body=b"Expired"), path="signature=1"))
    assert store.get("object", 0, 10) == DATA[:10]
    assert asked == ["object", "object"]
    made.clear()  # the store has the function, which would have the store


def test_headers_are_sent(server: FaultServer, make_store: MakeStore) -> None:
    make_store(headers=[("X-Own", "yes")]).get("object")
    assert server.requests[-1].headers["x-own"] == "yes"


def test_redirections_are_followed_where_nothing_is_signed(
    server: FaultServer, make_store: MakeStore
) -> None:
    server.objects["/else/where"] = DATA[::-1]
    server.rules.append(Rule(Fault(status=302, headers={"Location": "/else/where"}), path="/bucket/"))
    assert make_store().get("object", 0, 100) == DATA[::-1][:100]
    with pytest.raises(ShardError, match="302"):
        make_store(**SIGNED).get("object", 0, 100)


@pytest.mark.parametrize(
    ("base", "options", "message"),
    [
        ("ftp://x", {"signing": "none"}, "begins with http"),
        ("http://x", {"signing": "sigv4"}, "needs a region"),
        ("http://x", {"signing": "v2"}, "sigv4, presigned or none"),
    ],
)
def test_wrong_arguments(base: str, options: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _C.RemoteStore(base, "x", **options)


def test_the_library_is_loaded_when_it_is_needed() -> None:
    program = (
        "from fastload._native import _C\n"
        "s = _C.RemoteStore('http://127.0.0.1:9/x', 's3://x', signing='none')\n"
        "loaded = lambda: 'libcurl' in open('/proc/self/maps').read()\n"
        "assert not loaded()\n"
        "c = _C.Schedule(); c.patience = 1; c.tries = 1; c.first_pause = 1\n"
        "s = _C.RemoteStore('http://127.0.0.1:9/x', 's3://x', signing='none', schedule=c)\n"
        "try: s.get('y')\n"
        "except Exception: pass\n"
        "assert loaded()\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=HANG)


WITHOUT_LIBCURL = """
import os
from fastload._native import _C
from fastload.errors import ShardError

store = _C.RemoteStore("http://127.0.0.1:1", "s3://bucket", signing="none")  # opens nothing yet
for _ in range(2):
    try:
        store.get("object")
    except ShardError as error:
        print(error)
"""


def test_a_missing_libcurl_is_said_with_the_line_that_installs_it(tmp_path: Path) -> None:
    """The loader of libraries looks into LD_LIBRARY_PATH first, and takes no empty file for one."""
    for name in ("libcurl.so.4", "libcurl-gnutls.so.4"):
        (tmp_path / name).touch()
    around = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_LIBCURL], env=around, capture_output=True, text=True, check=True
    )
    lines = done.stdout.splitlines()
    assert len(lines) == 2
    wanted = (
        r"Reading from object stores and by HTTP needs libcurl 7\.68 or newer \(.*libcurl\.so\.4: "
        r"file too short\)\. Install it: apt-get install libcurl4, or dnf install libcurl\."
    )
    assert all(re.fullmatch(wanted, line) for line in lines)
