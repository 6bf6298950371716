"""A verdict from a loader's clocks and a run without a step: where no doctor was asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastload.diagnose.facts import Sentence, Stage, Verdict
from fastload.diagnose.report.alone import Alone
from fastload.diagnose.report.history import STAGES
from fastload.diagnose.report.page import rate, seconds, share

__all__ = ["own_verdict"]

_FEW = 10  # batches; the share of the time spent waiting means little before
_KEEPS_UP = 0.05  # of the time spent waiting is what a loader that keeps up may take, too


def own_verdict(stats: Mapping[str, Any], alone: Alone | None) -> Verdict:
    """What the clocks can say: whether the loop waits, and where the threads' time goes.

    Args:
        stats: of the loader, as it was used so far.
        alone: of a second one that had no step beside it; None where there was none.
    """
    used, wait = stats["data_wait"]["count"], stats["data_wait"]["share"]
    reached = stats["images_per_second"] if used >= _FEW else 0.0
    own = alone.rate if alone is not None else 0.0
    clocks = stats if used >= _FEW or alone is None else alone.stats
    stages = _stages(clocks, own, alone)
    sentences, limit = [], "unknown"
    if reached and wait <= _KEEPS_UP:
        limit = "step"
        words = f"Nothing: the loop waited for data {share(wait)} of its time, at {rate(reached)}."
    elif reached:
        words = f"The loop got {rate(reached)} and waited for data {share(wait)} of its time."
    else:
        words = (
            f"The loader gives {rate(own)} without a step." if own else "The loader has not been used yet."
        )
    evidence = f"{used:,} batches, by the loader's clocks." if reached else ""
    sentences.append(Sentence(words, evidence))
    if reached and own:
        sentences.append(
            Sentence(
                f"Without a step the loader gives {rate(own)}.",
                f"A second loader of the same arguments: {alone.batches if alone else 0} batches.",
            )
        )
    slowest = min(stages[: len(STAGES)], key=lambda stage: stage.rate, default=None)
    if slowest is not None and limit != "step":
        total = sum(stage.cpu for stage in stages[: len(STAGES)])
        text = (
            f"Of a thread's {seconds(total)} for a sample, {slowest.name} takes {share(slowest.cpu / total)}."
        )
        sentences.append(Sentence(text, slowest.evidence))
    return Verdict(limit, reached, own, 0.0, tuple(sentences), (), tuple(stages))


def _stages(stats: Mapping[str, Any], own: float, alone: Alone | None) -> list[Stage]:
    """What the threads could do of each stage if that were all they did, and the loader alone."""
    count, threads = stats["stages"]["decode"]["count"], max(1, int(stats["threads"]))
    found = []
    for name, word in zip(STAGES, ("read", "decode", "transform"), strict=True):
        spent = stats["stages"][name]["seconds"]
        if count and spent > 0:
            evidence = f"the clocks of {threads} threads over {count:,} samples, if they did nothing else"
            found.append(Stage(word, threads * count / spent, spent / count, evidence))
    if alone is not None and own > 0:
        found.append(Stage("loader", own, 0.0, f"{alone.batches} batches without a step"))
    return found
