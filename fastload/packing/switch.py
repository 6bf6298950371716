"""The step from one generation of a set to the next: new files beside the old ones, then one new manifest."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

from fastload._version import __version__
from fastload.errors import FastloadError, PackError
from fastload.machine.paths import exists
from fastload.packing.entries import tidy_entries
from fastload.packing.files import folder_lock, publishing, remove, sync_files, sync_folder, temporary_of
from fastload.packing.target import APPEND_NAME, RECODE_NAME
from fastload.remote.location import is_url
from fastload.shard.generations import Generation
from fastload.shard.manifest import Manifest, column_name, entries_name, index_name
from fastload.shard.runs import runs_name

_SWITCH = "switch.json"  # in the work folder: what the step does


@dataclass(frozen=True)
class Switch:
    """What one step does to a set's folder; recorded before it begins.

    A kill at any moment leaves the old generation or the new one, both complete: new files have names that no
    file had before, the manifest is replaced in one step, and only then the old files go.

    Args:
        path: the set's folder.
        generation: the new generation's number.
        made: names of files that are written.
        shards: by name, of shards that are moved here, where they were.
        stage: the folder of the new rows' own set; "": there is none.
    """

    path: Path
    generation: int
    made: tuple[str, ...]
    shards: Mapping[str, str] = field(default_factory=dict)
    stage: str = ""

    @property
    def work(self) -> Path:
        """The work folder."""
        return self.path / APPEND_NAME

    def announce(self) -> None:
        """Record it, durably."""
        self.work.mkdir(exist_ok=True)
        facts = asdict(self) | {"path": None}
        with publishing(self.work / _SWITCH) as temporary:
            temporary.write_text(json.dumps(facts), encoding="utf-8")
        sync_folder(self.path)

    def move(self) -> None:
        """Give the new shards their names."""
        for name, source in self.shards.items():
            if not exists(self.path / name):
                os.replace(source, self.path / name)
        sync_folder(self.path)

    def finish(self, old: Manifest, new: Manifest) -> None:
        """Replace the manifest; then remove the old files and the work folder."""
        sync_folder(self.path)
        new.write(self.path)
        _remove_old(self.path, _tables(old) - _tables(new))
        self.clear()

    def clear(self) -> None:
        """Remove the new rows' own set and the record; an unfinished append stays."""
        if self.stage:
            remove(Path(self.stage))
        remove(self.work / _SWITCH)
        if not os.listdir(self.work):
            remove(self.work)

    def undo(self) -> None:
        """Take back what was done before the manifest was replaced."""
        for name, source in self.shards.items():
            if exists(self.path / name) and not exists(Path(source)):
                os.replace(self.path / name, source)
        for name in self.made:
            remove(self.path / name)
            remove(temporary_of(self.path / name))
        tidy_entries(self.path)
        sync_folder(self.path)
        remove(self.work / _SWITCH)


def _tables(manifest: Manifest) -> set[str]:
    """Return the names of a set's files besides shards."""
    names = {manifest.index_name, manifest.entries_name}
    names |= {str(entry["file"]) for entry in manifest.fields if "file" in entry}
    return names | {each.file for each in (manifest.dropped, manifest.runs) if each is not None}


def _remove_old(path: Path, names: set[str]) -> None:
    for name in sorted(names):
        remove(path / name)
    sync_folder(path)


def refuse_store(folder: str | os.PathLike[str], doing: str) -> None:
    """Raise PackError for a URL; ``doing``: the verb."""
    if is_url(folder):
        raise PackError(
            f"cannot {doing} {folder}, which is in a store: its files cannot be replaced in one step. Do it "
            "in a folder of this machine, and upload that."
        )


@contextmanager
def changing(folder: str | os.PathLike[str], doing: str) -> Iterator[Path]:
    """Hold a set's folder for this process alone; what an interrupted step left is finished, or taken back.

    Args:
        folder: the set's.
        doing: the verb, for messages.

    Raises:
        PackError: a set in a store; another process is at work in the folder; an interrupted recode.
        FormatError: the folder is no packed dataset.
    """
    refuse_store(folder, doing)
    path = Path(folder).absolute()
    Manifest.read(path)
    try:
        with folder_lock(path):
            if exists(path / RECODE_NAME):
                raise PackError(
                    f"{path} has an interrupted recode. Run 'fastload recode {path}' again, which finishes "
                    "it; then this."
                )
            settle(path)
            yield path
    except OSError as error:
        if isinstance(error, FastloadError):
            raise
        raise PackError(f"cannot {doing} {path}: {error}.") from error


def settle(path: Path) -> None:
    """Finish an interrupted step if its manifest is there, else take it back; a stage of new rows stays."""
    record = path / APPEND_NAME / _SWITCH
    if not exists(record):
        return
    try:
        facts = json.loads(record.read_text(encoding="utf-8"))
        switch = Switch(**(facts | {"path": path}))
        manifest = Manifest.read(path)
        is_done = manifest.generation >= switch.generation
    except (ValueError, KeyError, TypeError) as error:
        raise PackError(
            f"{record} cannot be used ({error}). Remove {record.parent}; the set is good."
        ) from None
    if not is_done:
        switch.undo()
        return
    named = _tables(manifest)
    _remove_old(path, {name for name in os.listdir(path) if _is_table(name)} - named)
    switch.clear()


def _is_table(name: str) -> bool:
    return name.endswith(".fli") and name.startswith(("index", "field-", "entries", "dropped", "runs"))


def next_generation(old: Manifest, **changes: Any) -> Manifest:
    """Return the manifest of the next generation, which keeps how to open the present one; without the id of
    its contents."""
    now = Generation(
        old.id, old.num_records, len(old.classes), len(old.shards), old.data_bytes, old.all_ids[1:]
    )
    generations = (*old.generations, now)
    index = index_name(len(generations) + 1)
    own = {"index": index, "generations": generations, "same_as": (), "writer": f"fastload {__version__}"}
    return replace(old, **(own | changes))


def tables_of(old: Manifest, mark: str) -> list[str]:
    """Return the names of an appended set's index, entry points, columns and runs."""
    index = index_name(old.generation + 1)
    columns = old.schema.columns if old.fields else ()
    runs = [] if old.runs is None else [runs_name(mark)]
    return [index, entries_name(index), *(column_name(number, mark) for number, _ in columns), *runs]


def link(source: Path, target: Path) -> None:
    """Give a file a further name, or make a copy where a file system has no links; durable once the folder
    is synced."""
    remove(target)
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
        sync_files(target)


def folder_name(shard: str) -> str:
    """Return the name in the set's folder of a shard's file, or of the folder that it is in."""
    return PurePosixPath(shard).parts[0]
