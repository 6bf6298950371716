"""What a DataLoader with a picture rule delivers: the image processor's part of a batch, by its names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from fastload.collate.planned import Collated
from fastload.sample.layout import sizes_name
from fastload.vlm.layouts import batch_of, values_of
from fastload.vlm.rules import Rule


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
        table = None
        if rows.values.dtype == torch.uint8 and self.rule.dtype != "uint8":
            # Bytes have crossed the bus, a quarter or an eighth of what the values are.
            kept = torch.from_numpy(self.rule.table).to(getattr(torch, self.rule.dtype))
            table = delivered.device.move(kept)

        def made_of() -> dict[str, Any]:
            values = rows.values if table is None else values_of(self.rule, rows.values, table)
            return batch_of(self.rule, values, grids, counts, sizes)

        made = delivered.device.run(made_of)
        own = (self.field, sizes_name(self.field))
        rest = {
            name: value
            for name, value in delivered.batch.items()
            if name not in own and not name.startswith(".")
        }
        return {**made, **rest}
