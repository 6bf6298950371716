"""Some of a loader's samples, packed anew into a temporary folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fastload.packing.samples.pack import pack

if TYPE_CHECKING:
    from fastload.dataset.pictures import PackedDataset

__all__ = ["pack_sample"]


def pack_sample(folder: Path, subject: Any, ids: npt.NDArray[np.int64], **options: Any) -> PackedDataset[Any]:
    """A packed dataset of these samples, with the options of :func:`fastload.pack`."""
    from fastload.dataset.pictures import PackedDataset

    schema, form = subject.parts[0].schema, subject.parts[0].manifest.options.get("coefficients")
    if form is not None and not options.get("raw") and not options.get("baseline"):
        options = {"coefficients": form, **options}  # as they are, but for what is tried
    pack(_samples(subject, ids, schema.names), folder, schema, on_error="skip", **options)
    return PackedDataset(folder)


def _samples(subject: Any, ids: npt.NDArray[np.int64], names: Any) -> Iterator[dict[str, Any]]:
    for sample in ids.tolist():
        part, number = subject.dataset.locate(sample)
        yield {name: part.value(name, number) for name in names}
