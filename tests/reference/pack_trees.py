"""Small image trees, and what is expected of them."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from PIL import Image

from fastload.errors import PackError

EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")


@lru_cache(maxsize=4096)
def encoded(seed: int, kind: str = "JPEG", width: int = 0, height: int = 0) -> bytes:
    """A small picture, different for each seed."""
    rng = np.random.default_rng(seed)
    width, height = width or int(rng.integers(8, 48)), height or int(rng.integers(8, 48))
    image = Image.fromarray(rng.integers(0, 255, (height, width, 3), np.uint8))
    out = io.BytesIO()
    image.save(out, kind)
    return out.getvalue()


def make_tree(root: Path, files: dict[str, bytes]) -> Path:
    """Write files below ``root``, at a fixed modification time."""
    for name, data in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        os.utime(path, (1_700_000_000, 1_700_000_000))
    return root


def class_tree(root: Path, classes: int = 4, images: int = 12) -> Path:
    """Class folders of JPEG, PNG and WebP files, some nested."""
    kinds = ("JPEG", "PNG", "WEBP", "JPEG")
    files = {}
    for c in range(classes):
        for i in range(images):
            kind = kinds[i % 4]
            nested = "more/" if i % 5 == 4 else ""
            files[f"class {c}/{nested}{i:03d}.{kind.lower()}"] = encoded(1000 * c + i, kind)
    return make_tree(root, files)


def image_folder_samples(root: Path) -> list[tuple[str, int]]:
    """torchvision's ``make_dataset``: (path below root, label), in ImageFolder's order."""
    names = sorted(entry.name for entry in os.scandir(root) if entry.is_dir())
    samples = []
    for label, name in enumerate(names):
        for folder, _, files in sorted(os.walk(root / name, followlinks=True)):
            for file in sorted(files):
                if file.lower().endswith(EXTENSIONS):
                    samples.append((os.path.relpath(os.path.join(folder, file), root), label))
    return samples


def snapshot(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def command(*arguments: object) -> list[str]:
    """The command line of ``fastload`` in a process of its own."""
    return [sys.executable, "-m", "fastload", *map(str, arguments)]


def environment(**extra: str) -> dict[str, str]:
    """An environment in which that process finds the same package as this one, in the same order."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path), **extra}


def run_cli(*arguments: object, timeout: float = 200, **extra: str) -> subprocess.CompletedProcess[str]:
    """Run ``fastload`` and wait."""
    return subprocess.run(
        command(*arguments),
        capture_output=True,
        text=True,
        timeout=timeout,
        env=environment(**extra),
        check=False,
    )


@dataclass
class SlowDisk:
    """Stands in for a job: shard 0 takes long to publish, shard 1 cannot be written."""

    published: Path

    def claim(self, number: int) -> SlowDisk:
        return self

    def close(self) -> None:
        pass

    def write(self, number: int, advance: object) -> int:
        if number == 1:
            raise PackError("no room")
        return number

    def publish(self, number: int, part: int) -> None:
        time.sleep(0.5)
        self.published.touch()

    def discard(self, number: int) -> None:
        pass
