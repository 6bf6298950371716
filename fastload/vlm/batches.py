"""What a DataLoader with a picture rule delivers: the image processor's part of a batch, by its names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fastload.collate.planned import Collated
from fastload.sample.layout import PICTURE_OFFSETS, sizes_name
from fastload.vlm.layouts import batch_of
from fastload.vlm.rules import Rule


@dataclass(frozen=True)
class VisionBatch:
    """A collate of batches whose pictures are rows of patches or tiles.

    Where a batch has no picture, None stands under the processor's names.

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
        made: dict[str, Any]
        made = delivered.device.run(lambda: batch_of(self.rule, rows.values, grids, counts, sizes))
        if not len(numbers):  # models of transformers take None for no picture, and fail on empty tensors
            made = dict.fromkeys(made)
        own = (self.field, sizes_name(self.field))
        rest = {
            name: value
            for name, value in delivered.batch.items()
            if name not in own and not name.startswith(".")
        }
        return {**made, PICTURE_OFFSETS: facts.offsets.clone(), **rest}
