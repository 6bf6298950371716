"""What a DataLoader with a picture rule delivers: the image processor's part of a batch, by its names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from fastload.collate.planned import Collated
from fastload.sample.layout import PICTURE_OFFSETS, sizes_name
from fastload.vlm.layouts import batch_of, values_on
from fastload.vlm.rules import Rule, SigLIP2


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
        # By NumPy: an operation of torch lets go of the GIL, for which threads that make texts wait.
        offsets, numbers = facts.offsets.numpy().copy(), facts.values.numpy()
        counts, grids, sizes = (
            torch.from_numpy(np.ascontiguousarray(part))
            for part in (np.diff(offsets), numbers[:, 1:3], numbers[:, 4:6])
        )
        # Where pixels have crossed the bus, they are a quarter or an eighth of the values' bytes.
        crossed = rows.values.dtype == torch.uint8 and self.rule.dtype != "uint8"
        values_of = values_on(self.rule, delivered.device) if crossed else None

        def made_of() -> dict[str, Any]:
            values = rows.values if values_of is None else values_of(rows.values)
            # The core lays SigLIP 2's values out with their padding; see VisionPlan::rows_each.
            placed = isinstance(self.rule, SigLIP2) and rows.values.dtype != torch.uint8
            return batch_of(self.rule, values, grids, counts, sizes, placed)

        made = delivered.device.run(made_of)
        if not len(numbers):  # models of transformers take None for no picture, and fail on empty tensors
            made = dict.fromkeys(made)
        own = (self.field, sizes_name(self.field))
        rest = {
            name: value
            for name, value in delivered.batch.items()
            if name not in own and not name.startswith(".")
        }
        return {**made, PICTURE_OFFSETS: torch.from_numpy(offsets), **rest}
