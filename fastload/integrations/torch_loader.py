"""A fastload loader in place of a torch DataLoader that other code has made."""

from __future__ import annotations

from typing import Any

from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler, default_collate
from torch.utils.data.distributed import DistributedSampler

import fastload
from fastload.dataset.views import SourceKind, TorchDataLoader, kind_of
from fastload.loader.view import view_of


def from_torch(loader: Any, **options: Any) -> fastload.DataLoader[Any]:
    """Return a fastload loader with the samples that ``loader`` would give on this rank.

    For framework functions that make torch's DataLoader (such as ``timm.data.create_loader``): pass them a
    :class:`fastload.PackedDataset`, and pass what they return to this function.

    Args:
        loader: a ``torch.utils.data.DataLoader`` that was not iterated over. Its dataset's ``transform`` is
            used. Without a sampler it is not divided among ranks, because torch's is not divided either.
        options: those of :class:`fastload.DataLoader`; they override what is read from ``loader``.

    Returns:
        The new loader, or ``loader`` itself if it is fastload's. A shuffled order is fastload's and differs
        from torch's; samplers of other kinds are asked for their ids.

    Raises:
        TypeError: ``loader`` is not a torch DataLoader.
        ValueError: it gives single samples (``batch_size=None``), or options exclude each other.
    """
    if view_of(loader) is not None:
        ours: fastload.DataLoader[Any] = loader
        return ours
    if not isinstance(loader, TorchDataLoader):
        raise TypeError(f"from_torch takes a torch.utils.data.DataLoader. Found: {type(loader).__name__}.")
    arguments: dict[str, Any] = {
        "num_workers": loader.num_workers,
        "collate_fn": None if loader.collate_fn is default_collate else loader.collate_fn,
        "pin_memory": loader.pin_memory,
        "timeout": loader.timeout,
        "persistent_workers": loader.persistent_workers,
        "generator": loader.generator,
        **_order(loader),
    }
    if kind_of(loader.dataset) is not SourceKind.PACKED:  # of worker processes, which packed sets do not have
        arguments |= {
            "worker_init_fn": loader.worker_init_fn,
            "multiprocessing_context": loader.multiprocessing_context,
            "prefetch_factor": loader.prefetch_factor if loader.num_workers else None,
        }
    return fastload.DataLoader(loader.dataset, **{**arguments, **options})


def _order(loader: TorchDataLoader[Any]) -> dict[str, Any]:
    """Return the arguments for which samples come, and in which batches."""
    if loader.batch_sampler is None:
        raise ValueError("from_torch needs a loader of batches. Found: batch_size=None.")
    batch_sampler: Any = loader.batch_sampler
    if type(batch_sampler).__name__ == "_RepeatSampler":
        batch_sampler = batch_sampler.sampler  # MultiEpochsDataLoader's, which would never end
    if type(batch_sampler) is not BatchSampler:
        return {"batch_sampler": batch_sampler}
    batches = {"batch_size": batch_sampler.batch_size, "drop_last": batch_sampler.drop_last}
    sampler: Any = batch_sampler.sampler
    alone = {"ranks": fastload.Ranks(0, 1)}
    if type(sampler) is SequentialSampler:
        return {**batches, **alone, "shuffle": False}
    if (
        type(sampler) is RandomSampler
        and not sampler.replacement
        and sampler.num_samples == len(sampler.data_source)
    ):
        return {**batches, **alone, "shuffle": True}
    if type(sampler) is DistributedSampler and not sampler.drop_last:
        # torch fills the last round with samples from the beginning, shuffled or not.
        ranks = fastload.Ranks(sampler.rank, sampler.num_replicas)
        return {**batches, "ranks": ranks, "shuffle": sampler.shuffle, "padding": "repeat"}
    if hasattr(sampler, "num_replicas"):
        return {**batches, "sampler": sampler}  # a rank's share
    return {**batches, **alone, "sampler": sampler}
