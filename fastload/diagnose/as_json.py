"""The verdict as JSON: for programs and agents that act on it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from fastload.diagnose.attribution import Attribution, Place
from fastload.diagnose.facts import Fix, Loop, Verdict

VERSION = 1  # raised when a name goes or gets another meaning; new names may come without


def verdict_json(verdict: Verdict) -> dict[str, Any]:
    """Return a verdict in dicts, lists, strings and finite numbers; what is infinite or no number is None."""
    sentences = verdict.sentences
    body = {
        "version": VERSION,
        "cause": verdict.limit,
        "headline": sentences[min(1, len(sentences) - 1)].text if sentences else None,  # rates come first
        "place": _place(verdict.place),
        "rate": verdict.rate,
        "loader_rate": verdict.loader_rate,
        "step_rate": verdict.step_rate,
        "quiet_rate": verdict.quiet_rate,
        "fixes": [_fix(fix) for fix in verdict.fixes],
        "stages": [
            {"name": stage.name, "rate": stage.rate, "cpu": stage.cpu, "evidence": stage.evidence}
            for stage in verdict.stages
        ],
        "sentences": [{"text": each.text, "evidence": each.evidence} for each in sentences],
        "loop": _loop(verdict.loop),
        "attribution": _attribution(verdict.attribution),
    }
    finite: dict[str, Any] = _plain(body)
    return finite


def no_verdict_json(words: str, loop: Loop | None = None) -> dict[str, Any]:
    """Return what there is without a verdict: why there is none, and the loop if it was watched."""
    body: dict[str, Any] = _plain({"version": VERSION, "cause": None, "words": words, "loop": _loop(loop)})
    return body


def _place(place: Place | None) -> dict[str, Any] | None:
    if place is None:
        return None
    spot = place.spot
    return {
        "file": spot.file,
        "line": spot.line,
        "text": spot.text,
        "function": spot.function,
        "kind": place.kind,
        "share": place.share,
    }


def _fix(fix: Fix) -> dict[str, Any]:
    is_one = fix.low == fix.high == 0
    return {
        "name": fix.name,
        "words": fix.words,
        "rate": fix.rate,
        "gain": fix.gain,
        "low": fix.gain if is_one else fix.low,
        "high": fix.gain if is_one else fix.high,
        "quiet_rate": fix.quiet_rate,
        "evidence": fix.evidence,
        "price": fix.price,
    }


def _loop(loop: Loop | None) -> dict[str, Any] | None:
    if loop is None:
        return None
    return {
        "loader": loop.loader,
        "batch_size": loop.batch_size,
        "batches": len(loop.wait),
        "rate": loop.rate,
        "wait_share": loop.wait_share,
        "threads": loop.threads,
        "cpus": loop.cpus,
        "notes": {name: value for name, value in loop.notes.items() if _is_plain(value)},
    }


def _attribution(attribution: Attribution | None) -> dict[str, Any] | None:
    if attribution is None:
        return None
    lines = [("makers", place) for place in attribution.places] + [
        ("loop", place) for place in attribution.steps
    ]
    return {
        "seconds": attribution.seconds,
        "loop": attribution.loop,
        "makers": attribution.makers,
        "busy": attribution.busy,
        "waits": attribution.waits,
        "lines": [{"of": of, **(_place(place) or {})} for of, place in lines],
    }


# ---- Values -----------------------------------------------------------------------------------------


def _is_plain(value: object) -> bool:
    """Whether JSON has such a value, after numpy's numbers have become Python's."""
    if isinstance(value, Mapping):
        return all(isinstance(name, str) and _is_plain(each) for name, each in value.items())
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, str | bool | int | float | np.bool_ | np.integer | np.floating)


def _plain(value: Any) -> Any:
    """Return a value in Python's own types; None for a number that is infinite or none."""
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
