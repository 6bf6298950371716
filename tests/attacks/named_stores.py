"""What a store may answer that does not mean well: a server of this machine that answers as it is told."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attack_rules import EITHER, MIB, Rule, attack, honest
from fault_server import Fault, FaultServer
from fault_server import Rule as When
from judged import NAMED_PORTS
from plain_pack import plain_pack
from quick_stores import quick
from uses import BLOBS, crops, read_all

from fastload._native import _C

KIND = "stores"
MANIFEST = Rule("FORMAT.md", "dataset.json", "One JSON object, UTF-8, at most 64 MiB")
FILES = Rule(
    "FORMAT.md", "dataset.json", "an index whose size or CRC differs, and a shard file of another size"
)
STORE = Rule(
    "SECURITY.md", "What is not", "Of a set in a store, shards are in the same store, or it is refused."
)
MEMORY = Rule("SECURITY.md", "What is trusted", "take memory without a bound")
ERROR = Rule(
    "SECURITY.md", "What is trusted", "may make a job fail with an error; it must not crash the process"
)
REFUSED = "."


def objects(folder: Path) -> dict[str, bytes]:
    """A set as a store has it."""
    made = plain_pack(folder / "made", BLOBS).folder
    os.environ["FASTLOAD_SETS_DIR"] = str(folder / "sets")
    return {f"/set/{path.name}": path.read_bytes() for path in made.iterdir()}


def served(folder: Path, *rules: When, changes: dict[str, bytes] | None = None) -> str:
    """The URL of the set on a server that breaks the rules; it lives as long as the process."""
    server = FaultServer(objects(folder) | (changes or {}))
    server.rules += rules
    keep(server)
    return f"{server.url}/set"


def keep(server: Any) -> None:
    """For as long as the process lives; it is one that may be asked."""
    KEPT.append(server)
    NAMED_PORTS.add(server.port)


KEPT: list[Any] = []


@dataclass
class Raw:
    """A server that writes what it is told to, to whoever connects, and notes how many did."""

    answer: Callable[[bytes], Iterator[bytes]]
    connections: int = 0

    def __post_init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            self.connections += 1
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection:
                request = connection.recv(1 << 16)
                for piece in self.answer(request):
                    connection.sendall(piece)
        except OSError:
            return


def raw(folder: Path, answer: Callable[[bytes], Iterator[bytes]]) -> str:
    folder.mkdir()
    os.environ["FASTLOAD_SETS_DIR"] = str(folder / "sets")
    server = Raw(answer)
    keep(server)
    return f"http://127.0.0.1:{server.port}/set"


def got(url: str) -> Callable[[], Any]:
    """The manifest alone, as opening a set asks for it first; given up after three seconds, not 90."""

    def use() -> int:
        store = _C.RemoteStore(url, url, schedule=quick(patience=3000, stall=2000), signing="none")
        try:
            return len(store.get("dataset.json"))
        finally:
            store.close()

    return use


HEAD = b'HTTP/1.1 200 OK\r\nETag: "a"\r\n'


@honest(KIND)
def a_set_in_a_store(folder: Path) -> Callable[[], Any]:
    return read_all(served(folder))


@honest(KIND)
def an_epoch_from_a_store(folder: Path) -> Callable[[], Any]:
    return crops(served(folder))


@attack(KIND, MEMORY, REFUSED)
def a_manifest_of_2_to_the_50_bytes_in_a_store(folder: Path) -> Callable[[], Any]:
    def answer(_: bytes) -> Iterator[bytes]:
        yield HEAD + b"Content-Length: 1125899906842624\r\n\r\n" + b"{" * 100

    return read_all(raw(folder, answer))


@attack(KIND, MANIFEST, REFUSED)
def a_manifest_without_end(folder: Path) -> Callable[[], Any]:
    def answer(_: bytes) -> Iterator[bytes]:
        yield HEAD + b"\r\n"
        while True:
            yield b"[" * MIB

    return got(raw(folder, answer))


@attack(KIND, MEMORY, "bytes, and 67108864 at most")
def a_manifest_of_3_gib_in_a_store(folder: Path) -> Callable[[], Any]:
    def answer(_: bytes) -> Iterator[bytes]:
        yield HEAD + b"Content-Length: 3221225472\r\n\r\n"
        while True:
            yield b"[" * MIB

    return read_all(raw(folder, answer))


@attack(KIND, MANIFEST, REFUSED)
def a_manifest_in_chunks_without_end(folder: Path) -> Callable[[], Any]:
    def answer(_: bytes) -> Iterator[bytes]:
        yield HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
        while True:
            yield b"100000\r\n" + b"[" * MIB + b"\r\n"

    return got(raw(folder, answer))


@attack(KIND, ERROR, REFUSED)
def a_manifest_in_chunks_of_garbage(folder: Path) -> Callable[[], Any]:
    def answer(_: bytes) -> Iterator[bytes]:
        yield HEAD + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffffffff\r\nxyz\r\n-1\r\n\r\n"

    return got(raw(folder, answer))


@attack(KIND, MEMORY, REFUSED)
def headers_without_end(folder: Path) -> Callable[[], Any]:
    def answer(_: bytes) -> Iterator[bytes]:
        yield HEAD
        while True:
            yield b"X-More: " + b"y" * 60_000 + b"\r\n"

    return got(raw(folder, answer))


@attack(KIND, ERROR, REFUSED)
def interim_answers_without_end(folder: Path) -> Callable[[], Any]:
    def answer(_: bytes) -> Iterator[bytes]:
        for _number in range(200_000):
            yield b"HTTP/1.1 100 Continue\r\n\r\n"

    return got(raw(folder, answer))


@attack(KIND, ERROR, REFUSED)
def an_answer_that_is_no_http(folder: Path) -> Callable[[], Any]:
    def answer(_: bytes) -> Iterator[bytes]:
        yield bytes(range(256)) * 4

    return got(raw(folder, answer))


@attack(KIND, ERROR, REFUSED)
def a_redirection_to_a_file(folder: Path) -> Callable[[], Any]:
    def answer(_: bytes) -> Iterator[bytes]:
        yield b"HTTP/1.1 302 Found\r\nLocation: file:///etc/passwd\r\nContent-Length: 0\r\n\r\n"

    return got(raw(folder, answer))


@attack(KIND, ERROR, REFUSED)
def redirections_that_lead_round(folder: Path) -> Callable[[], Any]:
    def answer(_: bytes) -> Iterator[bytes]:
        yield b"HTTP/1.1 302 Found\r\nLocation: /set/dataset.json\r\nContent-Length: 0\r\n\r\n"

    return got(raw(folder, answer))


@attack(KIND, ERROR, REFUSED)
def a_redirection_to_a_server_of_another_protocol(folder: Path) -> Callable[[], Any]:
    other = Raw(lambda _: iter([b"220 ftp\r\n"]))

    def answer(_: bytes) -> Iterator[bytes]:
        place = b"ftp://127.0.0.1:%d/set/dataset.json" % other.port
        yield b"HTTP/1.1 302 Found\r\nLocation: " + place + b"\r\nContent-Length: 0\r\n\r\n"

    url = raw(folder, answer)

    def use() -> Any:
        try:
            return got(url)()
        finally:
            if other.connections:
                raise AssertionError("it connected to a server of another protocol")

    return use


@attack(KIND, MANIFEST, REFUSED)
def a_manifest_packed_by_gzip(folder: Path) -> Callable[[], Any]:
    import gzip

    body = gzip.compress(bytes(64 * MIB))

    def answer(_: bytes) -> Iterator[bytes]:
        yield HEAD + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body) + body

    return read_all(raw(folder, answer))


@attack(KIND, FILES, REFUSED)
def an_index_that_is_the_manifest(folder: Path) -> Callable[[], Any]:
    return read_all(served(folder, changes={"/set/index.fli": b"{}" * 100}))


@attack(KIND, FILES, REFUSED)
def a_shard_that_is_shorter_than_the_manifest_says(folder: Path) -> Callable[[], Any]:
    return read_all(served(folder, changes={"/set/data.bin": b"short"}))


@attack(KIND, FILES, REFUSED)
def records_of_other_bytes_in_a_store(folder: Path) -> Callable[[], Any]:
    size = sum(map(len, BLOBS))
    return crops(served(folder, changes={"/set/data.bin": b"\xff\xd8" * (size // 2) + b"x" * (size % 2)}))


@attack(KIND, FILES, EITHER)
def ranges_that_are_other_ranges(folder: Path) -> Callable[[], Any]:
    fault = Fault(headers={"Content-Range": "bytes 18446744073709551615-18446744073709551615/1"})
    return read_all(served(folder, When(fault, path="data.bin", times=2)))


@attack(KIND, FILES, EITHER)
def an_etag_that_changes_with_each_answer(folder: Path) -> Callable[[], Any]:
    rules = [
        When(Fault(headers={"ETag": f'"{number}"'}), path="data.bin", skip=number, times=1)
        for number in range(4)
    ]
    return read_all(served(folder, *rules))


@attack(KIND, STORE, REFUSED)
def a_set_in_a_store_whose_shards_are_files_of_this_machine(folder: Path) -> Callable[[], Any]:
    return _shards_named(folder, "/etc/passwd")


@attack(KIND, STORE, REFUSED)
def a_set_in_a_store_whose_shards_are_in_another(folder: Path) -> Callable[[], Any]:
    return _shards_named(folder, "http://127.0.0.1:9/set/data.bin")


@attack(KIND, STORE, REFUSED)
def a_set_in_a_store_whose_shards_climb_out(folder: Path) -> Callable[[], Any]:
    return _shards_named(folder, "../../../../etc/passwd")


def _shards_named(folder: Path, name: str) -> Callable[[], Any]:
    from fastload.shard.manifest import Manifest, Shard

    stored = objects(folder)
    manifest = Manifest.read(folder / "made")
    told = {field: getattr(manifest, field) for field in manifest.__dataclass_fields__}
    shard = manifest.shards[0]
    Manifest(**told | {"shards": (Shard(name, shard.size, shard.records),)}).write(folder / "made")
    stored["/set/dataset.json"] = (folder / "made" / "dataset.json").read_bytes()
    server = FaultServer(stored)
    keep(server)
    return read_all(f"{server.url}/set")
