"""The folder that a pack goes into: what state it is in, and what in it a pack has made."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from fastload.errors import PackError
from fastload.machine.paths import exists
from fastload.packing.entries import remove_entries
from fastload.packing.files import publish, remove, sync_folder, temporary_of
from fastload.packing.lock import LOCK_NAME, PLAN_LOCK_NAME
from fastload.packing.plan import PLAN_NAME, WORK_NAME, PackPlan
from fastload.packing.publish import SKIPPED_NAME
from fastload.shard.manifest import ENTRIES_NAME, INDEX_NAME, MANIFEST_NAME, SECOND_INDEX, Manifest

__all__ = ["RECODE_NAME", "RUN_NAME", "OutputFolder", "State"]

State = Literal["empty", "unfinished", "complete", "foreign"]
RUN_NAME = "samples.json"  # in the work folder: what a pack of samples was asked to do
RECODE_NAME = ".fastload-recode"  # the work folder of a set that is recoded in place
_ANNOUNCED = "names.json"
_WRITTEN = (MANIFEST_NAME, INDEX_NAME, SKIPPED_NAME)
_COLUMN = re.compile(r"(\.tmp-)?(field-\d\d|index)(-2)?\.fli")


class OutputFolder:
    """A folder for one packed dataset; who changes it holds its lock (``folder_lock``).

    Args:
        path: it exists.
        work: the name of the work folder.
    """

    def __init__(self, path: Path, work: str = WORK_NAME) -> None:
        self.path = path
        self.work = path / work

    @property
    def recoding(self) -> OutputFolder:
        """The same folder, with the work folder of recoding."""
        return OutputFolder(self.path, RECODE_NAME)

    def state(self) -> State:
        """``complete``: it has a manifest. ``unfinished``: a pack or an index was begun here. ``foreign``:
        neither, and files of somebody else's. Else ``empty``."""
        if exists(self.path / MANIFEST_NAME):
            return "complete"
        if exists(self.work):
            return "unfinished"
        return "foreign" if self._strangers() else "empty"

    def refuse_others(self, mine: str | None) -> None:
        """Raise PackError if another kind of pack was begun here, which could be gone on with.

        Args:
            mine: the file in the work folder that says what a pack of my kind was asked to do; None: an
                index, which has none.
        """
        for name in {PLAN_NAME, RUN_NAME} - {mine}:
            if exists(self.work / name):
                what = "files" if name == PLAN_NAME else "samples"
                raise PackError(
                    f"{self.path} holds an unfinished pack of {what}. Finish it, throw it away with "
                    "'fastload pack --restart', or choose another folder."
                )

    def refusal(self) -> PackError:
        """What to say of a foreign folder."""
        found = (self._strangers() or ["nothing"])[0]
        return PackError(
            f"{self.path} is not empty and holds no pack (found {found!r}); choose another folder."
        )

    def announce(self, names: Sequence[str]) -> None:
        """Say which files are about to get their final names, for :meth:`discard` to know them."""
        path = self.work / _ANNOUNCED
        temporary_of(path).write_text(json.dumps(names), encoding="utf-8")
        publish(temporary_of(path), path)
        sync_folder(self.path)  # the work folder's own name

    def discard(self) -> None:
        """Remove what a pack has made here, and nothing else; the manifest first: no half is a whole."""
        names = self._made()
        if exists(self.path / MANIFEST_NAME):
            names |= {
                Path(shard.file).parts[0]
                for shard in Manifest.read(self.path).shards
                if not (Path(shard.file).is_absolute() or "://" in shard.file)
            }
            remove(self.path / MANIFEST_NAME)
            sync_folder(self.path)
        for name in sorted(names - {"..", "."}):
            remove(self.path / name)
        remove_entries(self.path)
        remove(self.recoding.work)
        remove(self.work)

    def tidy(self) -> None:
        """Remove what was left half written beside a complete dataset."""
        for name in _WRITTEN:
            remove(temporary_of(self.path / name))
        remove(self.work)

    def _strangers(self) -> list[str]:
        ours = {
            LOCK_NAME,
            PLAN_LOCK_NAME,
            RECODE_NAME,
            *_WRITTEN,
            SECOND_INDEX,
            ENTRIES_NAME,
        }  # an index that was killed left them
        return sorted(n for n in os.listdir(self.path) if n not in ours and not n.startswith(".tmp-"))

    def _made(self) -> set[str]:
        """The names of what a pack makes in any folder, and of what an unfinished one makes here."""
        names = {INDEX_NAME, SKIPPED_NAME} | {temporary_of(self.path / name).name for name in _WRITTEN}
        names |= {name for name in os.listdir(self.path) if _COLUMN.fullmatch(name)}
        plan = PackPlan.read(self.work) if exists(self.work) else None
        if plan is not None:
            names |= {shard.name for shard in plan.shards} | {f".tmp-{shard.name}" for shard in plan.shards}
        return names | self._announced() | self.recoding._announced()

    def _announced(self) -> set[str]:
        try:
            names = json.loads((self.work / _ANNOUNCED).read_text(encoding="utf-8"))
            return {str(name) for name in names if "/" not in name}
        except FileNotFoundError:
            return set()
        except (ValueError, TypeError) as error:
            raise PackError(
                f"{self.work / _ANNOUNCED} cannot be used ({error}); remove {self.path}."
            ) from None
