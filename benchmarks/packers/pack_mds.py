"""mosaicml-streaming's MDSWriter: bytes and label, no compression, no hashes (its defaults)."""

from __future__ import annotations

from pathlib import Path

import torch

# streaming imports torchvision, whose CUDA build dies beside a CPU build of torch unless these exist.
_LIBRARY = torch.library.Library("torchvision", "DEF")
_LIBRARY.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
_LIBRARY.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

from streaming import MDSWriter  # noqa: E402


def pack(source: Path, target: Path, processes: int, shard_bytes: int = 256_000_000) -> None:
    """One process; several need a merge of their own."""
    classes = sorted(entry.name for entry in source.iterdir() if entry.is_dir())
    columns = {"image": "bytes", "label": "int"}
    with MDSWriter(out=str(target), columns=columns, size_limit=shard_bytes) as writer:
        for label, name in enumerate(classes):
            for path in sorted((source / name).iterdir()):
                writer.write({"image": path.read_bytes(), "label": label})
