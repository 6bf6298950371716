"""Fixes for the step: copies from pinned memory, and hints from looking at one step on a GPU."""

from __future__ import annotations

from collections.abc import Iterator

from fastload.diagnose.examination import Examination, Examined
from fastload.diagnose.facts import Fix
from fastload.diagnose.step import copy_seconds
from fastload.transfer.cuda import goes_to_gpu

# ---- Copies to the device ---------------------------------------------------------------------------

COPIES = "pin-memory"
_LEAST_LEFT = 0.1  # share of any step that is not copies


def pinned_slots(case: Examination) -> Iterator[Fix]:
    """Propose copies that run during the step, for a loader of packed data."""
    options = case.subject.options
    if not goes_to_gpu(options.device.name) and not options.pin_memory:
        words = 'device="cuda": batches are decoded into pinned slots and copied while the step runs'
        yield from _without_copies(case, words, hidden=True)


def pinned(case: Examined) -> Iterator[Fix]:
    """Propose copies from pinned memory, for a torch loader."""
    if case.loop is not None and case.loop.notes.get("pin_memory") is False:
        yield from _without_copies(case, "pin_memory=True, and .to(device, non_blocking=True)", hidden=False)


def _without_copies(case: Examined, words: str, hidden: bool) -> Iterator[Fix]:
    """Predict the loop with copies from pinned memory; with ``hidden``, without any wait for copies."""
    loop = case.loop
    if loop is None or not loop.notes.get("cuda") or loop.notes.get("device") == "cpu":
        return
    noted = loop.notes.get("batch_bytes")
    nbytes = noted if isinstance(noted, int) else 0
    now = copy_seconds(nbytes, pinned=False)
    then = 0.0 if hidden else copy_seconds(nbytes, pinned=True)
    if case.step is None or now is None or then is None:
        evidence = "The loop has a GPU, and its batches come in pageable memory. Not measured."
        yield Fix(COPIES, words, 0.0, 0.0, evidence)
        return
    step = loop.batch_size / case.step.rate
    rest = max(step - now + then, _LEAST_LEFT * step)
    rate = min(loop.batch_size / rest, case.loader_rate)
    evidence = f"A copy of a batch's {nbytes / 1e6:.1f} MB from pageable memory takes {1000 * now:.1f} ms"
    if not hidden:
        evidence += f", from pinned memory {1000 * then:.1f} ms"
    evidence += f"; a step with its copies takes {1000 * step:.1f} ms."
    yield Fix(COPIES, words, max(rate, case.now), max(0.0, rate / case.now - 1), evidence)


# ---- Hints for a step on a GPU, not tried -----------------------------------------------------------

STEP_HINTS = ("ddp", "amp", "channels-last", "synchronises")


def of_the_step(case: Examined) -> Iterator[Fix]:
    """Hint at DataParallel, full precision, memory format, and lines that wait for the device."""
    notes = case.loop.notes if case.loop is not None else {}
    if not str(notes.get("device", "")).startswith("cuda"):
        return
    seen = "Seen in one step; not measured."
    if notes.get("parallel") == "DataParallel":
        words = "DistributedDataParallel under torchrun instead of DataParallel, one process per GPU"
        yield Fix("ddp", words, 0.0, 0.0, seen)
    if not notes.get("autocast") and "float32" in str(notes.get("parameter_dtype", "")):
        yield Fix("amp", "Mixed precision: torch.autocast with bfloat16", 0.0, 0.0, seen)
    if notes.get("channels_last") is False:
        words = "model.to(memory_format=torch.channels_last): the loader's batches already have this format"
        yield Fix("channels-last", words, 0.0, 0.0, seen)
    lines = notes.get("synchronises")
    if isinstance(lines, (list, tuple)) and lines:
        words = f"Fewer waits for the device in the loop, at {', '.join(map(str, lines[:3]))}"
        evidence = f"{seen} `.item()` and `.cpu()` wait until the device is done."
        yield Fix("synchronises", words, 0.0, 0.0, evidence)
