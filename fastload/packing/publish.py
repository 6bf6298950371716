"""The last step of a pack: it writes index, columns and manifest; the result says what was packed."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from fastload._native import _C
from fastload._version import __version__
from fastload.errors import FastloadError, PackError
from fastload.machine.messages import say
from fastload.packing.coefficients import FACTS, NOTE, RecodeCounts
from fastload.packing.facts import EntryFacts, Summary
from fastload.packing.files import failed_writes_reported, publishing, remove, sync_folder
from fastload.packing.progress import Place
from fastload.packing.shard_writer import ShardPart, classes_of
from fastload.remote.location import Location
from fastload.sample.schema import Field, Schema
from fastload.shard.columns import Columns, write_column
from fastload.shard.contents import with_content
from fastload.shard.formats import format_of
from fastload.shard.generations import read_dropped
from fastload.shard.index import write_index
from fastload.shard.manifest import (
    INDEX_NAME,
    SECOND_INDEX,
    Entries,
    Manifest,
    Shard,
    column_name,
    entries_of,
    fields_digest,
)
from fastload.shard.runs import NO_RUNS, Runs, RunsSpec, gaps_in, runs_name, table_of, write_runs

# ---- From finished shards to a packed dataset: columns, index, then manifest ------------------------

SKIPPED_NAME = "skipped.jsonl"
KEPT_RUNS = "kept_runs"  # among the manifest's options: the words for the runs of the set that was packed
T = TypeVar("T")


class Each(Generic[T]):
    """The results of ``make`` for each part; iterable any number of times, with one part in memory."""

    def __init__(self, make: Callable[[int, Path], T], parts: list[Path]) -> None:
        self._make, self._parts = make, parts

    def __iter__(self) -> Iterator[T]:
        return (self._make(place, path) for place, path in enumerate(self._parts))


class Finished:
    """What the parts of finished shards say.

    Args:
        parts: the parts, in the shards' order.
        problems: of the source: key, reason.
    """

    def __init__(self, parts: Sequence[Path], problems: Sequence[tuple[str, str]] = ()) -> None:
        self.skipped, self.left_out = list(problems), list[tuple[str, str, str]]()
        self.kept: list[int] = []  # numbers of the shards that have records
        self.parts: list[Path] = []  # those shards' parts
        self.sizes: list[tuple[int, int]] = []  # their bytes and records
        self.summary, self.counts, self.baselines = Summary(), RecodeCounts(), 0
        for number, path in enumerate(parts):
            part = ShardPart.read(path)
            self.skipped += part.skipped
            self.left_out += part.left_out
            self.baselines += part.transcoded
            if FACTS in part.facts:
                self.counts.merge(part.facts[FACTS])
            if len(part.records):
                self.kept.append(number)
                self.parts.append(path)
                self.sizes.append((part.shard_bytes, len(part.records)))
                self.summary.add(part.records)

    def require_samples(self) -> None:
        """Raise PackError if not one sample could be packed."""
        if not self.kept and self.skipped:
            key, reason = self.skipped[0]
            raise PackError(
                f"none of {len(self.skipped)} samples can be packed; the first is {key}: {reason}."
            )

    def publish(
        self,
        output: Path,
        names: Sequence[str],
        schema: Schema,
        options: Mapping[str, Any],
        ignored: Mapping[str, Any] | None = None,
    ) -> Manifest:
        """Write columns, index and manifest of the kept shards, which have their names.

        Args:
            output: the dataset's folder.
            names: the shards' names.
            schema: the fields.
            options: the manifest's options.
            ignored: what the source has and is not packed.
        """
        about = sum(os.stat(path).st_size for path in self.parts)
        try:
            with failed_writes_reported(output, about):
                entries, index = write_tables(output, schema, self.parts, self.summary.records)
                write_skipped(output, self.skipped, self.left_out)
        except BaseException:
            for temporary in output.glob(".tmp-*"):
                remove(temporary)
            raise
        data_file = format_of(str(options["format"])).data_file
        shards = [
            Shard(str(data_file(output / name).relative_to(output)), size, records)
            for name, (size, records) in zip(names, self.sizes, strict=True)
        ]
        facts = dict(options)
        if facts.get("baseline") and "source" in facts:
            facts["transcoded"] = self.baselines
        if facts.get("coefficients"):
            facts[FACTS] = {"note": NOTE, **self.counts.to_json()}
        index_facts = (str(options["format"]), self.summary, classes_of(schema), shards, index, facts)
        counts = (len(self.skipped), tuple(entries), len(self.left_out), ignored)
        manifest = with_content(make_manifest(*index_facts, *counts), output)
        kept = f"Shards are kept: the same command with other runs, or {NO_RUNS!r}, goes on."
        manifest = with_runs(manifest, output, runs_in(options, schema), kept)
        manifest.write(output)
        return manifest


def write_tables(
    output: Path, schema: Schema, parts: list[Path], count: int, mark: str = ""
) -> tuple[Entries, tuple[int, int]]:
    """Write the columns and the index of finished shards, each atomically.

    Args:
        output: the dataset's folder.
        schema: its fields.
        parts: the parts of its shards, in order.
        count: the number of samples.
        mark: appended to the files' names, as :data:`fastload.shard.manifest.SECOND`.

    Returns:
        The manifest's entries of the fields, and the index's size and digest.
    """
    columns = {
        field.name: write_column(
            output / column_name(number, mark), field, count, **_column(field, parts, at)
        )
        for at, (number, field) in enumerate(schema.columns)
    }
    entries = entries_of(schema, columns)
    keys = Each(lambda _, path: ShardPart.read(path).keys, parts)
    name = SECOND_INDEX if mark else INDEX_NAME
    return entries, publish_index(output, Each(_records, parts), keys, fields_digest(entries), name)


def _records(place: int, path: Path) -> npt.NDArray[np.void]:
    records = ShardPart.read(path).records
    records["shard"] = place
    return records


def _column(field: Field, parts: list[Path], at: int) -> dict[str, Iterable[Any]]:
    """Return the arguments that ``write_column`` takes for a field."""

    def records(place: int, path: Path) -> npt.NDArray[np.void]:
        column = ShardPart.read_column(path, at).records
        assert column is not None
        column["shard"] = place
        return column

    def listed(place: int, path: Path) -> npt.NDArray[np.void]:
        column = records(place, path)
        column["shard"][column["length"] == 0] = 0
        return column

    def pieces(width: int = 1) -> Iterator[bytes]:
        return (data for path in parts for data in ShardPart.read_values(path, at, width))

    if field.storage == "record":
        return {"fixed": Each(records, parts)}
    if field.storage == "records":
        counts = Each(lambda _, path: ShardPart.read_column(path, at).entry_bytes, parts)
        return {"lengths": counts, "chunks": (part.tobytes() for part in Each(listed, parts))}
    if field.storage == "fixed":
        values = (np.frombuffer(data, field.item_dtype) for data in pieces(field.item_bytes))
        return {"fixed": (part.reshape(-1, *field.item_shape) for part in values)}
    return {
        "lengths": Each(lambda _, path: ShardPart.read_lengths(path, at), parts),
        "chunks": pieces(),
    }


def publish_index(
    output: Path,
    records: Iterable[npt.NDArray[np.void]],
    keys: Iterable[list[bytes]],
    fields: bytes = b"",
    name: str = INDEX_NAME,
) -> tuple[int, int]:
    """Write ``index.fli`` atomically, with the digest of the manifest's ``fields``; return its size in bytes
    and its own digest."""
    final = output / name
    with publishing(final) as temporary:
        write_index(temporary, records, keys, fields)
    return final.stat().st_size, _C.Index(str(final)).digest


# ---- Runs: which samples belong together, in which order ---------------------------------------------


def runs_in(options: Mapping[str, Any], schema: Schema) -> RunsSpec | None:
    """Return what the samples are ordered by, according to a manifest's options; None: nothing.

    Raises:
        PackError: the fields are not there, or say nothing of an order.
    """
    words = options.get("runs", options.get(KEPT_RUNS))
    if words in (None, NO_RUNS):
        return None
    try:
        return RunsSpec.of(str(words)).fitted(schema)
    except ValueError as error:
        kept = (
            " The set that is packed has these runs: leave out none of their fields, or give "
            f"runs={NO_RUNS!r} (--runs {NO_RUNS})."
        )
        raise PackError(f"{error}{'' if 'runs' in options else kept}") from None


@dataclass(frozen=True)
class WrittenTables:
    """The tables of a set as runs are made of them, whether its manifest is written yet or not."""

    folder: Path
    manifest: Manifest

    @property
    def schema(self) -> Schema:
        return self.manifest.schema

    @property
    def num_ids(self) -> int:
        return self.manifest.num_records

    @cached_property
    def index(self) -> Any:
        return _C.Index(str(self.folder / self.manifest.index_name))

    @cached_property
    def columns(self) -> Columns:
        return Columns(self.folder, self.schema, self.manifest)

    @cached_property
    def dropped(self) -> npt.NDArray[np.int64]:
        entries = read_dropped(self.folder, self.manifest.dropped, self.num_ids)
        return entries["id"].astype(np.int64)


def with_runs(
    manifest: Manifest, folder: Path, spec: RunsSpec | None, words: str = "", mark: str = ""
) -> Manifest:
    """Write the runs of a set whose index and columns are complete; return its manifest with them.

    Args:
        manifest: the set's, not yet written.
        folder: the set's.
        spec: what orders the samples, fitted; None: nothing, and no file is written.
        words: what becomes of the pack if values give no order, for the message.
        mark: that of a generation, for the file's name.

    Raises:
        PackError: values that give no order; the message names samples and run.
    """
    if spec is None:
        return replace(manifest, runs=None)
    files = WrittenTables(folder, manifest)
    try:
        table = table_of(files, spec)
    except ValueError as error:
        if isinstance(error, FastloadError):
            raise
        raise PackError(f"{error} {words}".rstrip()) from None
    path = folder / runs_name(mark)
    with failed_writes_reported(path, sum(each.nbytes for each in table if each is not None)):
        runs = write_runs(path, spec, *table)
        sync_folder(folder)
    gaps = gaps_in(Runs.seen(spec, *table, files), files)
    if gaps:
        say(f"{folder}: {gaps}")
    return replace(manifest, runs=runs)


def make_manifest(
    format_name: str,
    summary: Summary,
    classes: tuple[str, ...],
    shards: Sequence[Shard],
    index: tuple[int, int],
    options: Mapping[str, Any],
    skipped: int,
    fields: Entries = (),
    left_out: int = 0,
    ignored: Mapping[str, Any] | None = None,
) -> Manifest:
    """Return the manifest of the records in ``summary``; ``index`` is the index's size and digest."""
    return Manifest(
        format=format_name, num_records=summary.records, data_bytes=summary.bytes, classes=classes,
        shards=tuple(shards), index_size=index[0], index_crc=index[1], codecs=summary.codecs,
        options=options, skipped=skipped, writer=f"fastload {__version__}", fields=fields,
        left_out=left_out, ignored=ignored or {},
    )  # fmt: skip


def write_skipped(
    output: Path, skipped: list[tuple[str, str]], left_out: Sequence[tuple[str, str, str]] = ()
) -> None:
    """List skipped files and annotations left out of others, with reasons, in ``skipped.jsonl``; no file if
    there are none."""
    final = output / SKIPPED_NAME
    if not skipped and not left_out:
        final.unlink(missing_ok=True)
        return
    lines = [{"path": key, "reason": reason} for key, reason in skipped]
    lines += [{"path": key, "annotation": which, "reason": reason} for key, which, reason in left_out]
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    with publishing(final) as temporary:
        temporary.write_text(text, encoding="utf-8")


# ---- A pack's result --------------------------------------------------------------------------------


@dataclass(frozen=True)
class PackResult:
    """One packed dataset."""

    output: Place
    manifest: Manifest
    entries: EntryFacts
    summary: Summary | None  # None: it was complete before
    seconds: float  # without making entry points
    entries_seconds: float
    written_bytes: int  # source bytes packed by this run
    skipped_lines: tuple[str, ...] = ()  # of ``skipped.jsonl``, if it went into a store
    notes: tuple[str, ...] = ()  # what became of a table's columns that no field has as they were

    @property
    def was_complete(self) -> bool:
        """Whether the same pack already existed."""
        return self.summary is None

    def skip_reasons(self) -> list[tuple[str, int]]:
        """Count the reasons why files were skipped and annotations left out; commonest first."""
        return Counter(entry["reason"] for entry in self.skipped()).most_common()

    def skipped(self) -> list[dict[str, Any]]:
        """Return the entries of ``skipped.jsonl``."""
        if not self.manifest.skipped and not self.manifest.left_out:
            return []
        if isinstance(self.output, Location):
            return [json.loads(line) for line in self.skipped_lines]
        with open(self.output / SKIPPED_NAME, encoding="utf-8") as lines:
            return [json.loads(line) for line in lines]
