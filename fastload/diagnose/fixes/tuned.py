"""What autotune would do by itself: no trial of its own, but that of the setting which it would find."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from fastload.diagnose.case import LEAST_GAIN, Case
from fastload.diagnose.facts import Fix
from fastload.prefetch.autotune import EXTRA_DEPTH

__all__ = ["by_itself"]


def by_itself(case: Case, fix: Fix, batches: int = 0) -> Iterator[Fix]:
    """``autotune=True``, where it is off and would come to what ``fix`` says.

    Args:
        fix: of threads or of prefetch, tried; autotune's threads go up to the CPUs.
        batches: more of them ahead.
    """
    given = case.subject.arguments
    has_room = (
        batches <= EXTRA_DEPTH if batches else given["num_workers"] is not None
    )  # else it is at its most
    if given["autotune"] or given["backend"] != "native" or fix.gain < LEAST_GAIN or not has_room:
        return
    what = f"prefetch by {batches} batches" if batches else f"num_workers from {case.subject.threads}"
    words = f"autotune=True would raise {what} by itself, while the job runs"
    evidence = f"Not run: the number is that of {fix.words}. It takes some seconds to get there."
    yield replace(fix, name="autotune", words=words, evidence=evidence)
