"""The plan that several packs share: the first one makes it, the others wait for it and read it."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fastload.errors import PackError
from fastload.machine.paths import exists
from fastload.packing.files import make_folder
from fastload.packing.lock import PLAN_LOCK_NAME, Claim, claim, folder_lock, holder_of, share_lock
from fastload.packing.options import PackOptions
from fastload.packing.output import OutputFolder
from fastload.packing.packer import known_samples, refuse_nesting
from fastload.packing.plan import PLAN_NAME, PackPlan, check_options, resume_plan
from fastload.packing.progress import Observer
from fastload.packing.source import Source, open_sources, planned_source
from fastload.remote.location import Location
from fastload.shard.manifest import MANIFEST_NAME, Manifest

__all__ = [
    "Target",
    "check_identity",
    "check_plan",
    "discard",
    "opened",
    "sources_of",
    "targets_of",
    "waited",
]

_FIRST_WAIT, _LONGEST_WAIT = 0.05, 2.0  # seconds between two looks at what somebody else does


@dataclass(frozen=True)
class Target:
    """One of the packed datasets that a pack makes: a split, or all there is."""

    source: Source
    output: Path


def targets_of(
    source: str | os.PathLike[str], output: str | os.PathLike[str], options: PackOptions
) -> list[Target]:
    """The datasets that ``source`` becomes.

    Raises:
        PackError: nothing there that could be packed, or not in shares.
    """
    if known_samples(source, options):
        raise PackError(
            f"{source} has samples of fields, which one pack reads in order; --shards, --publish and "
            "--plan-only take folders of images, and tables of path and label."
        )
    folder = Path(output).absolute()
    refuse_nesting(source, folder)
    parts = sources_of(source, options, _known(folder))
    return [Target(part, folder / part.split if part.split else folder) for part in parts]


def _known(folder: Path) -> PackPlan | Manifest | None:
    if exists(folder / MANIFEST_NAME):
        return Manifest.read(folder)
    return PackPlan.read(OutputFolder(folder).work)


def sources_of(
    source: str | os.PathLike[str], options: PackOptions, known: PackPlan | Manifest | None
) -> list[Source]:
    """The sources at a path or URL; a URL whose plan is known is not listed again."""
    planned = planned_source(source, known.classes, options.storage_options) if known is not None else None
    return [planned] if planned is not None else open_sources(source, options)


@contextmanager
def opened(target: Target, options: PackOptions, observer: Observer) -> Iterator[PackPlan | Manifest]:
    """Hold a target together with others, and know its plan, made if there is none; a complete dataset's
    manifest, where all has been done.

    Raises:
        PackError: the folder is not a pack's, the plan is another one, a pack holds the folder alone.
    """
    make_folder(target.output)
    folder = OutputFolder(target.output)
    if folder.state() == "complete":  # asked first: nothing is left beside a dataset that is finished
        yield _complete(target, options)
        return
    with share_lock(target.output):
        state = folder.state()
        if state == "foreign":
            raise folder.refusal()
        if state == "complete":
            yield _complete(target, options)
            return
        folder.refuse_others(PLAN_NAME)
        plan = PackPlan.read(folder.work) or _first(target, options, observer)
        check_plan(plan, target, options)
        yield plan


def _complete(target: Target, options: PackOptions) -> Manifest:
    manifest = Manifest.read(target.output)
    check_options(manifest.options, options, target.output)
    return manifest


def check_plan(plan: PackPlan, target: Target, options: PackOptions) -> None:
    """See :func:`check_identity`."""
    check_identity(plan, target.source, target.output, options)


def check_identity(plan: PackPlan, source: Source, output: Path | Location, options: PackOptions) -> None:
    """Raise PackError if a plan has other options or other classes; its files are looked at when packed."""
    check_options(plan.identity, options, output)
    if plan.classes != source.classes:
        raise PackError(
            f"the source has changed since the pack of {output} was planned: it had {len(plan.classes)} "
            f"classes, and has {len(source.classes)} now, or others. --plan-only --restart throws the "
            "unfinished pack away and plans anew."
        )


def discard(target: Target) -> None:
    """Throw away what a pack has made in a target; nobody else may be at work there."""
    make_folder(target.output)
    with folder_lock(target.output):
        OutputFolder(target.output).discard()


def waited(done: Callable[[], bool]) -> None:
    """Return when ``done`` says so, asked again and again, less and less often."""
    pause = _FIRST_WAIT
    while not done():
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_WAIT)


def _first(target: Target, options: PackOptions, observer: Observer) -> PackPlan:
    """Make the plan, unless another pack is at it: then wait for that one's."""
    lock, work = target.output / PLAN_LOCK_NAME, OutputFolder(target.output).work
    held = claim(lock)
    if held is None:
        observer.said(target.output, f"{holder_of(lock)} makes the plan; waiting for it")
        found: list[Claim] = []

        def free() -> bool:
            found.extend(filter(None, [claim(lock)]))
            return bool(found)

        waited(free)
        [held] = found
    try:
        plan = PackPlan.read(work)
        if plan is None:
            scanning = functools.partial(observer.scanning, target.output)
            plan = resume_plan(target.source, options, target.output.name, work, scanning)
        return plan
    finally:
        held.close()
