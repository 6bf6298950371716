"""The last step of a pack: it writes index, columns and manifest; the result says what was packed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fastload._native import _C
from fastload._version import __version__
from fastload.packing.coefficients import FACTS, NOTE, RecodeCounts
from fastload.packing.facts import EntryFacts, Summary
from fastload.packing.files import publish, remove, temporary_of
from fastload.packing.plan import PackPlan
from fastload.packing.progress import Place
from fastload.packing.work import ShardPart, part_path
from fastload.remote.location import Location
from fastload.shard.formats import format_of
from fastload.shard.index import write_index
from fastload.shard.manifest import INDEX_NAME, Entries, Manifest, Shard

# ---- From finished shards to a packed dataset: index, then manifest ---------------------------------

SKIPPED_NAME = "skipped.jsonl"


class _Keys:
    """The keys of all parts, one part at a time; ``write_index`` walks them twice."""

    def __init__(self, parts: list[Path]) -> None:
        self._parts = parts

    def __iter__(self) -> Iterator[list[bytes]]:
        return (ShardPart.read(path).keys for path in self._parts)


def publish_dataset(output: Path, plan: PackPlan) -> tuple[Manifest, Summary]:
    """Combine the parts of all shards into ``index.fli`` and publish ``dataset.json``.

    Shards whose files were all skipped are removed.
    """
    format_name = str(plan.identity["format"])
    data_file = format_of(format_name).data_file
    parts = [part_path(output, shard.name) for shard in plan.shards]
    summary, tally, transcoded = Summary(), RecodeCounts(), 0
    shards: list[Shard] = []
    skipped = list(plan.problems)
    empty: list[str] = []

    def records() -> Iterator[npt.NDArray[np.void]]:
        nonlocal transcoded
        for plan_of, path in zip(plan.shards, parts, strict=True):
            part = ShardPart.read(path)
            transcoded += part.transcoded
            skipped.extend(part.skipped)
            if FACTS in part.facts:
                tally.merge(part.facts[FACTS])
            if not len(part.records):
                empty.append(plan_of.name)
                continue
            entries = part.records.copy()
            entries["shard"] = len(shards)
            summary.add(entries)
            file = data_file(output / plan_of.name).relative_to(output)
            shards.append(Shard(str(file), part.shard_bytes, len(entries)))
            yield entries

    size, digest = publish_index(output, records(), _Keys(parts))
    write_skipped(output, skipped)
    for name in empty:
        remove(output / name)
    facts: dict[str, Any] = {
        "source": {"files": plan.totals.files, "bytes": plan.totals.bytes, "hash": plan.totals.content}
    }
    if plan.identity.get("baseline"):
        facts["transcoded"] = transcoded
    if plan.identity.get("coefficients"):
        facts[FACTS] = {"note": NOTE, **tally.to_json()}
    manifest = make_manifest(
        format_name,
        summary,
        plan.classes,
        shards,
        (size, digest),
        {**plan.identity, **facts},
        len(skipped),
        ignored=plan.ignored,
    )
    manifest.write(output)
    return manifest, summary


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
    temporary = temporary_of(final)
    write_index(temporary, records, keys, fields)
    publish(temporary, final)
    return final.stat().st_size, _C.Index(str(final)).digest


def make_manifest(
    format_name: str,
    summary: Summary,
    classes: tuple[str, ...],
    shards: list[Shard],
    index: tuple[int, int],
    options: dict[str, Any],
    skipped: int,
    fields: Entries = (),
    left_out: int = 0,
    ignored: Mapping[str, Any] | None = None,
) -> Manifest:
    """Return the manifest of the records in ``summary``; ``index`` is the index's size and digest."""
    return Manifest(
        format=format_name,
        num_records=summary.records,
        data_bytes=summary.bytes,
        classes=classes,
        shards=tuple(shards),
        index_size=index[0],
        index_crc=index[1],
        codecs=summary.codecs,
        options=options,
        skipped=skipped,
        writer=f"fastload {__version__}",
        fields=fields,
        left_out=left_out,
        ignored=ignored or {},
    )


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
    temporary_of(final).write_text(text, encoding="utf-8")
    publish(temporary_of(final), final)


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
        if not self.manifest.skipped and not self.manifest.left_out:
            return []
        if isinstance(self.output, Location):
            return Counter(json.loads(line)["reason"] for line in self.skipped_lines).most_common()
        with open(self.output / SKIPPED_NAME, encoding="utf-8") as lines:
            return Counter(json.loads(line)["reason"] for line in lines).most_common()
