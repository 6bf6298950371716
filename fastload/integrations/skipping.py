"""``accelerate.skip_first_batches`` of our loader: the rest of an epoch, from the same engine.

Accelerate builds a torch ``DataLoader(dataset, batch_sampler=SkipBatchSampler(loader.batch_sampler))``, which
would reach the engine, too, one batch at a time and unknown to the GradientState. From here on what it builds
of one of our batch samplers is a :class:`SkippingLoader`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from torch.utils.data.dataloader import DataLoader as TorchDataLoader

from fastload.loader.rank_sampler import RankBatches
from fastload.loader.torch_compat import owner_of

if TYPE_CHECKING:
    from fastload.loader.data_loader import DataLoader

__all__ = ["SkippingLoader", "let_skip"]


class SkippingLoader:
    """A loader whose passes begin at batch ``skip`` of the epoch; in all else the loader that it leads to.

    Args:
        loader: ours.
        skip: batches.
        batch_sampler: Accelerate's, of what is left.
    """

    def __init__(self, loader: DataLoader[Any], skip: int, batch_sampler: Any) -> None:
        self._loader = loader
        self._skip = skip
        self.batch_sampler = batch_sampler

    def __iter__(self) -> Iterator[Any]:
        return self._loader._iterate(skip=self._skip)

    def __len__(self) -> int:
        return max(0, len(self._loader) - self._skip)

    def __getattr__(self, name: str) -> Any:
        if name == "_loader":
            raise AttributeError(name)
        return getattr(self._loader, name)

    @property
    def __class__(self) -> Any:
        """To isinstance it is the loader, as Accelerate's own wrappers are."""
        return type(self._loader)

    @__class__.setter
    def __class__(self, value: Any) -> None:
        raise TypeError("The class of a SkippingLoader is its loader's.")


def let_skip() -> None:
    """Let Accelerate's skip_first_batches, if that is imported, make a SkippingLoader of our loaders."""
    module: Any = sys.modules.get("accelerate.data_loader")
    known: Any = getattr(module, "DataLoader", None)  # torch's, or what a program has put in its place
    if isinstance(known, type) and issubclass(known, TorchDataLoader) and known is not _Built:
        _Built.of = known
        module.DataLoader = _Built


class _Building(type):
    """Makes torch's loaders, but for the rest of one of ours."""

    def __call__(cls, dataset: Any = None, *args: Any, **kwargs: Any) -> Any:
        found = _rest_of_ours(kwargs.get("batch_sampler"), kwargs.get("collate_fn"))
        return _Built.of(dataset, *args, **kwargs) if found is None else found

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, TorchDataLoader)


class _Built(TorchDataLoader[Any], metaclass=_Building):
    """What Accelerate knows as DataLoader.

    Attributes:
        of: what it knew before.
    """

    of: ClassVar[Any] = TorchDataLoader


def _rest_of_ours(batches: Any, collate_fn: Any) -> SkippingLoader | None:
    """Of one of our loaders, known by its batches or, where those are the user's, by its collate function."""
    inner, skip = batches, 0
    skipping = sys.modules["accelerate.data_loader"].SkipBatchSampler
    while type(inner) is skipping:
        skip += inner.skip_batches
        inner = inner.batch_sampler
    owner = inner.owner if type(inner) is RankBatches else owner_of(collate_fn)
    return None if inner is batches or owner is None else SkippingLoader(owner, skip, batches)
