"""What an object store answers to a GET or HEAD, from memory or a folder. For fault_server."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path
from urllib.parse import unquote, urlsplit


@dataclass
class Answer:
    """Status, headers and body."""

    status: int
    headers: dict[str, str]
    body: Iterator[bytes | memoryview]

    def pieces(self, most: int) -> Iterator[bytes | memoryview]:
        """The body, in pieces of at most so many bytes."""
        for data in self.body:
            for at in range(0, len(data), most):
                yield data[at : at + most]


def error(status: int, code: str) -> Answer:
    """As S3 words it."""
    body = f'<?xml version="1.0" encoding="UTF-8"?><Error><Code>{code}</Code></Error>'.encode()
    return Answer(status, {"Content-Length": str(len(body)), "Content-Type": "application/xml"}, iter([body]))


def span(wanted: str, size: int) -> tuple[int, int] | None:
    """First byte and one past the last of a Range header; None: there are none."""
    first, _, last = wanted.removeprefix("bytes=").partition("-")
    begin = int(first)
    end = min(int(last) + 1, size) if last else size
    return (begin, end) if begin < size else None


def _ranged(size: int, etag: str, wanted: str) -> tuple[int, dict[str, str], int, int] | Answer:
    begin, end, status = 0, size, 200
    headers = {"ETag": etag, "Accept-Ranges": "bytes", "Date": formatdate(time.time(), usegmt=True)}
    if wanted:
        found = span(wanted, size)
        if found is None:
            return error(416, "InvalidRange")
        begin, end = found
        status = 206
        headers["Content-Range"] = f"bytes {begin}-{end - 1}/{size}"
    headers["Content-Length"] = str(end - begin)
    return status, headers, begin, end


def memory_answer(objects: dict[str, bytes], path: str, wanted: str) -> Answer:
    """An object of a dict."""
    data = objects.get(unquote(urlsplit(path).path))
    if data is None:
        return error(404, "NoSuchKey")
    answer = _ranged(len(data), f'"{len(data):x}-{hash(data) & 0xFFFFFFFF:x}"', wanted)
    if isinstance(answer, Answer):
        return answer
    status, headers, begin, end = answer
    return Answer(status, headers, iter([memoryview(data)[begin:end]]))


def folder_answer(folder: Path, path: str, wanted: str) -> Answer:
    """A file of a folder."""
    file = folder / unquote(urlsplit(path).path).lstrip("/")
    if not file.is_file():
        return error(404, "NoSuchKey")
    facts = file.stat()
    answer = _ranged(facts.st_size, f'"{facts.st_size:x}-{facts.st_mtime_ns:x}"', wanted)
    if isinstance(answer, Answer):
        return answer
    status, headers, begin, end = answer
    return Answer(status, headers, _file_pieces(file, begin, end))


def _file_pieces(file: Path, begin: int, end: int) -> Iterator[bytes]:
    descriptor = os.open(file, os.O_RDONLY)
    try:
        while begin < end:
            data = os.pread(descriptor, min(1 << 20, end - begin), begin)
            if not data:
                return
            yield data
            begin += len(data)
    finally:
        os.close(descriptor)
