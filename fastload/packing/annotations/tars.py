"""WebDataset tars, also compressed ones, as samples to pack; ``fastload index`` takes plain ones in place."""

from __future__ import annotations

import hashlib
import os
import tarfile
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any

from fastload.errors import FastloadError, PackError
from fastload.machine.paths import exists, is_dir, meant
from fastload.packing.files import names_in
from fastload.packing.folders import is_hidden, splits_among
from fastload.packing.foreign_files import StoredTar, braced, by_split, stored_tars
from fastload.packing.listing import Row
from fastload.packing.options import PackOptions
from fastload.packing.rows import FailedSample, Notes, PartialSample, Sample
from fastload.packing.sample_rows import SampleRows
from fastload.packing.stored import StorePlace
from fastload.packing.table_columns import picture_kind
from fastload.remote.location import Location
from fastload.sample.fields import Image, kind_of
from fastload.sample.schema import Field, Schema
from fastload.shard.formats import Kinds
from fastload.shard.suffixes import COMPRESSED_TARS
from fastload.shard.tar import IMAGE, LABEL, Grouped, Suffixes, check_kinds, grouped, numbered, value_of

Tar = Path | StoredTar
_SUFFIXES = (".tar", *COMPRESSED_TARS)
_BLOCK = 512  # bytes that a tar's headers and members are multiples of
_ZSTD = b"\x28\xb5\x2f\xfd"  # unknown to tarfile


def wds_sources(source: str | StorePlace, options: PackOptions) -> list[tuple[str, WdsSamples]]:
    """Return split and samples of a tar, of those that ``{000..099}`` in its name stands for, or of all tars
    of a folder, in the order of their names. Folders, or words of the tars' names, tell the splits.

    Raises:
        PackError: there are no tars, damaged ones, or members whose kind nothing tells.
    """
    if options.annotations or options.masks is not None:
        raise PackError("tars hold their annotations; leave --annotations and --masks out.")
    if options.schema is not None:
        raise PackError("tars take kinds by suffix, --field SUFFIX=KIND, not a schema.")
    by_name = _in_store(source) if isinstance(source, StorePlace) else _on_disk(source)
    try:
        kinds = {name: None if word.strip() == "none" else kind_of(word) for name, word in options.fields}
    except (ValueError, TypeError) as error:
        raise PackError(f"--field: {error}") from None
    wrong = check_kinds(kinds)
    if wrong is not None:
        raise PackError(f"{wrong[1]}. Found: {wrong[0]}={dict(options.fields)[wrong[0]]}.")
    return [(split, WdsSamples(tars, kinds, options.limit)) for split, tars in by_name.items()]


def _on_disk(source: str) -> Mapping[str, Sequence[Tar]]:
    places = [Path(path).absolute() for path in braced(source)]
    missing = next((place for place in places if not exists(place)), None)
    if missing is not None:
        raise PackError(f"{missing} does not exist.{meant(missing)}")
    folder = next((place for place in places if is_dir(place)), None)
    if folder is not None and len(places) > 1:
        raise _one_folder(folder)
    if folder is None:
        return {"": places}
    below = {"": _tars_of(folder)}
    if not below[""]:
        below |= {name: _tars_of(folder / name) for name in names_in(folder) if not is_hidden(name)}
    return _by_split(folder, below)


def _in_store(place: StorePlace) -> Mapping[str, Sequence[Tar]]:
    urls, store = braced(place.url), place.files.store
    if all(url.endswith(_SUFFIXES) for url in urls):
        return {"": stored_tars([place.location.root / url for url in urls], store)}
    if len(urls) > 1:
        raise _one_folder(next(url for url in urls if not url.endswith(_SUFFIXES)))
    below: dict[str, list[Location]] = {"": []}
    for name, _ in sorted(place.names):
        folder, _, last = name.rpartition("/")
        if last.endswith(_SUFFIXES) and "/" not in folder and not is_hidden(folder):
            below.setdefault(folder, []).append(place.folder / name)
    return _by_split(place.location, {name: stored_tars(tars, store) for name, tars in below.items()})


def _one_folder(folder: Path | str) -> PackError:
    return PackError(
        f"{folder} is a folder, and braces stand for tars. Give one folder, whose tars or splits are "
        f"found, or the tars by names, '{folder}/NAME-{{000..099}}.tar'."
    )


def _by_split(place: Path | Location, below: Mapping[str, Sequence[Tar]]) -> Mapping[str, Sequence[Tar]]:
    """Return the tars of each split.

    Args:
        place: a folder.
        below: its own tars (""), and those of folders in it.
    """
    tars = below[""]
    if tars:
        splits = by_split(tars)
        if "" in splits and len(splits) > 1:
            raise PackError(
                f"{place}: nothing says which split {splits[''][0].name} belongs to; the names of others say "
                f"{', '.join(sorted(splits.keys() - {''}))}. Move it, or give the tars by names, "
                "'NAME-{000..099}.tar'."
            )
        return splits
    splits = {name: list(tars) for name, tars in below.items() if tars}
    if not splits or not splits_among(list(splits), place, advice="Give the folder of one set."):
        advice = f" itself; give {place / next(iter(splits))}" if splits else ""
        raise PackError(f"{place} holds no {', '.join(_SUFFIXES)} files{advice}.")
    return splits


def _tars_of(place: Path) -> Sequence[Tar]:
    return sorted(p for p in place.iterdir() if p.name.endswith(_SUFFIXES)) if is_dir(place) else []


class WdsSamples(SampleRows):
    """The samples of tars, whose names are read once before packing; see :func:`wds_sources`."""

    def __init__(self, tars: Sequence[Tar], kinds: Kinds, limit: int | None) -> None:
        first = tars[0]
        self.root = os.fsencode(str(first.location.parent if isinstance(first, StoredTar) else first.parent))
        self._tars, self._suffixes = tars, Suffixes(kinds)
        self.containers = tuple(tar for tar in tars if isinstance(tar, Path))
        self._ends: list[int] = []  # per tar: the number of samples in it and those before it
        self._sizes = array("Q")  # bytes of each sample's members
        self._begins = array("Q")  # where in its tar what follows the sample before it begins; 0: unknown
        self.schema = self._look()
        count = self._ends[-1]
        self._count = count if limit is None else min(limit, count)
        self._kinds = {name: None if kind is None else kind.to_json() for name, kind in kinds.items()}

    def __len__(self) -> int:
        return self._count

    def samples(self, start: int, stop: int | None) -> Iterator[Sample | FailedSample | PartialSample]:
        stop = self._count if stop is None else min(stop, self._count)
        first = 0
        for tar, end in zip(self._tars, self._ends, strict=True):
            if start < end and first < stop:
                yield from self._of_tar(tar, first, range(max(start, first), min(stop, end)))
            first = end

    def _of_tar(self, tar: Tar, first: int, wanted: range) -> Iterator[Sample | FailedSample | PartialSample]:
        """Yield some samples of a tar, the first of which is number ``first``."""
        left_out: list[tuple[str, str]] = []
        begin = self._begins[wanted.start]
        number = wanted.start if begin else first
        for sample in self._grouped(tar, left_out, begin):
            if number >= wanted.stop:
                return
            if number >= wanted.start:
                result = self._sample(tar, sample)
                if left_out and not isinstance(result, FailedSample):
                    yield PartialSample(result, tuple(left_out))
                else:
                    yield result
            left_out.clear()
            number += 1

    def settings(self) -> dict[str, Any]:
        hashed = hashlib.blake2b(digest_size=16)
        for tar in self._tars:
            facts = (tar.size, tar.etag) if isinstance(tar, StoredTar) else (tar.stat().st_size,)
            hashed.update(repr((tar.name, *facts)).encode())
        return {"tars": hashed.hexdigest(), "kinds": self._kinds}

    def listed(self, notes: Notes) -> Iterator[Row]:
        start = 0
        for tar, end in zip(self._tars, self._ends, strict=True):
            newest = 0 if isinstance(tar, StoredTar) else tar.stat().st_mtime_ns
            for size in self._sizes[start : min(end, self._count)]:
                yield Row(b"", size, newest)
            start = end

    def _look(self) -> Schema:
        """Return the fields, by the suffixes of all members."""
        fields: dict[str, Field] = {}
        unknown: Counter[str] = Counter()
        count = 0
        for tar in self._tars:
            end, is_plain = 0, _is_plain(tar)
            for sample in self._grouped(tar, None):
                count += 1
                self._sizes.append(sum(size for size, _ in sample.values.values()))
                self._begins.append(end)
                # A member that is a sample's second of its suffix would look like another sample.
                again = not is_plain or bool(sample.twice)
                end = 0 if again else max(stop for _, stop in sample.values.values())
                for suffix in sample.values:
                    field = self._suffixes.field(suffix)
                    if field is not None:
                        fields.setdefault(field.name, field)
                    elif self._suffixes.is_unknown(suffix):
                        unknown[suffix] += 1
                self._check_pictures(tar, sample)
            self._ends.append(count)
        if unknown:
            suffix, number = unknown.most_common(1)[0]
            raise PackError(
                f"{os.fsdecode(self.root)}: nothing says what members .{', .'.join(sorted(unknown))} are "
                f"({number} of .{suffix}). Take or leave them: --field {suffix}=bytes, --field {suffix}=none."
            )
        if not count:
            raise PackError(f"{os.fsdecode(self.root)}: there are no samples in these tars.")
        first = [fields.pop(name) for name in (IMAGE, LABEL) if name in fields]
        try:
            return Schema(tuple(map(self._guessed, (*first, *fields.values()))))
        except ValueError as error:
            raise PackError(f"{os.fsdecode(self.root)}: {error}") from None

    def _guessed(self, field: Field) -> Field:
        is_guess = field.kind == Image() and field.name not in self._suffixes.asked
        return Field(field.name, picture_kind(field.name, ())) if is_guess else field

    def _check_pictures(self, tar: Tar, sample: Grouped[Any]) -> None:
        both = [suffix for suffix in sample.values if self._name_of(suffix) == IMAGE]
        if len(both) > 1:
            raise PackError(
                f"{tar}: {sample.key.decode('utf-8', 'backslashreplace')} has {len(both)} pictures "
                f"({', '.join(both)}), and nothing says which is what. Name them, as --field "
                f"{both[-1]}=mask, or --field {both[-1]}=none to leave one out."
            )

    def _name_of(self, suffix: str) -> str | None:
        field = self._suffixes.field(suffix)
        return None if field is None else field.name

    def _grouped(
        self, tar: Tar, left_out: list[tuple[str, str]] | None, begin: int = 0
    ) -> Iterator[Grouped[Any]]:
        """Yield a tar's samples from a place in it on. Their values are their members' bytes.

        Args:
            left_out: gets what is in no sample; None: values are the members' sizes and ends instead.
        """

        def leave_out(name: bytes, why: str) -> None:
            if left_out is not None:
                left_out.append((name.decode("utf-8", "backslashreplace"), why))

        def members(file: tarfile.TarFile) -> Iterator[tuple[bytes, Any]]:
            for info in file:
                name = info.name.encode("utf-8", "surrogateescape")
                if info.isreg() and left_out is None:
                    yield name, (info.size, info.offset_data + -(-info.size // _BLOCK) * _BLOCK)
                elif info.isreg():
                    part = file.extractfile(info)
                    yield name, part.read() if part else b""
                elif not info.isdir():
                    leave_out(name, "is not a plain file")
                file.members = []  # type: ignore[attr-defined]  # otherwise it keeps all of them

        with _opened(tar, begin) as file:
            yield from grouped(members(file), leave_out)

    def _sample(self, tar: Tar, sample: Grouped[Any]) -> Sample | FailedSample:
        values: dict[str, Any] = {}
        pictures = [name for suffix, name in sample.names.items() if self._name_of(suffix) == IMAGE]
        path = pictures[0] if pictures else sample.key
        try:
            if sample.twice:
                raise ValueError(f"has two members .{sample.twice}")
            for suffix, data in numbered(sample.values):
                field = self._suffixes.field(suffix)
                if field is None:
                    continue
                if field.storage not in ("record", "records"):
                    values[field.name] = field.decode(value_of(field, data))
                    continue
                name = sample.names[suffix]
                if len(self._tars) > 1:  # other tars may have the same names
                    name = os.fsencode(tar.name.split(".")[0]) + b"/" + name
                picture = {"bytes": data, "path": os.fsdecode(name)}
                if field.storage == "records":
                    values.setdefault(field.name, []).append(picture)
                else:
                    values[field.name] = picture
            for field in self.schema:
                if field.name not in values:
                    values[field.name] = _nothing(field)
        except ValueError as error:
            return FailedSample(error, path)
        return values


def _nothing(field: Field) -> Any:
    if field.storage == "record":
        _, dot, ending = field.name.rpartition(".")  # 1.jpg, of a sample's several pictures
        advice = f"; --field '*.{ending}=images' makes a list of all that there are" if dot else ""
        raise ValueError(f"has no picture {field.name!r}{advice}")
    return {"label": -1, "text": "", "bytes": b"", "json": None, "images": []}[field.kind.name]


def _header_of(tar: Tar) -> type[tarfile.TarInfo]:
    """Return a header class for one tar or several concatenated ones; ``tarfile``'s own takes a damaged or
    missing header for the end.

    ``fromtarfile`` is what each version of ``tarfile`` calls for the next header. Those with the security
    fixes of 2026 do not call ``frombuf``.
    """

    class Header(tarfile.TarInfo):
        saw_end = False

        @classmethod
        def fromtarfile(cls, file: tarfile.TarFile) -> Header:
            try:
                header = super().fromtarfile(file)
            except tarfile.HeaderError as error:
                kind = type(error).__name__  # tarfile does not list these classes
                if kind != "EOFHeaderError" and not (kind == "EmptyHeaderError" and Header.saw_end):
                    what = "nothing" if kind == "EmptyHeaderError" else str(error)
                    raise PackError(
                        f"{tar} is not a whole tar: {what} where a header should be. Copy or write it again."
                    ) from None
                Header.saw_end = True
                raise
            Header.saw_end = False
            return header

    return Header


def _bytes_of(tar: Tar) -> BufferedReader:
    return tar.opened() if isinstance(tar, StoredTar) else open(tar, "rb")


def _is_plain(tar: Tar) -> bool:
    """Whether a tar is not compressed, so that reading can begin in its middle."""
    with _bytes_of(tar) as file:
        return file.read(_BLOCK)[257:262] == b"ustar"


@contextmanager
def _opened(tar: Tar, begin: int = 0) -> Iterator[tarfile.TarFile]:
    """Open a tar at a place in it; raise PackError if it is incomplete."""
    try:
        with ExitStack() as stack:
            bytes_of: Any = stack.enter_context(_bytes_of(tar))
            if bytes_of.peek(len(_ZSTD))[: len(_ZSTD)] == _ZSTD:
                import pyarrow

                bytes_of = stack.enter_context(pyarrow.CompressedInputStream(bytes_of, "zstd"))
            if begin:
                bytes_of.seek(begin)
            header = _header_of(tar)
            yield stack.enter_context(
                tarfile.open(fileobj=bytes_of, mode="r|*", tarinfo=header, ignore_zeros=True)
            )
    except (tarfile.TarError, EOFError, ValueError, OSError) as error:
        if isinstance(error, OSError) and (error.errno is not None or isinstance(error, FastloadError)):
            raise
        raise PackError(f"{tar} is not a whole tar: {type(error).__name__}: {error}.") from None
