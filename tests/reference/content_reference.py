"""The slow, obvious content id, from FORMAT.md's words: every entry and every key in turn."""

from __future__ import annotations

import hashlib
import json
import struct
from pathlib import Path

from field_sets import read_frame

__all__ = ["content_of"]


def content_of(folder: Path) -> str:
    """The content id of the set in a folder, whose table files are checked on the way."""
    manifest = json.loads((folder / "dataset.json").read_text(encoding="utf-8"))
    named = manifest.get("fields", [])
    fields = [{k: field[k] for k in field if k not in ("file", "size", "digest")} for field in named]
    facts = [manifest["num_records"], manifest["classes"], fields]
    stream = json.dumps(facts, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode("utf-8")
    index = read_frame(folder / manifest.get("index", "index.fli"), b"FLINDEX1", True)
    stream += _without_places(index.fixed[: 32 * index.count]) + _table(index.values) + b"".join(index.values)
    for field in named:
        if field["stored"] != "column":
            continue
        path, kind = folder / field["file"], field["kind"]
        if kind in ("image", "mask", "picture"):
            frame = read_frame(path, b"FLFIELD1", False)
            stream += _without_places(frame.fixed[: 32 * frame.count])
        elif kind in ("images", "pictures"):
            lists = read_frame(path, b"FLFIELD1", True).values
            stream += _table(lists) + _without_places(b"".join(lists))
        else:
            stream += struct.pack("<I", field["digest"])
    return hashlib.blake2b(stream, digest_size=16).hexdigest()


def _without_places(entries: bytes) -> bytes:
    found = []
    for entry in struct.iter_unpack("<QIIiIHHBBBB", entries):
        _, length, crc32c, label, _, width, height, codec, channels, flags, _ = entry
        words = (0, length, crc32c, label, 0, width, height, codec, channels, flags, 0)
        found.append(struct.pack("<QIIiIHHBBBB", *words))
    return b"".join(found)


def _table(values: list[bytes]) -> bytes:
    ends = [0]
    for value in values:
        ends.append(ends[-1] + len(value))
    return struct.pack(f"<{len(ends)}Q", *ends)
