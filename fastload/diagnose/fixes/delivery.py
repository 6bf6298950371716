"""How batches come to the device: as uint8 that is normalised there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from fastload.diagnose.case import Case, shown
from fastload.diagnose.facts import Fix
from fastload.diagnose.subject import Subject
from fastload.diagnose.trial import in_turns
from fastload.transfer.convert import crosses_as
from fastload.transfer.cuda import goes_to_gpu

__all__ = ["as_uint8"]


def as_uint8(case: Case) -> Iterator[Fix]:
    """uint8 out of the loader, where the CPU makes floats of it; what the device then does is not in it."""
    subject = case.subject
    dtypes = _floats(subject)
    if not dtypes or _on_cpu(case) or not case.budget.allows(6, "device normalisation"):
        return
    found = in_turns(
        {"now": subject.make, "uint8": lambda: _uint8(subject)},
        subject.trial_batch,
        case.budget.run,
        step=case.step,
    )
    now, then = found["now"], found["uint8"]
    words = 'uint8 out of the loader, normalised on the device (device="cuda" does both)'
    made = " and ".join(dtypes)
    share = min(1 / getattr(torch, name).itemsize for name in dtypes)
    yield case.fix(
        "device-normalise",
        words,
        then,
        f"The loader gave {shown(then.rate)} images/s where it left them in uint8, {shown(now.rate)} where "
        f"it made {made} of them, in turns, without a step. What crosses to the device is {share:.0%} of the "
        "bytes then; that is not in the number.",
        "one pass over each batch on the device",
        now,
    )


def _floats(subject: Subject) -> list[str]:
    """The dtypes that the core makes of uint8 at the end; none where it must, or where a device does it."""
    plan, options = subject.plan, subject.options
    python = plan.tail or options.collate_fn is not None or options.batch_transform is not None
    if plan.scheduled or python or options.backend != "native" or goes_to_gpu(options.device):
        return []
    views = zip(plan.every, crosses_as(plan).every, strict=True)
    return sorted({own.dtype for own, left in views if own.dtype != left.dtype})


def _uint8(subject: Subject) -> Any:
    loader = subject.make()
    loader._arranged.plan = crosses_as(subject.plan)
    return loader


def _on_cpu(case: Case) -> bool:
    """Whether the model that was seen in the loop has no device of its own."""
    return case.loop is not None and case.loop.notes.get("device") == "cpu"
