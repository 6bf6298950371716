"""FFCV. Variants, by what its file holds: the same JPEG bytes, its own re-encoding, or raw pixels.

orig     the JPEG files' own bytes. Not a feature of FFCV: its writer always encodes anew, so
         RGBImageField.encode is replaced while writing; reading is stock FFCV. The equal-bytes figure.
jpgfull  its writer's JPEGs, quality 90, 4:2:0, full resolution: about 0.6 of the bytes.
jpg500   the same, longer side at most 500.
raw256   raw pixels, longer side at most 256: nothing is decoded, small crops are scaled up.

It decodes whole images (fast, inexact inverse transform) and resizes with OpenCV's INTER_AREA.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from loaders.jobs import MEAN, STD, Job, listing

VARIANTS = ("orig", "jpgfull", "jpg500", "raw256")


def versions() -> dict[str, str]:
    from importlib.metadata import version

    import ffcv.loader  # noqa: F401

    # ffcv.__version__ says something else than the installed distribution.
    return {name: version(name) for name in ("ffcv", "numba", "opencv-python", "torch")}


class Images:
    """What FFCV's writer indexes: decoded images and labels, or the files' bytes."""

    def __init__(self, folder: Path, decoded: bool) -> None:
        self.items, self.decoded = listing(folder), decoded

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        from PIL import Image

        path, label = self.items[index]
        return (Image.open(path).convert("RGB") if self.decoded else Path(path).read_bytes()), label


def encode_unchanged(field: Any, destination: Any, image: bytes, malloc: Any) -> None:
    """Stands in for RGBImageField.encode: stores the JPEG file's bytes as they are."""
    import io

    import numpy as np
    from ffcv.fields.rgb_image import IMAGE_MODES
    from PIL import Image

    destination["mode"] = IMAGE_MODES["jpg"]
    destination["width"], destination["height"] = Image.open(io.BytesIO(image)).size
    destination["data_ptr"], storage = malloc(len(image))
    storage[:] = np.frombuffer(image, np.uint8)


def prepare(variant: str, folder: Path, workdir: Path) -> None:
    from ffcv.fields import IntField, RGBImageField
    from ffcv.writer import DatasetWriter

    variant = variant or "orig"
    settings: dict[str, dict[str, Any]] = {
        "orig": {"write_mode": "jpg"},
        "jpgfull": {"write_mode": "jpg", "jpeg_quality": 90},
        "jpg500": {"write_mode": "jpg", "jpeg_quality": 90, "max_resolution": 500},
        "raw256": {"write_mode": "raw", "max_resolution": 256},
    }
    if variant == "orig":
        RGBImageField.encode = encode_unchanged
    fields = {"image": RGBImageField(**settings[variant]), "label": IntField()}
    writer = DatasetWriter(str(workdir / f"{variant}.beton"), fields, num_workers=2)
    writer.from_indexed_dataset(Images(folder, decoded=variant != "orig"))


def batches(job: Job, variant: str, threads: int, folder: Path, workdir: Path) -> Iterator[int]:
    import numpy as np
    from ffcv.fields.basics import IntDecoder
    from ffcv.fields.rgb_image import CenterCropRGBImageDecoder, RandomResizedCropRGBImageDecoder
    from ffcv.loader import Loader, OrderOption
    from ffcv.transforms import NormalizeImage, RandomHorizontalFlip, Squeeze, ToTensor, ToTorchImage

    if job.train:
        image = [RandomResizedCropRGBImageDecoder((224, 224)), RandomHorizontalFlip()]
    else:
        image = [CenterCropRGBImageDecoder((224, 224), ratio=224 / 256)]
    if job.normalize:
        image += [NormalizeImage(np.array(MEAN) * 255, np.array(STD) * 255, np.float32), ToTensor()]
        image += [ToTorchImage()]
    else:
        image += [ToTensor()]
    loader = Loader(
        str(workdir / f"{variant or 'orig'}.beton"),
        batch_size=job.batch,
        num_workers=threads,
        order=OrderOption.RANDOM if job.train else OrderOption.SEQUENTIAL,
        os_cache=True,
        drop_last=True,
        pipelines={"image": image, "label": [IntDecoder(), ToTensor(), Squeeze()]},
    )
    while True:
        for _images, labels in loader:
            yield len(labels)
