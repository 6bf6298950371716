"""Whether a complete pack is still one of its source: by names and sizes, and by the bytes of newer files."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from fastload.errors import PackError
from fastload.machine.paths import exists
from fastload.packing.files import remove
from fastload.packing.ingest import read_groups
from fastload.packing.listing import Listing
from fastload.packing.names import encode_key, outside_key, printable
from fastload.packing.options import PackOptions
from fastload.packing.plan import PackPlan, check_options, make_plan
from fastload.packing.publish import SKIPPED_NAME
from fastload.packing.source import Source
from fastload.shard.dataset import PackedFiles
from fastload.shard.manifest import ENTRIES_NAME, MANIFEST_NAME, Manifest

__all__ = ["check_complete", "remove_scans"]

_SCAN = ".tmp-scan"  # a folder for the listing; versions before 1.0 added random letters
_SPAN = 4096  # files at a time


def remove_scans(output: Path) -> None:
    """Remove what a check that was killed has left in ``output``."""
    for name in os.listdir(output):
        if name.startswith(_SCAN):
            remove(output / name)


def check_complete(
    source: Source, output: Path, options: PackOptions, found: Callable[[int], None]
) -> Manifest:
    """The manifest of a finished pack of this very source with these very options.

    Args:
        found: called with the number of files so far, now and then.

    Raises:
        PackError: it is another one.
    """
    manifest = Manifest.read(output)
    check_options(manifest.options, options, output)
    scan = output / _SCAN
    scan.mkdir()
    try:
        plan = make_plan(source, options, output.name, scan, found)
        here = {"files": plan.totals.files, "bytes": plan.totals.bytes, "hash": plan.totals.content}
        if manifest.options.get("source") != here or manifest.classes != plan.classes:
            difference: str | None = "its files differ"
        else:
            difference = _changed(source, output, options, plan, scan)
    finally:
        remove(scan)
    if difference is None:
        return manifest
    words = f"{output} is a complete pack, but not of this source as it is now: {difference}. "
    if options.entries is not None and not exists(output / ENTRIES_NAME):
        words += f"'fastload index {output} --entries' makes its missing entry points, without the source. "
    raise PackError(f"{words}--restart throws it away and packs anew.")


def _changed(source: Source, output: Path, options: PackOptions, plan: PackPlan, scan: Path) -> str | None:
    """The first file that is newer than the pack and gives another record than the pack holds.

    A file that was only touched or copied, or whose clock is ahead, gives the same.
    """
    written_ns = (output / MANIFEST_NAME).stat().st_mtime_ns
    if plan.totals.newest_ns <= written_ns:
        return None
    listing, skipped = Listing(scan), _skipped(output)
    records = PackedFiles(output, entries=False).records
    sample = 0  # of the next file that was not skipped
    for start in range(0, len(listing), _SPAN):
        rows = list(listing.rows(start, start + _SPAN))
        for position, (path, _, mtime_ns, _) in enumerate(rows, start):
            packed = not skipped or _key(path) not in skipped
            if mtime_ns > written_ns:
                now, reason = _record(source.root, listing, options, position)
                before = records[sample] if packed else None
                if not _same(before, now):
                    what = f"cannot be packed now ({reason})" if reason else "has changed"
                    return f"{printable(path)} is newer than the pack and {what}"
            sample += packed
    return None


def _key(path: bytes) -> str:
    return encode_key(outside_key(path) if os.path.isabs(path) else path)[0].decode()


def _skipped(output: Path) -> set[str]:
    try:
        with open(output / SKIPPED_NAME, encoding="utf-8") as lines:
            return {json.loads(line)["path"] for line in lines}
    except FileNotFoundError:
        return set()


def _record(root: bytes, listing: Listing, options: PackOptions, position: int) -> tuple[np.void | None, str]:
    """What packing makes of one file now; None, and the reason: it cannot be packed."""
    groups = read_groups(root, listing, position, position + 1)
    if options.transcodes:
        from fastload.packing.transcode import transcoder

        groups = map(transcoder(options), groups)
    group = next(iter(groups))
    return (group.records[0], "") if len(group.records) else (None, group.failures[0][1])


def _same(before: np.void | None, now: np.void | None) -> bool:
    if before is None or now is None:
        return before is now
    return all(before[name] == now[name] for name in ("length", "crc32c"))
