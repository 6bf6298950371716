"""How well a loader's order mixes its set, beside a uniform shuffle and none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastload.diagnose.report.page import Part, share, table
from fastload.ranks.world import World
from fastload.sampler import Partition, make_sampler
from fastload.sampler.quality import Quality, measure
from fastload.shard.dataset import PackedFiles

if TYPE_CHECKING:
    from fastload.loader.data_loader import DataLoader

__all__ = ["measure_mixing", "mixing_part"]


def measure_mixing(loader: DataLoader[Any], epoch: int = 0) -> dict[str, Quality] | None:
    """The quality of the loader's order, of a uniform shuffle and of none, at its batch size of one process.

    Returns:
        None where it cannot be looked at without asking a user's sampler, which may be asked once only; or
        for several sets, whose places on disk are not one line.
    """
    arranged, dataset = loader._arranged, loader.dataset
    given = loader._arguments
    own = given["sampler"] is None and given["batch_sampler"] is None
    if not own or not isinstance(dataset, PackedFiles) or not len(dataset):
        return None
    _, seed = arranged.known()
    n, partition = len(dataset), Partition(min(arranged.batch_size, len(dataset)))
    return {
        "this loader": measure(arranged.make_sampler(World(), seed), dataset.labels, epoch),
        "a uniform shuffle": measure(make_sampler(n, partition, shuffle=True, seed=0), dataset.labels),
        "no shuffle": measure(make_sampler(n, partition, shuffle=False, seed=0), dataset.labels),
    }


def mixing_part(found: dict[str, Quality], has_classes: bool) -> Part:
    """A row for each order."""
    heads = ("Order", "Classes a batch", "Chi-square", "With its neighbour", "Distance")
    rows = [
        (
            name,
            f"{quality.classes:.1f}" if has_classes else "-",
            f"{quality.class_chi2:.2f}" if has_classes else "-",
            share(quality.together),
            f"{quality.distance:.3f}",
        )
        for name, quality in found.items()
    ]
    words = (
        "<p><small>Chi-square: of a batch's classes, 1 for independent draws. With its neighbour: samples "
        "whose successor on disk is in the same batch. Distance: between place on disk and in the epoch, "
        "mean, as a share of the set; 1/3 is independent.</small></p>"
    )
    return Part("How well the order mixes", table(heads, rows, numbers=(1, 2, 3, 4)) + words)
