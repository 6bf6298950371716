"""Make a small ImageFolder of real photographs: ``python tools/make_sample.py OUTPUT``.

The photographs come with the PyPI packages scikit-image and scikit-learn, so nothing is downloaded. Each
photograph is a class; its files are crops at random places, scales and exposures, written like photographs on
the web: sides of 200 to 500 pixels, JPEG quality 75 to 95 with and without chroma subsampling, and a few
progressive, gray, PNG and WebP files. Random numbers come only from ``random``, so that the same Pillow
writes the same bytes.

Training and validation images are crops of the same photographs: accuracy on them shows that training works,
not that a model generalises.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import random
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, ImageEnhance

# class: (package, file in it)
PHOTOGRAPHS = {
    "astronaut": ("skimage", "data/astronaut.png"),
    "cat": ("skimage", "data/chelsea.png"),
    "coffee": ("skimage", "data/coffee.png"),
    "flower": ("sklearn", "datasets/images/flower.jpg"),
    "galaxies": ("skimage", "data/hubble_deep_field.jpg"),
    "grass": ("skimage", "data/grass.png"),
    "gravel": ("skimage", "data/gravel.png"),
    "motorcycle": ("skimage", "data/motorcycle_left.png"),
    "retina": ("skimage", "data/retina.jpg"),
    "rocket": ("skimage", "data/rocket.jpg"),
    "temple": ("sklearn", "datasets/images/china.jpg"),
    "tissue": ("skimage", "data/ihc.png"),
}
PIP_NAMES = {"skimage": "scikit-image", "sklearn": "scikit-learn"}
SPLITS = {"train": 64, "val": 16}  # files a class
# Kinds of file and their share; what is left is JPEG with 4:2:0 chroma, as most of the web is.
KINDS = (("444", 0.30), ("progressive", 0.05), ("gray", 0.03), ("png", 0.03), ("webp", 0.03))
SUFFIX = {"png": ".png", "webp": ".webp"}
NOTE = ".sample.json"


@dataclass(frozen=True)
class Plan:
    """One file to make."""

    path: str  # relative to the output folder
    name: str  # class
    kind: str  # a kind of KINDS, or "420"
    seed: str  # of the file's own random numbers


def plan(per_class: dict[str, int], seed: int) -> Iterator[Plan]:
    """The files of the sample, in order: ``per_class`` files of each class for each split."""
    rng = random.Random(f"plan {seed}")
    for split, count in per_class.items():
        for name in PHOTOGRAPHS:
            for number in range(count):
                kind = draw_kind(rng.random())
                path = f"{split}/{name}/{name}_{number:04d}{SUFFIX.get(kind, '.jpg')}"
                yield Plan(path, name, kind, f"{seed} {split} {name} {number}")


def draw_kind(u: float) -> str:
    """The kind of file for ``u``, uniform in [0, 1)."""
    for kind, share in KINDS:
        if u < share:
            return kind
        u -= share
    return "420"


def load_photograph(name: str) -> Image.Image:
    """The class's photograph as RGB.

    Raises:
        SystemExit: its package is not installed, or no longer carries the file.
    """
    package, file = PHOTOGRAPHS[name]
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        sys.exit(f"The sample needs {PIP_NAMES[package]}: pip install {PIP_NAMES[package]}")
    path = Path(spec.submodule_search_locations[0]) / file
    if not path.is_file():
        sys.exit(f"This version of {PIP_NAMES[package]} does not carry {file}; try another version.")
    with Image.open(path) as image:
        rgb: Image.Image = image.convert("RGB")
        return rgb


def crop(photograph: Image.Image, rng: random.Random) -> Image.Image:
    """A crop at a random place and scale, 200 to 500 pixels a side, mirrored and re-exposed at random."""
    aspect = rng.choice((4 / 3, 3 / 2, 1.0, 3 / 4, 2 / 3))
    scale = rng.uniform(0.45, 1.0)
    width = scale * min(photograph.width, photograph.height * aspect)
    height = width / aspect
    x = rng.uniform(0, photograph.width - width)
    y = rng.uniform(0, photograph.height - height)
    longer = rng.randint(300, 500)  # so that the shorter side has at least 200 pixels
    size = (round(longer * min(1.0, aspect)), round(longer * min(1.0, 1 / aspect)))
    picture = photograph.resize(size, Image.Resampling.BICUBIC, box=(x, y, x + width, y + height))
    if rng.random() < 0.5:
        picture = picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    for enhance in (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color):
        picture = enhance(picture).enhance(rng.uniform(0.6, 1.4))
    return picture


def save(picture: Image.Image, path: Path, kind: str, rng: random.Random) -> None:
    """Write ``picture`` as this kind of file, at a quality that is common on the web."""
    quality = rng.randint(75, 95)
    if kind == "png":
        # Photographs make large PNGs; those on the web are small.
        picture.resize((picture.width // 2, picture.height // 2)).save(path)
    elif kind == "webp":
        picture.save(path, quality=quality, method=2)
    elif kind == "gray":
        picture.convert("L").save(path, quality=quality)
    else:
        subsampling = "4:4:4" if kind == "444" else "4:2:0"
        picture.save(path, quality=quality, subsampling=subsampling, progressive=kind == "progressive")


def make(folder: Path, plans: list[Plan]) -> Counter[str]:
    """Write all planned files below ``folder``; how many of each kind."""
    photographs = {name: load_photograph(name) for name in PHOTOGRAPHS}
    kinds: Counter[str] = Counter()
    for item in plans:
        rng = random.Random(item.seed)
        path = folder / item.path
        path.parent.mkdir(parents=True, exist_ok=True)
        save(crop(photographs[item.name], rng), path, item.kind, rng)
        kinds[item.kind] += 1
    return kinds


def arguments(argv: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("output", type=Path, metavar="OUTPUT", help="folder to create, which must not exist")
    parser.add_argument("--train", type=int, default=SPLITS["train"], help="files per class (%(default)s)")
    parser.add_argument("--val", type=int, default=SPLITS["val"], help="files per class (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the crops (%(default)s)")
    options = parser.parse_args(argv)
    if options.train < 1 or options.val < 1:
        parser.error(f"--train and --val must be at least 1. Found: {options.train}, {options.val}")
    return options


def main(argv: list[str] | None = None) -> None:
    """Make the sample under a temporary name, then rename: an interrupted run leaves nothing half done."""
    options = arguments(argv)
    output: Path = options.output
    wanted = {"train": options.train, "val": options.val, "seed": options.seed}
    if (output / NOTE).is_file() and json.loads((output / NOTE).read_text()) == wanted:
        print(f"{output} is already there")
        return
    if output.exists():
        sys.exit(f"{output} exists and is not this sample. Remove it, or choose another folder.")
    plans = list(plan({"train": options.train, "val": options.val}, options.seed))
    temporary = output.with_name(f".{output.name}-{os.getpid()}")
    temporary.mkdir(parents=True)
    try:
        kinds = make(temporary, plans)
        (temporary / NOTE).write_text(json.dumps(wanted) + "\n")
        temporary.rename(output)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    size = sum(path.stat().st_size for path in output.rglob("*") if path.is_file())
    print(f"{output}: {len(plans)} photographs in {len(PHOTOGRAPHS)} classes, {size / 1e6:.1f} MB")
    print("  " + ", ".join(f"{count} {kind}" for kind, count in kinds.most_common()))


if __name__ == "__main__":
    main()
