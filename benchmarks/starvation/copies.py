"""How much of the copies from host to device is hidden behind kernels, from a trace of torch.profiler."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

__all__ = ["covered", "hidden_copies", "profile_copies"]

Span = tuple[float, float]


def merged(spans: Iterable[Span]) -> list[Span]:
    """The union of ``spans`` (begin, end) as disjoint ones, in order."""
    result: list[Span] = []
    for begin, end in sorted(spans):
        if result and begin <= result[-1][1]:
            result[-1] = (result[-1][0], max(result[-1][1], end))
        else:
            result.append((begin, end))
    return result


def covered(spans: Iterable[Span], others: Iterable[Span]) -> float:
    """Length of the part of ``spans`` that ``others`` cover; both are united first."""
    second = merged(others)
    return sum(
        max(0.0, min(end, stop) - max(begin, start))
        for begin, end in merged(spans)
        for start, stop in second
        if start < end and stop > begin
    )


def hidden_copies(trace: dict[str, Any], steps: int) -> dict[str, float]:
    """From a Chrome trace of ``steps`` steps: ``copy_ms`` a step, and the share of it behind kernels.

    Returns:
        ``copy_ms``; ``copy_hidden``, 0 to 1, only where there was a copy.
    """
    copies: list[Span] = []
    kernels: list[Span] = []
    for event in trace["traceEvents"]:
        kind = event.get("cat")
        if kind not in ("gpu_memcpy", "kernel"):
            continue
        span = (float(event["ts"]), float(event["ts"]) + float(event["dur"]))
        if kind == "kernel":
            kernels.append(span)
        elif "HtoD" in event["name"]:
            copies.append(span)
    total = sum(end - begin for begin, end in merged(copies))
    if total == 0:
        return {"copy_ms": 0.0}
    return {"copy_ms": total / 1000 / steps, "copy_hidden": covered(copies, kernels) / total}


def profile_copies(step: Callable[[], object], steps: int) -> dict[str, float]:
    """Run ``step`` so often under torch.profiler; see :func:`hidden_copies`. Needs CUDA."""
    import torch

    kinds = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=kinds) as profiler:
        for _ in range(steps):
            step()
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        return hidden_copies(json.loads(path.read_text()), steps)
