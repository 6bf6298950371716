"""The registry of fixes, each of which is tried in an experiment.

A fix is a function that gets the :class:`~fastload.diagnose.examination.Examination`, checks whether the fix
applies, tries it on the loader's own records, and yields a Fix. :data:`REGISTRY` lists the likeliest first,
because time is limited.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from fastload.diagnose.examination import Examination
from fastload.diagnose.facts import Fix
from fastload.diagnose.fixes.data import (
    decoded_cache,
    from_memory,
    in_blocks,
    on_local_disk,
    repacked,
    warmed,
)
from fastload.diagnose.fixes.loader import (
    MACHINE,
    as_uint8,
    deeper_prefetch,
    larger_batches,
    more_cores,
    more_threads,
    without_functions,
)
from fastload.diagnose.fixes.step import of_the_step, pinned_slots

__all__ = ["REGISTRY"]

REGISTRY: tuple[Callable[[Examination], Iterator[Fix]], ...] = (
    without_functions,
    more_threads,
    deeper_prefetch,
    in_blocks,
    from_memory,
    warmed,
    on_local_disk,
    repacked,
    decoded_cache,
    as_uint8,
    larger_batches,
    more_cores,
    *MACHINE,
    pinned_slots,
    of_the_step,
)
