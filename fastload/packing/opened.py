"""What lies at a path or URL, as rows: one set, or several splits."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

from fastload.errors import PackError
from fastload.packing.annotations.find import annotated_sources
from fastload.packing.cut import Plan
from fastload.packing.file_rows import FileRows, open_files, planned_files
from fastload.packing.lerobot_rows import LeRobotRows, open_lerobot
from fastload.packing.options import PackOptions
from fastload.packing.rows import Rows
from fastload.packing.set_rows import open_foreign, open_sets
from fastload.packing.stored import Source, StorePlace
from fastload.packing.table_samples import TableRows, open_tables
from fastload.remote.location import is_url
from fastload.shard.manifest import Manifest


class Split(NamedTuple):
    """One of the sets that a source becomes."""

    name: str  # "" if it is the only one
    rows: Rows


#: What a source may be, in the order of asking. Each returns the splits' names and rows, or nothing if the
#: place is something else.
SOURCES: tuple[Callable[[Source, PackOptions], Sequence[tuple[str, Rows]]], ...] = (
    open_sets,
    open_lerobot,
    annotated_sources,
    open_tables,
    open_foreign,
    open_files,
)


def opened(
    source: str | os.PathLike[str], options: PackOptions, known: Plan | Manifest | None = None
) -> list[Split]:
    """Open what lies at a path or URL: several splits for a parent of train/ and val/, else one.

    Args:
        source: the path or URL.
        options: the pack's options.
        known: the plan or the manifest that its pack has already; then files of a store are not listed
            again.

    Raises:
        PackError: there is nothing that can be packed, or it can be read in two ways.
        RemoteError: the store cannot be listed.
    """
    place = StorePlace(str(source), options.storage_options) if is_url(source) else source
    planned = planned_files(place, known) if known is not None else None
    if planned is not None:
        return [Split("", planned.show(options))]
    found: Sequence[tuple[str, Rows]] = []
    for find in SOURCES:
        found = found or find(place, options)
    if options.root is not None and not all(_is_table(rows) for _, rows in found):
        raise PackError(
            f"root says where the paths of a table start. Found: {source}, which is no table of paths."
        )
    if not all(isinstance(rows, LeRobotRows) for _, rows in found):
        options.refuse_for_videos()
    return [Split(name, rows.show(options)) for name, rows in found]


def _is_table(rows: Rows) -> bool:
    return isinstance(rows, TableRows) or (isinstance(rows, FileRows) and rows.kind == "table")
