"""Class folders and lists of pictures as rows, on disk or in a store, split by split."""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fastload._native import _C
from fastload.errors import PackError
from fastload.machine.paths import is_dir, is_file, meant
from fastload.packing.cut import Plan
from fastload.packing.files import ESCAPED, encode_key, outside_key
from fastload.packing.folders import (
    FOLDERS_ARE,
    Folders,
    Ignored,
    SplitsWithin,
    folders_in,
    is_hidden,
    splits_among,
    walk_images,
)
from fastload.packing.listing import Listing, Row, Totals
from fastload.packing.options import PackOptions
from fastload.packing.pictures import AS_STORED, shown_schema
from fastload.packing.rows import Batch, Notes, Rows, plain_fields
from fastload.packing.shard_writer import GROUP_BYTES, GROUP_RECORDS
from fastload.packing.stored import Names, Source, StoreFiles, StorePlace
from fastload.packing.tables import Labels, read_table, table_path
from fastload.sample.schema import Schema
from fastload.shard.index import RECORD, as_rows
from fastload.shard.manifest import Manifest
from fastload.shard.suffixes import is_image

# ---- Sources of pictures ----------------------------------------------------------------------------

Scan = Callable[[Notes], Iterator[Row]]


@dataclass(frozen=True)
class FileRows(Rows):
    """One set of images, each a row, which becomes one packed dataset.

    Each call of :meth:`listed` walks it anew, in sample-id order. In another process, or if its plan is
    known, it has no ``scan``: its files are in a listing.
    """

    split: str  # "" if it is the only one
    root: bytes  # type: ignore[misc]
    kind: str  # "classes", "flat", "table"; "planned": its files are in a plan and are not listed again
    classes: tuple[str, ...]
    scan: Scan | None
    files: StoreFiles | None = None  # type: ignore[misc]  # where the files are, if not on disk
    beside: Ignored = field(default_factory=Ignored)  # what was left out before the walk
    shown: tuple[str, str] = AS_STORED  # ``--exif``, ``--alpha``
    unit = "file"

    @property
    def schema(self) -> Schema:  # type: ignore[override]
        """The fields: an image and a label."""
        return shown_schema(Schema.plain(self.classes), *self.shown)

    def show(self, options: PackOptions) -> FileRows:
        return replace(self, shown=(options.exif, options.alpha))

    def __len__(self) -> int:
        raise TypeError("only a walk tells how many files there are")

    def __reduce__(self) -> Any:
        known = self.split, self.root, self.kind, self.classes, None, self.files, Ignored(), self.shown
        return FileRows, known

    def listed(self, notes: Notes) -> Iterator[Row]:
        assert self.scan is not None
        notes.ignored.add(self.beside)
        return self.scan(notes)

    def at(self, root: bytes) -> FileRows:
        """Return the same rows with their files in another folder."""
        return replace(self, root=root)

    def batches(
        self, start: int, stop: int | None, options: PackOptions, listing: Listing | None
    ) -> Iterator[Batch]:
        assert listing is not None
        room = GROUP_BYTES // 8 if options.raw else GROUP_BYTES  # pixels are about 8 times the file
        stop = len(listing) if stop is None else stop
        schema = self.schema
        batches = _read_batches(self.root, listing, start, stop, room, schema.fields[0].kind.shown)
        if not options.transcodes:
            return batches
        from fastload.packing.recoding import file_transcoder

        return map(file_transcoder(schema, options), batches)

    def identity(self, options: PackOptions, totals: Totals | None) -> dict[str, Any] | None:
        assert totals is not None
        return {"source": {"files": totals.files, "bytes": totals.bytes, "hash": totals.content}}


def open_files(path: Source, options: PackOptions) -> list[tuple[str, Rows]]:
    """Open the images at a path or URL, split by split: several for a parent of train/ and val/, else one.

    Raises:
        PackError: there is nothing that can be packed, or it can be read in two ways.
        RemoteError: the store cannot be listed.
    """
    return [(rows.split, rows) for rows in _opened(path, options)]


def _opened(path: Source, options: PackOptions) -> list[FileRows]:
    if options.fields or options.schema is not None:
        raise PackError(
            f"{path} is not a table; only a table's columns have kinds. A folder has image and label."
        )
    is_table = path.kind == "table" if isinstance(path, StorePlace) else is_file(path)
    if is_table and options.layout in FOLDERS_ARE:
        raise PackError(f"--as {options.layout} says what folders are. Found: the file {path}.")
    if isinstance(path, StorePlace):
        return [_stored_table(path)] if is_table else _in_store(path, options)
    place = Path(path)
    if is_file(place):
        return [_table(place.absolute(), options.root_folder())]
    if not is_dir(place):
        raise PackError(
            f"{place} does not exist; give a folder of images or a .csv or .jsonl file.{meant(place)}"
        )
    root = os.fsencode(place.absolute())
    try:
        return _in_folder(root, place, options.layout)
    except OSError as error:
        raise PackError(f"cannot read the folder {place}: {error.strerror}.") from None


def _in_folder(root: bytes, place: Path, layout: str | None) -> list[FileRows]:
    beside, folders = Ignored(), folders_in(root)
    if not splits_among(list(map(os.fsdecode, folders.full)), place, layout):
        return [_folder(root, "", folders, layout, beside)]
    if not folders.full:
        raise PackError(f"{place} has no folders, of which --as splits makes a dataset each. Leave it out.")
    beside.folders(folders, as_classes=False)
    _ignore_top(root, beside)
    sources = []
    for number, name in enumerate(folders.full):
        split, own = os.path.join(root, name), beside if number == 0 else Ignored()
        sources.append(_folder(split, os.fsdecode(name), folders_in(split), layout, own))
    return _same_classes(sources, layout)


def planned_files(path: Source, known: Plan | Manifest) -> FileRows | None:
    """Return the images at a URL whose plan, or dataset, is known, without listing them; None: other rows, or
    those on disk, which open fast."""
    rows = known.rows if isinstance(known, Plan) else known.options
    if not isinstance(path, StorePlace) or "source" not in rows:
        return None
    return FileRows("", str(path.folder).rstrip("/").encode(), "planned", known.classes, None, path.files)


def _folder(root: bytes, split: str, found: Folders, layout: str | None, beside: Ignored) -> FileRows:
    """Return a source of class folders, or a flat one if none of them has images."""
    folders = found.classes
    beside.folders(found, as_classes=bool(folders))
    if not folders:
        flat: Scan = lambda notes: _flat(root, notes)  # noqa: E731
        return FileRows(split, root, "flat", (), flat, beside=beside)
    names = [encode_key(name)[0].decode() for name in folders]
    if len(set(names)) != len(names):
        raise PackError(f"two class folders of {os.fsdecode(root)} have the same name once encoded as UTF-8.")
    scan = _by_class(root, folders, names, SplitsWithin(os.fsdecode(root), layout, bool(split)))
    return FileRows(split, root, "classes", tuple(names), scan, beside=beside)


def _flat(root: bytes, notes: Notes) -> Iterator[Row]:
    for path, size, mtime_ns in walk_images(root, b"", notes.problems, nested=False, ignored=notes.ignored):
        yield Row(path, size, mtime_ns)


def _by_class(root: bytes, folders: list[bytes], classes: Sequence[str], within: SplitsWithin) -> Scan:
    """Return a scan of class folders; labels count in ``classes``, which has all of them."""
    labels = {name: label for label, name in enumerate(classes)}

    def scan(notes: Notes) -> Iterator[Row]:
        _ignore_top(root, notes.ignored)
        for folder in folders:
            label, name = labels[encode_key(folder)[0].decode()], os.fsdecode(folder)
            for path, size, mtime_ns in walk_images(root, folder, notes.problems, ignored=notes.ignored):
                if b"/" in path[len(folder) + 1 :]:
                    within.check(name, os.fsdecode(path[len(folder) + 1 :]))
                yield Row(path, size, mtime_ns, label)

    return scan


def _ignore_top(root: bytes, ignored: Ignored) -> None:
    """Note the files beside class folders or splits."""
    with os.scandir(root) as entries:
        for entry in sorted(entries, key=lambda entry: os.fsdecode(entry.name)):
            if not entry.is_dir():
                note = ignored.image if is_image(entry.name) else ignored.file
                note(entry.name)


def _same_classes(sources: list[FileRows], layout: str | None) -> list[FileRows]:
    """Give splits whose class folders differ one common list, so that a label means one class everywhere."""
    common = tuple(sorted({name for source in sources for name in source.classes}))
    return [_relabelled(s, common, layout) if s.classes and s.classes != common else s for s in sources]


def _relabelled(source: FileRows, classes: tuple[str, ...], layout: str | None) -> FileRows:
    within = SplitsWithin(os.fsdecode(source.root), layout, split=True)
    return replace(
        source, classes=classes, scan=_by_class(source.root, folders_in(source.root).classes, classes, within)
    )


def _table(path: Path, given: bytes | None = None) -> FileRows:
    """Return the images that a table lists; ``given``: the folder that its paths start from and stay in."""
    root = given or os.fsencode(path.parent)

    def is_there(text: str) -> bool:
        return "\0" not in text and is_file(Path(os.fsdecode(os.path.join(root, os.fsencode(text)))))

    labels = Labels.of_table(path, is_there)
    scan: Scan = lambda _: _listed(path, root, labels, given is not None)  # noqa: E731
    return FileRows("", root, "table", labels.classes, scan)


def _stored_table(place: StorePlace) -> FileRows:
    """Return the images that a table in a store lists, which lie below its folder."""
    folder = place.table
    with folder.opening():
        table = _table(folder.path / place.location.name)

    def scan(notes: Notes) -> Iterator[Row]:
        with folder.named():
            for row in table.listed(notes):
                yield folder.row(row, table.root)

    return replace(table, root=str(place.folder).rstrip("/").encode(), scan=scan, files=place.files)


def _listed(path: Path, root: bytes, labels: Labels, is_confined: bool) -> Iterator[Row]:
    hashes = array("q")  # 8 bytes per file, where a set of names would need a hundred
    for text, label in read_table(path):
        name = table_path(root, text)
        if is_confined and os.path.isabs(name):
            raise PackError(f"{path}: {text!r} leads out of {os.fsdecode(root)}, the root.")
        hashes.append(hash(name))
        try:
            status = os.stat(os.path.join(root, name))
            yield Row(name, status.st_size, status.st_mtime_ns, labels.number(label))
        except OSError:
            yield Row(name, 0, 0, labels.number(label))
    _refuse_repeats(path, root, np.frombuffer(hashes, np.int64))


def _refuse_repeats(path: Path, root: bytes, hashes: npt.NDArray[np.int64]) -> None:
    order = np.sort(hashes)
    repeated = order[1:][order[1:] == order[:-1]]
    if not len(repeated):
        return
    for text, _ in read_table(path):
        if hash(table_path(root, text)) == repeated[0]:
            raise PackError(f"{path} lists {text!r} more than once; a file can be packed only once.")


# ---- Images in an object store ----------------------------------------------------------------------


def _in_store(place: StorePlace, options: PackOptions) -> list[FileRows]:
    """Divide the images below a URL into sets, by ImageFolder's rules: several if its folders are splits.

    Folders are the parts of keys between slashes. The whole listing is held in memory meanwhile.

    Raises:
        PackError: nothing there, a key that is no path, or two possible readings.
        RemoteError: the store cannot be listed.
    """
    location, files, names = place.location, place.files, place.names
    if not names and location.path and files.store.head(location.path) is not None:
        raise PackError(
            f"{location} is a file, and files of its kind are packed from this machine only; copy it here."
        )
    if not names:
        raise PackError(f"there is nothing at {location}; give the URL of a folder of images.")
    beside = Ignored()
    names, hidden = _without_hidden(names, top=True)
    beside.hide(hidden)
    full, empty = _folders(names)
    if not splits_among(full, location, options.layout):
        within = SplitsWithin(location, options.layout)
        return [_split("", files, sorted(full + empty), names, beside, within)]
    for name, _ in names:
        if "/" not in name:
            (beside.image if is_image(name) else beside.file)(name.encode())
    for folder in empty:
        beside.folder(folder.encode(), "empty")
    parts = {
        split: [(name[len(split) + 1 :], size) for name, size in names if name.startswith(f"{split}/")]
        for split in full
    }
    inner = {split: _folders(part) for split, part in parts.items()}
    common = sorted({name for full, more in inner.values() if full for name in full + more})
    return [
        _split(
            split, StoreFiles(files.store, f"{files.prefix}{split}/"), common, part,
            beside if split == full[0] else Ignored(),
            SplitsWithin(location / split, options.layout, split=True),
        )
        for split, part in parts.items()
    ]  # fmt: skip


def _split(
    split: str, files: StoreFiles, classes: Sequence[str], names: Names, beside: Ignored, within: SplitsWithin
) -> FileRows:
    """Return one set.

    Args:
        classes: the classes of all splits; a set without folders is flat.
        beside: what was left out before.
    """
    seen, hidden = _without_hidden(names)
    beside.hide(hidden)
    full, empty = _folders(seen)
    for name in empty:
        beside.folder(name.encode(), "classes" if full else "empty")
    labels = {name: label for label, name in enumerate(classes)} if full else {}

    def scan(notes: Notes) -> Iterator[Row]:
        for _, _, path, size, label in sorted(_rows(seen, labels, notes.ignored, within)):
            yield Row(path.encode(), size, 0, label)

    kind = "classes" if labels else "flat"
    return FileRows(
        split,
        str(files.store.root / files.prefix).rstrip("/").encode(),
        kind,
        tuple(labels),
        scan,
        files,
        beside,
    )


def _rows(
    names: Names, labels: Mapping[str, int], ignored: Ignored, within: SplitsWithin
) -> Iterator[tuple[str, str, str, int, int]]:
    """Yield folder, name, path, size and label of each image; they sort in ImageFolder's order."""
    for path, size in names:
        folder, _, name = path.rpartition("/")
        first, _, inside = path.partition("/")
        if not is_image(name):
            if not folder or first in labels:
                ignored.file(name.encode())
            continue
        if labels and not folder:
            ignored.image(path.encode())
            continue
        if labels:
            within.check(first, inside)
        # The class goes first: otherwise a folder "a b" would come between "a" and "a/more".
        label = labels.get(first, -1)
        yield f"{label:012d}/{folder}" if labels else folder, name, path, size, label


def _without_hidden(names: Names, top: bool = False) -> tuple[Names, set[str]]:
    """Return the files outside hidden folders, and the hidden folders; ``top``: only uppermost ones count."""
    kept: Names = []
    hidden: set[str] = set()
    for name, size in names:
        parts = name.split("/")[:-1]
        at = next((at for at, part in enumerate(parts[: 1 if top else None]) if is_hidden(part)), None)
        if at is None:
            kept.append((name, size))
        else:
            hidden.add("/".join(parts[: at + 1]))
    return kept, hidden


def _folders(names: Names) -> tuple[list[str], list[str]]:
    """Return the folders that have images, and those that have none."""
    folders, full = set(), set()
    for name, _ in names:
        first, *inside = name.split("/")
        if inside and not is_hidden(first):
            folders.add(first)
            if is_image(name) and not any(map(is_hidden, inside[:-1])):
                full.add(first)
    return sorted(full), sorted(folders - full)


# ---- Files in batches of records --------------------------------------------------------------------

_SPAN = 4096  # listing entries read at a time


class _Buffer:
    """A batch's memory, which grows for a file larger than it."""

    def __init__(self, size: int) -> None:
        self.data = np.empty(size, np.uint8)

    def grow(self, needed: int) -> None:
        self.data = np.empty(needed, np.uint8)


def _read_batches(
    root: bytes, listing: Listing, start: int, stop: int, room: int, shown: tuple[bool, bool]
) -> Iterator[Batch]:
    """Yield the files ``[start, stop)`` of a listing in batches of at most ``room`` bytes (or of one file);
    the next one reuses a batch's memory."""
    buffer = _Buffer(room)
    while start < stop:
        names, entries = listing.read(start, min(start + _SPAN, stop))
        done = 0
        while done < len(entries):
            batch = _read_batch(root, names, entries, start, done, buffer, shown)
            done = batch.stop - start
            yield batch
        start += len(entries)


def _read_batch(
    root: bytes, names: npt.NDArray[np.uint8], entries: npt.NDArray[np.void], start: int, done: int,
    buffer: _Buffer, shown: tuple[bool, bool],
) -> Batch:  # fmt: skip
    rows = entries[done : done + GROUP_RECORDS]
    begin = int(entries["end"][done - 1]) if done else 0
    ends = rows["end"] - np.uint64(begin)
    blob = names[begin : begin + int(ends[-1])]
    records = np.zeros(len(rows), RECORD)
    while True:
        taken, used, needed, failures = _C.ingest(root, blob, ends, buffer.data, as_rows(records), shown)
        if taken:
            break
        buffer.grow(needed)
    keys, escaped = _keys(blob.tobytes(), ends[:taken].tolist())
    records = records[:taken]
    records["label"] = rows["label"][:taken]
    records["flags"][escaped] |= ESCAPED
    first = start + done
    bad = [
        (first + i, keys[i].decode(), reason.decode("utf-8", "backslashreplace")) for i, reason in failures
    ]
    good = records["length"] > 0
    if bad:
        keys = [key for key, is_good in zip(keys, good.tolist(), strict=True) if is_good]
    fields = plain_fields(buffer.data[:used], records[good])
    return Batch(first + np.flatnonzero(good), keys, fields, first + taken, bad, is_whole=True)


def _keys(blob: bytes, ends: list[int]) -> tuple[list[bytes], list[int]]:
    """Return keys, and the positions of those that had to be percent-encoded."""
    keys, escaped, begin = [], [], 0
    for position, end in enumerate(ends):
        path, begin = blob[begin:end], end
        key, changed = encode_key(outside_key(path) if os.path.isabs(path) else path)
        keys.append(key)
        if changed:
            escaped.append(position)
    return keys, escaped
