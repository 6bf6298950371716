"""A pack of rows whose sizes only encoding tells: one process writes shard after shard, and can resume."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastload.errors import PackError
from fastload.machine.paths import exists
from fastload.packing.compare import check_options, check_rows
from fastload.packing.cut import WORK_NAME, RunningCut, bad_rows
from fastload.packing.entries import ensure_entries
from fastload.packing.facts import Summary, entry_facts
from fastload.packing.files import (
    folder_lock,
    make_folder,
    publishing,
    remove,
    require_space,
    sync_folder,
)
from fastload.packing.options import PackOptions
from fastload.packing.progress import Observer, Place, Work
from fastload.packing.publish import Finished, PackResult, runs_in
from fastload.packing.sample_rows import IterableRows, SequenceRows, batches_by
from fastload.packing.shard_writer import ShardPart
from fastload.packing.shares import piece_path, write_piece
from fastload.packing.spread import BadFiles
from fastload.packing.store_target import StoreTarget
from fastload.packing.target import RUN_NAME, OutputFolder, Target
from fastload.shard.dataset import PackedFiles
from fastload.shard.formats import FORMATS, format_of
from fastload.shard.manifest import Manifest, column_name

VERSION = 2


def pack_running(
    rows: IterableRows | SequenceRows, target: Target, options: PackOptions, observer: Observer
) -> PackResult:
    """Pack or resume; if these very samples are already packed, only return the result.

    Raises:
        PackError: samples cannot be packed, the target holds another pack, or the disk is full.
    """
    place = _InStore(target) if isinstance(target, StoreTarget) else _InFolder(target.stage)
    with place.held():
        return _Run(rows, place, options, observer).run()


@dataclass(frozen=True)
class _Run:
    """One pack; the caller holds its place."""

    rows: IterableRows | SequenceRows
    place: _InFolder | _InStore
    options: PackOptions
    observer: Observer

    def run(self) -> PackResult:
        began, place, options = time.monotonic(), self.place, self.options
        rows = self.rows.identity(options, None)
        if rows is None and (options.num_proc or 1) > 1:
            raise PackError(
                f"num_proc={options.num_proc} divides the samples among processes, and an iterable comes "
                "once. Leave it out, or give something with __getitem__ and __len__."
            )
        if options.restart:  # other files there stay
            place.discard()
        manifest = place.manifest()
        if manifest is not None:
            return self._complete(manifest, rows, began)
        identity = {**options.identity(), **(rows or {"given": None, "schema": self._schema()})}
        runs_in(identity, self.rows.schema)
        self._take_up(identity, rows is not None)
        cut = RunningCut(place.work, self.rows.schema, options, self.observer.advanced, self._kept)
        first = cut.skip_finished(lambda number: place.is_finished(cut, number))
        self._require_space(first)
        count = self._length()
        self.observer.started(Work("packing", place.place, "sample", count, done=first, where="into"))
        try:
            cut.write(batches_by(self.rows, first, options, options.num_proc or 1))
        except BadFiles as error:
            raise PackError(bad_rows(error, "sample")) from None
        if not cut.number:
            raise PackError("there are no samples to pack.")
        finished = Finished([cut.part_path(number) for number in range(cut.number)])
        finished.require_samples()
        manifest = place.publish(cut, finished, self.rows.schema, identity, options, self.observer)
        packed = time.monotonic() - began
        return self._result(manifest, finished.summary, packed, manifest.data_bytes)

    def _schema(self) -> Any:
        return json.loads(self.rows.schema.to_json())

    def _length(self) -> int:
        """Return how many samples there are; 0: unknown."""
        try:
            return len(self.rows)
        except TypeError:
            return 0

    def _kept(self, number: int) -> None:
        self.place.keep(self.options, number, self.rows.schema.shown)

    def _require_space(self, done: int) -> None:
        if isinstance(self.rows, SequenceRows) and len(self.rows) and isinstance(self.place, _InFolder):
            least = self.rows.least_bytes(self.options)
            require_space(self.place.place, least * (len(self.rows) - done) // len(self.rows))

    def _complete(self, manifest: Manifest, rows: Mapping[str, Any] | None, began: float) -> PackResult:
        if rows is None:
            raise PackError(
                f"{self.place.place} holds a complete pack, and an iterable cannot be compared with it. Use "
                "append=True to add to it, restart=True to replace it, or choose another folder."
            )
        check_options(manifest.options, self.options, self.place.place)
        check_rows(manifest.options, rows, self.place.place)
        self._say_compared()
        self.place.tidy()
        return self._result(manifest, None, time.monotonic() - began, 0)

    def _result(
        self, manifest: Manifest, summary: Summary | None, seconds: float, written: int
    ) -> PackResult:
        began = time.monotonic()
        dataset = self.place.dataset(self.options, self.observer)
        lines = self.place.skipped_lines() if summary is not None else ()
        facts, more = entry_facts(dataset), time.monotonic() - began
        return PackResult(self.place.place, manifest, facts, summary, seconds, more, written, lines)

    def _say_compared(self) -> None:
        """Say that only some samples were compared, for users who have changed others."""
        assert isinstance(self.rows, SequenceRows)
        some = len(self.rows.compared())
        if some < len(self.rows):
            self.observer.said(
                self.place.place,
                f"goes on with what is packed there already. {some} of the {len(self.rows)} samples were "
                "compared with it and are the same; if others have changed, pass restart=True.",
            )

    def _take_up(self, identity: Mapping[str, Any], known: bool) -> None:
        """Begin, or check that what was begun is this pack; ``known``: which samples it is of."""
        before = self.place.begun()
        if before is not None and known:
            check_options(before, self.options, self.place.place, begun=True)
            check_rows(before, identity, self.place.place)
            self._say_compared()
            return
        if before is not None:
            self.observer.said(
                self.place.place,
                "a pack was interrupted. An iterable cannot be asked for its samples again, so it begins "
                "anew; give something with __getitem__ and __len__ to go on where it was.",
            )
        self.place.begin({**identity, "version": VERSION})


def _read_run(text: bytes, where: object) -> Mapping[str, Any]:
    try:
        before: Mapping[str, Any] = json.loads(text)
    except ValueError as error:
        raise PackError(
            f"{where} cannot be used ({error}); pack again with restart=True (--restart)."
        ) from None
    return before


@dataclass(frozen=True)
class _InFolder:
    """A folder that such a pack goes into."""

    place: Path

    @property
    def work(self) -> Path:
        return self.place / WORK_NAME

    @property
    def _folder(self) -> OutputFolder:
        return OutputFolder(self.place)

    @contextmanager
    def held(self) -> Iterator[None]:
        make_folder(self.place)
        with folder_lock(self.place):
            yield

    def discard(self) -> None:
        self._folder.discard()

    def manifest(self) -> Manifest | None:
        state = self._folder.state()
        if state == "foreign":
            raise self._folder.refusal()
        return Manifest.read(self.place) if state == "complete" else None

    def begun(self) -> Mapping[str, Any] | None:
        path = self.work / RUN_NAME
        if exists(path):
            return _read_run(path.read_bytes(), path)
        self._folder.refuse_others(RUN_NAME)
        return None

    def begin(self, identity: Mapping[str, Any]) -> None:
        self._folder.discard()
        self.work.mkdir()
        path = self.work / RUN_NAME
        with publishing(path) as temporary:
            temporary.write_text(json.dumps(identity), encoding="utf-8")

    def is_finished(self, cut: RunningCut, number: int) -> bool:
        return cut.is_whole(number)

    def keep(self, options: PackOptions, number: int, shown: tuple[bool, bool]) -> None:
        """Do nothing, as the work folder keeps it."""

    def publish(
        self, cut: RunningCut, finished: Finished, schema: Any, identity: Mapping[str, Any],
        options: PackOptions, observer: Observer,
    ) -> Manifest:  # fmt: skip
        """Give the shards their names, and publish the dataset. After a kill at any moment, the same call
        resumes: what already has its name stays."""
        suffix, kept = FORMATS[options.format].suffix, finished.kept
        names = [f"{self.place.name}-{at:05d}-of-{len(kept):05d}{suffix}" for at in range(len(kept))]
        self._folder.announce([*names, *(column_name(number) for number, _ in schema.columns)])
        for number, name in zip(kept, names, strict=True):
            if exists(cut.path(number)):
                remove(self.place / name)
                os.replace(cut.path(number), self.place / name)
        sync_folder(self.place)
        manifest = finished.publish(self.place, names, schema, identity)
        remove(self.work)
        return manifest

    def tidy(self) -> None:
        self._folder.tidy()

    def dataset(self, options: PackOptions, observer: Observer) -> PackedFiles:
        if options.entries is not None:
            ensure_entries(self.place, options.entries, options.num_proc, observer)
        return PackedFiles(self.place)

    def skipped_lines(self) -> tuple[str, ...]:
        return ()


@dataclass(frozen=True)
class _InStore:
    """A folder of a store: a finished shard is uploaded with its part, and removed from this machine."""

    target: StoreTarget

    @property
    def place(self) -> Place:
        return self.target.place

    @property
    def work(self) -> Path:
        folder = self.target.stage / WORK_NAME
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    @contextmanager
    def held(self) -> Iterator[None]:
        yield  # a store has no locks

    def discard(self) -> None:
        self.target.discard()

    def manifest(self) -> Manifest | None:
        return self.target.manifest()

    def begun(self) -> Mapping[str, Any] | None:
        names = self.target.names()
        if f"{WORK_NAME}/{RUN_NAME}" not in names:
            self.target.refuse_strangers()
            if names:
                raise PackError(
                    f"{self.place} holds an unfinished pack of files. Finish it, throw it away with "
                    "'fastload pack --restart', or choose another folder."
                )
            return None
        return _read_run(self.target.store.get(self.target.work_key(RUN_NAME)), self.place)

    def begin(self, identity: Mapping[str, Any]) -> None:
        self.target.discard()
        self.target.store.put(self.target.work_key(RUN_NAME), json.dumps(identity).encode())

    def is_finished(self, cut: RunningCut, number: int) -> bool:
        path = cut.part_path(number)
        key = self.target.work_key(path.name)
        if self.target.store.head(key) is None:
            return False
        path.write_bytes(self.target.store.get(key))
        return True

    def _data_name(self, options: PackOptions, number: int) -> str:
        name = f"{self.target.place.name}-{number:05d}{FORMATS[options.format].suffix}"
        return format_of(options.format).data_file(Path(name)).as_posix()

    def keep(self, options: PackOptions, number: int, shown: tuple[bool, bool]) -> None:
        """Upload a finished shard, its entry points, and last its part: now it counts as finished."""
        path = self.work / f"{number:05d}{FORMATS[options.format].suffix}"
        own, data = path.with_suffix(".part"), format_of(options.format).data_file(path)
        part, target = ShardPart.read(own), self.target
        if len(part.records):
            target.store.upload(target.key(self._data_name(options, number)), data)
            if options.entries is not None:
                write_piece(own, part, data, options.entries, shown)
                target.store.upload(target.work_key(piece_path(own).name), piece_path(own))
        target.store.upload(target.work_key(own.name), own)
        remove(path)

    def publish(
        self, cut: RunningCut, finished: Finished, schema: Any, identity: Mapping[str, Any],
        options: PackOptions, observer: Observer,
    ) -> Manifest:  # fmt: skip
        """Publish the dataset. The shards got their names before their number was known, so without it."""
        stage, suffix = self.target.stage, FORMATS[options.format].suffix
        names = [f"{self.target.place.name}-{number:05d}{suffix}" for number in finished.kept]
        manifest = finished.publish(stage, names, schema, identity)
        owns = [cut.part_path(number) for number in finished.kept]
        data = [self._data_name(options, number) for number in finished.kept]
        self.target.make_entries(owns, data, manifest, options, observer)
        self.target.upload(manifest)
        self.tidy()
        return manifest

    def tidy(self) -> None:
        self.target.tidy()

    def dataset(self, options: PackOptions, observer: Observer) -> PackedFiles:
        return self.target.dataset(options)

    def skipped_lines(self) -> tuple[str, ...]:
        return self.target.skipped_lines()
