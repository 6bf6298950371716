"""What a recode is to make of a packed dataset, and which files that are: the work folder has it in writing.

New files stand beside the old ones under other names (``-2`` before the suffix, or without it again), until
the manifest, which names all of them, is replaced in one step. So the set is whole at any moment.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from fastload.errors import PackError
from fastload.packing.coefficients import FACTS
from fastload.packing.entries import DEFAULT_SPACING, spacing_of
from fastload.packing.files import publish, temporary_of
from fastload.shard.codecs import COEFFICIENTS, JPEG
from fastload.shard.dataset import PackedFiles
from fastload.shard.manifest import INDEX_NAME, SECOND, SECOND_INDEX, Manifest, column_name

__all__ = ["RecodePlan", "files_of", "form_of", "make_plan", "picture_codecs"]

_NAME, _VERSION = "recode.json", 1
_CHUNK = 1 << 16  # index entries at a time


@dataclass(frozen=True)
class RecodePlan:
    """A recode, decided: the same plan gives the same files, byte for byte."""

    source: str  # id of the set as it is
    form: str | None  # of the records; None: JPEGs
    mark: str  # of the new files' names
    shards: tuple[str, ...]  # the new ones, in the order of the old ones
    tables: tuple[str, ...]  # new index and columns
    old: tuple[str, ...]  # what the set has now and the recoded one has not
    spacing: int | None  # of its entry points, pixels, 0: rows; None: it has none

    @property
    def identity(self) -> str:
        """Stands for the plan in the parts of shards that were written by it."""
        return f"{self.source} {self.form} {self.mark}"

    def write(self, work: Path) -> None:
        """Publish in the work folder, which can be resumed from then on."""
        final = work / _NAME
        temporary_of(final).write_text(json.dumps({"version": _VERSION, **asdict(self)}), encoding="utf-8")
        publish(temporary_of(final), final)

    @classmethod
    def read(cls, work: Path) -> RecodePlan | None:
        """The plan of a work folder; None: there is none, or it was never finished.

        Raises:
            PackError: damaged, or of another version of this program.
        """
        path = work / _NAME
        try:
            body = json.loads(path.read_text(encoding="utf-8"))
            if body.pop("version") != _VERSION:
                raise ValueError("another version")
            lists = {name: tuple(map(str, body[name])) for name in ("shards", "tables", "old")}
            return cls(**{**body, **lists})
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise PackError(f"{path} cannot be used ({error}); remove {work}. The set is whole.") from None


def form_of(options: Mapping[str, Any]) -> str | None:
    """The form of a set's coefficient records, by its manifest's options; None: it has JPEGs."""
    found = options.get("coefficients")
    return None if found is None else str(found)


def files_of(manifest: Manifest) -> set[str]:
    """The names in the folder of all that a manifest names."""
    names = {PurePosixPath(shard.file).parts[0] for shard in manifest.shards} | {manifest.index_name}
    return names | {str(entry["file"]) for entry in manifest.fields if "file" in entry}


def make_plan(dataset: PackedFiles, form: str | None) -> RecodePlan:
    """The plan of recoding a set to records of ``form``, or to JPEGs."""
    manifest = dataset.manifest
    mark = "" if manifest.index else SECOND
    tables = [SECOND_INDEX if mark else INDEX_NAME]
    if manifest.fields:
        tables += [column_name(number, mark) for number, _ in manifest.schema.columns]
    return RecodePlan(
        source=manifest.id,
        form=form,
        mark=mark,
        shards=tuple(_renamed(PurePosixPath(shard.file).parts[0], mark) for shard in manifest.shards),
        tables=tuple(tables),
        old=tuple(sorted(files_of(manifest))),
        spacing=_spacing(dataset),
    )


def picture_codecs(dataset: PackedFiles) -> set[int]:
    """The codecs of all fields' pictures."""
    schema, found = dataset.schema, set[int]()
    others = [f.name for f in schema if f.storage == "record" and f != schema.index_field]
    for records in (dataset.records, *map(dataset.field_records, others)):
        for start in range(0, len(records), _CHUNK):
            found |= set(records["codec"][start : start + _CHUNK].tolist())
            if {JPEG, COEFFICIENTS} <= found:
                break
    return found


def _renamed(name: str, mark: str) -> str:
    path = PurePosixPath(name)
    return f"{path.stem}{mark}{path.suffix}" if mark else f"{path.stem.removesuffix(SECOND)}{path.suffix}"


def _spacing(dataset: PackedFiles) -> int | None:
    """Of the entry points that the set has, or had when its pictures were JPEGs."""
    options = dataset.manifest.options
    if form_of(options) is None:
        return spacing_of(dataset)
    said = options.get(FACTS, {})
    found: int | None = said["entries"] if "entries" in said else spacing_of(dataset)
    return DEFAULT_SPACING if found is None and "entries" not in said else found
