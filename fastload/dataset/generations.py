"""The order of a set that grows: without its dropped samples, in one generation or in several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastload.sampler import BlockOrder, ChangingOrder, LeftOutOrder, default_blocks
from fastload.sampler.sampler import SequentialOrder, ShuffledOrder
from fastload.shard.dataset import PackedFiles

#: The first epoch of each generation, ascending from 0, and the set in that generation.
Generations = Sequence[tuple[int, PackedFiles]]


def order_of(
    files: PackedFiles, seed: int, shuffle: bool, blocks: tuple[int | None, int | None] | None = None
) -> Any:
    """Return a set's order, an :class:`~fastload.sampler.sampler.Order`: each sample once that was not
    dropped.

    Args:
        files: the set, in one generation.
        seed: of the shuffle.
        shuffle: whether it is shuffled, if ``blocks`` is None.
        blocks: records per block and per window of a block shuffle, see :func:`default_blocks`; None: there
            are no blocks.

    Raises:
        ValueError: the blocks are out of range.
    """
    n = files.num_ids
    inner: Any = ShuffledOrder(n, seed) if shuffle else SequentialOrder(n)
    if blocks is not None:
        inner = BlockOrder(n, seed, *default_blocks(n, files.manifest.read_bytes, *blocks))
    return LeftOutOrder(inner, files.dropped) if len(files.dropped) else inner


def order_by_epoch(
    generations: Generations, seed: int, shuffle: bool, blocks: tuple[int | None, int | None] | None = None
) -> Any:
    """Return the order of a job whose epochs have these generations; arguments as :func:`order_of`."""
    orders = [(first, order_of(files, seed, shuffle, blocks)) for first, files in generations]
    return ChangingOrder(tuple(orders)) if len(orders) > 1 else orders[0][1]


def refuse_sampler(files: PackedFiles, sampler: Any) -> None:
    """Refuse fastload's samplers over a set with dropped samples: they number all samples.

    Raises:
        ValueError: there are dropped samples.
    """
    if len(files.dropped):
        raise ValueError(
            f"{files.where} has {len(files.dropped)} dropped samples, which {type(sampler).__name__} would "
            "draw, too. Give the loader torch.utils.data.Subset(dataset, dataset.sample_ids) and a sampler "
            f"over its {len(files)} places, or pack the set anew, which leaves them out."
        )


def refuse_nodes(generations: Sequence[PackedFiles]) -> None:
    """Refuse blocks that are dealt to nodes over sets that change, in these generations: the blocks would be.

    Raises:
        ValueError: there are several generations, or dropped samples.
    """
    files = generations[-1]
    if len(generations) > 1 or len(files.dropped):
        raise ValueError(
            f"Block(nodes=) deals the blocks of one set that stays as it is. Found: {files.where} with "
            f"{len(generations)} generations in this run and {len(files.dropped)} dropped samples. Pack the "
            "set anew, or begin a run with the latest generation, or leave nodes out."
        )
