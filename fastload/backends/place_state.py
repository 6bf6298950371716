"""What a torch Dataset knows of its own place, as torchdata's do, and whether anybody can ask for it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from torch.utils.data.dataset import IterableDataset

from fastload.errors import StateError
from fastload.extras import words

__all__ = ["check_kept", "has_state", "keeps_state", "stateful_loader"]


def keeps_state(dataset: Any) -> bool:
    """Whether a torch Dataset, or an iterator of it, may know its own place, and be asked for it."""
    if isinstance(dataset, IterableDataset):
        return stateful_loader() is not None
    return has_state(dataset)


def check_kept(dataset: Any, kept: Mapping[str, Any]) -> None:
    """Raise if the state has torchdata parts that nothing here can restore.

    Raises:
        StateError: torchdata is needed for it.
    """
    if kept and not (keeps_state(dataset) and stateful_loader() is not None):
        raise StateError(
            f"The state has that of a dataset and its workers ({', '.join(sorted(kept))}), saved with "
            f"torchdata's loader inside. {words('torchdata', 'Going on with it')}."
        )


@lru_cache(maxsize=1)
def stateful_loader() -> Any:
    """torchdata's StatefulDataLoader; None where torchdata is not installed."""
    try:
        # By its module: a program may put our DataLoader into its package.
        from torchdata.stateful_dataloader.stateful_dataloader import StatefulDataLoader
    except ImportError:
        return None
    return StatefulDataLoader


def has_state(value: Any) -> bool:
    """Whether ``value`` knows its own place, as torchdata's ``Stateful``."""
    return hasattr(value, "state_dict") and hasattr(value, "load_state_dict")
