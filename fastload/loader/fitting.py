"""What of the DataLoader's arguments fits its dataset."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch.utils.data import IterDataPipe

__all__ = ["check_stream"]


def check_stream(given: Mapping[str, Any], dataset: Any) -> None:
    """Refuse an order for a dataset that decides its own.

    Raises:
        ValueError: shuffle, sampler or batch_sampler for an IterableDataset.
    """
    names = ("sampler", "batch_sampler")  # of a DataPipe, torch sets the shuffling
    for name in names if isinstance(dataset, IterDataPipe) else ("shuffle", *names):
        if given[name] is not None and given[name] is not False:
            raise ValueError(
                f"An IterableDataset decides its own order: {name} is for map-style datasets. "
                f"Found: {name}={given[name]!r}."
            )
