"""From finished shards in a store to a dataset there: index and entry points are made here, of the parts."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from fastload._native import _C
from fastload.errors import PackError
from fastload.machine.paths import exists
from fastload.packing.cluster.pieces import piece_path, read_piece, write_piece
from fastload.packing.cluster.shares import ranges
from fastload.packing.cluster.store_target import StoreTarget
from fastload.packing.entries import Made, write_entries
from fastload.packing.entry_facts import entry_facts
from fastload.packing.files import remove
from fastload.packing.options import PackOptions
from fastload.packing.part import ShardPart
from fastload.packing.plan import PackPlan
from fastload.packing.progress import Observer, entries_work
from fastload.packing.publish import SKIPPED_NAME, publish_dataset
from fastload.packing.result import PackResult
from fastload.packing.shard_job import part_path
from fastload.packing.summary import Summary
from fastload.shard.dataset import PackedFiles
from fastload.shard.manifest import ENTRIES_NAME, INDEX_NAME, MANIFEST_NAME, Manifest

__all__ = ["publish_target", "require_shards"]

_THREADS = 16  # parts fetched at a time


def require_shards(output: str, missing: list[int], count: int) -> None:
    """Raise PackError if a pack of ``count`` shards cannot be published because some are missing."""
    if missing:
        raise PackError(
            f"{output} cannot be published: of {count} shards there are {len(missing)} missing "
            f"({ranges(missing)}). 'fastload pack SOURCE OUTPUT --shards {ranges(missing)}' packs them."
        )


def publish_target(
    target: StoreTarget, stage: Path, plan: PackPlan | Manifest, options: PackOptions, observer: Observer
) -> PackResult:
    """Publish one dataset, whose shards are all there; of a complete one nothing is changed."""
    began = packed = time.monotonic()
    summary: Summary | None = None
    if isinstance(plan, PackPlan):
        publication = _Publication(target, stage, plan, options, observer)
        publication.fetch()
        manifest, summary = publish_dataset(stage, plan)
        packed = time.monotonic()
        publication.finish(manifest)
    else:
        manifest = plan
    target.tidy()
    storage = None if target.location.scheme == "file" else options.storage_options
    facts = entry_facts(PackedFiles(str(target.location), storage_options=storage))
    reasons = () if summary is None else _reasons(stage)
    done = time.monotonic() - packed
    return PackResult(target.location, manifest, facts, summary, packed - began, done, 0, reasons)


def _reasons(stage: Path) -> tuple[str, ...]:
    path = stage / SKIPPED_NAME
    return tuple(path.read_text(encoding="utf-8").splitlines()) if exists(path) else ()


@dataclass(frozen=True)
class _Publication:
    target: StoreTarget
    stage: Path
    plan: PackPlan
    options: PackOptions
    observer: Observer

    def fetch(self) -> None:
        """The parts of all shards, and their entry points.

        Raises:
            PackError: a shard is not as its part says.
        """
        names = self.target.names()

        def fetch_one(number: int) -> None:
            self._fetch_one(number, names)

        with ThreadPoolExecutor(_THREADS, "fetch") as pool:
            for _ in pool.map(fetch_one, range(len(self.plan.shards))):
                pass

    def _fetch_one(self, number: int, names: dict[str, int]) -> None:
        store, key = self.target.store, self.target.key
        name, own = self.target.part_name(self.plan, number), self._own(number)
        own.write_bytes(store.get(key(name)))
        piece = piece_path(Path(name)).as_posix()
        if piece in names and self.options.entries is not None:
            piece_path(own).write_bytes(store.get(key(piece)))
        part, data = ShardPart.read(own), self.target.data_name(self.plan, number)
        if len(part.records) and names.get(data) != part.shard_bytes:
            raise PackError(
                f"{self.target.location / data} has {names.get(data, 'no')} bytes, and was written with "
                f"{part.shard_bytes}. Remove {self.target.location / name}, and pack shard {number} again."
            )

    def _own(self, number: int) -> Path:
        return part_path(self.stage, self.plan.shards[number].name)

    def finish(self, manifest: Manifest) -> None:
        """Entry points; then everything goes into the store, the manifest last."""
        spacing = self.options.entries
        if spacing is not None and manifest.codecs.get("jpeg"):
            digest = _C.Index(str(self.stage / INDEX_NAME)).digest
            self.observer.started(entries_work(self.target.location, manifest.num_records))
            write_entries(self.stage, manifest, digest, spacing, self._made(spacing))
        for name in (INDEX_NAME, ENTRIES_NAME, SKIPPED_NAME, MANIFEST_NAME):
            if exists(self.stage / name):
                self.target.store.upload(self.target.key(name), self.stage / name)

    def _made(self, spacing: int) -> Iterator[Made]:
        for number in range(len(self.plan.shards)):
            own = self._own(number)
            part = ShardPart.read(own)
            if not len(part.records):
                continue
            piece = read_piece(own, part, spacing)
            if piece is None:  # packed with other ones, or none
                piece = self._again(number, own, part, spacing)
            yield piece
            self.observer.advanced(len(part.records))

    def _again(self, number: int, own: Path, part: ShardPart, spacing: int) -> Made:
        """Made here, of the shard's records."""
        data = self.target.data_name(self.plan, number)
        copy = self.stage / data
        copy.parent.mkdir(parents=True, exist_ok=True)
        try:
            copy.write_bytes(self.target.store.get(self.target.key(data)))
            write_piece(own, part, copy, spacing)
        finally:
            remove(copy)
        made = read_piece(own, part, spacing)
        assert made is not None
        return made
