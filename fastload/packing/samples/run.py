"""One pack of samples: what it was asked to do, taken up again, and published."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastload.errors import FastloadError, PackError
from fastload.machine.paths import exists
from fastload.machine.sizes import counted
from fastload.packing.entries import ensure_entries
from fastload.packing.entry_facts import entry_facts
from fastload.packing.files import make_folder, publish, remove, require_space, temporary_of
from fastload.packing.lock import folder_lock
from fastload.packing.options import PackOptions
from fastload.packing.output import RUN_NAME, OutputFolder
from fastload.packing.plan import WORK_NAME, check_options, listed
from fastload.packing.progress import Observer, Work
from fastload.packing.result import PackResult
from fastload.packing.samples.encode import Encoder
from fastload.packing.samples.feed import encoded
from fastload.packing.samples.given import Given
from fastload.packing.samples.publish import publish_samples
from fastload.packing.samples.shards import Shards
from fastload.packing.samples.transcode import Transcoder
from fastload.packing.shard_job import BadFiles
from fastload.packing.summary import Summary
from fastload.remote.location import is_url
from fastload.sample.schema import Schema
from fastload.shard.dataset import PackedFiles
from fastload.shard.formats import FORMATS, format_of
from fastload.shard.manifest import MANIFEST_NAME, Manifest

__all__ = ["pack_given"]

VERSION = 1


def pack_given(
    source: Given,
    output: str | os.PathLike[str],
    schema: Schema,
    options: PackOptions,
    observer: Observer | None = None,
) -> PackResult:
    """Pack samples whose schema is known.

    Raises:
        PackError: see :func:`fastload.pack`.
    """
    if is_url(output):
        raise PackError(
            f"{output} is no folder of this machine, which samples are packed into; copy the packed folder "
            "there."
        )
    folder = Path(output).absolute()
    try:
        make_folder(folder)
        with folder_lock(folder):
            return _Run(folder, source, schema, options, observer or Observer()).run()
    except OSError as error:
        if isinstance(error, FastloadError):
            raise
        raise PackError(f"cannot pack into {folder}: {error}.") from error


@dataclass(frozen=True)
class _Run:
    """Packs samples of one schema into one folder; the caller holds its lock.

    Args:
        output: the folder.
        given: the samples.
        schema: their fields.
        options: those of a pack.
        observer: hears how far it is.
    """

    output: Path
    given: Given
    schema: Schema
    options: PackOptions
    observer: Observer

    def run(self) -> PackResult:
        """Pack, or go on with what was interrupted; of a finished pack of these very samples, its result.

        Raises:
            PackError: samples that cannot be packed, another pack in the folder, a full disk.
        """
        began = time.monotonic()
        folder = OutputFolder(self.output)
        identity = self.identity()
        if self.options.restart:  # other files may lie there, too: they stay
            folder.discard()
        state = "empty" if self.options.restart else folder.state()
        if state == "complete":
            return self._complete(Manifest.read(self.output), identity, began)
        if state == "foreign":
            raise folder.refusal()
        by_position = self._take_up(folder, identity)
        shards = self._shards()
        first = shards.finished()
        require_space(self.output, self._about_bytes(first))
        self.observer.started(
            Work("packing", self.output, "sample", self._length(), done=first, where="into")
        )
        processes = self.options.num_proc or 1
        try:
            shards.write(encoded(self.given, self._encoder(), first, processes if by_position else 1))
        except BadFiles as error:
            raise PackError(_bad_samples(error)) from None
        if not shards.number:
            raise PackError("there are no samples to pack.")
        manifest, summary = publish_samples(folder, shards, self.schema, self.options.format, identity)
        remove(folder.work)
        packed = time.monotonic()
        written = manifest.data_bytes
        return self._result(manifest, summary, packed - began, written)

    def identity(self) -> dict[str, Any]:
        """What decides the output's bytes besides the samples' values; JSON values only."""
        facts = self.options.identity()
        return {
            **facts,
            "given": self.given.identity(self._encoder()),
            "schema": json.loads(self.schema.to_json()),
        }

    def _length(self) -> int:
        """How many samples there are; 0: nobody knows."""
        try:
            return len(self.given)
        except TypeError:
            return 0

    def _about_bytes(self, done: int) -> int:
        """What is still to be written, about, if anybody knows."""
        about = self.given.about_bytes(self._encoder())
        return about * (len(self.given) - done) // len(self.given) if about else 0

    def _encoder(self) -> Encoder:
        transcoder = Transcoder(self.schema, self.options) if self.options.transcodes else None
        return Encoder(self.schema, self.given.root, self.options.format == "hdf5", transcoder)

    def _shards(self) -> Shards:
        name = self.options.format
        return Shards(
            self.output / WORK_NAME, format_of(name), FORMATS[name].suffix, self.schema,
            self.options.shard_size, self.options.on_error == "skip", self.observer.advanced,
            self.options.raw, self.options.coefficients is not None,
        )  # fmt: skip

    def _complete(self, manifest: Manifest, identity: dict[str, Any], began: float) -> PackResult:
        if identity["given"] is None:
            raise PackError(
                f"{self.output} holds a complete pack, and an iterable cannot be compared with it. Use "
                "restart=True to replace it, or choose another folder."
            )
        _check_same(manifest.options, identity, self.options, self.output)
        newest = self.given.newest_ns()
        if newest > (self.output / MANIFEST_NAME).stat().st_mtime_ns:
            raise PackError(
                f"{self.output} is a complete pack, and files of its source are newer. "
                "restart=True (--restart) throws it away and packs anew."
            )
        self._say_compared()
        OutputFolder(self.output).tidy()
        return self._result(manifest, None, time.monotonic() - began, 0)

    def _result(
        self, manifest: Manifest, summary: Summary | None, seconds: float, written: int
    ) -> PackResult:
        began = time.monotonic()
        if self.options.entries is not None:
            ensure_entries(self.output, self.options.entries, self.options.num_proc, self.observer)
        facts = entry_facts(PackedFiles(self.output))
        return PackResult(self.output, manifest, facts, summary, seconds, time.monotonic() - began, written)

    def _say_compared(self) -> None:
        """Some samples stand for all: whoever changed another one must hear it."""
        if self.given.compared() < len(self.given):
            self.observer.said(
                self.output,
                f"goes on with what is packed there already. {self.given.compared()} of the "
                f"{len(self.given)} samples were compared with it and are the same; if others have changed, "
                "pass restart=True.",
            )

    def _take_up(self, folder: OutputFolder, identity: dict[str, Any]) -> bool:
        """Make the work folder, or check that the one that is there is this pack's.

        Returns:
            Whether samples can be asked by position.
        """
        known = identity["given"] is not None
        path = folder.work / RUN_NAME
        if exists(path) and known:
            try:
                before = json.loads(path.read_text(encoding="utf-8"))
            except ValueError as error:
                raise PackError(
                    f"{path} cannot be used ({error}); pack again with restart=True (--restart)."
                ) from None
            _check_same(before, identity, self.options, self.output)
            self._say_compared()
            return True
        folder.refuse_others(RUN_NAME)
        if exists(path):
            self.observer.said(
                self.output,
                "a pack was interrupted. An iterable cannot be asked for its samples again, so it begins "
                "anew; give something with __getitem__ and __len__ to go on where it was.",
            )
        folder.discard()
        folder.work.mkdir()
        temporary_of(path).write_text(json.dumps({**identity, "version": VERSION}), encoding="utf-8")
        publish(temporary_of(path), path)
        return known


def _bad_samples(bad: BadFiles) -> str:
    counts = (len(bad.failures), "sample"), (len(bad.annotations), "annotation")
    what = " and ".join(counted(count, name) for count, name in counts if count)
    return (
        f"{what} cannot be packed:\n{listed([*bad.failures, *bad.annotations])}\n"
        "Mend or remove them, or leave them out with on_error='skip' (--on-error skip). Finished shards "
        "are kept."
    )


def _check_same(
    before: Mapping[str, Any], now: Mapping[str, Any], options: PackOptions, output: Path
) -> None:
    check_options(before, options, output)
    for name, what in (("schema", "with another schema"), ("given", "of other samples")):
        if before.get(name) != now[name]:
            raise PackError(
                f"{output} holds a pack {what}. restart=True (--restart) throws it away and packs anew."
            )
