"""The step itself, on a GPU: what a look at one of its steps suggests. Nothing of it is tried."""

from __future__ import annotations

from collections.abc import Iterator

from fastload.diagnose.case import Examined
from fastload.diagnose.facts import Fix

__all__ = ["STEP_HINTS", "of_the_step"]

STEP_HINTS = ("ddp", "amp", "channels-last", "synchronises")


def of_the_step(case: Examined) -> Iterator[Fix]:
    """DataParallel, full precision, memory format, and lines that wait for the device."""
    notes = case.loop.notes if case.loop is not None else {}
    if not str(notes.get("device", "")).startswith("cuda"):
        return
    seen = "Seen in one step; not measured."
    if notes.get("parallel") == "DataParallel":
        words = "DistributedDataParallel under torchrun instead of DataParallel, one process a GPU"
        yield Fix("ddp", words, 0.0, 0.0, seen)
    if not notes.get("autocast") and "float32" in str(notes.get("parameter_dtype", "")):
        yield Fix("amp", "Mixed precision: torch.autocast with bfloat16", 0.0, 0.0, seen)
    if notes.get("channels_last") is False:
        words = "model.to(memory_format=torch.channels_last): the loader's batches are so already"
        yield Fix("channels-last", words, 0.0, 0.0, seen)
    lines = notes.get("synchronises")
    if isinstance(lines, (list, tuple)) and lines:
        words = f"Less waiting for the device in the loop, at {', '.join(map(str, lines[:3]))}"
        yield Fix("synchronises", words, 0.0, 0.0, f"{seen} `.item()` and `.cpu()` wait until it is done.")
