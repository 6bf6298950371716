"""Batches: how many are in work ahead of the loop, and how large they are."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fastload.diagnose.case import Case, shown
from fastload.diagnose.facts import Fix
from fastload.diagnose.trial import in_turns
from fastload.machine.memory import available_memory

__all__ = ["deeper_prefetch", "larger_batches"]

_IDLE = 0.05  # of the threads' time: something else than their work holds the loader up
_DEEPEST = 16
_SMALL = 16  # samples a batch, below which a batch's own cost shows
_TIMES = 4
_SHARE = 0.25  # of the available memory for batches


def deeper_prefetch(case: Case) -> Iterator[Fix]:
    """Twice as many batches ahead, where threads are idle though nobody has batches enough."""
    subject, base = case.subject, case.base
    depth = subject.options.prefetch_factor
    uneven = float(np.std(base.gaps) / np.mean(base.gaps)) if len(base.gaps) > 3 else 0.0
    wanted = min(_DEEPEST, 2 * depth)
    if base.threads == 0 or 1 - base.busy < _IDLE or wanted <= depth:
        return
    slot = subject.loader.memory_plan()["slot_bytes"]
    if wanted * slot > _SHARE * available_memory() or not case.budget.allows(6, "prefetch_factor"):
        return
    size = subject.batch_size
    found = in_turns(
        {
            "now": lambda: subject.make(batch_size=size, prefetch_factor=depth),
            "more": lambda: subject.make(batch_size=size, prefetch_factor=wanted),
        },
        size,
        case.budget.run,
    )
    yield case.fix(
        "prefetch",
        f"prefetch_factor={wanted}",
        found["more"],
        f"Threads were idle for {1 - base.busy:.0%} of their time, and waits for batches differ by "
        f"{uneven:.0%} of their mean. {depth} batches ahead gave {shown(found['now'].rate)} images/s, "
        f"{wanted} {shown(found['more'].rate)}, in turns, without a step.",
        f"{(wanted - depth) * slot / 1e6:.0f} MB of memory",
        found["now"],
    )


def larger_batches(case: Case) -> Iterator[Fix]:
    """Four times as large, where they are small."""
    subject = case.subject
    size = subject.batch_size
    if size > _SMALL or size * _TIMES > len(subject.ids) or subject.trial_batch < size:
        return
    if not case.budget.allows(6, "batch_size"):
        return
    found = in_turns(
        {
            "now": lambda: subject.make(batch_size=size),
            "more": lambda: subject.make(batch_size=_TIMES * size),
        },
        size,
        case.budget.run,
    )
    yield case.fix(
        "batch-size",
        f"batch_size={_TIMES * size}",
        found["more"],
        f"Batches of {size} gave {shown(found['now'].rate)} images/s, of {_TIMES * size} "
        f"{shown(found['more'].rate)}, in turns, without a step.",
        "other training: the learning rate belongs to it",
        found["now"],
    )
