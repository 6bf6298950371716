"""The folder that a pack writes: its lock and contents, and whether a finished pack is of this source."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from fastload.errors import PackError
from fastload.machine.paths import exists
from fastload.packing.entries import remove_entries
from fastload.packing.files import (
    LOCK_NAME,
    PLAN_LOCK_NAME,
    encode_key,
    outside_key,
    printable,
    publish,
    remove,
    sync_folder,
    temporary_of,
)
from fastload.packing.folders import Listing, read_groups
from fastload.packing.options import PackOptions
from fastload.packing.plan import PLAN_NAME, WORK_NAME, PackPlan, check_options, make_plan
from fastload.packing.publish import SKIPPED_NAME
from fastload.packing.source import Source
from fastload.shard.dataset import PackedFiles
from fastload.shard.manifest import ENTRIES_NAME, INDEX_NAME, MANIFEST_NAME, SECOND_INDEX, Manifest

# ---- Whether a complete pack is still of its source -------------------------------------------------
# This compares names and sizes, and the bytes of newer files.

_SCAN = ".tmp-scan"  # a folder for the listing; versions before 1.0 appended random letters
_SPAN = 4096  # files at a time


def remove_scans(output: Path) -> None:
    """Remove what a killed check left in ``output``."""
    for name in os.listdir(output):
        if name.startswith(_SCAN):
            remove(output / name)


def check_complete(
    source: Source, output: Path, options: PackOptions, found: Callable[[int], None]
) -> Manifest:
    """Return the manifest of a finished pack of this very source with these very options.

    Args:
        found: called now and then with the number of files so far.

    Raises:
        PackError: it is another pack.
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
    """Return the first file that is newer than the pack and gives another record than the pack holds.

    A file that was only touched or copied, or whose clock is ahead, gives the same record.
    """
    written_ns = (output / MANIFEST_NAME).stat().st_mtime_ns
    if plan.totals.newest_ns <= written_ns:
        return None
    listing, skipped = Listing(scan), _skipped(output)
    records = PackedFiles(output, entries=False).records
    sample = 0  # id of the next file that was not skipped
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
    """Return the record that packing makes of one file now; None and a reason if it cannot be packed."""
    groups = read_groups(root, listing, position, position + 1)
    if options.transcodes:
        from fastload.packing.recoding import transcoder

        groups = map(transcoder(options), groups)
    group = next(iter(groups))
    return (group.records[0], "") if len(group.records) else (None, group.failures[0][1])


def _same(before: np.void | None, now: np.void | None) -> bool:
    if before is None or now is None:
        return before is now
    return all(before[name] == now[name] for name in ("length", "crc32c"))


# ---- The folder that a pack goes into ---------------------------------------------------------------

State = Literal["empty", "unfinished", "complete", "foreign"]
RUN_NAME = "samples.json"  # in the work folder: what a pack of samples was asked to do
RECODE_NAME = ".fastload-recode"  # the work folder of a set that is recoded in place
_ANNOUNCED = "names.json"
_WRITTEN = (MANIFEST_NAME, INDEX_NAME, SKIPPED_NAME)
_COLUMN = re.compile(r"(\.tmp-)?(field-\d\d|index)(-2)?\.fli")


class OutputFolder:
    """A folder for one packed dataset; whoever changes it holds its lock (``folder_lock``).

    Args:
        path: an existing folder.
        work: the name of the work folder.
    """

    def __init__(self, path: Path, work: str = WORK_NAME) -> None:
        self.path = path
        self.work = path / work

    @property
    def recoding(self) -> OutputFolder:
        """The same folder, with the work folder of recoding."""
        return OutputFolder(self.path, RECODE_NAME)

    def state(self) -> State:
        """Return ``complete`` if it has a manifest, ``unfinished`` if a pack or an index was begun here,
        ``foreign`` if it has neither, but somebody else's files; otherwise ``empty``."""
        if exists(self.path / MANIFEST_NAME):
            return "complete"
        if exists(self.work):
            return "unfinished"
        return "foreign" if self._strangers() else "empty"

    def refuse_others(self, mine: str | None) -> None:
        """Raise PackError if an unfinished pack of another kind is here.

        Args:
            mine: the file in the work folder that records a pack of this kind; None: an index, which has
                none.
        """
        for name in {PLAN_NAME, RUN_NAME} - {mine}:
            if exists(self.work / name):
                what = "files" if name == PLAN_NAME else "samples"
                raise PackError(
                    f"{self.path} holds an unfinished pack of {what}. Finish it, throw it away with "
                    "'fastload pack --restart', or choose another folder."
                )

    def refusal(self) -> PackError:
        """Return the error about a foreign folder."""
        stranger = (self._strangers() or ["nothing"])[0]
        return PackError(
            f"{self.path} is not empty and holds no pack (found {stranger!r}); choose another folder."
        )

    def announce(self, names: Sequence[str]) -> None:
        """Record which files are about to get their final names, so that :meth:`discard` knows them."""
        path = self.work / _ANNOUNCED
        temporary_of(path).write_text(json.dumps(names), encoding="utf-8")
        publish(temporary_of(path), path)
        sync_folder(self.path)  # the work folder's own name

    def discard(self) -> None:
        """Remove what a pack made here, and nothing else; the manifest first: no half passes for a whole."""
        names = self._made()
        if exists(self.path / MANIFEST_NAME):
            names |= {
                Path(shard.file).parts[0]
                for shard in Manifest.read(self.path).shards
                if not (Path(shard.file).is_absolute() or "://" in shard.file)
            }
            remove(self.path / MANIFEST_NAME)
            sync_folder(self.path)
        for name in sorted(names - {"..", "."}):
            remove(self.path / name)
        remove_entries(self.path)
        remove(self.recoding.work)
        remove(self.work)

    def tidy(self) -> None:
        """Remove half-written files beside a complete dataset."""
        for name in _WRITTEN:
            remove(temporary_of(self.path / name))
        remove(self.work)

    def _strangers(self) -> list[str]:
        ours = {LOCK_NAME, PLAN_LOCK_NAME, RECODE_NAME, *_WRITTEN}
        ours |= {SECOND_INDEX, ENTRIES_NAME}  # left by a killed index
        return sorted(n for n in os.listdir(self.path) if n not in ours and not n.startswith(".tmp-"))

    def _made(self) -> set[str]:
        """Return the names that a pack makes in any folder, and those that an unfinished one makes here."""
        names = {INDEX_NAME, SKIPPED_NAME} | {temporary_of(self.path / name).name for name in _WRITTEN}
        names |= {name for name in os.listdir(self.path) if _COLUMN.fullmatch(name)}
        plan = PackPlan.read(self.work) if exists(self.work) else None
        if plan is not None:
            names |= {shard.name for shard in plan.shards} | {f".tmp-{shard.name}" for shard in plan.shards}
        return names | self._announced() | self.recoding._announced()

    def _announced(self) -> set[str]:
        try:
            names = json.loads((self.work / _ANNOUNCED).read_text(encoding="utf-8"))
            return {str(name) for name in names if "/" not in name}
        except FileNotFoundError:
            return set()
        except (ValueError, TypeError) as error:
            raise PackError(
                f"{self.work / _ANNOUNCED} cannot be used ({error}); remove {self.path}."
            ) from None
