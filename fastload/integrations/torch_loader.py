"""The engine in place of a torch DataLoader that somebody else's code has made."""

from __future__ import annotations

from typing import Any

from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler, default_collate
from torch.utils.data.dataloader import DataLoader as TorchDataLoader
from torch.utils.data.distributed import DistributedSampler

from fastload.dataset.views import SourceKind, kind_of
from fastload.loader.data_loader import DataLoader


def from_torch(loader: Any, **options: Any) -> DataLoader[Any]:
    """A loader of ours with the samples that ``loader`` would give on this rank.

    For factories of frameworks that make torch's DataLoader inside (``timm.data.create_loader`` does): give
    them a :class:`fastload.PackedDataset`, and what they return to this. Batches then come from the engine.

    Args:
        loader: a ``torch.utils.data.DataLoader`` that has not been iterated. Its dataset's ``transform`` is
            used. Without a sampler it is not divided among ranks, because torch's is not, either.
        options: of :class:`fastload.DataLoader`; they win over what is read from ``loader``.

    Returns:
        The loader; ``loader`` itself if it is one of ours. A shuffled order is one of ours, so another one
        than torch's; samplers of other kinds are asked for their ids.

    Raises:
        TypeError: not a torch DataLoader.
        ValueError: it gives single samples (``batch_size=None``), or options that exclude each other.
    """
    if isinstance(loader, DataLoader):
        return loader
    if not isinstance(loader, TorchDataLoader):
        raise TypeError(f"from_torch takes a torch.utils.data.DataLoader. Found: {type(loader).__name__}.")
    found: dict[str, Any] = {
        "num_workers": loader.num_workers,
        "collate_fn": None if loader.collate_fn is default_collate else loader.collate_fn,
        "pin_memory": loader.pin_memory,
        "timeout": loader.timeout,
        "persistent_workers": loader.persistent_workers,
        "generator": loader.generator,
        **_order(loader),
    }
    if kind_of(loader.dataset) is not SourceKind.PACKED:  # of worker processes, which packed sets do not have
        found |= {
            "worker_init_fn": loader.worker_init_fn,
            "multiprocessing_context": loader.multiprocessing_context,
            "prefetch_factor": loader.prefetch_factor if loader.num_workers else None,
        }
    return DataLoader(loader.dataset, **{**found, **options})


def _order(loader: TorchDataLoader[Any]) -> dict[str, Any]:
    """The arguments that say which samples come, and in which batches."""
    if loader.batch_sampler is None:
        raise ValueError("from_torch needs a loader of batches. Found: batch_size=None.")
    batch_sampler: Any = loader.batch_sampler
    if type(batch_sampler).__name__ == "_RepeatSampler":
        batch_sampler = batch_sampler.sampler  # MultiEpochsDataLoader's, which would never end
    if type(batch_sampler) is not BatchSampler:
        return {"batch_sampler": batch_sampler}
    batches = {"batch_size": batch_sampler.batch_size, "drop_last": batch_sampler.drop_last}
    sampler: Any = batch_sampler.sampler
    alone = {"rank": 0, "world_size": 1}
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
        place = {"rank": sampler.rank, "world_size": sampler.num_replicas}
        return {**batches, **place, "shuffle": sampler.shuffle, "padding": "repeat"}
    if hasattr(sampler, "num_replicas"):
        return {**batches, "sampler": sampler}  # a rank's share
    return {**batches, **alone, "sampler": sampler}
