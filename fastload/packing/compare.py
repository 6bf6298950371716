"""Whether a plan, or a finished pack, is still of its source and has the options that are asked for."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from fastload.errors import PackError
from fastload.machine.paths import exists
from fastload.machine.sizes import counted
from fastload.packing.cut import Plan, plan_of
from fastload.packing.files import printable, remove
from fastload.packing.listing import Listing, Row
from fastload.packing.options import PackOptions
from fastload.packing.publish import SKIPPED_NAME, runs_in
from fastload.packing.rows import FRAMES, Batch, Rows
from fastload.packing.shard_writer import classes_of
from fastload.remote.location import Location
from fastload.shard.dataset import PackedFiles
from fastload.shard.index import RECORD
from fastload.shard.manifest import ENTRIES_NAME, MANIFEST_NAME, Manifest

SCAN = ".tmp-scan"  # a folder for the listing; versions before 1.0 appended random letters


def check_options(
    old: Mapping[str, Any], options: PackOptions, output: Path | Location, begun: bool = False
) -> None:
    """Raise PackError naming the options that differ from those of the pack in ``output``.

    Args:
        begun: whether it is unfinished. Then runs may be others: shards have no part in them, and those that
            were asked for may be what no set can have.
    """
    new = {"coefficients": None, "runs": None, **options.identity()}
    if begun and options.runs is not None:
        del new["runs"]
    different = [
        f"{name} was {old.get(name)}, now {value}" for name, value in new.items() if old.get(name) != value
    ]
    if different:
        raise PackError(
            f"{output} holds a pack with other options: {'; '.join(different)}. "
            f"Use the same options to go on, or --restart to throw it away and begin anew."
        )


def check_rows(before: Mapping[str, Any], now: Mapping[str, Any], output: Path | Location) -> None:
    """Raise PackError if a pack, by the entries of :meth:`Rows.identity`, has other samples or fields."""
    others = "of other samples, or of an earlier version"  # which did not say the same of a source
    for name, what in (("schema", "with another schema"), ("given", others)):
        if before.get(name) != now.get(name):
            raise PackError(
                f"{output} holds a pack {what}. restart=True (--restart) throws it away and packs anew; "
                "append=True (--append) adds rows to a complete set."
            )


def check_frames(before: Mapping[str, Any], now: Mapping[str, Any], output: Path | Location) -> None:
    """Raise PackError if the rows of a pack, by the entries of :meth:`Rows.identity`, are now made otherwise,
    as by another decoder."""
    had, has = before.get(FRAMES) or {}, now.get(FRAMES) or {}
    different = [
        f"{name} was {had.get(name)}, now {new}" for name, new in has.items() if had.get(name) != new
    ]
    if different:
        raise PackError(
            f"{output} holds a pack with other options or another decoder: {'; '.join(different)}. Use the "
            "same to go on, or --restart to throw it away and begin anew."
        )


def refuse_grown(manifest: Manifest, place: Path | Location) -> None:
    """Raise PackError if a set has changed since it was packed, so that no pack makes it again."""
    if manifest.generations:
        raise PackError(
            f"{place} has grown, or samples were dropped, since it was packed: it has generation "
            f"{manifest.generation}, with {counted(manifest.num_records, 'record')}. --restart "
            "(restart=True) would delete what no pack of one source makes again. Add rows with --append, or "
            "remove it yourself."
        )


def check_plan(plan: Plan, rows: Rows, output: Path | Location, options: PackOptions) -> Plan:
    """Return a plan with the runs that are asked for. A shard's files are checked when it is packed.

    Raises:
        PackError: the plan is not of these options and rows.
    """
    check_options(plan.identity, options, output, begun=True)
    identity = rows.identity(options, plan.totals) or {}
    check_frames(plan.rows, identity, output)
    check_rows(plan.rows, json.loads(json.dumps(identity)), output)
    if plan.schema != rows.schema:
        classes = len(classes_of(rows.schema))
        raise PackError(
            f"the source has changed since the pack of {output} was planned: it had {len(plan.classes)} "
            f"classes, and has {classes} now, or others. --plan-only --restart throws the unfinished pack "
            "away and plans anew."
        )
    plan = plan.with_runs(options)
    runs_in({**plan.identity, **plan.rows}, plan.schema)
    return plan


def resumed(
    rows: Rows, options: PackOptions, old: Plan, stem: str, work: Path, found: Callable[[int], None]
) -> Plan:
    """Return the plan of an interrupted pack, checked against the source.

    Raises:
        PackError: the source or the options differ from those of the interrupted pack.
    """
    check_options(old.identity, options, work.parent, begun=True)
    scan = work / SCAN
    remove(scan)
    scan.mkdir()
    new = plan_of(rows, options, stem, scan, found)
    check_frames(old.rows, new.rows, work.parent)
    if (new.totals, new.schema, new.shards, new.rows) != (old.totals, old.schema, old.shards, old.rows):
        raise PackError(
            f"the source has changed since this pack of {work.parent} was begun: "
            f"{_difference(old, new, work, scan)}. "
            f"--restart throws the unfinished pack away and begins anew."
        )
    remove(scan)
    return old.with_runs(options)


def _difference(old: Plan, new: Plan, old_folder: Path, new_folder: Path) -> str:
    if old.classes != new.classes:
        return f"{counted(len(old.classes), 'class')} became {len(new.classes)}, or their names changed"
    had, has = old.totals, new.totals
    counts = f"{counted(had.files, 'file')} of {had.bytes} bytes, now {has.files} of {has.bytes}"
    guessed = ""
    for before, now in zip_longest(Listing(old_folder).rows(), Listing(new_folder).rows()):
        if before != now:
            words = f"{counts}; the first difference is at {_name_of(now or before, before)}"
            if before is None or now is None or before._replace(size=now.size) != now:
                return words
            guessed = guessed or words  # another size alone may follow from a file of later rows
    if guessed:
        return guessed
    if old.schema != new.schema:
        return f"{counts}; the schema differs"
    return f"{counts}; what is said of them differs" if old.rows != new.rows else counts


def _name_of(row: Row | None, before: Row | None) -> str:
    """Return the first file of a row that it did not have before, else its first."""
    names, had = ((b"" if one is None else one.files).split(b"\0") for one in (row, before))
    name = next((name for name in names if name not in had), names[0])
    return printable(name) if name else "a row without files"


def check_complete(rows: Rows, output: Path, options: PackOptions, found: Callable[[int], None]) -> Manifest:
    """Return the manifest of a finished pack of these very rows with these very options.

    Args:
        found: called now and then with the number of rows so far.

    Raises:
        PackError: it is another pack.
    """
    manifest = Manifest.read(output)
    first = manifest.at(1)  # what was appended since came from other sources
    check_options(manifest.options, options, output)
    scan = output / SCAN
    scan.mkdir()
    try:
        plan = plan_of(rows, options, output.name, scan, found)
        check_frames(manifest.options, {FRAMES: _but_decoder(plan.rows)}, output)
        check_rows(manifest.options, plan.rows, output)
        if manifest.options.get("source") != plan.rows.get("source") or first.classes != plan.classes:
            difference: str | None = "its files differ"
        else:
            difference = _changed(rows, output, options, plan, Listing(scan))
    finally:
        remove(scan)
    if difference is None:
        return manifest
    words = f"{output} is a complete pack, but not of this source as it is now: {difference}. "
    if options.entries is not None and not exists(output / ENTRIES_NAME):
        words += f"'fastload index {output} --entries' makes its missing entry points, without the source. "
    raise PackError(f"{words}{_instead(manifest)}")


def _but_decoder(identity: Mapping[str, Any]) -> dict[str, Any]:
    """Return what decides how videos become pictures; of a complete set, another decoder is no matter."""
    return {name: value for name, value in (identity.get(FRAMES) or {}).items() if name != "decoder"}


def _instead(manifest: Manifest) -> str:
    """Return what a user may do who wants to pack another source into a complete set."""
    append = "--append adds rows to its end"
    if manifest.generations:  # which --restart refuses
        return f"{append}; for another set choose another folder."
    return f"--restart throws it away and packs anew; {append}."


def _changed(rows: Rows, output: Path, options: PackOptions, plan: Plan, listing: Listing) -> str | None:
    """Return the first row that is newer than the pack and gives another sample than the pack holds.

    A file that was only touched or copied, or whose clock is ahead, gives the same sample.
    """
    written_ns = (output / MANIFEST_NAME).stat().st_mtime_ns
    if plan.totals.newest_ns <= written_ns:
        return None
    dataset, skipped = PackedFiles(output, entries=False, generation=1), _skipped(output)
    for start, stop in _newer(listing, written_ns):
        for batch in rows.batches(start, stop, options, listing):
            wrong = _differing(dataset, batch, skipped)
            if wrong:
                return wrong
    return None


def _newer(listing: Listing, than_ns: int) -> Iterator[tuple[int, int]]:
    """Yield runs of rows whose files are newer."""
    numbered = enumerate(listing.rows())
    for is_newer, group in itertools.groupby(numbered, lambda entry: entry[1].mtime_ns > than_ns):
        if is_newer:
            positions = [position for position, _ in group]
            yield positions[0], positions[-1] + 1


def _differing(dataset: PackedFiles, batch: Batch, skipped: set[str]) -> str | None:
    """Return which row of a batch is another one than the dataset has; None: all are the same."""
    for _, key, reason in batch.failures:
        if key not in skipped:
            return f"{key} is newer than the pack and cannot be packed now ({reason})"
    for i, position in enumerate(batch.positions.tolist()):
        key = batch.keys[i].decode()
        sample = _sample_of(dataset, position, key, len(skipped))
        if sample is None or not _is_same(dataset, batch, i, sample):
            return f"{key} is newer than the pack and has changed"
    return None


def _sample_of(dataset: PackedFiles, position: int, key: str, skipped: int) -> int | None:
    """Return the sample that a row became: at its position, or earlier by as many as were skipped at most."""
    last = min(position, len(dataset) - 1)
    places = range(last, max(position - skipped, 0) - 1, -1)
    return next((sample for sample in places if dataset.key(sample) == key), None)


def _is_same(dataset: PackedFiles, batch: Batch, i: int, sample: int) -> bool:
    for field, chunk in zip(dataset.schema, batch.fields, strict=True):
        if chunk.counts is not None and chunk.records is not None:
            first = int(chunk.counts[:i].sum())
            wanted = chunk.records[first : first + int(chunk.counts[i])]
            found = np.frombuffer(dataset.columns[field.name].value(sample), RECORD)
            names = ["length", "crc32c", "flags"]
            if len(found) != len(wanted) or (found[names] != wanted[names]).any():
                return False
        elif chunk.records is not None:
            of_index = field == dataset.schema.index_field
            table = dataset.records if of_index else dataset.field_records(field.name)
            if any(table[sample][name] != chunk.records[i][name] for name in ("length", "crc32c")):
                return False
        elif field == dataset.schema.label_field:
            if int(dataset.records[sample]["label"]) != int(chunk.data.view("<i4")[i]):
                return False
        else:
            stored, _ = dataset.columns[field.name].gather(np.array([sample]))
            if bytes(np.asarray(stored)) != bytes(chunk.slice(i, i + 1).data):
                return False
    return True


def _skipped(output: Path) -> set[str]:
    try:
        with open(output / SKIPPED_NAME, encoding="utf-8") as lines:
            entries = map(json.loads, lines)
            return {entry["path"] for entry in entries if "annotation" not in entry}
    except FileNotFoundError:
        return set()
