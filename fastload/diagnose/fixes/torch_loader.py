"""What helps a loader of torch's: more workers, and fastload, tried on a sample of the files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastload.diagnose.case import Examined, shown
from fastload.diagnose.facts import Fix
from fastload.diagnose.fixes.copies import pinned
from fastload.diagnose.fixes.machine import MACHINE
from fastload.diagnose.fixes.step import of_the_step
from fastload.diagnose.torch_subject import Files, Part, TorchSubject
from fastload.diagnose.trial import Trial, in_turns, starting_seconds

__all__ = ["TORCH_REGISTRY", "TorchCase"]

_ROUNDS = 2
_STARTS = 0.03  # of an epoch's time that begins with new workers


@dataclass
class TorchCase(Examined):
    """A loader of torch's.

    Args:
        subject: the loader.
        parts: what a sample's making consists of.
        collate: seconds a sample of the collate function.
    """

    subject: TorchSubject
    parts: tuple[Part, ...]
    collate: float


def more_workers(case: TorchCase) -> Iterator[Fix]:
    """As many as there are CPUs, and twice as many where samples wait for something else than these."""
    subject, cpus = case.subject, max(1, int(case.cpus))
    waits = sum(part.seconds for part in case.parts) > 2 * case.base.cpu > 0
    wanted = 2 * cpus if waits else cpus
    if subject.workers >= wanted or not case.budget.allows(8, "more workers"):
        return
    found = in_turns(
        {"now": subject.make, "more": lambda: subject.make(num_workers=wanted)},
        subject.trial_batch,
        2 * case.budget.run,
        _ROUNDS,
        case.step,
    )
    now, more = found["now"], found["more"]
    yield case.fix(
        "workers",
        f"num_workers={wanted}",
        more,
        f"num_workers={subject.workers} gave {shown(now.rate)} samples/s and num_workers={wanted} "
        f"{shown(more.rate)}, in turns, without a step.",
        "memory of the processes",
        now,
    )


def kept_workers(case: TorchCase) -> Iterator[Fix]:
    """``persistent_workers=True``, where epochs are short."""
    subject = case.subject
    if not subject.workers or subject.of("persistent_workers") or subject.is_stream:
        return
    if not case.budget.allows(3, "persistent_workers"):
        return
    start = starting_seconds(lambda: subject.make(persistent_workers=False))
    epoch = len(subject.dataset) / case.now
    if start < _STARTS * epoch:
        return
    faster = Trial(case.base.rate * (1 + start / epoch), case.base.cpu, serial=case.base.serial)
    yield case.fix(
        "persistent-workers",
        "persistent_workers=True",
        faster,
        f"{subject.workers} workers take {start:.1f} s to begin, and an epoch takes about {epoch:.1f} s.",
    )


def without_collate(case: TorchCase) -> Iterator[Fix]:
    """A collate function of the user's that takes long."""
    collate = case.subject.of("collate_fn")
    sample = sum(part.seconds for part in case.parts)
    if case.collate < 0.1 * sample or getattr(collate, "__module__", "").startswith("torch."):
        return
    name = getattr(collate, "__qualname__", type(collate).__qualname__)
    said = f"{name} takes {1000 * case.collate:.2f} ms of a sample's {1000 * (sample + case.collate):.2f}."
    words = f"Without the collate_fn {name}"
    if not case.budget.allows(6, "without the collate_fn"):
        return
    makers: dict[str, Any] = {
        "now": case.subject.make,
        "without": lambda: case.subject.make(collate_fn=None),
    }
    try:
        found = in_turns(makers, case.subject.trial_batch, case.budget.run, _ROUNDS, case.step)
    except Exception as error:  # torch's own may not know these samples
        yield Fix(
            "collate_fn", f"{words} it would be more", 0.0, 0.0, f"{said} {type(error).__name__}: {error}"
        )
        return
    then = found["without"]
    evidence = f"{said} {shown(found['now'].rate)} samples/s with it, {shown(then.rate)} without, in turns."
    yield case.fix("collate_fn", words, then, evidence, "what it does has to be done elsewhere", found["now"])


def by_fastload(case: TorchCase) -> Iterator[Fix]:
    """A sample of the files packed, and read by fastload's DataLoader with the same transform."""
    from fastload import DataLoader
    from fastload.dataset.pictures import PackedDataset
    from fastload.packing.samples.pack import pack
    from fastload.sample.fields import Image, Label

    files = case.subject.files()
    if files is None or len(files.paths) < 8 or not case.budget.allows(10, "fastload"):
        return
    folder = case.folder / "as-fastload"
    pack(_samples(files), folder, {"image": Image(), "label": Label()}, on_error="skip")
    packed: PackedDataset[Any] = PackedDataset(folder)
    threads = max(1, int(case.cpus))

    def ours() -> Any:
        from fastload.diagnose.passes import Passes

        order: Any = Passes(np.arange(len(packed)))
        return DataLoader(
            packed,
            case.subject.trial_batch,
            sampler=order,
            num_workers=threads,
            transform=files.transform,
            drop_last=True,
            cache="off",
            rank=0,
            world_size=1,
        )

    makers = {"now": lambda: case.subject.make(files.indices), "fastload": ours}
    found = in_turns(makers, case.subject.trial_batch, 2 * case.budget.run, _ROUNDS, case.step)
    now, then = found["now"], found["fastload"]
    yield case.fix(
        "fastload",
        f'`fastload pack {files.root or "IMAGES"} SET` and `fastload.DataLoader("SET", ...)` with the same '
        "transform",
        then,
        f"{len(packed)} of its files, packed into a temporary folder, the same transform, {threads} threads: "
        f"{shown(then.rate)} images/s, and {shown(now.rate)} by this loader, in turns, without a step.",
        "the files' bytes once more on disk",
        now,
    )


def _samples(files: Files) -> Iterator[dict[str, Any]]:
    for path, label in zip(files.paths, files.labels, strict=True):
        yield {"image": path, "label": label}


TORCH_REGISTRY: tuple[Callable[[TorchCase], Iterator[Fix]], ...] = (
    more_workers,
    by_fastload,
    without_collate,
    kept_workers,
    *MACHINE,
    pinned,
    of_the_step,
)
