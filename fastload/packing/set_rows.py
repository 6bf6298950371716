"""Packed sets, and files that can be indexed, as rows: copied as they are stored, or changed like others."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fastload.errors import FastloadError, PackError, ShardError
from fastload.machine.paths import exists, is_file
from fastload.machine.sizes import counted
from fastload.machine.temporary import TemporaryFolder
from fastload.machine.threads import started_pool
from fastload.packing.annotations.find import schema_asked
from fastload.packing.fetched import in_windows, left_of
from fastload.packing.files import ESCAPED, decode_key
from fastload.packing.folders import is_split
from fastload.packing.foreign import IndexOptions, index_files
from fastload.packing.listing import Listing, Row, Totals
from fastload.packing.options import PackOptions
from fastload.packing.pictures import Picture, PictureList, Value, pixels_of, png_file
from fastload.packing.publish import KEPT_RUNS, SKIPPED_NAME
from fastload.packing.recoding import Transcoder, threads_for
from fastload.packing.rows import CARRIED, FRAMES, Batch, FailedSample, Notes, Rows, StoredSample, carried_by
from fastload.packing.sample_rows import Encoder, SampleRows
from fastload.packing.stored import Source, StorePlace
from fastload.remote.location import is_url
from fastload.sample.schema import Field, Schema
from fastload.shard.codecs import CODECS, COEFFICIENTS, RAW, SIXTEEN_BIT, file_of
from fastload.shard.dataset import PackedFiles
from fastload.shard.manifest import MANIFEST_NAME, Manifest
from fastload.shard.suffixes import INDEXED, TABLES, is_image

# ---- Packed sets ------------------------------------------------------------------------------------

_LISTED = 4096  # samples whose sizes are looked up at a time
_SPAN, _SPAN_BYTES = 256, 16 << 20  # samples and bytes of pictures in memory at a time


def open_sets(source: Source, options: PackOptions) -> Sequence[tuple[str, SetRows]]:
    """Return split and samples of a packed set, or of the sets that a folder has under names of splits;
    nothing for anything else.

    Raises:
        PackError: options are for folders of images.
        FormatError, ShardError: a set cannot be opened.
    """
    places = _places(source, options)
    if places and options.says_what:
        raise PackError(f"{source} is a packed set. {options.says_what} is for a folder of images.")
    opened = {
        name: PackedFiles(place, entries=False, storage_options=storage) for name, place, storage in places
    }
    return [(name, SetRows(set_, schema_asked(set_.schema, options))) for name, set_ in opened.items()]


def _places(source: Source, options: PackOptions) -> list[tuple[str, str | Path, Any]]:
    """Return the splits' names and places of packed sets, and the options of their stores."""
    places: list[tuple[str, str | Path, Any]]
    if isinstance(source, StorePlace):
        location, storage = source.location, options.storage_options
        storage = None if location.scheme == "file" else storage
        found, others = _stored(source)
        places = [(name, str(location / name) if name else str(source), storage) for name in found]
    else:
        here, others = _here(Path(source).absolute(), lambda place: exists(place / MANIFEST_NAME))
        in_store = {name for name, folder in here if Manifest.read(folder).in_store}
        places = [(name, at, options.storage_options if name in in_store else None) for name, at in here]
    if others:
        what = "none" if is_split(others[0]) else "another one, whose name is no split's,"
        raise PackError(
            f"{source} has a packed set in {places[0][0]!r} and {what} in {others[0]!r}; pack them one by "
            "one."
        )
    return places


def _stored(source: StorePlace) -> tuple[list[str], list[str]]:
    """Return like :func:`_here` which names a store's packed sets have, and others."""
    if not source.location.path or source.kind != "folder":
        return [], []
    if source.files.store.head((source.location / MANIFEST_NAME).path) is not None:
        return [""], []
    if source.location.scheme in ("http", "https"):  # a web server does not list what it has
        return [], []
    names = {name for name, _ in source.names}
    if any(is_image(name) and "/" not in name for name in names):
        return [], []
    folders = {name.partition("/")[0] for name in names if "/" in name}
    return _splits_among(folders, lambda name: f"{name}/{MANIFEST_NAME}" in names)


def _here(place: Path, is_one: Callable[[Path], bool]) -> tuple[list[tuple[str, Path]], list[str]]:
    """Return a place of a kind, or the folders in it with names of splits; and others that would be lost.

    A folder with images is neither; it may have millions, so the first one ends the search.
    """
    if is_one(place):
        return [("", place)], []
    names = []
    try:
        with os.scandir(place) as entries:
            for entry in entries:
                if is_image(entry.name):
                    return [], []
                if entry.is_dir():
                    names.append(entry.name)
    except OSError:
        return [], []  # reported by who opens it as something else
    found, others = _splits_among(names, lambda name: is_one(place / name))
    return [(name, place / name) for name in found], others


def _splits_among(names: Collection[str], is_one: Callable[[str], bool]) -> tuple[list[str], list[str]]:
    """Return the folders of a kind with names of splits; if there are any, also those that are only one."""
    found = sorted(name for name in names if is_split(name) and is_one(name))
    shown = sorted(name for name in names if not name.startswith(".")) if found else []
    return found, [name for name in shown if is_split(name) != is_one(name)]


class SetRows(SampleRows):
    """The samples of a packed set.

    Records are copied with their index entries where nothing changes. Coefficient records become JPEGs first,
    and pixels PNG files, as ``fastload unpack`` writes them; with ``raw``, pixels stay.

    Args:
        dataset: the set.
        schema: its fields, or some of them.
        in_place: whether they replace the set: pixels stay, and damage ends it.
    """

    def __init__(self, dataset: PackedFiles, schema: Schema, in_place: bool = False) -> None:
        super().__init__(os.fsencode(dataset.where), schema)
        self.dataset, self._in_place = dataset, in_place
        self.carried = next(iter(carried_by(dataset)), None)

    def __len__(self) -> int:
        return len(self.dataset)

    def settings(self) -> dict[str, Any]:
        manifest = self.dataset.manifest  # the same samples from other files give the same pack
        return {"set": manifest.seal if self._in_place else manifest.id}

    def identity(self, options: PackOptions, totals: Totals | None) -> dict[str, Any] | None:
        found, manifest = super().identity(options, totals), self.dataset.manifest
        if found is None or self._in_place:
            return found
        found |= {name: manifest.options[name] for name in (FRAMES, CARRIED) if name in manifest.options}
        return found if manifest.runs is None else found | {KEPT_RUNS: str(manifest.runs.spec)}

    def listed(self, notes: Notes) -> Iterator[Row]:
        """Yield each sample with the bytes of its values; of images with labels, the images' alone."""
        labels = self.dataset.records["label"]
        fields = [self.schema.fields[0]] if self.schema.is_plain else [*self.schema]
        for start in range(0, len(self), _LISTED):
            ids = self.dataset.ids_at(np.arange(start, min(start + _LISTED, len(self))))
            sizes = sum(self._lengths(field, ids) for field in fields)
            for size, label in zip(sizes.tolist(), labels[ids].tolist(), strict=True):  # type: ignore[union-attr]
                yield Row(b"", size, 0, label)

    def _lengths(self, field: Field, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        lengths: npt.NDArray[np.int64]
        if field.storage == "record":
            lengths = self._entries(field)["length"][ids].astype(np.int64)
            return lengths
        if field == self.dataset.schema.label_field:
            return np.full(len(ids), 4)
        if field.storage == "records":
            return self.dataset.list_bytes(field.name, ids)
        lengths = np.diff(self.dataset.columns[field.name].gather(ids)[1])
        return lengths

    def _entries(self, field: Field) -> npt.NDArray[np.void]:
        index = self.dataset.schema.index_field
        is_index = index is not None and field.name == index.name  # its kind may be another here
        return self.dataset.records if is_index else self.dataset.field_records(field.name)

    def batches(
        self, start: int, stop: int | None, options: PackOptions, listing: Listing | None
    ) -> Iterator[Batch]:
        stop = len(self) if stop is None else stop
        encoder = Encoder(self.schema, self.root, options.format == "hdf5", first_number=options.first_number)
        with started_pool(threads_for(options), "fastload-records") as pool:
            yield from encoder.encode(start, self._samples(range(start, stop), options, pool))

    def _samples(
        self, places: range, options: PackOptions, pool: Executor
    ) -> Iterator[StoredSample | FailedSample]:
        ids = self._ids_of(places)
        transcoder = Transcoder(self.schema, options) if options.transcodes else None
        changed = functools.partial(self._changed, transcoder, options.raw or self._in_place)
        has_records = bool(
            {CODECS[c].name for c in (COEFFICIENTS, RAW)} & self.dataset.manifest.codecs.keys()
        )
        spread = pool.map if transcoder or has_records else map
        with closing(in_windows(self.dataset, ids)) as windows:
            for window, part in windows:
                for span in self._spans(window):
                    stored = [self._stored(part, sample) for sample in left_of(self.dataset, span)]
                    yield from spread(changed, stored)

    def _ids_of(self, places: range) -> range:
        """Return the sample ids from the first of some places to the last, with dropped ones between them."""
        if not places:
            return range(0)
        first, last = self.dataset.ids_at(np.array([places[0], places[-1]])).tolist()
        return range(first, last + 1)

    def _spans(self, ids: range) -> Iterator[range]:
        """Yield samples in consecutive spans of bounded size."""
        lists, at = self.dataset.schema.list_fields, ids.start
        while at < ids.stop:
            some = np.arange(at, min(at + _SPAN, ids.stop))
            lengths = self.dataset.records["length"][some].astype(np.int64)
            ends = np.cumsum(sum((self._lengths(field, some) for field in lists), lengths))
            count = max(1, int(np.searchsorted(ends, _SPAN_BYTES, "right")))
            yield range(at, min(at + count, ids.stop))
            at += count

    def _stored(self, part: PackedFiles, sample: int) -> StoredSample | FailedSample:
        """Return a sample as the set has it."""
        entry = part.record(sample)
        path = decode_key(part.index.key(sample), bool(entry["flags"] & ESCAPED))
        values: list[Value] = []
        try:
            for field in self.schema:
                if field.storage == "record":
                    data = part.stored(sample, field.name)
                    values.append(Picture(data, entry=part.record(sample, field.name)))
                elif field.storage == "records":
                    values.append(_stored_list(part, field, sample))
                elif field == part.schema.label_field:
                    values.append(int(entry["label"]).to_bytes(4, "little", signed=True))
                else:
                    values.append(part.columns[field.name].value(sample))
        except FastloadError as error:
            if self._in_place or isinstance(error, ShardError):  # a file that cannot be read is not damaged
                raise
            return FailedSample(error, path)
        return StoredSample(path, values)

    def _changed(
        self, transcoder: Transcoder | None, keeps_pixels: bool, sample: StoredSample | FailedSample
    ) -> StoredSample | FailedSample:
        """Return a sample as it is packed."""
        if isinstance(sample, FailedSample):
            return sample
        try:
            values = [
                self._as_files(field, value, keeps_pixels)
                for field, value in zip(self.schema, sample.values, strict=True)
            ]
            return replace(sample, values=transcoder.values(values) if transcoder else values)
        except (FastloadError, ValueError) as error:
            if self._in_place:
                raise PackError(
                    f"{os.fsdecode(sample.path)} of {self.dataset.where} gives no JPEG: {error} 'fastload "
                    "verify --decode' finds all such records; the set is left as it is."
                ) from error
            return FailedSample(error, sample.path)

    def _as_files(self, field: Field, value: Value, keeps_pixels: bool) -> Value:
        """Return a value with its pictures as files; see :meth:`_file`."""
        if isinstance(value, bytes):
            return value
        change = functools.partial(self._file, field, keeps_pixels=keeps_pixels)
        return change(value) if isinstance(value, Picture) else value.map(change)

    def _file(self, field: Field, picture: Picture, keeps_pixels: bool) -> Picture:
        """Return a record as a file, or as pixels that no file could hold."""
        entry, kind = picture.entry, self.dataset.schema[field.name].kind
        assert entry is not None
        if entry["codec"] == COEFFICIENTS:
            return Picture(file_of(COEFFICIENTS, picture.data))
        if entry["codec"] == RAW:
            if not keeps_pixels and entry["channels"] in (1, 3):
                return Picture(png_file(pixels_of(entry, picture.data)))
            raw = {name: int(entry[name]) for name in ("codec", "width", "height", "channels")}
            picture = replace(picture, raw={**raw, "flags": int(entry["flags"] & SIXTEEN_BIT)})
        return picture if field.kind == kind else replace(picture, entry=None)


def _stored_list(part: PackedFiles, field: Field, sample: int) -> PictureList:
    entries, stored = part.list_records(field.name, sample), part.stored_list(field.name, sample)
    if entries is None or stored is None:
        return PictureList(None)
    pairs = zip(entries, stored, strict=True)
    return PictureList(tuple(None if data is None else Picture(data, entry=entry) for entry, data in pairs))


# ---- Files of other programs, indexed for the time of a pack ----------------------------------------

_OTHERS = tuple(suffix for suffix in INDEXED if suffix not in TABLES)
_elsewhere: dict[str, IndexedRows] = {}  # made in this process for packs of other machines, by the set's id


def open_foreign(source: Source, options: PackOptions) -> Sequence[tuple[str, SetRows]]:
    """Return split and samples of files that ``fastload index`` takes, or of folders of them under names of
    splits; nothing for anything else.

    Raises:
        FormatError: a file's records are no plain byte ranges.
        PackError: records are no images.
    """
    if options.says_what:
        return []
    if isinstance(source, StorePlace):
        found = [("", str(source))] if str(source).lower().endswith(".tar") else []
    else:
        places, others = _here(Path(source).absolute(), _is_foreign)
        found = [(name, str(place)) for name, place in places] if not others else []
    return [(name, IndexedRows(place, options)) for name, place in found]


def _is_foreign(place: Path) -> bool:
    """Whether a place is such a file, or a folder that has them and neither folders nor images."""
    if is_file(place):
        return place.name.lower().endswith(_OTHERS)
    has_one = False
    try:
        with os.scandir(place) as entries:
            for entry in entries:
                if not entry.name.startswith("."):
                    if is_image(entry.name) or entry.is_dir():
                        return False
                    has_one |= entry.name.lower().endswith(_OTHERS)
    except OSError:
        return False  # reported by who opens it as something else
    return has_one


class IndexedRows(SetRows):
    """The samples of files of other programs, by an index in a temporary folder, which goes with the rows.

    Other processes of this machine read that index, too; on another machine it is made anew.

    Args:
        place: the files' absolute path, or their URL.
        options: say what their fields are.
        folder: the folder of an index that another process made; None: it is made here.
    """

    def __init__(self, place: str, options: PackOptions, folder: str | None = None) -> None:
        self._place, self._options = place, options
        self._own = TemporaryFolder("index") if folder is None else None
        self._folder = str(self._own.path) if self._own is not None else str(folder)
        storage = options.storage_options if is_url(place) else None
        if folder is None:
            index = IndexOptions(
                fields=options.fields, on_error=options.on_error, entries=None, storage_options=storage
            )
            index_files([place], self._folder, index)
        dataset = PackedFiles(self._folder, entries=False, storage_options=storage)
        asked = replace(options, fields=())  # the index has heard of them
        super().__init__(dataset, schema_asked(dataset.schema, asked))
        self.root = os.fsencode(place)
        self._skipped = _skipped(Path(self._folder))
        if self._skipped and options.on_error == "raise":
            (key, reason), count = self._skipped[0], counted(len(self._skipped), "value")
            self.notes = (f"{count} in no record, left out: the first is {key} ({reason})",)

    def __reduce__(self) -> Any:
        return _reopened, (self._place, self._options, self._folder, self.dataset.id)

    def listed(self, notes: Notes) -> Iterator[Row]:
        """Yield the samples; records that are no images are problems of the source."""
        if self._options.on_error == "skip":
            notes.problems += [(key.encode(), reason) for key, reason in self._skipped]
        return super().listed(notes)


def _reopened(place: str, options: PackOptions, folder: str, packed_as: str) -> Rows:
    """Return rows in another process."""
    if exists(Path(folder) / MANIFEST_NAME):
        return IndexedRows(place, options, folder).show(options)
    rows = _elsewhere[packed_as] = _elsewhere.get(packed_as) or IndexedRows(place, options)
    if rows.dataset.id != packed_as:
        raise PackError(f"{place} has other contents on this machine, or has changed since the pack began.")
    return rows.show(options)


def _skipped(folder: Path) -> list[tuple[str, str]]:
    """Return what an index has left out, and why."""
    if not exists(folder / SKIPPED_NAME):
        return []
    with open(folder / SKIPPED_NAME, encoding="utf-8") as lines:
        entries = [json.loads(line) for line in lines]
    return [(", ".join(filter(None, (e["path"], e.get("annotation")))), e["reason"]) for e in entries]
