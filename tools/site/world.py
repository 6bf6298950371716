"""The folders that the documentation's examples use: ``python tools/site/world.py FOLDER``.

The same 24 + 12 photographs in every form: a folder of images, a folder in COCO's layout, WebDataset tars, a
Parquet table, and packed (Arrow, LMDB, HDF5). CONTRIBUTING.md lists the names.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import random
import shutil
import sys
import tarfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from fastload.cli import main as fastload

sys.path.append(str(Path(__file__).parents[1]))
import make_sample

CLASSES = ("cat", "coffee", "rocket")
SPLITS = {"train": 8, "val": 4}  # files a class
LONGER_SIDE = 300


def make_world(folder: Path) -> None:
    """Everything, below ``folder``, which must not exist."""
    photos(folder / "photos")
    shutil.copytree(folder / "photos", folder / "imagenet-folder")
    coco(folder)
    tars(folder)
    parquet(folder)
    pack(folder, "packed", "arrow")
    shutil.copytree(folder / "packed", folder / "imagenet")
    pack(folder, "imagenet-lmdb", "lmdb")
    pack(folder, "imagenet-hdf5", "hdf5")


def pack(folder: Path, name: str, format: str) -> None:
    """``NAME/train`` and ``NAME/val``, of the photographs."""
    source, output = str(folder / "photos"), str(folder / name)
    with contextlib.redirect_stdout(io.StringIO()):
        status = fastload(["pack", source, output, "--format", format, "--quiet", "--num-proc", "1"])
    if status:
        sys.exit(status)


def photos(folder: Path) -> None:
    """``train/CLASS/*.jpg`` and ``val/CLASS/*.jpg``."""
    for name in CLASSES:
        photograph = make_sample.load_photograph(name)
        photograph.thumbnail((2 * LONGER_SIDE, 2 * LONGER_SIDE))
        for split, count in SPLITS.items():
            (folder / split / name).mkdir(parents=True)
            for number in range(count):
                rng = random.Random(f"{split} {name} {number}")
                picture = make_sample.crop(photograph, rng)
                picture.thumbnail((LONGER_SIDE, LONGER_SIDE))
                make_sample.save(picture, folder / split / name / f"{name}_{number:04d}.jpg", "420", rng)


def training(folder: Path) -> list[tuple[Path, int]]:
    """The training photographs and their labels."""
    files = sorted((folder / "photos" / "train").glob("*/*.jpg"))
    return [(path, CLASSES.index(path.parent.name)) for path in files]


def coco(folder: Path) -> None:
    """``coco/train2017/*.jpg`` and its ``instances_train2017.json``: two objects a picture, with outlines."""
    pictures = folder / "coco" / "train2017"
    pictures.mkdir(parents=True)
    images: list[dict[str, object]] = []
    objects: list[dict[str, object]] = []
    for number, (path, label) in enumerate(training(folder), start=1):
        name = f"{number:012d}.jpg"
        shutil.copy(path, pictures / name)
        with Image.open(path) as image:
            width, height = image.size
        images.append({"id": number, "file_name": name, "width": width, "height": height})
        for x, y, w, h in ((20, 30, 90, 80), (width // 2, height // 2, width // 3, height // 3)):
            objects.append(
                {
                    "id": len(objects) + 1,
                    "image_id": number,
                    "category_id": label + 1,
                    "bbox": [x, y, w, h],
                    "segmentation": [[x, y, x + w, y, x + w, y + h, x, y + h]],
                    "area": w * h,
                    "iscrowd": 0,
                }
            )
    categories = [{"id": number, "name": name} for number, name in enumerate(CLASSES, start=1)]
    file = folder / "coco" / "annotations" / "instances_train2017.json"
    file.parent.mkdir()
    file.write_text(json.dumps({"images": images, "annotations": objects, "categories": categories}))


def tars(folder: Path) -> None:
    """``tars/shard-{000000,000001}.tar`` in WebDataset's layout: a .jpg and a .cls for each sample."""
    (folder / "tars").mkdir()
    samples = training(folder)
    for shard in range(2):
        with tarfile.open(folder / "tars" / f"shard-{shard:06d}.tar", "w") as tar:
            for number in range(shard, len(samples), 2):
                path, label = samples[number]
                for suffix, data in (("jpg", path.read_bytes()), ("cls", str(label).encode())):
                    member = tarfile.TarInfo(f"{number:06d}.{suffix}")
                    member.size = len(data)
                    tar.addfile(member, io.BytesIO(data))


def parquet(folder: Path) -> None:
    """``table.parquet``: image (struct of bytes and path, as Hugging Face writes it) and label."""
    samples = training(folder)
    images = [{"bytes": path.read_bytes(), "path": path.name} for path, _ in samples]
    kind = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    labels = pa.array([label for _, label in samples], pa.int64())
    pq.write_table(pa.table({"image": pa.array(images, kind), "label": labels}), folder / "table.parquet")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").split(":")[0])
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="folder to make; must not exist")
    make_world(parser.parse_args().folder)
