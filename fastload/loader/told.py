"""What a loader says of itself: bad samples, clocks, steps, charts, memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastload.backends.faults import SampleReport
from fastload.backends.stats import stage_stats

if TYPE_CHECKING:
    from fastload.loader.arrangement import Arrangement
    from fastload.loader.epochs import Epochs
    from fastload.loader.explain import Explanation
    from fastload.loader.rank_sampler import RankSampler
    from fastload.loader.reported import Shown

__all__ = ["Told"]


class Told:
    """The part of a DataLoader that only looks."""

    _arranged: Arrangement
    _epochs: Epochs
    _sampler: RankSampler

    @property
    def errors(self) -> list[SampleReport]:
        """The bad samples met so far (the first 10,000)."""
        return [report for backend in self._epochs.lanes.backends for report in backend.errors]

    def stats(self) -> dict[str, Any]:
        """Clocks and counts since the loader was made; see :func:`fastload.backends.stats.stage_stats`."""
        parts = self._arranged.dataset.parts if self._arranged.packed else ()
        damaged = sum(part.entries.damaged for part in parts if part.entries is not None)
        return stage_stats(self._epochs.clock, self._epochs.lanes.counts(), damaged)

    def explain(self) -> Explanation:
        """Each step: where it runs, and why. To be printed."""
        return self._arranged.explain(self._sampler.core)

    def report(self, verdict: Any = None, **more: Any) -> Shown:
        """Where the time goes, as charts, for a notebook or ``.save("report.html")``; takes some ten seconds.

        Args:
            verdict: of the doctor, to be on top; None: what the clocks say.
            more: see :class:`fastload.diagnose.report.Report`, which needs ``fastload[report]``.
        """
        from fastload.loader.reported import reported

        return reported(self, verdict, more)

    def memory_plan(self) -> dict[str, int]:
        """Bytes that iterating allocates: ``slot_bytes`` each for at most ``slots`` batches,
        ``read_ahead_bytes`` at most for records that are not in memory, ``source_bytes`` at most for whole
        pictures that operations before the crop work on, in all threads, ``mosaic_bytes`` at most for what
        mosaics keep and are made in, where there are any, ``waiting_bytes`` at most for records that wait to
        become coefficients, where the cache keeps those, and ``total``.

        Where batches differ in size, ``slot_bytes`` is a bound, of the set's longest values and largest
        pictures, whose sizes are all looked at. Batches take what they need; smaller ones may be more, but
        not in bytes.
        ``pinned_bytes`` of these are page-locked. On a device, for the loader's whole life: ``device_slots``
        and ``device_bytes``; ``batch_bytes`` is what each batch takes besides, of torch's allocator.
        ``cache_bytes``: of the node cache, once for all processes of the node, and not in ``total``.

        Raises:
            ValueError: for a torch Dataset, whose workers allocate as they like; a bound is not known.
            CacheError: an explicit ``cache`` that cannot be had.
        """
        return self._arranged.plan_memory(self._sampler.core)
