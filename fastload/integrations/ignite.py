"""PyTorch-Ignite: ``auto_dataloader`` with fastload's engine."""

from __future__ import annotations

from typing import Any

import fastload
from fastload.extras import need


def auto_dataloader(dataset: Any, **arguments: Any) -> fastload.DataLoader[Any]:
    """Return a loader set up as ``ignite.distributed.auto_dataloader`` does.

    Call it where ignite's is called: inside the function that ``idist.Parallel`` or ``idist.spawn`` runs.

    Args:
        dataset: a folder made by ``fastload pack``, an open ``PackedDataset``, or any torch Dataset.
        arguments: those of :class:`fastload.DataLoader`. By ignite's rules ``batch_size`` is divided by the
            number of ranks, if it is not less, and ``num_workers`` by those of the node. The defaults are
            ``shuffle=True`` with several ranks, and ``pin_memory=True`` if ignite's device is CUDA.

    Raises:
        LibraryMissing: ignite is not installed.
        ValueError, TypeError: as :class:`fastload.DataLoader`.
    """
    need("ignite.distributed", "fastload.integrations.ignite")
    import ignite.distributed as idist

    world_size = idist.get_world_size()
    if world_size > 1:
        if arguments.get("batch_size", 0) >= world_size:
            arguments["batch_size"] //= world_size
        ranks_here = idist.get_nproc_per_node()
        if (arguments.get("num_workers") or 0) >= ranks_here:
            arguments["num_workers"] = -(-arguments["num_workers"] // ranks_here)
        if "sampler" not in arguments and "batch_sampler" not in arguments:
            arguments.setdefault("shuffle", True)
        arguments.setdefault("ranks", fastload.Ranks(idist.get_rank(), world_size))
    arguments.setdefault("pin_memory", idist.device().type == "cuda")
    return fastload.DataLoader(dataset, **arguments)
