"""The data sets of the doctor's cases, made once each below a work folder; and a slow disk for one of them.

    python benchmarks/doctor/case_data.py photos FOLDER

Each set is at most about 100 MB, from random numbers with fixed seeds. Pictures are those of draw_photos.py.
"""

from __future__ import annotations

import csv
import gzip
import json
import shutil
import sys
import tarfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

BENCHMARKS = Path(__file__).resolve().parents[1]
if str(BENCHMARKS) not in sys.path:
    sys.path.insert(0, str(BENCHMARKS))

from draw_photos import photo  # noqa: E402
from harness.page_cache import evict  # noqa: E402
from harness.throttle import throttled  # noqa: E402

__all__ = ["SETS", "TROUBLES", "prepared"]

DONE = ".done"
SLOW_DISK = 2_000_000  # bytes a second

Pixels = npt.NDArray[np.uint8]


def prepared(name: str, work: Path) -> Path:
    """The folder of the set ``name`` below ``work``; made if it is not there."""
    folder = work / name
    if not (folder / DONE).exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        SETS[name](folder)
        (folder / DONE).touch()
    return folder


# ---- Pictures ----


def _pictures(count: int, width: int, height: int, drawn: int) -> Iterator[Pixels]:
    """So many pictures: some drawn, the others those, moved and mirrored."""
    random = np.random.default_rng(width)
    bases = [photo(random, width, height) for _ in range(drawn)]
    for number in range(count):
        pixels = np.roll(bases[number % drawn], 37 * number, axis=1)
        yield np.ascontiguousarray(pixels[:, ::-1] if number % 2 else pixels)


def _save(pixels: Pixels, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, quality=90, subsampling="4:2:0")


def _photos(folder: Path) -> None:
    """``CLASS/*.jpg`` of 500x375 pixels, and the same as ``pixels.npy``, 224x224."""
    small = []
    for number, pixels in enumerate(_pictures(240, 500, 375, 16)):
        _save(pixels, folder / ("cat", "dog")[number % 2] / f"{number:04d}.jpg")
        small.append(np.asarray(Image.fromarray(pixels).resize((224, 224), Image.Resampling.BILINEAR)))
    np.save(folder / "pixels.npy", np.stack(small))


def _camera(folder: Path) -> None:
    """``full/*.jpg`` of 4000x3000 pixels, and ``small/*.jpg``, the same of 512x384."""
    for number, pixels in enumerate(_pictures(16, 4000, 3000, 1)):
        _save(pixels, folder / "full" / f"IMG_{number:04d}.jpg")
        small = Image.fromarray(pixels).resize((512, 384), Image.Resampling.BILINEAR, reducing_gap=2.0)
        _save(np.asarray(small), folder / "small" / f"IMG_{number:04d}.jpg")


def _two_cameras(folder: Path) -> None:
    """``site0/*.jpg`` of 1280x960 pixels, ``site1/*.jpg`` of 320x240."""
    for site, width in enumerate((1280, 320)):
        for number, pixels in enumerate(_pictures(64, width, width * 3 // 4, 4)):
            _save(pixels, folder / f"site{site}" / f"{number:04d}.jpg")


def _raw_pictures(folder: Path) -> None:
    """``raw/*.npy`` of 160x120 pixels, 58 kB each, and the same as ``jpeg/*.jpg``, 100 MB together."""
    (folder / "raw").mkdir()
    for number, pixels in enumerate(_pictures(1600, 160, 120, 32)):
        np.save(folder / "raw" / f"{number:05d}.npy", pixels)
        _save(pixels, folder / "jpeg" / f"{number:05d}.jpg")


def _large_arrays(folder: Path) -> None:
    """``scans.npy``, 8 of 3x1024x1024 float32, and ``scans_u8.npy``, the same as bytes."""
    scans = np.stack([pixels.transpose(2, 0, 1) for pixels in _pictures(8, 1024, 1024, 1)])
    np.save(folder / "scans_u8.npy", scans)
    np.save(folder / "scans.npy", scans.astype(np.float32) / 255)


# ---- Tables and arrays ----


def _vectors(folder: Path) -> None:
    """``x.npy``, 20,000 of 64 float32, and ``y.npy``, ten classes."""
    random = np.random.default_rng(1)
    np.save(folder / "x.npy", random.standard_normal((20_000, 64), dtype=np.float32))
    np.save(folder / "y.npy", random.integers(0, 10, 20_000))


def _patients(folder: Path) -> None:
    """``visits.csv``, three visits for each of 2,000 patients, and ``labels.csv``."""
    random = np.random.default_rng(2)
    with open(folder / "visits.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["patient", "day", *(f"lab{k}" for k in range(8))])
        for patient in range(2000):
            for day in range(3):
                writer.writerow([patient, day, *random.standard_normal(8).round(3)])
    with open(folder / "labels.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["patient", "label"])
        writer.writerows((patient, int(random.integers(2))) for patient in range(2000))


def _digits(folder: Path) -> None:
    """``digits.h5``: 10,000 pictures of 64x64 in gzip chunks of 50 rows, and labels."""
    import h5py

    random = np.random.default_rng(3)
    pictures = random.integers(0, 16, (10_000, 64, 64), dtype=np.uint8)
    with h5py.File(folder / "digits.h5", "w") as file:
        file.create_dataset("x", data=pictures, chunks=(50, 64, 64), compression="gzip")
        file.create_dataset("y", data=random.integers(0, 10, 10_000))


def _spectra(folder: Path) -> None:
    """``spectra.parquet``: 6,000 rows of 512 numbers, 1,000 in a row group."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    random = np.random.default_rng(4)
    numbers = random.standard_normal((6000, 512), dtype=np.float32)
    values = pa.FixedSizeListArray.from_arrays(numbers.ravel(), 512)
    table = pa.table({"values": values, "target": random.standard_normal(6000, dtype=np.float32)})
    pq.write_table(table, folder / "spectra.parquet", row_group_size=1000)


def _tiles(folder: Path) -> None:
    """``tiles.tar.gz`` of 160 arrays, 64x64x3 bytes, and the same as files in ``tiles/``."""
    (folder / "tiles").mkdir()
    with tarfile.open(folder / "tiles.tar.gz", "w:gz", compresslevel=6) as archive:
        for number, pixels in enumerate(_pictures(160, 64, 64, 32)):
            path = folder / "tiles" / f"{number:04d}_{number % 4}.npy"
            np.save(path, pixels)
            archive.add(path, arcname=path.name)


def _shards(folder: Path) -> None:
    """``NN.npz``, twelve, each of 1,500 pictures of 32x32 pixels and their labels, compressed."""
    random = np.random.default_rng(8)
    for number in range(12):
        pictures = random.integers(0, 100, (1500, 32, 32, 3), dtype=np.uint8)
        np.savez_compressed(folder / f"{number:02d}.npz", x=pictures, y=random.integers(0, 10, 1500))


def _clips(folder: Path) -> None:
    """``frames/CLIP/*.f32``, 128 files of 48 numbers each, and ``clips/CLIP.f32``, all of them."""
    random = np.random.default_rng(5)
    (folder / "clips").mkdir()
    for clip in range(80):
        frames = random.standard_normal((128, 48), dtype=np.float32)
        (folder / "frames" / f"{clip:03d}").mkdir(parents=True)
        for number, frame in enumerate(frames):
            frame.tofile(folder / "frames" / f"{clip:03d}" / f"{number:03d}.f32")
        frames.tofile(folder / "clips" / f"{clip:03d}.f32")


# ---- Text and annotations ----


def _reviews(folder: Path) -> None:
    """``reviews.jsonl.gz``, 3,000 texts with a label, and ``tokens.npy``, (3,000, 128) ids made of them."""
    random = np.random.default_rng(6)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    words = ["".join(random.choice(letters, random.integers(2, 10))) for _ in range(4000)]
    (folder / "vocabulary.json").write_text(json.dumps({word: n + 2 for n, word in enumerate(words[:2000])}))
    tokens = np.zeros((3000, 128), dtype=np.int64)
    with gzip.open(folder / "reviews.jsonl.gz", "wt", compresslevel=3) as file:
        for number in range(3000):
            chosen = random.integers(0, 4000, 200)
            text = " ".join(words[k] for k in chosen)
            tokens[number] = np.where(chosen < 2000, chosen + 2, 1)[:128]
            file.write(json.dumps({"text": text, "label": number % 2}) + "\n")
    np.save(folder / "tokens.npy", tokens)


def _scenes(folder: Path) -> None:
    """``scenes.json``: 400 scenes, each with the outlines of 40 things, some 20 corners each."""
    random = np.random.default_rng(7)
    scenes = []
    for _ in range(400):
        corners = random.integers(12, 28, 40)
        scenes.append([random.random((int(count), 2)).round(4).tolist() for count in corners])
    (folder / "scenes.json").write_text(json.dumps(scenes))


SETS: dict[str, Callable[[Path], None]] = {
    "photos": _photos,
    "camera": _camera,
    "two_cameras": _two_cameras,
    "raw_pictures": _raw_pictures,
    "large_arrays": _large_arrays,
    "vectors": _vectors,
    "patients": _patients,
    "digits": _digits,
    "spectra": _spectra,
    "tiles": _tiles,
    "shards": _shards,
    "clips": _clips,
    "reviews": _reviews,
    "scenes": _scenes,
}


# ---- Troubles ----


@contextmanager
def _slow_disk(folder: Path) -> Iterator[None]:
    """What this process and its children read of ``folder`` comes from the disk, slowly.

    Raises:
        NoThrottle: there is no such control here.
    """
    for path in folder.rglob("*"):
        if path.is_file():
            evict(path)
    with throttled(folder, SLOW_DISK):
        yield


TROUBLES: dict[str, Callable[[Path], AbstractContextManager[None]]] = {"slow_disk": _slow_disk}


if __name__ == "__main__":
    print(prepared(sys.argv[1], Path(sys.argv[2])))
