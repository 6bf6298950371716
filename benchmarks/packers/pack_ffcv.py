"""FFCV's DatasetWriter with its JPEG mode: it decodes and re-encodes every image at quality 90."""

from __future__ import annotations

from pathlib import Path

from ffcv.fields import IntField, RGBImageField
from ffcv.writer import DatasetWriter
from PIL import Image


class Folder:
    """An indexed dataset, as its writer wants it."""

    def __init__(self, source: Path) -> None:
        classes = sorted(entry.name for entry in source.iterdir() if entry.is_dir())
        self.items = [
            (p, label) for label, name in enumerate(classes) for p in sorted((source / name).iterdir())
        ]

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> tuple[Image.Image, int]:
        path, label = self.items[index]
        return Image.open(path).convert("RGB"), label


def pack(source: Path, target: Path, processes: int) -> None:
    """As many workers as asked."""
    target.mkdir(parents=True)
    fields = {"image": RGBImageField(write_mode="jpg"), "label": IntField()}
    writer = DatasetWriter(str(target / "set.beton"), fields, num_workers=processes)
    writer.from_indexed_dataset(Folder(source))
