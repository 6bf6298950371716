"""A folder of an object store that a pack goes into: its plan, its finished shards, what is missing.

``.fastload-pack/`` there has the plan (``plan.json``, written once: whoever comes second takes the first
one's), the listing, and a part for each finished shard. There are no locks: who writes a shard that another
has written writes the same bytes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastload.errors import PackError
from fastload.machine.paths import write_at
from fastload.packing.listing import ENTRY
from fastload.packing.options import PackOptions
from fastload.packing.plan import PLAN_NAME, WORK_NAME, PackPlan, make_plan
from fastload.packing.publish import SKIPPED_NAME
from fastload.packing.source import Source
from fastload.remote.location import Location
from fastload.remote.opening import open_store
from fastload.remote.store import Store
from fastload.shard.formats import format_of
from fastload.shard.manifest import ENTRIES_NAME, INDEX_NAME, MANIFEST_NAME, MAX_BYTES, Manifest

__all__ = ["StoreTarget", "target_at"]

_LISTING = ("files", "paths")


def target_at(location: Location, storage_options: Mapping[str, Any] | None) -> StoreTarget:
    """The folder at a URL; ``storage_options`` are of object stores."""
    options = None if location.scheme == "file" else storage_options
    return StoreTarget(open_store(location, options), location)


@dataclass(frozen=True)
class StoreTarget:
    """One dataset's folder in a store."""

    store: Store
    location: Location

    def key(self, name: str) -> str:
        """The path in the store of a file of the dataset."""
        return (self.location / name).path

    def work_key(self, name: str) -> str:
        """The same of a file that goes when the dataset is published."""
        return self.key(f"{WORK_NAME}/{name}")

    def names(self) -> dict[str, int]:
        """All files there and their bytes, by their names below the folder."""
        prefix = self.location.path + "/"
        return {found.path[len(prefix) :]: found.size for found in self.store.list(prefix)}

    def manifest(self) -> Manifest | None:
        """The manifest of a dataset that is complete."""
        if self.store.head(self.key(MANIFEST_NAME)) is None:
            return None
        body = self.store.get(self.key(MANIFEST_NAME), most=MAX_BYTES)
        return Manifest.parse(f"{self.location}/{MANIFEST_NAME}", body)

    def plan(self, stage: Path) -> PackPlan | None:
        """The plan that is there, and copied into the work folder of ``stage``; None: there is none."""
        if self.store.head(self.work_key(PLAN_NAME)) is None:
            return None
        work = stage / WORK_NAME
        work.mkdir(parents=True, exist_ok=True)
        (work / PLAN_NAME).write_bytes(self.store.get(self.work_key(PLAN_NAME)))
        return PackPlan.read(work)

    def make_plan(
        self, source: Source, options: PackOptions, stage: Path, found: Callable[[int], None]
    ) -> PackPlan:
        """Plan and write it there, unless somebody has done so meanwhile: then theirs.

        Raises:
            PackError: the folder has files that are no pack's.
        """
        strangers = sorted(name for name in self.names() if not name.startswith(f"{WORK_NAME}/"))
        if strangers:
            raise PackError(
                f"{self.location} is not empty and holds no pack (found {strangers[0]!r}); choose another "
                "folder."
            )
        work = stage / WORK_NAME
        work.mkdir(parents=True, exist_ok=True)
        plan = make_plan(source, options, self.location.name, work, found)
        for name in _LISTING:
            self.store.upload(self.listing_key(plan, name), work / f"{name}.bin")
        plan.write(work)
        if self.store.put(self.work_key(PLAN_NAME), (work / PLAN_NAME).read_bytes(), if_absent=True):
            return plan
        theirs = self.plan(stage)
        assert theirs is not None
        return theirs

    def listing_key(self, plan: PackPlan, name: str) -> str:
        """The listing's ``files.bin`` or ``paths.bin``, of this plan: two may be made at the same time."""
        return self.work_key(f"{name}-{plan.digest}-{plan.totals.times}.bin")

    def fetch_listing(self, plan: PackPlan, number: int, work: Path) -> None:
        """Write the listing of one shard's files into a work folder, where the whole one has it."""
        shard = plan.shards[number]
        first = max(shard.start - 1, 0)
        begin, end = first * ENTRY.itemsize, shard.stop * ENTRY.itemsize
        rows = self.store.get(self.listing_key(plan, "files"), begin, end)
        _write_at(work / "files.bin", begin, rows)
        ends = [int.from_bytes(rows[at : at + 8], "little") for at in (0, len(rows) - ENTRY.itemsize)]
        start = ends[0] if shard.start else 0
        paths = self.store.get(self.listing_key(plan, "paths"), start, ends[1])
        _write_at(work / "paths.bin", start, paths)

    def part_name(self, plan: PackPlan, number: int) -> str:
        """The name below the folder of a shard's part, there once the shard is; of this plan alone."""
        return f"{WORK_NAME}/{plan.digest}/{plan.shards[number].name}.part"

    def data_name(self, plan: PackPlan, number: int) -> str:
        """The name below the folder of the file with a shard's records."""
        file = format_of(str(plan.identity["format"])).data_file(Path(plan.shards[number].name))
        return file.as_posix()

    def discard(self, plan: PackPlan | None) -> None:
        """Remove what a pack has made here, the manifest first, and nothing else."""
        manifest = self.manifest()
        made = {MANIFEST_NAME, INDEX_NAME, ENTRIES_NAME, SKIPPED_NAME}
        made |= {shard.file for shard in manifest.shards} if manifest is not None else set()
        made |= {self.data_name(plan, i) for i in range(len(plan.shards))} if plan is not None else set()
        names = [*self.names()]
        for name in sorted(names, key=lambda name: name != MANIFEST_NAME):
            if name in made or name.startswith(f"{WORK_NAME}/"):
                self.store.delete(self.key(name))

    def tidy(self) -> None:
        """Remove what a published pack needs no more; the plan last, by which the rest is known."""
        names = [name for name in self.names() if name.startswith(f"{WORK_NAME}/")]
        for name in sorted(names, key=lambda name: name.endswith(f"/{PLAN_NAME}")):
            self.store.delete(self.key(name))


def _write_at(path: Path, offset: int, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        write_at(descriptor, data, offset)
    finally:
        os.close(descriptor)
