"""A packed set as one of torchtitan's data loaders: the class of docs/guide/elastic.md."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torchtitan.components.dataloader import BaseDataLoader

from fastload import DataLoader, Ranks
from fastload import transforms as T


class PackedPictures(DataLoader[Any], BaseDataLoader):  # type: ignore[misc]
    """Pictures and labels, for ever."""

    @dataclass(kw_only=True, slots=True)
    class Config(BaseDataLoader.Config):  # type: ignore[misc]
        dataset_path: str = "packed/train"

    def __init__(
        self, config: Config, *, dp_rank: int, dp_world_size: int, local_batch_size: int, **given: Any
    ) -> None:
        ranks, transform = Ranks(dp_rank, dp_world_size), T.RandomResizedCrop(16)
        options: dict[str, Any] = {"batch_size": local_batch_size, "shuffle": True, "seed": 0}
        super().__init__(config.dataset_path, transform=transform, ranks=ranks, num_workers=1, **options)

    def __iter__(self) -> Any:
        while True:
            for images, labels in super().__iter__():
                yield {"input": images}, labels
