"""How many worker processes run Python callables, and how many batches they have."""

from __future__ import annotations

import multiprocessing

from fastload.backends.options import Options

__all__ = ["batches_each", "slots_for", "workers_for"]


def batches_each(workers: int, prefetch: int) -> int:
    """Batches that each worker process has: two, so that it goes on while one waits for its turn."""
    return max(2, -(-prefetch // workers))


def slots_for(workers: int, prefetch: int) -> int:
    """Shared slots: at the workers, one that comes next, one in decoding, and one just delivered."""
    return workers * batches_each(workers, prefetch) + 3


def workers_for(options: Options, threads: int) -> int:
    """Worker processes for Python callables; 0: the consumer's thread runs them.

    As many as decoding threads, none for ``num_workers=0``, nor in a worker process of somebody's, which may
    have no children.
    """
    if options.num_workers == 0 or multiprocessing.current_process().daemon:
        return 0
    return threads
