"""What an earlier ``fastload index`` left in its folder: this very index, another one, or half of one."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fastload._native import _C
from fastload.errors import PackError, ShardTruncated
from fastload.packing.files import publish, temporary_of
from fastload.packing.ingest import as_rows
from fastload.packing.output import OutputFolder
from fastload.shard.dataset import PackedFiles
from fastload.shard.manifest import MANIFEST_NAME, Manifest

__all__ = ["earlier_index", "index_identity"]

_BEGUN = "index.json"  # in the work folder: what an index was asked to do
_CHUNK = 1 << 12  # records checked in one call


def index_identity(
    paths: Sequence[object],
    column: str | None,
    labels: Path | None,
    fields: Sequence[tuple[str, str]] = (),
    contents: str = "",
) -> dict[str, Any]:
    """What decides an index besides the files' bytes; JSON values only.

    Args:
        paths: the files'. column, labels, fields: of ``IndexOptions``.
        contents: of files in a store: what changes when their bytes do.

    Raises:
        OSError: the file of labels cannot be read.
    """
    facts: dict[str, Any] = {"indexed": [str(path) for path in paths], "column": column}
    if labels is not None:
        facts["labels"] = hashlib.blake2b(labels.read_bytes(), digest_size=16).hexdigest()
    if fields:
        facts["fields"] = [list(field) for field in fields]
    if contents:
        facts["contents"] = contents
    return facts


def earlier_index(folder: Path, identity: Mapping[str, Any], on_error: str, restart: bool) -> Manifest | None:
    """The manifest of this very index if the folder holds it, complete. Else None, and a work folder with
    what this very index has left unfinished; what another one left, or one to be replaced, is gone.

    Args:
        folder: where the index goes; the caller holds its lock.
        identity: see :func:`index_identity`.
        on_error: of ``IndexOptions``.
        restart: replace an index that is there.

    Raises:
        PackError: the folder holds something else: another index, a packed dataset, other files.
    """
    output = OutputFolder(folder)
    state = output.state()
    if state == "foreign":
        raise output.refusal()
    if state == "unfinished":
        output.refuse_others(None)
    if state == "complete":
        manifest = Manifest.read(folder)
        if not manifest.options.get("indexed"):
            raise PackError(
                f"{folder} holds a packed dataset, not an index of other files; choose another folder."
            )
        if not restart:
            _check_same(folder, manifest, identity)
            output.tidy()
            return manifest
    begun = state == "unfinished" and not restart and _begun(output.work, identity)
    # What was finished under "raise" has no bad records, and is what "skip" gives.
    if not begun or begun not in ("raise", on_error):
        output.discard()
        output.work.mkdir()
    said = output.work / _BEGUN
    temporary_of(said).write_text(json.dumps({**identity, "on_error": on_error}), encoding="utf-8")
    publish(temporary_of(said), said)
    return None


def _begun(work: Path, identity: Mapping[str, Any]) -> str | None:
    """How the unfinished index in this work folder takes bad records; None: it is another one."""
    try:
        found = json.loads((work / _BEGUN).read_text(encoding="utf-8"))
        on_error = found.pop("on_error")
        return str(on_error) if found == identity else None
    except (OSError, ValueError, AttributeError, KeyError, RecursionError):
        return None


def _check_same(folder: Path, manifest: Manifest, identity: Mapping[str, Any]) -> None:
    """Raise PackError unless the manifest is of this index, over files as they are now."""
    names = ("indexed", "column", "labels", "fields")
    different = [name for name in names if manifest.options.get(name) != identity.get(name)]
    changed = "it indexes other files or has other options" if different else None
    if manifest.in_store and manifest.options.get("contents") != identity.get("contents"):
        changed = changed or "a file in the store has other contents now"
    if not manifest.in_store:
        changed = changed or _changed_file(folder, manifest)
    if changed:
        raise PackError(f"{folder} holds an index already, and {changed}; --restart replaces it.")


def _changed_file(folder: Path, manifest: Manifest) -> str | None:
    """Which indexed file is another one now. One with a newer time is read: it may have been touched only."""
    written_ns = (folder / MANIFEST_NAME).stat().st_mtime_ns
    for number, shard in enumerate(manifest.shards):
        try:
            status = os.stat(shard.file)
        except OSError as error:
            return f"{shard.file} cannot be opened now ({error.strerror})"
        if status.st_size != shard.size:
            return f"{shard.file} had {shard.size} bytes then and has {status.st_size} now"
        if status.st_mtime_ns > written_ns and not _same_records(folder, number, shard.file):
            return f"{shard.file} has other contents now"
    return None


def _same_records(folder: Path, number: int, file: str) -> bool:
    records = PackedFiles(folder, entries=False).records
    for start in range(0, len(records), _CHUNK):
        part = records[start : start + _CHUNK]
        part = np.ascontiguousarray(part[part["shard"] == number])
        try:
            if len(part) and _C.verify_file(os.fsencode(file), as_rows(part)):
                return False
        except ShardTruncated:
            return False
    return True
