"""What a DataLoader with a picture rule delivers: the image processor's part of a batch, by its names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from fastload.collate.planned import Collated
from fastload.sample.layout import sizes_name
from fastload.vlm.layouts import batch_of
from fastload.vlm.rules import Idefics3, Rule


class PictureBatch(dict[str, Any]):
    """A batch of which some values are of its pictures, however many a sample has: what has no sample has
    none. :func:`fastload.valid` keeps these values whole, also where there are as many as samples."""

    of_pictures: ClassVar[frozenset[str]] = frozenset((
        "pixel_values", "pixel_attention_mask", "image_grid_thw", "spatial_shapes", "image_sizes",
        "batch_num_images", "num_patches", "num_crops",
    ))  # fmt: skip


@dataclass(frozen=True)
class VisionBatch:
    """A collate of batches whose pictures are rows of patches or tiles.

    Args:
        rule: that made the rows.
        field: the field of pictures.
    """

    rule: Rule
    field: str

    def __call__(self, delivered: Collated) -> dict[str, Any]:
        rows, facts = delivered.batch[self.field], delivered.host[sizes_name(self.field)]
        counts, numbers = facts.offsets.diff(), facts.values
        grids, sizes = numbers[:, 1:3].contiguous(), numbers[:, 4:6].contiguous()
        made = delivered.device.run(lambda: batch_of(self.rule, rows.values, grids, counts, sizes))
        own = (self.field, sizes_name(self.field))
        rest = {
            name: value
            for name, value in delivered.batch.items()
            if name not in own and not name.startswith(".")
        }
        # Idefics3's have the tiles of a sample's pictures side by side.
        return {**made, **rest} if isinstance(self.rule, Idefics3) else PictureBatch(**made, **rest)
