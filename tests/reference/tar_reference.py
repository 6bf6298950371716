"""WebDataset tars written and read with the standard library's ``tarfile``, as its rules are written down."""

from __future__ import annotations

import io
import json
import re
import tarfile
from collections.abc import Iterable
from pathlib import Path

from pack_trees import encoded

__all__ = ["PICTURES", "bad_members", "captioned", "samples_of", "write_tar"]

PICTURES = ("jpg", "jpeg", "png", "webp")


def write_tar(path: Path, members: Iterable[tuple[str, bytes]], form: int = tarfile.USTAR_FORMAT) -> Path:
    """A tar of plain files, as webdataset's TarWriter makes them: mode 0444, owner bigdata."""
    with tarfile.open(path, "w", format=form) as file:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size, info.mode, info.uname, info.gname = len(data), 0o444, "bigdata", "bigdata"
            file.addfile(info, io.BytesIO(data))
    return path


def samples_of(path: Path) -> list[dict[str, bytes | str]]:
    """``__key__`` and the members of each sample by suffix, in the order of the file."""
    samples: list[dict[str, bytes | str]] = []
    with tarfile.open(path) as file:
        for info in file:
            if not info.isreg() or re.match(r"__[^/]*__($|/)", info.name):
                continue
            match = re.match(r"^((?:.*/|)[^.]+)[.]([^/]*)$", info.name)
            if match is None:
                continue
            if not samples or samples[-1]["__key__"] != match[1]:
                samples.append({"__key__": match[1]})
            data = file.extractfile(info)
            assert data is not None
            samples[-1][match[2].lower()] = data.read()
    return samples


def captioned(count: int, start: int = 0) -> list[tuple[str, bytes]]:
    """What img2dataset writes: a picture, its caption, and facts as JSON."""
    members = []
    for i in range(start, start + count):
        facts = {"key": f"{i:09d}", "url": f"http://x/{i}", "width": 3, "similarity": i / 7, "error": None}
        members += [
            (f"{i:09d}.jpg", encoded(i)),
            (f"{i:09d}.txt", f"a picture of {i} cafés".encode()),
            (f"{i:09d}.json", json.dumps(facts, indent=4).encode()),
        ]
    return members


def bad_members() -> list[tuple[str, bytes]]:
    """Members that make bad samples, and one good one."""
    return [
        ("a.jpg", encoded(0)), ("a.txt", b"\xff"),
        ("b.jpg", encoded(1)), ("b.json", b"{"), ("b.npy", b"1"),
        ("c.txt", b"no picture"),
        ("d.jpg", encoded(2)), ("d.cls", b"cat"),
        ("e.jpg", b""),
        ("f.jpg", encoded(3)), ("f.JPG", encoded(4)),
        ("g.jpg", encoded(5)), ("g.npy", b"1"),
        ("plain", b"?"),
        ("h.json", b"[" * 100000), ("h.jpg", encoded(6)),
        ("i.json", b'{"a": NaN}'), ("i.jpg", encoded(6)),
    ]  # fmt: skip
