"""OpenCLIP's training loop (open_clip_train): pictures of a packed set with the tokens of their captions."""

from __future__ import annotations

from typing import Any

import torch

from fastload.extras import need
from fastload.loader.view import viewed


class CaptionTokens:
    """A ``batch_transform`` that puts each picture's caption in place of its label.

    For a set that was packed from a CSV whose label is the number of the caption: pictures stay on the
    native path, and captions are tokenised once.

    Args:
        tokens: (captions, ...) of any dtype, in memory or mapped; row ``i`` belongs to label ``i``.
    """

    def __init__(self, tokens: torch.Tensor) -> None:
        self._tokens = tokens

    def __call__(self, images: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the batch as (images, tokens).

        Args:
            images: (batch, 3, height, width).
            labels: (batch,) int64. Samples with negative ones (padding, bad samples, no label) are left out,
                because they have no caption.

        Raises:
            IndexError: a label without a caption.
        """
        count = len(self._tokens)
        if len(labels) and int(labels.max()) >= count:
            raise IndexError(
                f"A picture has the label {int(labels.max())}; there are {count} captions. Pack the set with "
                f"the number of each picture's caption as its label."
            )
        rows = labels.to(self._tokens.device)
        if not len(labels) or int(labels.min()) >= 0:
            return images, self._tokens[rows].to(images.device)
        known = labels >= 0
        return images[known], self._tokens[rows[known.to(rows.device)]].to(images.device)


def data_info(loader: Any) -> Any:
    """Return the ``open_clip_train.data.DataInfo`` of a loader, for ``data["train"]`` or ``data["val"]``.

    The training loop reads the loader's ``num_batches`` (of this rank) and ``num_samples`` (over all ranks)
    per epoch, and sets each epoch's order. Make the loader of ``data["val"]`` with
    ``ranks=fastload.Ranks(0, 1, handshake="off")``: the loop evaluates on one rank only.

    Raises:
        TypeError: ``loader`` is not a fastload.DataLoader.
        LibraryMissing: open_clip_train is not installed (open_clip_torch 2.30 and newer have it).
    """
    need("open_clip_train.data", "fastload.integrations.open_clip")
    from open_clip_train.data import DataInfo

    core = viewed(loader, "data_info").core
    loader.num_batches = len(loader)
    loader.num_samples = len(core) * core.partition.world_size
    return DataInfo(loader, sampler=loader.sampler)
