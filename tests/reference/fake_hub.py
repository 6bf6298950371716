"""A small Hub of the tests' own: what huggingface_hub asks of it, and a CDN beside it, at another host.

Large files are answered by a redirect to an address on the CDN, which is signed for a while and takes no
token; small ones by the Hub itself, which wants the token where a repository is private or gated.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

from range_answers import span

PAGE = 50  # files of one answer of a listing
TOKEN = "hf_geheim"
VALID = 3600.0  # seconds of a signed address


@dataclass
class FakeHub:
    """One dataset repository, ``me/birds``."""

    large: int = 4096  # bytes from which on a file lies on the CDN
    passed: float = 0.0  # seconds by which the CDN's clock and the Hub's have been set forward
    access: str = "public"  # "private", "gated"
    throttled: int = 0  # so many further calls of the Hub are answered by 429
    retry_after: str = "0"
    repo: str = "me/birds"
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    head: str = ""
    requests: list[tuple[str, str]] = field(default_factory=list)  # method and path, of the Hub
    fetched: list[str] = field(default_factory=list)  # paths, of the CDN
    denied: int = 0  # requests whose address had expired

    def __enter__(self) -> FakeHub:
        self._servers = [_server(_HubAnswers, self), _server(_CdnAnswers, self)]
        return self

    def __exit__(self, *_: object) -> None:
        for server in self._servers:
            server.shutdown()
            server.server_close()

    @property
    def url(self) -> str:
        """The endpoint."""
        return f"http://127.0.0.1:{self._servers[0].server_port}"

    @property
    def cdn(self) -> str:
        """Another host than the Hub's, as huggingface_hub compares them."""
        return f"http://localhost:{self._servers[1].server_port}"

    def now(self) -> float:
        """What its clocks say."""
        return time.time() + self.passed

    def push(self, files: dict[str, bytes]) -> str:
        """A commit with these files and no others; gives its name."""
        self.head = hashlib.sha1(repr((sorted(files), len(self.commits))).encode()).hexdigest()
        self.commits[self.head] = files
        return self.head

    def calls(self, what: str) -> int:
        """How many requests of the Hub had this in their path."""
        return sum(what in path for _, path in self.requests)


def _server(answers: type[_Answers], hub: FakeHub) -> ThreadingHTTPServer:
    made = type("Answers", (answers,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), made)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    return server


class _Answers(BaseHTTPRequestHandler):
    hub: FakeHub
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: Any) -> None:
        """Tests are quiet."""

    def do_GET(self) -> None:
        self.answer()

    def do_HEAD(self) -> None:
        self.answer()

    def answer(self) -> None:
        """One request."""
        raise NotImplementedError

    def send(self, status: int, headers: dict[str, str], body: bytes = b"") -> None:
        """One answer."""
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def send_file(self, data: bytes, headers: dict[str, str]) -> None:
        """A file, or the range of it that was asked for."""
        wanted = self.headers.get("Range")
        if not wanted:
            return self.send(200, headers, data)
        begin, end = span(wanted, len(data)) or (0, 0)
        about = {"Content-Range": f"bytes {begin}-{end - 1}/{len(data)}"}
        return self.send(206, {**headers, **about}, data[begin:end])


class _HubAnswers(_Answers):
    def answer(self) -> None:
        hub, parts = self.hub, urlsplit(self.path)
        hub.requests.append((self.command, self.path))
        path = unquote(parts.path)
        if hub.throttled > 0:
            hub.throttled -= 1
            return self.send(429, {"Retry-After": hub.retry_after})
        if f"/datasets/{hub.repo}" not in path:
            return self.send(404, {"X-Error-Code": "RepoNotFound"})
        if hub.access != "public" and self.headers.get("Authorization") != f"Bearer {TOKEN}":
            if hub.access == "gated":
                return self.send(
                    403, {"X-Error-Code": "GatedRepo", "X-Error-Message": "Access is restricted"}
                )
            return self.send(401, {"X-Error-Code": "RepoNotFound"})
        rest = path.partition(f"/datasets/{hub.repo}")[2]
        if path.startswith("/api/"):
            return self.tell(rest, parse_qs(parts.query))
        _, _, revision, name = rest.split("/", 3)
        data = self.files(revision).get(name)
        if data is None:
            return self.send(404, {"X-Error-Code": "EntryNotFound"})
        digest = hashlib.sha256(data).hexdigest()
        about = {"X-Repo-Commit": revision, "ETag": f'"{digest[:40]}"'}
        if len(data) < hub.large:
            return self.send_file(data, about)
        signed = f"{hub.cdn}/{digest}/{quote(name)}?Expires={hub.now() + VALID:.3f}&Signature={digest[:8]}"
        linked = {"X-Linked-Size": str(len(data)), "X-Linked-ETag": f'"{digest}"', "Location": signed}
        return self.send(302, {**about, **linked})

    def files(self, revision: str) -> dict[str, bytes]:
        """Of a commit."""
        return self.hub.commits.get(self.hub.head if revision == "main" else revision, {})

    def tell(self, rest: str, query: dict[str, list[str]]) -> None:
        """What the API says: of a revision its commit, of a folder its files, a page at a time."""
        hub = self.hub
        if rest.startswith("/tree/"):
            _, _, revision, *folder = rest.split("/", 3)
            prefix = f"{folder[0]}/" if folder and folder[0] else ""
            names = sorted(name for name in self.files(revision) if name.startswith(prefix))
            if not names:
                return self.send(404, {"X-Error-Code": "EntryNotFound"})
            start = int(query.get("cursor", ["0"])[0])
            shown = [
                {"type": "file", "path": name, "size": len(self.files(revision)[name]), "oid": "0" * 40}
                for name in names[start : start + PAGE]
            ]
            more = (
                f'<{hub.url}/api/datasets/{hub.repo}{rest}?recursive=True&cursor={start + PAGE}>; rel="next"'
            )
            headers = {"Content-Type": "application/json"}
            return self.send(
                200,
                {**headers, "Link": more} if start + PAGE < len(names) else headers,
                json.dumps(shown).encode(),
            )
        revision = rest.removeprefix("/revision/") or "main"
        if revision != "main" and revision not in hub.commits:
            return self.send(404, {"X-Error-Code": "RevisionNotFound"})
        found = {"id": hub.repo, "sha": hub.head if revision == "main" else revision, "siblings": []}
        return self.send(200, {"Content-Type": "application/json"}, json.dumps(found).encode())


class _CdnAnswers(_Answers):
    def answer(self) -> None:
        parts = urlsplit(self.path)
        query = parse_qs(parts.query)
        if self.headers.get("Authorization"):
            return self.send(400, {}, b"<Error><Code>InvalidArgument</Code></Error>")
        if float(query["Expires"][0]) < self.hub.now():
            self.hub.denied += 1
            return self.send(403, {}, b"<Error><Code>AccessDenied</Code></Error>")
        digest, name = unquote(parts.path).lstrip("/").split("/", 1)
        self.hub.fetched.append(name)
        found = (files.get(name, b"") for files in self.hub.commits.values())
        data = next(data for data in found if hashlib.sha256(data).hexdigest() == digest)
        return self.send_file(data, {"ETag": f'"{digest}"'})
