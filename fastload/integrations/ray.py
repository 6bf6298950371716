"""Ray Train: preparing a loader without wrapping it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from fastload.extras import need
from fastload.loader.view import view_of


def prepare_data_loader(loader: Any) -> Any:
    """Return the loader with Ray's device, in place of ``ray.train.torch.prepare_data_loader``.

    Ranks need no preparing: they are those of the process group that Ray made. Ray's own function also works,
    but its wrapper fetches each batch early, so that the loader's state is one batch ahead of the training.
    Call this in the training function, before the first batch.

    Returns:
        ``loader`` itself on the CPU, or if it has a ``device``; else one with the same arguments and state
        and with Ray's device.

    Raises:
        TypeError: ``loader`` is not a :class:`fastload.DataLoader`.
        LibraryMissing: Ray Train is not installed.
    """
    need("ray.train.torch", "fastload.integrations.ray")
    import ray.train.torch

    given = view_of(loader)
    if given is None:
        raise TypeError(
            f"prepare_data_loader takes a fastload.DataLoader. Found: {type(loader).__name__}. Use Ray's own "
            f"function for it."
        )
    device: torch.device = ray.train.torch.get_device()
    if device.type == "cpu" or given.options.device.name is not None:
        return loader
    own = device if given.arguments.device is None else replace(given.options.device, name=device)
    prepared = given.again(device=own)
    prepared.load_state_dict(given.state_dict())
    return prepared.loader
