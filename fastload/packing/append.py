"""``fastload pack --append``: new rows at the end of a complete set, as its next generation."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastload._native import _C
from fastload.errors import PackError
from fastload.machine.paths import exists
from fastload.machine.sizes import counted
from fastload.packing.coefficients import FACTS, RecodeCounts
from fastload.packing.cut import MAX_LISTED, WORK_NAME
from fastload.packing.entries import Made, spacing_of, write_entries
from fastload.packing.facts import Summary, entry_facts
from fastload.packing.files import failed_writes_reported, publishing, remove, require_space
from fastload.packing.options import PackOptions
from fastload.packing.packer import PathOrUrl, Samples, pack
from fastload.packing.progress import Observer
from fastload.packing.publish import SKIPPED_NAME, PackResult, publish_index, runs_in, with_runs
from fastload.packing.rows import CARRIED
from fastload.packing.sample_rows import IterableRows
from fastload.packing.switch import Switch, changing, folder_name, next_generation, refuse_store, tables_of
from fastload.packing.target import APPEND_NAME, RUN_NAME
from fastload.sample.fields import Label, Labels
from fastload.sample.schema import Field, Schema
from fastload.shard.codecs import CODECS, JPEG
from fastload.shard.columns import write_column
from fastload.shard.contents import with_content
from fastload.shard.dataset import PackedFiles
from fastload.shard.generations import mark_of
from fastload.shard.index import RECORD
from fastload.shard.manifest import (
    MANIFEST_NAME,
    Entries,
    Manifest,
    Shard,
    column_name,
    entries_of,
    fields_digest,
)

_STAGE = "new"  # in the work folder: the new rows, packed as a set of their own
_CHUNK = 1 << 16  # samples at a time
_NUMBERED = re.compile(rb"(\d{8,})((?:\.\w+)?)")  # the key of a sample without a file
_PLACE = ("offset", "shard", "label", "reserved")  # of an entry; labels are compared by name

Ids = npt.NDArray[np.int64]


@dataclass(frozen=True)
class AppendResult(PackResult):
    """A set to which rows were appended."""

    added: int = 0  # samples
    known: int = 0  # rows that were left out: their keys are in the set


# ---- Options and schema: the set's ------------------------------------------------------------------


def options_for(manifest: Manifest, spacing: int | None, given: PackOptions, where: Path) -> PackOptions:
    """Return the options by which new rows become like a set's own.

    Args:
        manifest: the set's.
        spacing: of its entry points; None: none.
        given: what the user says; a default says nothing.
        where: the set, for messages.

    Raises:
        PackError: the set is an index of other files, or an option differs from the set's.
    """
    if manifest.options.get("indexed") or manifest.in_store:
        raise PackError(
            f"{where} is an index of files that are not its own; nothing can be appended to them. Pack it "
            "into another folder with 'fastload pack', and append to that."
        )
    had, default = manifest.options, PackOptions()
    found: dict[str, Any] = {name: had.get(name) for name in ("max_side", "coefficients")}
    found |= {"format": manifest.format, "raw": bool(had.get("raw")), "baseline": bool(had.get("baseline"))}
    found |= {"size": tuple(had["size"]) if had.get("size") else None, "alpha": had.get("alpha", "drop")}
    found |= {"quality": had.get("quality") or default.quality}
    found["runs"] = None if manifest.runs is None else str(manifest.runs.spec)
    asked = runs_in({"runs": given.runs}, manifest.schema)
    if asked is not None or found["runs"] is None:
        given = replace(given, runs=None if asked is None else str(asked))
    if had.get("exif") == "turn" or given.exif == "turn":
        found["exif"] = had.get("exif", "refuse")
    if spacing is not None or CODECS[JPEG].name in manifest.codecs:
        found["entries"] = spacing
    different = [
        f"{name} is {value} in the set, asked for is {getattr(given, name)}"
        for name, value in found.items()
        if getattr(given, name) not in (value, getattr(default, name))
    ]
    if different:
        raise PackError(
            f"rows appended to {where} are packed as its own are: {'; '.join(different)}. Leave these "
            "options out: the set's are taken."
        )
    if "shard_size" in had and given.shard_size == default.shard_size:
        found["shard_size"] = had["shard_size"]
    return replace(given, **found, first_number=manifest.num_records)


def _joined_kind(old: Any, new: Any, name: str) -> Any:
    """Return a kind with the classes of both: the old ones, then those that only the new rows have."""
    if not isinstance(old, (Label, Labels)):
        return old
    before = set(old.classes)
    more = tuple(one for one in dict.fromkeys(new.classes) if one not in before)
    if not isinstance(old, Labels) or not (old.ids or new.ids):
        return replace(old, classes=(*old.classes, *more))
    had, numbers = (dict(zip(kind.classes, kind.ids, strict=False)) for kind in (old, new))
    if (old.classes and not had) or (new.classes and not numbers):
        where, other, (one, number) = (
            ("the set", "the new rows", next(iter(had.items())))
            if had
            else ("the new rows", "the set", next(iter(numbers.items())))
        )
        raise PackError(
            f"field {name!r}: classes have numbers (ids) in {where}, as {number} for {one!r}, and none in "
            f"{other}. Give both the same."
        )
    for one, number in had.items():
        if numbers.get(one, number) != number:
            raise PackError(
                f"field {name!r}: the class {one!r} has the number (ids) {number} in the set, and "
                f"{numbers[one]} in the new rows. Give both the same."
            )
    try:
        return replace(old, classes=(*old.classes, *more), ids=(*old.ids, *(numbers[one] for one in more)))
    except ValueError as error:  # two classes with one number
        raise PackError(f"field {name!r}: the classes cannot be joined: {error}") from None


def joined_schema(old: Schema, new: Schema) -> Schema:
    """Return the schema of a set with new rows: the set's, with further classes at the end.

    Raises:
        PackError: the fields differ; the message names them.
    """

    def plain(field: Field) -> Field:
        kind: Any = field.kind
        classes = {"classes": ()} if isinstance(kind, (Label, Labels)) else {}
        ids = {"ids": ()} if isinstance(kind, Labels) else {}
        return replace(field, kind=replace(kind, **classes, **ids))

    had, has = [plain(field) for field in old], [plain(field) for field in new]
    if had != has:
        pairs = [f"{a} in the set, {b} in the new rows" for a, b in zip(had, has, strict=False) if a != b]
        names = f"the set has {', '.join(old.names)}; the new rows have {', '.join(new.names)}"
        words = pairs[0] if pairs and old.names == new.names else names
        raise PackError(
            f"the fields of the new rows are not the set's: {words}. Name kinds with --field, or give "
            "fastload.pack the set's schema."
        )
    kinds = [_joined_kind(a.kind, b.kind, a.name) for a, b in zip(old, new, strict=True)]
    return Schema(tuple(replace(field, kind=kind) for field, kind in zip(old, kinds, strict=True)))


def _check_numbers(old: PackedFiles, new: PackedFiles) -> None:
    """Refuse to join numbers that have class names with numbers that have none, whose meaning nobody knows.

    Raises:
        PackError: the message names the field.
    """
    for field, other in zip(old.schema, new.schema, strict=True):
        if not isinstance(field.kind, (Label, Labels)) or not isinstance(other.kind, (Label, Labels)):
            continue
        if bool(field.kind.classes) == bool(other.kind.classes):
            continue
        unnamed, where = (old, "the set") if not field.kind.classes else (new, "the new rows")
        if _has_numbers(unnamed, field):
            raise PackError(
                f"field {field.name!r} has numbers without class names in {where}, and class names in the "
                "other: they cannot be joined. Give both names, or both numbers."
            )


def _has_numbers(files: PackedFiles, field: Field) -> bool:
    label = files.schema.label_field
    if label is not None and field.name == label.name:
        return bool((files.records["label"] >= 0).any())
    column = files.columns[field.name]
    pieces = (np.arange(at, min(at + _CHUNK, files.num_ids)) for at in range(0, files.num_ids, _CHUNK))
    return any(bool((np.ascontiguousarray(column.gather(ids)[0]).view("<i4") >= 0).any()) for ids in pieces)


# ---- Two sets joined --------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Join:
    """The samples of a set, and behind them some of another set's, whose shards come to the first one.

    Args:
        old: the set.
        new: the new rows' own set.
        kept: (k,) sample ids of the new rows that are appended.
        schema: of both together.
    """

    old: PackedFiles
    new: PackedFiles
    kept: Ids
    schema: Schema

    @cached_property
    def shards(self) -> Ids:
        """The new set's shards that have rows which are appended."""
        return np.unique(self.new.records["shard"][self.kept]).astype(np.int64)

    def _placed(self, records: npt.NDArray[np.void]) -> npt.NDArray[np.void]:
        """Return entries of the new set as they are in the joined one, but for labels."""
        placed: npt.NDArray[np.void] = records.copy()
        numbers = len(self.old.manifest.shards) + np.searchsorted(self.shards, records["shard"])
        placed["shard"] = np.where(records["length"] > 0, numbers, records["shard"])
        return placed

    def _parts(self) -> Iterator[tuple[PackedFiles, Ids]]:
        for files, ids in ((self.old, np.arange(self.old.num_ids)), (self.new, self.kept)):
            yield from ((files, ids[start : start + _CHUNK]) for start in range(0, len(ids), _CHUNK))

    @cached_property
    def _labels(self) -> npt.NDArray[np.int32]:
        return _numbers(self.new.schema.label_field, self.schema.label_field)

    def records(self) -> Iterator[npt.NDArray[np.void]]:
        """Yield the index's entries."""
        for files, ids in self._parts():
            found = files.records[ids]
            if files is self.new:
                shards = len(self.old.manifest.shards) + np.searchsorted(self.shards, found["shard"])
                found["shard"] = shards
                found["label"] = _renumbered(found["label"], self._labels)
            yield found

    def keys(self) -> Iterator[list[bytes]]:
        """Yield the keys."""
        for files, ids in self._parts():
            yield [bytes(files.index.key(sample)) for sample in ids.tolist()]

    def column(self, field: Field) -> dict[str, Any]:
        """Return what ``write_column`` takes for a field."""
        name = field.name
        if field.storage == "record":

            def entries() -> Iterator[npt.NDArray[np.void]]:
                for files, ids in self._parts():
                    found = files.field_records(name)[ids]
                    yield self._placed(found) if files is self.new else found

            return {"fixed": entries()}
        if field.storage == "fixed":
            values = (np.frombuffer(data, field.item_dtype) for data, _ in self._values(field))
            return {"fixed": (part.reshape(-1, *field.item_shape) for part in values)}
        return {
            "lengths": (np.diff(ends) for _, ends in self._values(field)),
            "chunks": (data for data, _ in self._values(field)),
        }

    def _values(self, field: Field) -> Iterator[tuple[bytes, Ids]]:
        """Yield values back to back, and where each begins and ends."""
        numbers = _numbers(self.new.schema[field.name], field)
        for files, ids in self._parts():
            data, ends = files.columns[field.name].gather(ids)
            if files is self.new and field.storage == "records":
                data = self._placed(np.ascontiguousarray(data).view(RECORD).reshape(-1)).view(np.uint8)
            elif files is self.new and len(numbers):
                data = _renumbered(np.ascontiguousarray(data).view("<i4"), numbers).view(np.uint8)
            yield data.tobytes(), ends

    def entry_points(self) -> Iterator[Made]:
        """Yield the entry points of all records."""
        for files, ids in self._parts():
            entries, pieces = files.entries, list[bytes]()
            if entries is None:
                yield b"", np.zeros((len(ids), 2), np.uint32)
                continue
            has_parts = entries.part_bytes == _C.PART_BYTES
            for sample in ids.tolist():
                pieces += entries.get(sample), entries.get_parts(sample) if has_parts else b""
            yield b"".join(pieces), np.array([*map(len, pieces)], np.uint32).reshape(-1, 2)

    def write(self, path: Path, mark: str, index: str) -> tuple[Entries, tuple[int, int]]:
        """Write columns and index; return the fields' entries, and the index's size and digest."""
        count = self.old.num_ids + len(self.kept)
        columns = {
            field.name: write_column(path / column_name(number, mark), field, count, **self.column(field))
            for number, field in self.schema.columns
        }
        entries = entries_of(self.schema, columns)
        again = _Again(self.records), _Again(self.keys)
        return entries, publish_index(path, *again, fields_digest(entries), index)


class _Again:
    """What a function yields, any number of times."""

    def __init__(self, make: Any) -> None:
        self._make = make

    def __iter__(self) -> Iterator[Any]:
        yield from self._make()


def _numbers(new: Field | None, joined: Field | None) -> npt.NDArray[np.int32]:
    """Return the number of each of the new rows' classes among the joined ones, then -1; none: unchanged."""
    if new is None or joined is None or not isinstance(new.kind, (Label, Labels)):
        return np.zeros(0, np.int32)
    own, names = new.kind.classes, joined.kind.classes  # type: ignore[attr-defined]
    if own == names[: len(own)]:
        return np.zeros(0, np.int32)
    places = {name: number for number, name in reversed(list(enumerate(names)))}
    return np.array([*(places[name] for name in own), -1], np.int32)


def _renumbered(values: npt.NDArray[Any], numbers: npt.NDArray[np.int32]) -> npt.NDArray[Any]:
    return numbers[values] if len(numbers) else values


# ---- Rows that are there already --------------------------------------------------------------------


def _generation_with(old: PackedFiles, new: PackedFiles, schema: Schema) -> tuple[int, int] | None:
    """Return the generation that these very rows made, if one did, and how many of them were dropped since;
    of several the one with the fewest. None: the rows are new.

    Numbers in place of keys do not count: they say at which position the rows were.
    """
    ends = [one.records for one in old.manifest.generations] + [old.num_ids]
    found = []
    for generation, (begin, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True), 1):
        if end - begin == len(new) and _is_same(old, new, begin, schema):
            gone = int(((old.dropped >= begin) & (old.dropped < end)).sum())
            found.append((gone, generation))
    return min(found)[::-1] if found else None


def _is_same(old: PackedFiles, new: PackedFiles, begin: int, schema: Schema) -> bool:
    labels = _numbers(new.schema.label_field, schema.label_field)
    for start in range(0, len(new), _CHUNK):
        ids = np.arange(start, min(start + _CHUNK, len(new)))
        a, b = old.records[begin + ids], new.records[ids]
        if (a["label"] != _renumbered(b["label"], labels)).any() or not _are_same(a, b):
            return False
        if not all(_has_same_key(old, begin + i, begin, new, i) for i in ids.tolist()):
            return False
        for _, field in schema.columns:
            had, has = (files.columns[field.name] for files in (old, new))
            if field.storage == "record":
                same = _are_same(
                    old.field_records(field.name)[begin + ids], new.field_records(field.name)[ids]
                )
            else:
                (x, x_ends), (y, y_ends) = had.gather(begin + ids), has.gather(ids)
                same = np.array_equal(x_ends, y_ends) and _have_same(field, x, y, new.schema[field.name])
            if not same:
                return False
    return True


def _have_same(field: Field, old: npt.NDArray[Any], new: npt.NDArray[Any], had: Field) -> bool:
    if field.storage == "records":
        a, b = (np.ascontiguousarray(data).view(RECORD).reshape(-1) for data in (old, new))
        return _are_same(a, b)
    numbers = _numbers(had, field)
    if len(numbers):
        new = _renumbered(np.ascontiguousarray(new).view("<i4"), numbers).view(np.uint8)
    return np.array_equal(old, new)


def _are_same(a: npt.NDArray[np.void], b: npt.NDArray[np.void]) -> bool:
    """Whether two arrays of entries are of the same records."""
    names = [name for name in RECORD.names or () if name not in _PLACE]
    return len(a) == len(b) and all(bool((a[name] == b[name]).all()) for name in names)


def _has_same_key(old: PackedFiles, sample: int, begin: int, new: PackedFiles, row: int) -> bool:
    """Whether a sample and a new row have one key, or numbers in its place that say the same position.

    A file may be called by a number, too: only numbers as fastload itself writes them, each of which counts
    from the first sample of its pack, are taken for positions.
    """
    had, has = bytes(old.index.key(sample)), bytes(new.index.key(row))
    if had == has:
        return True
    a, b = _NUMBERED.fullmatch(had), _NUMBERED.fullmatch(has)
    if a is None or b is None or a[2] != b[2]:
        return False
    if any(match[1] != b"%08d" % int(match[1]) for match in (a, b)):
        return False
    return int(a[1]) - begin == int(b[1]) - int(new.manifest.options.get("first_number", 0))


def _known_keys(old: PackedFiles, new: PackedFiles) -> list[int]:
    """Return the new rows whose keys samples of the set have, other than dropped ones."""
    wanted: dict[bytes, list[int]] = {}
    for row in range(len(new)):
        wanted.setdefault(bytes(new.index.key(row)), []).append(row)
    ids = range(old.num_ids) if old.sample_ids is None else old.sample_ids.tolist()
    found = {bytes(old.index.key(sample)) for sample in ids} & wanted.keys()
    return sorted(row for key in found for row in wanted[key])


def _refuse_known(old: PackedFiles, new: PackedFiles, known: list[int]) -> None:
    keys = [new.index.key(row).decode("utf-8", "backslashreplace") for row in known[:MAX_LISTED]]
    more = f", and {len(known) - MAX_LISTED} more" if len(known) > MAX_LISTED else ""
    raise PackError(
        f"{len(known)} of {counted(len(new), 'new row')} have keys that samples of {old.where} have: "
        f"{', '.join(keys)}{more}. Nothing was appended. --on-error skip leaves these rows out; to replace "
        "samples, drop them first ('fastload drop')."
    )


# ---- ``fastload pack SOURCE SET --append`` ----------------------------------------------------------


def append(
    source: PathOrUrl | Samples,
    output: str | os.PathLike[str],
    options: PackOptions | None = None,
    observer: Observer | None = None,
    ray: str | None = None,
) -> list[PackResult]:
    """Pack a source's rows as new samples at the end of a complete set, its next generation.

    Samples of the set keep their ids, labels and class names; new class names come behind them. After an
    interruption at any moment the set is the old generation or the new one, and the same call goes on.

    Args:
        source: as in :func:`fastload.packing.pack`.
        output: the packed dataset, or the parent of train/ and val/ if the source has these.
        options: those of the new rows' pack; they must fit the set's, which are taken where they are not
            given. ``restart`` throws away an unfinished append.
        observer: receives progress.
        ray: the address of a Ray cluster that writes the shards.

    Raises:
        PackError: a set in a store; options or fields that are not the set's; keys that are in the set
            already (``on_error="skip"`` leaves those rows out); a full disk; another process at work.
    """
    options, observer = options or PackOptions(), observer or Observer()
    refuse_store(output, "append to")
    with ExitStack() as stack:
        sets = {path.name if path != Path(output).absolute() else "": path for path in _sets_at(output)}
        for path in sets.values():
            stack.enter_context(changing(path, "append to"))
        wanted = None
        for path in sets.values():
            dataset = PackedFiles(path)
            _refuse_carried(dataset.manifest, path)
            fitting = options_for(dataset.manifest, spacing_of(dataset), options, path)
            if wanted is not None and replace(wanted, first_number=0) != replace(fitting, first_number=0):
                raise PackError(
                    f"the sets in {output} were packed with other options each; append one by one."
                )
            wanted = wanted or fitting
        assert wanted is not None
        stage = Path(output).absolute() / APPEND_NAME / _STAGE
        stage.parent.mkdir(exist_ok=True)
        packed = _staged(source, stage, wanted, observer, ray)
        try:  # all splits are looked at before one of them is appended
            for result in packed:
                _refuse_carried(result.manifest, source)
            appends = [
                _Append(_set_of(result, stage, sets, source), result, options, observer) for result in packed
            ]
            plans = [one.planned() for one in appends]
        except PackError:
            remove(stage.parent)
            raise
        results: list[PackResult] = [one.run(plan) for one, plan in zip(appends, plans, strict=True)]
        remove(stage.parent)
        return results


def _refuse_carried(manifest: Manifest, where: Any) -> None:
    """Raise PackError if a set keeps what its source said of all samples, which would be wrong of more."""
    for folder in manifest.options.get(CARRIED) or ():
        raise PackError(
            f"{where} is a LeRobot set, whose {folder}/ counts its episodes and rows: it would be wrong of a "
            "set that grew. Join the sets with LeRobot's own tools, and pack the result."
        )


def _staged(
    source: PathOrUrl | Samples, stage: Path, options: PackOptions, observer: Observer, ray: str | None
) -> list[PackResult]:
    """Pack the new rows as a set of their own, or go on with that.

    Raises:
        PackError: among others, an unfinished append of another source is there.
    """
    begun = exists(stage) and not options.restart
    try:
        if isinstance(source, IterableRows) and begun:
            if not _is_of_iterable(stage):
                raise PackError("an iterable comes once, so it cannot be compared with that (--restart).")
            options = replace(options, restart=True)
        return pack(source, stage, options, observer, ray)
    except PackError as error:
        if not begun or "--restart" not in str(error):  # which all words about another pack name
            raise
        raise PackError(
            f"{stage.parent.parent} has an unfinished append of another source, or with other options: "
            f"{error} Run that append again, which finishes it; or this one with --restart (restart=True), "
            "which throws the unfinished one away, and nothing else."
        ) from error


def _is_of_iterable(stage: Path) -> bool:
    """Whether the rows that were packed there, whole or in part, came from an iterable."""
    if exists(stage / MANIFEST_NAME):
        said = Manifest.read(stage).options
    elif exists(stage / WORK_NAME / RUN_NAME):
        said = json.loads((stage / WORK_NAME / RUN_NAME).read_text(encoding="utf-8"))
    else:
        return not os.listdir(stage)
    return said.get("given", "") is None


def _set_of(result: PackResult, stage: Path, sets: Mapping[str, Path], source: PathOrUrl | Samples) -> Path:
    """Return the set to which a split's rows are appended.

    Raises:
        PackError: there is no such set.
    """
    name = result.output.name if result.output != stage else ""
    if name in sets:
        return sets[name]
    what = f"has the split {name!r}" if name else "has no splits"
    has = ", ".join(sorted(sets)) if "" not in sets else "one set, without splits"
    raise PackError(
        f"{source} {what}, and the output has {has}. Nothing was appended: append to each set by itself."
    )


def _sets_at(output: str | os.PathLike[str]) -> list[Path]:
    """Return the set at a place, or those in it."""
    path = Path(output).absolute()
    if exists(path / MANIFEST_NAME):
        return [path]
    found = sorted(manifest.parent for manifest in path.glob(f"*/{MANIFEST_NAME}"))
    return found or [path]


class _Plan(NamedTuple):
    """What is to be appended to a set, and which of the new rows it has already."""

    join: _Join
    known: list[int]
    words: str  # why nothing is to be appended


@dataclass(frozen=True)
class _Append:
    """An append to one set, which the caller holds; the new rows are packed as a set of their own."""

    path: Path
    packed: PackResult
    options: PackOptions
    observer: Observer

    def planned(self) -> _Plan:
        """Return what is to be appended; nothing is written.

        Raises:
            PackError: the rows cannot be appended.
        """
        old, new = _opened(self.path), _opened(Path(str(self.packed.output)))
        schema = joined_schema(old.schema, new.schema)
        _check_numbers(old, new)
        before, gone = _generation_with(old, new, schema) or (0, 0)
        if before and not gone:
            words = f"these {len(new)} rows are in the set already, as generation {before}"
            return _Plan(_Join(old, new, np.zeros(0, np.int64), schema), [], words)
        known = _known_keys(old, new)
        if known and self.options.on_error != "skip":
            _refuse_known(old, new, known)
        if before and gone < len(new) and not known:
            raise PackError(
                f"these {len(new)} rows are generation {before} of {old.where}, and {gone} of them were "
                "dropped since. Nothing was appended: the others would be there twice. Append only the rows "
                "that are to come back."
            )
        kept = np.setdiff1d(np.arange(len(new)), np.array(known, np.int64))
        words = "" if len(kept) else f"the keys of all {len(new)} rows are in the set already"
        return _Plan(_Join(old, new, kept, schema), known, words)

    def run(self, plan: _Plan) -> AppendResult:
        """Append what was planned."""
        began, join = time.monotonic(), plan.join
        if plan.words:
            remove(join.new.folder)
            self.observer.said(self.path, f"{plan.words}: nothing is appended")
            return self._result(join.old.manifest, None, 0, len(plan.known), began)
        manifest, summary = self._joined(join, plan.known)
        return self._result(manifest, summary, len(join.kept), len(plan.known), began)

    def _result(
        self, manifest: Manifest, summary: Summary | None, added: int, known: int, began: float
    ) -> AppendResult:
        packed = self.packed
        return AppendResult(
            self.path, manifest, entry_facts(PackedFiles(self.path)), summary,
            packed.seconds + time.monotonic() - began, packed.entries_seconds, packed.written_bytes,
            notes=packed.notes, added=added, known=known,
        )  # fmt: skip

    def _joined(self, join: _Join, known: list[int]) -> tuple[Manifest, Summary]:
        """Write the new generation's files and its manifest."""
        old, stage, mark = join.old.manifest, join.new.folder, mark_of(join.old.manifest.generation + 1)
        tables = tables_of(old, mark)
        shards = [join.new.manifest.shards[number] for number in join.shards.tolist()]
        names = [
            f"{self.path.name}{mark}-{at:05d}-of-{len(shards):05d}{PurePosixPath(folder_name(shard.file)).suffix}"
            for at, shard in enumerate(shards)
        ]
        sources = {name: str(stage / folder_name(s.file)) for name, s in zip(names, shards, strict=True)}
        switch = Switch(self.path, old.generation + 1, tuple(tables), sources, str(stage))
        needed = 2 * (old.index_size + sum(int(entry.get("size", 0)) for entry in old.fields)) + (1 << 20)
        require_space(self.path, needed)
        switch.announce()
        summary = Summary()
        for start in range(0, len(join.kept), _CHUNK):
            summary.add(join.new.records[join.kept[start : start + _CHUNK]])
        try:
            with failed_writes_reported(self.path / tables[0], needed):
                entries, index = join.write(self.path, mark, tables[0])
                counts = np.bincount(
                    join.new.records["shard"][join.kept], minlength=len(join.new.manifest.shards)
                )
                placed = [
                    Shard(
                        str(PurePosixPath(name, *PurePosixPath(shard.file).parts[1:])),
                        shard.size,
                        int(counts[at]),
                    )
                    for name, shard, at in zip(names, shards, join.shards.tolist(), strict=True)
                ]
                manifest = self._manifest(join, placed, entries, index, summary, len(known))
                if old.runs is not None:
                    words = "Nothing was appended. Mend the new rows and append them with --restart."
                    manifest = with_runs(manifest, self.path, old.runs.spec, words, mark)
                spacing = next(
                    (f.entries.spacing for f in (join.old, join.new) if f.entries is not None), None
                )
                if spacing is not None:
                    write_entries(self.path, manifest, index[1], int(spacing), join.entry_points())
                self._add_skipped(join, known)
        except BaseException:
            switch.undo()
            raise
        switch.move()
        switch.finish(old, manifest)
        return manifest, summary

    def _manifest(
        self, join: _Join, shards: list[Shard], entries: Entries, index: tuple[int, int], summary: Summary,
        known: int,
    ) -> Manifest:  # fmt: skip
        old, new, label = join.old.manifest, join.new.manifest, join.schema.label_field
        codecs = dict(old.codecs)
        for name, count in summary.codecs.items():
            codecs[name] = codecs.get(name, 0) + count
        manifest = next_generation(
            old,
            num_records=old.num_records + summary.records, data_bytes=old.data_bytes + summary.bytes,
            classes=label.kind.classes if label is not None else (),  # type: ignore[attr-defined]
            shards=(*old.shards, *shards), index_size=index[0], index_crc=index[1],
            codecs=dict(sorted(codecs.items(), key=lambda item: -item[1])), options=_options(old, new),
            skipped=old.skipped + new.skipped + known, fields=tuple(entries),
            left_out=old.left_out + new.left_out,
        )  # fmt: skip
        return with_content(manifest, self.path)

    def _add_skipped(self, join: _Join, known: list[int]) -> None:
        """Add what was left out of the new rows to the set's list, each line once."""
        lines = [line for files in (join.old, join.new) for line in _lines(files.folder / SKIPPED_NAME)]
        for row in known:
            key = join.new.index.key(row).decode("utf-8", "backslashreplace")
            lines.append(
                json.dumps({"path": key, "reason": "its key is in the set already"}, ensure_ascii=False)
            )
        if lines:
            with publishing(self.path / SKIPPED_NAME) as temporary:
                temporary.write_text("".join(f"{line}\n" for line in dict.fromkeys(lines)), encoding="utf-8")


def _opened(path: Path) -> PackedFiles:
    """Open a set; entry points that cannot be read are an error, as the joined set would lack them."""
    files = PackedFiles(path, entries=False)
    entries = path / files.manifest.entries_name
    files.entries = _C.Entries(str(entries), files.index) if exists(entries) else None
    return files


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if exists(path) else []


def _options(old: Manifest, new: Manifest) -> Mapping[str, Any]:
    """Return the set's options, with the sums of what they say of its JPEGs."""
    options = dict(old.options)
    if FACTS in options and FACTS in new.options:
        counts = RecodeCounts()
        counts.merge(options[FACTS])
        counts.merge(new.options[FACTS])
        options[FACTS] = {**options[FACTS], **counts.to_json()}
    if "transcoded" in options and "transcoded" in new.options:
        options["transcoded"] += new.options["transcoded"]
    return options
