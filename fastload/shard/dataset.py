"""A packed dataset, opened: classes, labels and records by sample id."""

from __future__ import annotations

import operator
import os
import warnings
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fastload._native import _C
from fastload.errors import FastloadError, FormatError, ShardError
from fastload.machine.paths import exists, is_file
from fastload.machine.sizes import counted
from fastload.shard.codecs import NO_LIST_FLAG, file_of
from fastload.shard.generations import read_dropped
from fastload.shard.index import ALIGN, HEADER, RECORD, check_sizes
from fastload.shard.manifest import MANIFEST_NAME, Manifest, fields_digest

if TYPE_CHECKING:
    from typing_extensions import Self

    from fastload.remote.location import Location
    from fastload.remote.store import Store
    from fastload.sample.schema import Schema
    from fastload.shard.columns import Columns
    from fastload.shard.runs import Runs


# ---- Checks besides the manifest's: sample ids, the index's owner, entry points ----


def checked_id(sample: Any, count: int) -> int:
    """Return a sample id as an int.

    Raises:
        TypeError: not an integer (nor is a bool).
        IndexError: not in ``[0, count)``.
    """
    number = as_integer(sample)
    if not 0 <= number < count:
        legal = f"0 to {count - 1}" if count else "none"
        raise IndexError(f"Sample id {number} is out of range for {count} samples: legal are {legal}.")
    return number


def as_integer(index: Any) -> int:
    """Return an int of Python's or NumPy's, or an integer tensor of one element, as an int.

    Raises:
        TypeError: anything else, including a bool, which Python counts as an integer.
    """
    if not isinstance(index, (bool, np.bool_)) and "bool" not in str(getattr(index, "dtype", "")):
        try:
            return operator.index(index)
        except TypeError:
            pass
    raise TypeError(f"A sample's index must be an integer. Found: {index!r} ({type(index).__name__}).")


def checked_index(index: Any, count: int) -> int:
    """Return a list index, which may count from the end, as a sample id.

    Raises:
        TypeError: not an integer.
        IndexError: out of range.
    """
    number = as_integer(index)
    if not -count <= number < count:
        raise IndexError(f"index {number} is out of range for {count} samples.")
    return number % count


def check_fields(path: Path, wanted: bytes) -> None:
    """Raise FormatError unless the index at ``path``, whose header is checked, has this digest of fields."""
    with open(path, "rb") as file:
        header = np.frombuffer(file.read(HEADER.itemsize), HEADER)[0]
        digest = header["fields_digest"].tobytes()
        if wanted == digest:
            file.seek(int(header["pages_offset"]) - ALIGN)
            digest = file.read(len(digest))
    if digest != (wanted or bytes(len(digest))):
        raise FormatError(
            f"{path} does not belong to this manifest: the manifest's 'fields' have digest "
            f"{wanted.hex() or 'none'}, the index has {digest.hex()}. Restore both files from the same pack."
        )


_warned: set[Path] = set()  # unusable files of entry points, to warn once each


def opened_entries(folder: Path, name: str, index: _C.Index) -> _C.Entries | None:
    """Open the JPEGs' entry points (``_C.Entries``). None: no file, or, with a warning, an unusable one."""
    path = folder / name
    if not exists(path):
        return None
    try:
        return _C.Entries(str(path), index)
    except FastloadError as error:
        if path not in _warned:
            _warned.add(path)
            warnings.warn(
                f"{error} The entry points are left out: pixels are the same, decoding takes longer. "
                f"'fastload index {folder} --entries' makes them again.",
                stacklevel=4,
            )
        return None


# ---- The dataset ----

# Attributes that opening sets, and those computed from them: not pickled.
_OPENED = (
    "manifest", "index", "reader", "entries", "cache", "field_caches", "class_to_idx", "labels", "targets",
    "columns", "_readers", "store", "_kept_fields", "_node_use", "_present", "all_dropped", "dropped",
    "sample_ids", "runs",
)  # fmt: skip


class PackedFiles:
    """The records of a packed folder as bytes, by sample id in ``[0, num_ids)``; needs no torch.

    Opening maps the index and checks its header; shards are opened when their first record is read. Pickles
    as its folder or URL, which is opened again.

    Args:
        folder: a folder made by ``fastload pack`` or ``fastload index``, or the ``dataset.json`` in it; or
            its URL in a store (docs/guide/remote.md).
        entries: also open the JPEGs' entry points, if there are any; a damaged file of them is ignored,
            with a warning.
        storage_options: for a URL, or an index of files in a store: credentials, endpoint and so on.
        generation: of a set that has grown, from 1; None: the newest.

    Raises:
        FormatError: not a packed dataset, or damaged.
        ShardError: a file cannot be opened. RemoteError: the store refuses or does not answer.
        ValueError: storage_options without a URL; an invalid URL or option; no such generation.
    """

    #: The URL of a set in a store, whose index the node keeps in ``folder``. For an index in a folder over
    #: files in a store: that store.
    location: Location | None = None
    #: The store at ``location``.
    store: Store | None = None
    _url: Location | None = None  # the URL that was passed, if any
    _storage_options: Mapping[str, Any] | None = None
    _generation: int | None = None  # the one that was passed, if any

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        entries: bool = True,
        storage_options: Mapping[str, Any] | None = None,
        generation: int | None = None,
    ) -> None:
        if ":/" in str(folder) or storage_options:
            from fastload.remote.opening import place_of, refuse_options

            folder, self._url, self._storage_options = place_of(folder, storage_options)
            if self._url is None and not exists(Path(folder)):
                refuse_options(folder, self._storage_options)
        path = Path(folder).absolute()
        self.folder = path.parent if path.name == MANIFEST_NAME and is_file(path) else path
        self._wants_entries, self._generation = entries, generation
        self._open()

    @property
    def where(self) -> str:
        """Its URL or folder, for messages."""
        return str(self.folder if self._url is None else self._url)

    def _open(self) -> None:
        try:
            self._open_once()
        except (FormatError, ShardError):
            # A switch to another generation may have removed the files of the manifest that was just read.
            known = getattr(self, "manifest", None)
            if self._url is not None or known is None or Manifest.read(self.folder) == known:
                raise
            self._open_once()

    def _open_once(self) -> None:
        if self._url is not None:
            from fastload.shard.node_sets import copy_to_node

            copy = copy_to_node(self._url, self._storage_options, self._wants_entries)
            self._url = self.location = copy.location
            self.folder, self.store, self.manifest = copy.folder, copy.store, copy.manifest
            shards, self._node_use = copy.shards, copy.use
        else:
            self.manifest = Manifest.read(self.folder)
            if self.manifest.in_store or self._storage_options:
                from fastload.shard.node_sets import shards_in_store

                found = shards_in_store(self.folder, self.manifest, self._storage_options)
                self.location, self.store, shards = found
            else:
                shards = [(str(self.folder / shard.file), shard.size) for shard in self.manifest.shards]
                check_sizes(shards)
        self._present = self.manifest
        path = self.folder / self.manifest.index_name
        self.index = _C.Index(str(path))
        if len(self.index) != self.manifest.num_records or self.index.digest != self.manifest.index_crc:
            raise FormatError(
                f"{path} does not belong to this manifest: it has {len(self.index)} records and digest "
                f"{self.index.digest:#010x}, the manifest says {self.manifest.num_records} and "
                f"{self.manifest.index_crc:#010x}. Restore both files from the same pack."
            )
        check_fields(path, fields_digest(self.manifest.fields))
        self.reader = self._new_reader(shards)
        self.reader.show(self.shown)
        if self.manifest.fields:
            self.columns = self._columns()
        self._readers: dict[str, Any] = {}
        #: Entries of all dropped samples, ``fastload.shard.generations.DROPPED``, by ascending id.
        self.all_dropped = read_dropped(self.folder, self._present.dropped, len(self.index))
        self._view(self._present.generation if self._generation is None else self._generation)
        self.entries = (
            opened_entries(self.folder, self.manifest.entries_name, self.index)
            if self._wants_entries
            else None
        )
        #: The node cache's file for records (``_C.CacheFile``), or None; see with_caches().
        self.cache: _C.CacheFile | None = None
        #: The files for further pictures' records, by the name of their field.
        self.field_caches: Mapping[str, _C.CacheFile] = {}
        self._kept_fields: set[str] = set()  # those fields, and those with a disk tier

    def _view(self, generation: int) -> None:
        """Show the samples of one generation; all files are the newest's."""
        self.manifest = self._present.at(generation)
        self._forget()
        own = (self.all_dropped["generation"] <= generation) & (self.all_dropped["id"] < self.num_ids)
        #: The samples that were dropped, ascending sample ids.
        self.dropped: npt.NDArray[np.int64] = self.all_dropped["id"][own].astype(np.int64)

    def _forget(self) -> None:
        """Forget what was computed of another generation's samples."""
        for name in ("class_to_idx", "labels", "targets", "sample_ids", "runs"):
            self.__dict__.pop(name, None)

    def at(self, generation: int) -> Self:
        """Return another generation of this set, with the same open files.

        Raises:
            ValueError: there is no such generation.
        """
        other = object.__new__(type(self))
        other.__dict__ |= self.__dict__
        other._view(generation)
        other._generation = generation
        return other

    @property
    def newest(self) -> Self:
        """The newest generation of this set that these files have."""
        return self.at(self._present.generation)

    def _new_reader(self, shards: list[tuple[str, int]]) -> _C.Reader:
        core = None if self.store is None else self.store.core([path for path, _ in shards])
        if core is None:
            return _C.Reader(self.index, shards)
        return _C.Reader(self.index, [(path, size, "") for path, size in shards], core)

    def __getstate__(self) -> dict[str, Any]:
        kept = {name: value for name, value in self.__dict__.items() if name not in _OPENED}
        return {**kept, "_packed_as": self.id}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        packed_as = self.__dict__.pop("_packed_as")
        self._open()
        known = self.manifest.generation_of(packed_as)
        if known is not None:  # the set may have grown since
            self._view(known)
        else:
            raise FormatError(
                f"{self.where} has dataset id {self.id}, and had {packed_as} when this object was pickled: "
                "it was packed again, from other samples. Open it again."
            )

    def __len__(self) -> int:
        return self.num_ids - len(self.dropped)

    @property
    def num_ids(self) -> int:
        """The number of sample ids: of samples, with those that were dropped."""
        return self.manifest.num_records

    @cached_property
    def sample_ids(self) -> npt.NDArray[np.int64] | None:
        """The ids of the samples that were not dropped, ascending; None: all of ``[0, num_ids)``."""
        return np.setdiff1d(np.arange(self.num_ids), self.dropped) if len(self.dropped) else None

    def ids_at(self, places: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the sample ids at places among those that were not dropped, ``[0, len(dataset))``."""
        return places if self.sample_ids is None else self.sample_ids[places]

    @property
    def first_id(self) -> int:
        """The first sample that was not dropped."""
        return 0 if self.sample_ids is None else int(self.sample_ids[0])

    def checked_id(self, sample: Any) -> int:
        """Return a sample id as an int.

        Raises:
            TypeError: not an integer (nor is a bool).
            IndexError: not in ``[0, num_ids)``.
            ValueError: the sample was dropped.
        """
        number = checked_id(sample, self.num_ids)
        if len(self.dropped):
            self.check_there(np.array([number]))
        return number

    def check_there(self, samples: npt.NDArray[np.int64]) -> None:
        """Raise ValueError if one of these sample ids was dropped."""
        gone = np.isin(samples, self.dropped)
        if gone.any():
            raise ValueError(
                f"Sample {samples[gone][0]} of {self.where} was dropped. Sample ids are those of 0 to "
                f"{self.num_ids - 1} without {len(self.dropped)} dropped ones: dataset.sample_ids. A "
                "fastload.DataLoader without a sampler leaves them out."
            )

    def __repr__(self) -> str:
        facts = f"{counted(len(self), 'record')}, {counted(len(self.manifest.classes), 'class')}"
        if self._present.generations:
            facts += f", generation {self.manifest.generation} of {self._present.generation}"
        if not self.is_plain:
            facts += f", fields {', '.join(self.schema.names)}"
        return f"{type(self).__name__}({self.where!r}, {facts})"

    def with_caches(
        self,
        caches: Sequence[_C.CacheFile | None],
        field_caches: Sequence[Mapping[str, _C.CacheFile]] = ({},),
        tiers: Sequence[Mapping[str | None, _C.DiskTier]] = ({},),
    ) -> PackedFiles:
        """Return this dataset for one user of cache files: its records come from there if they are stored,
        and those that are read are stored there. Files and what has been checked of them are shared. Without
        any cache the result is the dataset itself.

        Args:
            caches: one ``_C.CacheFile`` of this very dataset, or None; in use as long as the result lives.
            field_caches: one mapping: the files for further pictures' records, by the name of their field.
            tiers: one mapping: the tiers below them on disk, by field; None: the index's records.

        Raises:
            ValueError: one is another dataset's.
        """
        (cache,), (fields,), (disk,) = caches, field_caches, tiers
        if cache is None and not fields and not disk:
            return self
        other = object.__new__(type(self))
        other.__dict__ |= self.__dict__
        if cache is not None:
            other.index = _C.Index(self.index, cache)
            other.entries = _C.Entries(self.entries, cache) if self.entries is not None else None
            other.cache = cache
        if cache is not None or None in disk:
            other.reader = _C.Reader(self.reader, other.index, cache, disk.get(None))
        other.field_caches = dict(fields)
        names = [name for name in {*fields, *disk} if name is not None]
        other._readers = {
            name: _C.Reader(self.record_reader(name), self._table(name), fields.get(name), disk.get(name))
            for name in names
        }
        other._kept_fields = set(names)
        return other

    @property
    def cached_bytes(self) -> int:
        """Bytes of its records that have room in the node's cache."""
        files = [*self.field_caches.values(), *([] if self.cache is None else [self.cache])]
        return sum(file.room_bytes for file in files)

    @property
    def parts(self) -> tuple[PackedFiles, ...]:
        """The packed folders it consists of: itself; see :func:`fastload.mix`."""
        return (self,)

    def locate(self, sample: int) -> tuple[PackedFiles, int]:
        """Return the packed folder that holds a sample, and its id there."""
        return self, sample

    @property
    def sources(self) -> list[tuple[_C.Reader, _C.Entries | None, list[int]]]:
        """What ``_C.Engine`` reads: reader, entry points, and the replacement for each label ([]: itself)."""
        return [(self.reader, self.entries, [])]

    @property
    def id(self) -> str:
        """Dataset id, 32 hex digits: equal samples in the same order give equal ids."""
        return self.manifest.id

    @property
    def schema(self) -> Schema:
        """The fields of its samples; an image and a label if the manifest names none."""
        return self.manifest.schema

    @property
    def shown(self) -> tuple[bool, bool]:
        """Whether the index's pictures are turned as EXIF says, and whether what is transparent lies on
        white."""
        return self.schema.shown if self.manifest.fields else (False, False)

    @property
    def is_plain(self) -> bool:
        """Whether samples are an image and a label."""
        return self.manifest.is_plain

    @cached_property
    def columns(self) -> Columns:
        """The fields that have their own files, ``_C.Column`` by name; opened at first use."""
        return self._columns()

    def _columns(self) -> Columns:
        from fastload.shard.columns import Columns

        return Columns(self.folder, self.schema, self._present)

    @cached_property
    def runs(self) -> Runs | None:
        """Which samples belong together, in which order, as this generation sees them; None: nothing said so
        when the set was packed.

        Raises:
            FormatError, ChecksumError, ShardError: the file is damaged, another set's, or cannot be read.
        """
        manifest = self._present
        if manifest.runs is None:
            return None
        from fastload.shard.runs import Runs, read_runs

        if not exists(self.folder / manifest.runs.file):
            now = Manifest.read(self.folder)  # another process may have appended to the set meanwhile
            if now.runs is not None and now.generation_of(manifest.id) is not None:
                manifest = now
        assert manifest.runs is not None
        table = read_runs(self.folder / manifest.runs.file, manifest.runs, manifest.num_records)
        return Runs.seen(manifest.runs.spec, *table, self)

    @property
    def classes(self) -> list[str]:
        """Class names; a label is an index into this list. If samples have no label and objects have, as in
        COCO's sets, the names of the objects' classes."""
        names = self.manifest.classes
        if not names and not self.is_plain and self.schema.label_field is None:
            of_objects = (field.kind for field in self.schema if field.kind.name == "labels")
            names = next((kind.classes for kind in of_objects), ())  # type: ignore[attr-defined]
        return list(names)

    @cached_property
    def class_to_idx(self) -> dict[str, int]:
        """Label by class name."""
        return {name: label for label, name in enumerate(self.classes)}

    @property
    def records(self) -> npt.NDArray[np.void]:
        """The index entries of all ids, read-only, (n,) ``fastload.shard.index.RECORD``."""
        return self.index.records().view(RECORD)[: self.num_ids, 0]

    @property
    def all_records(self) -> npt.NDArray[np.void]:
        """The entries of the whole index, also of samples that later generations have: what caches are of."""
        return self.index.records().view(RECORD)[:, 0]

    def field_records(self, field: str) -> npt.NDArray[np.void]:
        """Return :attr:`records` of a further picture's field; of lists of pictures those of all of them.

        Raises:
            KeyError: there is no such field with its own records.
        """
        entries: npt.NDArray[np.void] = self.columns[field].records().view(RECORD)[:, 0]
        return entries

    def record(self, sample: int, field: str | None = None) -> np.void:
        """Return one index entry (``fastload.shard.index.RECORD``), or that of a further picture's field.

        Raises:
            IndexError: see :func:`checked_id`.
            KeyError: there is no such field.
        """
        number = self.checked_id(sample)
        table: _C.Index | _C.Column = self.index
        if field is not None and self.schema[field] != self.schema.index_field:
            table = self.columns[field]
        found: np.void = np.frombuffer(table.record(number), RECORD)[0]
        return found

    def list_records(self, field: str, sample: int) -> npt.NDArray[np.void] | None:
        """Return the entries of a sample's list of pictures, (n,) ``fastload.shard.index.RECORD``; those of
        length 0 are places without a picture. None: it has no list.

        Raises:
            TypeError, IndexError: not a sample id in ``[0, num_ids)``, or dropped.
            KeyError: there is no such field.
        """
        found = self.columns[field].value(self.checked_id(sample))
        entries: npt.NDArray[np.void] = np.frombuffer(found, RECORD)
        return None if len(entries) == 1 and entries[0]["flags"] & NO_LIST_FLAG else entries

    def list_bytes(self, field: str, samples: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the bytes of the pictures in each of some samples' lists, (n,)."""
        entries, ends = self.columns[field].gather(samples)
        sizes = np.append(0, np.cumsum(entries.view(RECORD)["length"], dtype=np.int64))
        lengths: npt.NDArray[np.int64] = np.diff(sizes[ends // RECORD.itemsize])
        return lengths

    def picture_sizes(
        self, field: str, samples: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return height and width of all pictures in a field of some samples, (pictures, 2), one sample's
        behind the other's; and how many each sample has, (n,). Height and width are 0 where the index does
        not have them."""
        kind = self.schema[field]
        if kind.storage == "records":
            entries, ends = self.columns[field].gather(samples)
            records, ends = entries.view(RECORD), ends // RECORD.itemsize
        else:
            whole = self.records if kind == self.schema.index_field else self.field_records(field)
            records, ends = whole[samples], np.arange(len(samples) + 1)
        there = records["length"] > 0
        counts = np.diff(np.append(0, np.cumsum(there))[ends])
        sizes = np.stack([records["height"][there], records["width"][there]], axis=1)
        return sizes.astype(np.int64), counts.astype(np.int64)

    @cached_property
    def labels(self) -> npt.NDArray[np.int64]:
        """Label of every sample, (n,) int64; -1: none."""
        return self.records["label"].astype(np.int64)

    def label(self, sample: int) -> int:
        """Return one sample's label; -1: none."""
        return int(self.record(sample)["label"])

    def key(self, sample: int) -> str:
        """Return the record's path in the source folder.

        Raises:
            TypeError, IndexError: not a sample id in ``[0, num_ids)``, or dropped.
        """
        return str(self.index.key(self.checked_id(sample)).decode("utf-8", "replace"))

    def read(self, sample: int) -> bytes:
        """Return the bytes of the picture's file: the record, or for a coefficient record the identical JPEG.

        Raises:
            TypeError, IndexError: not a sample id in ``[0, num_ids)``, or dropped.
            ChecksumError, ShardError: the bytes on disk are not those that were packed, or cannot be read.
            DecodeError: an invalid coefficient record.
        """
        return file_of(int(self.record(sample)["codec"]), self.stored(sample))

    def stored(self, sample: int, field: str | None = None) -> bytes:
        """Return a record's bytes as stored in the shard, checked against their CRC-32C: the index's, or
        those of a further picture's field.

        Raises:
            As :meth:`read`.
        """
        number = self.checked_id(sample)
        if field is None or self.schema[field] == self.schema.index_field:
            return bytes(self.reader.read(number))
        if field in self._kept_fields:
            return bytes(self.record_reader(field).read(number))
        return self._read_record(field, number)

    def value_bytes(self, field: str, sample: int) -> bytes:
        """Return the bytes of a field's value, or for a picture those of its file, as packed and checked.

        Raises:
            KeyError: there is no such field.
            TypeError, IndexError: not a sample id in ``[0, num_ids)``, or dropped.
            ChecksumError, FormatError, ShardError: the bytes on disk are wrong, or cannot be read.
            DecodeError: an invalid coefficient record.
        """
        number, kind = self.checked_id(sample), self.schema[field]
        if kind == self.schema.index_field:
            return self.read(number)
        if kind == self.schema.label_field:
            return kind.encode(self.label(number))
        if kind.storage == "record":
            return file_of(int(self.record(number, field)["codec"]), self.stored(number, field))
        if kind.storage == "records":
            return kind.encode(self._files(field, number))
        return bytes(self.columns[field].value(number))

    def value(self, field: str, sample: int) -> Any:
        """Return a field's value, or a picture's file as bytes; see :func:`fastload.sample.values.decode`.

        Raises:
            As :meth:`value_bytes`.
        """
        return self.schema[field].decode(self.value_bytes(field, sample))

    def stored_list(self, field: str, sample: int) -> list[bytes | None] | None:
        """Return the records of a sample's list of pictures, as stored and checked; None at places without
        a picture, and in place of a list that there is not.

        Raises:
            As :meth:`read`.
        """
        entries = self.list_records(field, sample)
        if entries is None:
            return None
        first, _ = self.columns[field].records_of(sample)
        reader = self.record_reader(field)
        return [
            bytes(reader.read(first + place)) if entry["length"] else None
            for place, entry in enumerate(entries)
        ]

    def _files(self, field: str, sample: int) -> list[bytes | None] | None:
        entries, stored = self.list_records(field, sample), self.stored_list(field, sample)
        if entries is None or stored is None:
            return None
        return [
            None if data is None else file_of(int(entry["codec"]), data)
            for entry, data in zip(entries, stored, strict=True)
        ]

    def record_reader(self, field: str) -> Any:
        """Return the ``_C.Reader`` of a further picture's records, or of lists of them."""
        if field not in self._readers:
            reader = _C.Reader(self.reader, self._table(field))
            reader.show(self.schema[field].kind.shown)
            self._readers[field] = reader
        return self._readers[field]

    def _table(self, field: str) -> Any:
        """Return the records of a field as a reader takes them."""
        return self.list_table(field) if self.schema[field].storage == "records" else self.columns[field]

    def list_table(self, field: str) -> _C.ListedRecords:
        """Return the records of a field of lists of pictures."""
        return _C.ListedRecords(self.columns[field])

    def record_count(self, field: str | None) -> int:
        """Return how many records a field has, places without a picture among them; None: the index's."""
        return len(self.index) if field is None else len(self._table(field))

    def spread(self, field: str | None, of_samples: npt.NDArray[Any], rest: Any = 0) -> npt.NDArray[Any]:
        """Return for each record of a field what is given for its sample; ``rest``: for samples that later
        generations have."""
        later = np.full(len(self.index) - len(of_samples), rest, of_samples.dtype)
        of_samples = np.append(of_samples, later) if len(later) else of_samples
        if field is None or self.schema[field].storage != "records":
            return of_samples
        lengths: Any = self.columns[field].lengths()
        return np.repeat(of_samples, lengths // RECORD.itemsize)

    def record_ids(
        self, field: str | None, samples: npt.NDArray[np.int64] | None
    ) -> npt.NDArray[np.int64] | None:
        """Return the numbers of the records of some samples, as readers count them; None: all. Of lists of
        pictures places without one are left out."""
        if field is None or self.schema[field].storage != "records":
            return samples
        column = self.columns[field]
        there = self.field_records(field)["length"] > 0
        if samples is not None:
            chosen = np.zeros(len(there), np.bool_)
            for sample in samples.tolist():
                chosen[slice(*column.records_of(sample))] = True
            there &= chosen
        elif there.all():
            return None
        return np.flatnonzero(there).astype(np.int64)

    def _read_record(self, field: str, sample: int) -> bytes:
        if self.location is not None:
            return bytes(self.record_reader(field).read(sample))
        from fastload.shard.columns import read_record

        record = self.record(sample, field)
        at, shards = int(record["shard"]), self.manifest.shards
        if at >= len(shards):
            raise FormatError(
                f"{self.columns.path(field)}: sample {sample} names shard {at} of {len(shards)}. Pack again."
            )
        shard = shards[at]
        return read_record(self.folder / shard.file, shard.size, record, f"sample {sample}, field {field!r}")
