"""What every stage that runs a tail needs: the decoding back end, the tail, and the order of batches."""

from __future__ import annotations

from dataclasses import dataclass

from fastload.backends.native import NativeBackend
from fastload.backends.options import Options
from fastload.backends.tail import Tail
from fastload.dataset.mixture import Packed
from fastload.prefetch.feeder import BatchKey
from fastload.sampler import Sampler


@dataclass(frozen=True)
class TailParts:
    """What all stages that run a tail need; ``source`` decodes."""

    dataset: Packed
    sampler: Sampler
    options: Options
    tail: Tail
    source: NativeBackend

    def following(self, key: BatchKey) -> BatchKey | None:
        """Return the key of the batch after ``key`` in its epoch, or None."""
        after = key._replace(step=key.step + 1)
        return after if self.sampler.has_batch(*after) else None
