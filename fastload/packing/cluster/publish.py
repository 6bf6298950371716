"""``fastload pack --publish``: from the shards that several packs have written to a dataset."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from fastload.errors import PackError
from fastload.machine.paths import exists, is_dir
from fastload.packing.cluster.job import shard_state
from fastload.packing.cluster.opening import Target, check_plan, targets_of
from fastload.packing.cluster.packer import words_for_errors
from fastload.packing.cluster.pieces import read_piece
from fastload.packing.cluster.shares import ranges
from fastload.packing.entries import Made, ensure_entries, entries_of
from fastload.packing.entry_facts import entry_facts
from fastload.packing.files import remove
from fastload.packing.lock import PLAN_LOCK_NAME, folder_lock
from fastload.packing.options import PackOptions
from fastload.packing.output import OutputFolder
from fastload.packing.part import ShardPart
from fastload.packing.plan import PLAN_NAME, PackPlan, check_options
from fastload.packing.progress import Observer
from fastload.packing.publish import publish_dataset
from fastload.packing.result import PackResult
from fastload.packing.shard_job import part_path
from fastload.packing.summary import Summary
from fastload.remote.location import is_url
from fastload.shard.dataset import PackedFiles
from fastload.shard.manifest import Manifest

__all__ = ["publish_shares"]


def publish_shares(
    source: str | os.PathLike[str],
    output: str | os.PathLike[str],
    options: PackOptions | None = None,
    observer: Observer | None = None,
) -> list[PackResult]:
    """Make datasets of a plan's shards, all of which are there: byte for byte what one machine makes.

    Interrupted at any moment, the same call goes on; of complete datasets it changes nothing.

    Raises:
        PackError: shards are missing or another plan's (the message says which), a pack is still at work,
            the options are others than those of the plan.
    """
    options, observer = options or PackOptions(), observer or Observer()
    if is_url(output):
        from fastload.packing.cluster.store_pack import publish_in_store

        return publish_in_store(source, str(output), options, observer)
    with words_for_errors(output), ExitStack() as stack:
        targets = targets_of(source, output, options)
        for target in targets:
            if not is_dir(target.output):
                raise _no_plan(target.output)
            stack.enter_context(folder_lock(target.output))
        plans = [_plan(target, options) for target in targets]
        _require_shards(targets, plans)
        published = [_Published(t, plan, options) for t, plan in zip(targets, plans, strict=True)]
        return [one.finish(observer) for one in published]


def _no_plan(output: Path) -> PackError:
    return PackError(
        f"{output} holds no pack that could be published; 'fastload pack SOURCE OUTPUT --shards ...' makes "
        "a plan and packs its shards."
    )


def _plan(target: Target, options: PackOptions) -> PackPlan | None:
    """A target's plan; None: it is published, and nothing of the plan is left.

    Raises:
        PackError: there is none, or another one.
    """
    folder = OutputFolder(target.output)
    state = folder.state()
    if state == "foreign":
        raise folder.refusal()
    plan = PackPlan.read(folder.work) if exists(folder.work) else None
    if state == "complete":
        check_options(Manifest.read(target.output).options, options, target.output)
        return plan
    folder.refuse_others(PLAN_NAME)
    if plan is None:
        raise _no_plan(target.output)
    check_plan(plan, target, options)
    return plan


def _require_shards(targets: list[Target], plans: list[PackPlan | None]) -> None:
    missing, others, first = [], [], 0
    for target, plan in zip(targets, plans, strict=True):
        if plan is None or OutputFolder(target.output).state() == "complete":
            continue  # it was published when all were there
        for number in range(len(plan.shards)):
            state = shard_state(target.output, plan, number)
            missing += [first + number] if state == "missing" else []
            others += [first + number] if state == "of another plan" else []
        first += len(plan.shards)
    if not missing and not others:
        return
    found = [f"{len(missing)} missing ({ranges(missing)})"] if missing else []
    found += [f"{len(others)} written by another plan ({ranges(others)})"] if others else []
    output = targets[0].output if len(targets) == 1 else targets[0].output.parent
    raise PackError(
        f"{output} cannot be published: of {first} shards there are {' and '.join(found)}. 'fastload pack "
        f"SOURCE OUTPUT --shards {ranges(sorted(missing + others))}' packs them."
    )


@dataclass
class _Published:
    """The last steps of one dataset."""

    target: Target
    plan: PackPlan | None
    options: PackOptions

    def finish(self, observer: Observer) -> PackResult:
        began = time.monotonic()
        output, folder = self.target.output, OutputFolder(self.target.output)
        summary: Summary | None = None
        if folder.state() == "complete":
            manifest = Manifest.read(output)
        else:
            assert self.plan is not None
            manifest, summary = publish_dataset(output, self.plan)
        packed = time.monotonic()
        spacing = self.options.entries
        if spacing is not None:
            made = functools.partial(self._made, observer) if self.plan is not None else None
            ensure_entries(output, spacing, self.options.num_proc, observer, made)
        folder.tidy()
        remove(output / PLAN_LOCK_NAME)
        facts = entry_facts(PackedFiles(output))
        return PackResult(output, manifest, facts, summary, packed - began, time.monotonic() - packed, 0)

    def _made(self, observer: Observer, dataset: PackedFiles, spacing: int) -> Iterator[Made]:
        """The shards' entry points as they were packed; made here where there are none of this spacing."""
        assert self.plan is not None
        threads, first = self.options.num_proc or len(os.sched_getaffinity(0)), 0
        for shard in self.plan.shards:
            path = part_path(dataset.folder, shard.name)
            part = ShardPart.read(path)
            samples = range(first, first + len(part.records))
            first = samples.stop
            piece = read_piece(path, part, spacing) if samples else None
            if piece is None:
                yield from entries_of(dataset.reader, samples, spacing, threads, observer.advanced)
            else:
                yield piece
                observer.advanced(len(samples))
