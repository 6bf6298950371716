"""Which rows go into which shard: a plan, made before any row is read, or a cut while rows are written."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from fastload.errors import PackError
from fastload.machine.sizes import counted
from fastload.packing.coefficients import FACTS, RecodeCounts, RecodeOutcome
from fastload.packing.files import (
    encode_key,
    failed_writes_reported,
    printable,
    publishing,
    remove,
    sync_folder,
)
from fastload.packing.folders import ignored_words
from fastload.packing.listing import Listing, ListingWriter, Totals
from fastload.packing.options import PackOptions
from fastload.packing.publish import runs_in
from fastload.packing.rows import Batch, Notes, Rows
from fastload.packing.shard_writer import ShardPart, ShardWriter, classes_of
from fastload.packing.spread import BadFiles
from fastload.sample.schema import Schema
from fastload.shard.formats import FORMATS, ShardSpec, format_of
from fastload.shard.manifest import names_fit
from fastload.shard.suffixes import IMAGES

WORK_NAME = ".fastload-pack"
PLAN_NAME = "plan.json"
VERSION = 2
MAX_LISTED = 20  # problems shown in one message

# ---- A plan: the rows' sizes are known before they are read -----------------------------------------


@dataclass(frozen=True)
class ShardPlan:
    """A shard of rows ``[start, stop)`` of the listing; ``bytes`` is about the size of its payload."""

    name: str
    start: int
    stop: int
    bytes: int


@dataclass(frozen=True)
class Plan:
    """A pack's plan: the same plan and rows give the same output, byte for byte."""

    identity: Mapping[str, Any]  # PackOptions.identity()
    rows: Mapping[str, Any]  # Rows.identity()
    totals: Totals
    schema: Schema
    shards: tuple[ShardPlan, ...]
    problems: tuple[tuple[str, str], ...] = ()  # unreadable folders: key, reason
    ignored: Mapping[str, Any] = field(default_factory=dict)  # Ignored.to_json()

    @functools.cached_property
    def digest(self) -> str:
        """Hash of all that decides the shards' bytes: options, rows with sizes and labels, shard cuts."""
        identity = {name: value for name, value in self.identity.items() if name != "runs"}
        facts = [identity, self.rows, self.schema.to_json(), [asdict(shard) for shard in self.shards]]
        return hashlib.blake2b(json.dumps(facts, sort_keys=True).encode(), digest_size=16).hexdigest()

    @property
    def classes(self) -> tuple[str, ...]:
        """The class names of the label."""
        return classes_of(self.schema)

    def with_runs(self, options: PackOptions) -> Plan:
        """Return the plan with other runs, if the options say which."""
        if options.runs is None:
            return self
        return replace(self, identity={**self.identity, "runs": options.runs})

    def write(self, work: Path) -> None:
        """Publish as ``plan.json``, after its listing; from then on the work folder can be resumed."""
        Listing(work).sync()
        sync_folder(work)  # no plan without the names of its listing
        final = work / PLAN_NAME
        body = {
            "version": VERSION, "identity": self.identity, "rows": self.rows, "totals": asdict(self.totals),
            "schema": self.schema.to_json(), "shards": [asdict(shard) for shard in self.shards],
            "problems": self.problems, "ignored": self.ignored,
        }  # fmt: skip
        with publishing(final) as temporary:
            temporary.write_text(json.dumps(body), encoding="utf-8")
        sync_folder(work.parent)  # no shard without the folder that says which pack it belongs to

    @classmethod
    def read(cls, work: Path) -> Plan | None:
        """Read the plan of a work folder; None if it was never finished.

        Raises:
            PackError: the plan is damaged, or from another version of this program.
        """
        try:
            body = json.loads((work / PLAN_NAME).read_text(encoding="utf-8"))
            if body["version"] != VERSION:
                raise ValueError(f"version {body['version']}")
            shards = tuple(ShardPlan(**shard) for shard in body["shards"])
            problems = tuple((str(key), str(reason)) for key, reason in body["problems"])
            schema, totals = Schema.from_json(body["schema"]), Totals(**body["totals"])
            return cls(body["identity"], body["rows"], totals, schema, shards, problems, body["ignored"])
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise PackError(
                f"{work / PLAN_NAME} cannot be used ({error}); pack again with --restart."
            ) from None


def plan_of(
    rows: Rows, options: PackOptions, stem: str, folder: Path, found: Callable[[int], None] | None = None
) -> Plan:
    """List rows into ``folder`` and cut them into shards.

    Args:
        stem: what the shards' names begin with.
        found: called now and then with the number of rows so far.

    Raises:
        PackError: nothing to pack, folders that cannot be read (unless they are to be skipped), more names
            than fit into a manifest, or runs by fields that there are not.
    """
    size, notes = options.size if options.raw else None, Notes()
    listed = rows.listed(notes)
    assert listed is not None
    listing = ListingWriter(folder, options.shard_size, size[0] * size[1] * 3 if size else None)
    with contextlib.closing(listing):
        for row in listed:
            listing.add(*row)
            if found is not None and listing.files % 2048 == 0:
                found(listing.files)
            if listing.files == options.limit:
                break
        totals = listing.finish()
    problems = tuple((encode_key(path)[0].decode(), reason) for path, reason in notes.problems)
    if problems and options.on_error == "raise":
        raise PackError(
            f"{len(problems)} folder{'s' * (len(problems) != 1)} cannot be read:\n{problem_lines(problems)}\n"
            f"--on-error skip goes on."
        )
    ignored = notes.ignored.to_json()
    if not totals.files:
        raise PackError(_nothing(rows, ignored))
    count, suffix = len(listing.shards), FORMATS[options.format].suffix
    shards = tuple(
        ShardPlan(f"{stem}-{i:05d}-of-{count:05d}{suffix}", start, stop, length)
        for i, (start, stop, length) in enumerate(listing.shards)
    )
    wrong = names_fit(classes_of(rows.schema), [shard.name for shard in shards])
    if wrong:
        raise PackError(wrong)
    identity = rows.identity(options, totals)
    assert identity is not None
    identity = json.loads(json.dumps(identity))  # as it is read again
    runs_in({**options.identity(), **identity}, rows.schema)
    return Plan(options.identity(), identity, totals, rows.schema, shards, problems, ignored)


def _nothing(rows: Rows, ignored: Mapping[str, Any]) -> str:
    """Return the message for a source without rows, with what lies there instead."""
    if rows.unit != "file":
        return "there are no samples to pack."
    known, others = ", ".join(IMAGES), "; ".join(ignored_words(ignored))
    text = f"no images in {printable(rows.root)}: no file has an image's extension ({known})."
    return text + (f" There are: {others}." if others else "")


def problem_lines(problems: Sequence[tuple[str, str]]) -> str:
    """Return keys and reasons, one per line: the first ones, and how many more there are."""
    lines = [f"  {key}: {reason}" for key, reason in problems[:MAX_LISTED]]
    if len(problems) > MAX_LISTED:
        lines.append(f"  ... and {len(problems) - MAX_LISTED} more")
    return "\n".join(lines)


def planned_bytes(plan: Plan, work: Path, done: frozenset[str] = frozenset()) -> int:
    """Estimate the bytes that the shards not in ``done`` need on disk."""
    return (1 << 20) + sum(
        shard_bytes(plan, Listing(work), number)
        for number, shard in enumerate(plan.shards)
        if shard.name not in done
    )


def shard_bytes(plan: Plan, listing: Listing, number: int) -> int:
    """Estimate the bytes that a shard needs on disk."""
    shard, extra = plan.shards[number], 0
    if plan.identity.get("coefficients"):
        extra = shard.bytes // 8  # a form may take more bytes than the JPEG
    if plan.identity["size"] and plan.identity["raw"]:
        return shard.bytes + extra
    lengths = listing.read(shard.start, shard.stop)[1]["size"]
    return format_of(str(plan.identity["format"])).shard_bytes(lengths) + extra


# ---- A cut while rows are written: only encoding tells their sizes ----------------------------------


class RunningCut:
    """The shards of one pack, in its work folder.

    A shard is cut before the sample that would take it over ``options.shard_size`` bytes, so neither an
    interruption nor the number of processes changes anything.

    Args:
        work: the work folder, in which shards and parts are named by number.
        schema: the fields.
        options: those of the pack.
        advance: called with the numbers of samples and bytes written.
        kept: called with the number of each finished shard.
    """

    def __init__(
        self, work: Path, schema: Schema, options: PackOptions, advance: Callable[[int, int], None],
        kept: Callable[[int], None] = lambda number: None,
    ) -> None:  # fmt: skip
        self._work, self._schema, self._options, self._advance = work, schema, options, advance
        self._kept, self._format = kept, format_of(options.format)
        self._failures: list[tuple[int, str, str]] = []
        self._left_out: list[tuple[int, str, str, str]] = []
        self._outcomes: list[tuple[int, str, RecodeOutcome]] = []
        self._open: ShardWriter | None = None
        self.number = 0  # of the next shard

    def path(self, number: int) -> Path:
        """Return the path of a shard in the work folder."""
        return self._work / f"{number:05d}{FORMATS[self._options.format].suffix}"

    def part_path(self, number: int) -> Path:
        """Return the path of its part of the index."""
        return self._work / f"{number:05d}.part"

    def skip_finished(self, is_finished: Callable[[int], bool]) -> int:
        """Skip the shards that are already finished; return the position of the first sample after them."""
        stop = 0
        while is_finished(self.number):
            stop = ShardPart.read(self.part_path(self.number)).stop
            self.number += 1
        return stop

    def is_whole(self, number: int) -> bool:
        """Whether a shard and its part are finished in the work folder."""
        return ShardPart.finished(self.part_path(number), self._format.data_file(self.path(number)))

    def write(self, batches: Iterable[Batch]) -> None:
        """Write all samples.

        Raises:
            BadFiles: samples or their annotations cannot be packed and are not to be skipped.
            PackError: there is no room, or what was written does not read back.
        """
        stop = 0
        try:
            for batch in batches:
                self._failures += batch.failures
                self._left_out += batch.left_out
                self._outcomes += batch.outcomes
                stop = batch.stop
                if self._options.on_error != "skip":
                    refuse_bad(self._failures, self._left_out)
                self._add(batch)
            if self._open is not None or self._failures:
                self._finish(stop)
        finally:
            if self._open is not None:
                self._open.abort()

    def _add(self, batch: Batch) -> None:
        sizes, begin, total = batch.sizes.tolist(), 0, 0
        for i, size in enumerate(sizes):
            if self._open is not None and self._open.bytes + total + size > self._options.shard_size:
                self._take(batch, begin, i)
                begin, total = i, 0
                self._finish(int(batch.positions[i]))
            self._open = self._open or self._begin()
            total += size
        self._take(batch, begin, len(sizes))
        self._advance(len(sizes), sum(sizes))

    def _take(self, batch: Batch, begin: int, end: int) -> None:
        if end > begin:
            assert self._open is not None
            fields = [chunk.slice(begin, end) for chunk in batch.fields]
            self._open.add_samples(batch.keys[begin:end], fields)

    def _begin(self) -> ShardWriter:
        schema, about = self._schema, self._options.shard_size
        fields = None if schema.is_plain else schema
        spec = ShardSpec(classes_of(schema), 0, about, self._options.raw, schema=fields)
        return ShardWriter(self.path(self.number), self._format, schema, spec, about)

    def _finish(self, stop: int) -> None:
        """End the shard: all positions before ``stop`` are in it, in an earlier one, or failed."""
        writer = self._open or self._begin()
        self._open = writer
        part = writer.finish()
        writer.publish()
        self._open = None
        skipped = [(key, reason) for position, key, reason in self._failures if position < stop]
        left_out = [entry[1:] for entry in self._left_out if entry[0] < stop]
        facts = recode_facts(self._options, (entry for entry in self._outcomes if entry[0] < stop))
        self._failures = [entry for entry in self._failures if entry[0] >= stop]
        self._left_out = [entry for entry in self._left_out if entry[0] >= stop]
        self._outcomes = [entry for entry in self._outcomes if entry[0] >= stop]
        path = self.part_path(self.number)
        try:
            with failed_writes_reported(path, self._options.shard_size):  # it holds the columns' values
                replace(part, skipped=skipped, left_out=left_out, stop=stop, facts=facts).write(path)
        except BaseException:
            remove(self.path(self.number))
            raise
        finally:
            part.close()
        self._kept(self.number)
        self.number += 1


def refuse_bad(
    failures: Sequence[tuple[int, str, str]], left_out: Sequence[tuple[int, str, str, str]]
) -> None:
    """Raise BadFiles if there are rows or annotations that cannot be packed."""
    if failures or left_out:
        raise BadFiles(
            [(key, reason) for _, key, reason in failures],
            [(f"{key}, {which}", reason) for _, key, which, reason in left_out],
        )


def recode_facts(options: PackOptions, outcomes: Iterable[tuple[int, str, RecodeOutcome]]) -> dict[str, Any]:
    """Return what a part says of the JPEGs that were to become coefficient records; nothing if none were."""
    if options.coefficients is None:
        return {}
    counts = RecodeCounts()
    for _, key, outcome in outcomes:
        counts.add(key, outcome)
    return {FACTS: counts.to_json()}


def bad_rows(bad: BadFiles, unit: str) -> str:
    """Return the message for rows that cannot be packed.

    Args:
        unit: what a row is called.
    """
    counts = (len(bad.failures), unit), (len(bad.annotations), "annotation")
    what = " and ".join(counted(count, name) for count, name in counts if count)
    return (
        f"{what} cannot be packed:\n{problem_lines([*bad.failures, *bad.annotations])}\n"
        "Mend or remove them, or leave them out with on_error='skip' (--on-error skip). Finished shards "
        "are kept."
    )
