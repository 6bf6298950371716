"""What could help, each with an experiment of its own.

A fix is a function that gets the :class:`fastload.diagnose.case.Case`, looks whether it applies, tries it on
the loader's own records, and yields what it found. :data:`REGISTRY` lists them, the likeliest first, because
the time is limited.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from fastload.diagnose.case import Case
from fastload.diagnose.facts import Fix
from fastload.diagnose.fixes.batches import deeper_prefetch, larger_batches
from fastload.diagnose.fixes.copies import pinned_slots
from fastload.diagnose.fixes.delivery import as_uint8
from fastload.diagnose.fixes.disk_tier import on_local_disk
from fastload.diagnose.fixes.machine import MACHINE
from fastload.diagnose.fixes.packed import repacked
from fastload.diagnose.fixes.python import without_functions
from fastload.diagnose.fixes.step import of_the_step
from fastload.diagnose.fixes.stored import decoded_cache, from_memory, in_blocks, warmed
from fastload.diagnose.fixes.threads import more_cores, more_threads

__all__ = ["REGISTRY"]

REGISTRY: tuple[Callable[[Case], Iterator[Fix]], ...] = (
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
