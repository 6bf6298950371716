"""Batches on the host: DALI's own memory where all samples are its, else rows of one slot."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import torch

from fastload.backends.dali.queue import Work

__all__ = ["HostAssembly", "runs"]


def runs(positions: npt.NDArray[np.int64]) -> Iterator[tuple[int, int, int]]:
    """Ascending positions as (first position, where it stands in the list, count) of consecutive ones."""
    if not len(positions):
        return
    begins = np.concatenate([[0], np.flatnonzero(np.diff(positions) != 1) + 1, [len(positions)]])
    for begin, end in zip(begins[:-1].tolist(), begins[1:].tolist(), strict=True):
        yield int(positions[begin]), begin, end - begin


class HostAssembly:
    """Puts a batch together on the host.

    Args:
        dtype: of the images.
        labels: of every sample.
        pin: into pinned memory, which DALI's is not.
    """

    def __init__(self, dtype: torch.dtype, labels: npt.NDArray[np.int64], pin: bool = False) -> None:
        self._dtype = dtype
        self._pin = pin
        self._labels = labels

    def finish(self, work: Work, pixels: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        """Images (n, 3, h, w) with channels_last strides and labels (n,).

        Args:
            work: its native parts are complete.
            pixels: DALI's part, (k, h, w, 3); None if it has none.
        """
        slot = work.slot
        if slot is None:
            assert pixels is not None
            images = pixels.permute(0, 3, 1, 2).to(self._dtype)  # a view, unless DALI lacks the dtype
            labels = torch.from_numpy(self._labels[work.batch.ids])
            return images.pin_memory() if self._pin else images, labels
        if pixels is not None:
            for position, first, count in runs(work.records.positions):
                rows = slot.images[position : position + count]
                rows.copy_(pixels[first : first + count].permute(0, 3, 1, 2))
            slot.labels.numpy()[work.records.positions] = self._labels[work.dali_ids()]
        return slot.images, slot.labels

    def close(self) -> None:
        """Nothing to do."""
