"""LMDB read in order and shuffled, from a disk with a cold and a warm page cache, and from tmpfs.

Bytes alone: by py-lmdb (one transaction, a get for each key) and by fastload's reader, one thread each. Whole
loaders: torch's DataLoader with py-lmdb and Pillow in its workers, and fastload.DataLoader over the same
file; RandomResizedCrop, uint8. Nothing stays open between the cases, so that pages can be dropped; the time
of a whole loader includes the start of its threads or workers.
"""

from __future__ import annotations

import gc
import io
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import torch
from harness.command_line import pack_folder
from harness.machine import warm_page_cache
from harness.measure import Run, table
from harness.page_cache import evict
from PIL import Image

from articles.setting import Chart, Measure, Setting, done, summary

PLACES = ("disk, cold", "disk, warm", "tmpfs")
ORDERS = ("in order", "shuffled")
TMPFS = Path("/dev/shm")


def prepare(setting: Setting) -> None:
    pack_folder(Path(setting.images), setting.folder / "lmdb", "--format", "lmdb", "--entries", "none")


def memory_copy(setting: Setting) -> Path | None:
    """Where the copy in memory belongs; None without a tmpfs that has room."""
    size = sum(path.stat().st_size for path in (setting.folder / "lmdb").rglob("*") if path.is_file())
    if not TMPFS.is_dir() or shutil.disk_usage(TMPFS).free < 2 * size:
        return None
    return TMPFS / f"fastload-bench-{setting.folder.name}"


def cases(setting: Setting) -> Sequence[str]:
    return list(READERS)


def start(case: str, setting: Setting) -> Measure:
    target = memory_copy(setting)
    read = READERS[case]

    def measure() -> dict[str, float]:
        values: dict[str, float] = {}
        for place in PLACES:
            folder = target if place == "tmpfs" else setting.folder / "lmdb"
            if folder is None:
                continue
            try:
                if place == "tmpfs":
                    shutil.copytree(setting.folder / "lmdb", folder)
                for order in ORDERS:
                    values |= timed(read, folder, place, order, setting)
            finally:
                if place == "tmpfs":
                    shutil.rmtree(folder, ignore_errors=True)
        return values

    return measure


def timed(
    read: Callable[..., int], folder: Path, place: str, order: str, setting: Setting
) -> dict[str, float]:
    """Records a second of one pass, and what of the file was in the page cache before a cold one."""
    gc.collect()  # mappings of the case before
    stayed = 0.0
    if place == "disk, cold":
        stayed = max(evict(path) for path in folder.rglob("*.mdb"))
    else:
        warm_page_cache([folder])
    begin = time.perf_counter()
    records = read(folder, order == "shuffled", setting)
    return {
        f"{place}, {order}": records / (time.perf_counter() - begin),
        f"{place}, {order}, stayed": stayed,
    }


def database(folder: Path) -> Any:
    """The set's first shard."""
    (path,) = folder.glob("*.lmdb")
    return lmdb.open(str(path), readonly=True, lock=False, readahead=True)


def py_lmdb(folder: Path, shuffle: bool, setting: Setting) -> int:
    """Every value's bytes, copied as a decoder would get them."""
    with database(folder) as environment, environment.begin() as transaction:
        count = int(transaction.stat()["entries"])
        for number in np.random.default_rng(0).permutation(count) if shuffle else range(count):
            len(transaction.get(b"%08d" % number))
    return count


def fastload_reader(folder: Path, shuffle: bool, setting: Setting) -> int:
    """The same by fastload's reader, which compares each record with its CRC-32C, too."""
    from fastload import PackedDataset

    dataset = PackedDataset(folder)
    for number in np.random.default_rng(0).permutation(len(dataset)) if shuffle else range(len(dataset)):
        len(dataset.read(int(number)))
    return len(dataset)


class LmdbImages(torch.utils.data.Dataset[torch.Tensor]):
    """The usual Dataset over LMDB: opened by each worker, decoded by Pillow."""

    def __init__(self, folder: Path, size: int) -> None:
        from training.torch_baseline import draw_crop

        self.folder, self.size, self.draw_crop = folder, size, draw_crop
        with database(folder) as environment, environment.begin() as transaction:
            self.count = int(transaction.stat()["entries"])
        self.transaction: Any = None

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.transaction is None:
            self.transaction = database(self.folder).begin()
        with Image.open(io.BytesIO(self.transaction.get(b"%08d" % index))) as image:
            left, top, width, height = self.draw_crop(*image.size)
            crop = image.convert("RGB").crop((left, top, left + width, top + height))
        return torch.from_numpy(np.array(crop.resize((self.size, self.size), Image.Resampling.BILINEAR)))


def torch_loader(folder: Path, shuffle: bool, setting: Setting) -> int:
    import starvation.feeds  # noqa: F401 (puts tools/ on the path)

    dataset = LmdbImages(folder, setting.size)
    loader: Any = torch.utils.data.DataLoader(
        dataset, batch_size=setting.batch, shuffle=shuffle, num_workers=setting.threads
    )
    return sum(len(batch) for batch in loader)


def fastload_loader(folder: Path, shuffle: bool, setting: Setting) -> int:
    from fastload import DataLoader
    from fastload import transforms as T

    with DataLoader(
        folder,
        batch_size=setting.batch,
        shuffle=shuffle,
        num_workers=setting.threads,
        transform=T.RandomResizedCrop(setting.size),
    ) as loader:
        return sum(len(labels) for _, labels in loader)


READERS = {
    "bytes, py-lmdb": py_lmdb,
    "bytes, fastload": fastload_reader,
    "loader, torch + py-lmdb + Pillow": torch_loader,
    "loader, fastload": fastload_loader,
}


def columns(runs: Sequence[Run]) -> list[str]:
    """The places and orders that were measured."""
    keys = [f"{place}, {order}" for place in PLACES for order in ORDERS]
    return [key for key in keys if any(key in run.values for run in runs)]


def report(runs: Sequence[Run], setting: Setting) -> str:
    keys = columns(runs)
    rows = [[name, *(summary(runs, name, key).text() for key in keys)] for name in done(runs)]
    stayed = max((v for run in runs for key, v in run.values.items() if key.endswith("stayed")), default=0.0)
    size = sum(path.stat().st_size for path in (setting.folder / "lmdb").rglob("*.mdb")) / 1e6
    notes = [
        f"Records a second; one pass over a file of {size:.0f} MB; loaders with {setting.threads} threads."
    ]
    notes.append(
        f"Cold: posix_fadvise(DONTNEED) before each pass, after which at most {stayed:.1%} of its pages "
        "were left (mincore). A virtual machine's host may still have them in memory."
    )
    if not any(key.startswith("tmpfs") for key in keys):
        notes.append(f"No tmpfs with room at {TMPFS}: not measured.")
    return "\n".join(notes) + "\n\n" + table(["records/s", *keys], rows)


def chart(runs: Sequence[Run], setting: Setting) -> Chart:
    series = {name: {key: summary(runs, name, key) for key in columns(runs)} for name in done(runs)}
    return Chart("LMDB, by place and order", "records/s", "bars", series)


__all__ = ["cases", "chart", "prepare", "report", "start"]
