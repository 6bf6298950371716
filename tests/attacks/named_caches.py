"""What somebody else has left in the folders of the node cache and of the disk tier.

Of a tier that is damaged the samples are the set's all the same, or it is refused with words: each use
compares.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from attack_rules import EITHER, Rule, attack, honest
from hostile_index import entries, index_bytes, write_dataset
from plain_pack import plain_pack
from uses import small

from fastload import DataLoader, PackedDataset, transforms
from fastload._native import _C
from fastload.cache.folder import PrivateFolder
from fastload.cache.layout import ENTRY, HEADER
from fastload.cache.policy import cached_sets

from pack_trees import encoded  # isort: skip
from cache_folder import cache_of

KIND = "caches"
FOLDER = Rule("FORMAT.md", "The node cache", "Mode 0700, the user's own, opened without following links")
CHECK = Rule(
    "FORMAT.md",
    "Header",
    "that the file and each stripe have the size that follows from it, and that every region lies inside",
)
PLACE = Rule(
    "FORMAT.md",
    "Table",
    "A reader MUST check `place_crc` and that the place lies in the records' region before it reads "
    "or writes there",
)
WRONG = Rule("FORMAT.md", "Table", "What is wrong is taken as not there")
TIER = Rule(
    "FORMAT.md",
    "The disk tier",
    "A reader MUST compare what it reads with the index's (`field-NN`: the column's) length and "
    "CRC-32C each time, and take what differs as not there",
)
WORDS = Rule("FORMAT.md", "The disk tier", "Nothing else needs to be trusted")
COUNT = 24
BLOBS = [encoded(i) for i in range(COUNT)]


def plain(folder: Path) -> Path:
    return write_dataset(
        folder / "set", BLOBS, index_bytes(entries(BLOBS), [b"%d" % i for i in range(COUNT)])
    )


def batches(place: Path, cache: Any, decoded: int | None = None) -> list[str]:
    """Two epochs, from shards or caches."""
    if decoded is not None:
        cache = cache_of(cache, decoded=decoded)
    small_pictures = transforms.Resize((16, 16))
    with DataLoader(place, 8, transform=small_pictures, num_workers=1, cache=cache) as loader:
        return [small(images) for _ in range(2) for images, _ in loader]


def filled(folder: Path, decoded: int | None = None) -> tuple[Path, Path]:
    """A set, and its whole cache file in the private folder below folder/memory."""
    place = plain_pack(folder / "set", BLOBS).folder
    (folder / "memory").mkdir(exist_ok=True)
    batches(place, folder / "memory", decoded)
    [path] = (folder / "memory").glob("fastload-*/*.flc")
    return place, path


def tier(folder: Path) -> tuple[Path, Path]:
    """A set, and the table of its disk tier; the slots are in the file with .data behind its name."""
    place = plain(folder)
    batches(place, f"{folder}/disk:64MB")
    [table] = (folder / "disk").glob("fastload-*/*.flt")
    return place, table


def same(place: Path, cache: Any, decoded: int | None = None) -> Callable[[], Any]:
    """Two epochs with the cache give what two epochs without give."""
    wanted = batches(place, "off", decoded)

    def use() -> int:
        found = batches(place, cache, decoded)
        if found != wanted:
            raise AssertionError("the cache gives other pictures")
        return len(found)

    return use


def in_memory(folder: Path, place: Path) -> Callable[[], Any]:
    return same(place, folder / "memory")


def on_disk(folder: Path, place: Path) -> Callable[[], Any]:
    return same(place, f"{folder}/disk:64MB")


def sealed(path: Path, changes: dict[str, Any]) -> None:
    """Fields of a cache file's header replaced, with its checksum."""
    data = bytearray(path.read_bytes())
    header = np.frombuffer(bytes(data[: HEADER.itemsize]), HEADER, 1).copy()
    for name, value in changes.items():
        header[name] = value
    data[: HEADER.itemsize] = header.tobytes()
    data[8188:8192] = _C.crc32c(np.frombuffer(bytes(data[:8188]), np.uint8)).to_bytes(4, "little")
    path.write_bytes(data)


def replaced(path: Path, make: Callable[[Path], Any]) -> None:
    path.unlink()
    make(path)


def patched(path: Path, at: int, value: bytes) -> None:
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(value)


@honest(KIND)
def a_cache_of_a_small_set(folder: Path) -> Callable[[], Any]:
    return in_memory(folder, filled(folder)[0])


@honest(KIND)
def a_disk_tier_of_a_small_set(folder: Path) -> Callable[[], Any]:
    return on_disk(folder, tier(folder)[0])


def private(folder: Path) -> Path:
    (folder / "memory").mkdir(parents=True, exist_ok=True)
    return folder / "memory" / f"fastload-{os.geteuid()}"


@attack(KIND, FOLDER, "not a folder of yours")
def a_link_in_the_private_folders_place(folder: Path) -> Callable[[], Any]:
    place = plain(folder)
    (folder / "elsewhere").mkdir(mode=0o700)
    private(folder).symlink_to(folder / "elsewhere")
    return in_memory(folder, place)


@attack(KIND, FOLDER, "open to other users")
def a_private_folder_that_all_may_write_to(folder: Path) -> Callable[[], Any]:
    place, path = filled(folder)
    path.parent.chmod(0o777)
    return in_memory(folder, place)


@attack(KIND, FOLDER, "not a folder of yours|cannot be")
def a_fifo_in_the_private_folders_place(folder: Path) -> Callable[[], Any]:
    place = plain(folder)
    os.mkfifo(private(folder))
    return in_memory(folder, place)


@attack(KIND, FOLDER, None)
def a_fifo_in_a_cache_files_place(folder: Path) -> Callable[[], Any]:
    place, path = filled(folder)
    replaced(path, lambda path: os.mkfifo(path, 0o600))
    return in_memory(folder, place)


@attack(KIND, FOLDER, None)
def a_link_in_a_cache_files_place(folder: Path) -> Callable[[], Any]:
    place, path = filled(folder)
    path.rename(folder / "moved")
    path.symlink_to(folder / "moved")
    return in_memory(folder, place)


@attack(KIND, FOLDER, "locked by another process", seconds=150.0)
def a_lock_that_is_never_given_back(folder: Path) -> Callable[[], Any]:
    place = plain(folder)
    private(folder).mkdir(mode=0o700)
    PrivateFolder.creating.__wrapped__.__defaults__ = (0.5,)  # type: ignore[attr-defined]  # seconds: not 30
    held = os.open(private(folder) / ".create.lock", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(held, fcntl.LOCK_EX)
    return in_memory(folder, place)


@attack(KIND, FOLDER, "cannot be opened|Remove it")
def a_folder_in_the_locks_place(folder: Path) -> Callable[[], Any]:
    place = plain(folder)
    private(folder).mkdir(mode=0o700)
    (private(folder) / ".create.lock").mkdir()
    return in_memory(folder, place)


SIZES: dict[str, Callable[[Path], Any]] = {
    "no_bytes": lambda path: os.truncate(path, 0),
    "its_header_alone": lambda path: os.truncate(path, 8192),
    "half_of_itself": lambda path: os.truncate(path, path.stat().st_size // 2),
    "2_to_the_50_bytes": lambda path: os.truncate(path, 1 << 50),
}
HEADERS: dict[str, dict[str, Any]] = {
    "2_to_the_63_bytes": {"file_size": 2**63},
    "2_to_the_60_records": {"num_records": 2**60},
    "a_table_behind_its_end": {"table_offset": 2**63},
    "records_that_wrap_round": {"data_offset": 2**64 - 4096, "data_size": 8192},
    "8_stripes_that_are_not_there": {"num_stripes": 8, "stripe_offset": [65536 * i for i in range(1, 9)]},
    "2_to_the_32_stripes": {"num_stripes": 2**32 - 1},
    "a_path_that_is_no_utf_8": {"source_bytes": 2**32 - 1},
    "an_index_in_its_header": {"index_offset": 0, "index_size": 2**64 - 1},
    "a_tier_that_is_no_text": {"tier": b"\xff" * 32, "dataset_id": b"\0\xff" * 16},
}


def _sized(name: str, change: Callable[[Path], Any]) -> None:
    def make(folder: Path) -> Callable[[], Any]:
        place, path = filled(folder)
        change(path)
        return in_memory(folder, place)

    make.__name__ = f"a_cache_file_of_{name}"
    attack(KIND, CHECK, EITHER)(make)


def _headed(name: str, changes: dict[str, Any]) -> None:
    def make(folder: Path) -> Callable[[], Any]:
        place, path = filled(folder)
        sealed(path, changes)
        return in_memory(folder, place)

    make.__name__ = f"a_cache_header_that_says_{name}"
    attack(KIND, CHECK, EITHER)(make)


for _name, _change in SIZES.items():
    _sized(_name, _change)
for _name, _changes in HEADERS.items():
    _headed(_name, _changes)


@attack(KIND, CHECK, None)
def cache_files_of_all_kinds_that_are_listed(folder: Path) -> Callable[[], Any]:
    _, path = filled(folder)
    whole = path.read_bytes()
    for number, changes in enumerate(HEADERS.values()):
        other = path.with_name(f"{number:032x}-encoded-1.flc")
        other.write_bytes(whole)
        other.chmod(0o600)
        sealed(other, changes)
    os.mkfifo(path.with_name("fifo-1-1.flc"), 0o600)
    path.with_name("loop-1-1.flt").symlink_to("loop-1-1.flt")
    beside = os.fsencode(path.parent) + b"/\xff\xfe-encoded-1.flc"
    with open(beside, "wb") as file:
        file.write(whole)
    patched(path, 512, b"\xff\xfe/\x80")
    sealed(path, {})

    def use() -> int:
        with PrivateFolder(folder / "memory") as opened:
            return len(cached_sets(opened))

    return use


def _all_places(path: Path, **values: Any) -> None:
    data = bytearray(path.read_bytes())
    table = np.frombuffer(data, ENTRY, COUNT, 12288)
    for name, value in values.items():
        table[name] = value
    _C.seal_cache_places(table.view(np.uint8).reshape(-1, 32), 0)
    del table
    path.write_bytes(data)


@attack(KIND, PLACE, None)
def cache_places_in_the_header(folder: Path) -> Callable[[], Any]:
    place, path = filled(folder)
    _all_places(path, offset=0)
    return in_memory(folder, place)


@attack(KIND, PLACE, None)
def cache_places_that_wrap_round(folder: Path) -> Callable[[], Any]:
    place, path = filled(folder)
    _all_places(path, offset=2**64 - 2, length=2**32 - 1)
    return in_memory(folder, place)


@attack(KIND, WRONG, None)
def cached_records_of_other_samples(folder: Path) -> Callable[[], Any]:
    place, path = filled(folder)
    data = bytearray(path.read_bytes())
    table = np.frombuffer(data, ENTRY, COUNT, 12288)
    offsets: Sequence[int] = table["offset"].tolist()
    del table
    for number, offset in enumerate(offsets):
        blob = BLOBS[(number + 1) % COUNT][: len(BLOBS[number])]
        data[offset : offset + len(blob)] = blob
    path.write_bytes(data)
    return in_memory(folder, place)


@attack(KIND, WRONG, None)
def decoded_pictures_with_another_checksum(folder: Path) -> Callable[[], Any]:
    place, path = filled(folder, decoded=20)
    data = bytearray(path.read_bytes())
    begin = int(np.frombuffer(data, HEADER, 1)["data_offset"][0])
    data[begin:] = bytes(len(data) - begin)
    path.write_bytes(data)
    return same(place, folder / "memory", decoded=20)


@attack(KIND, WRONG, None)
def a_copy_of_the_index_with_other_entries(folder: Path) -> Callable[[], Any]:
    place, path = filled(folder)
    header = np.frombuffer(path.read_bytes(), HEADER, 1)[0]
    size = int(header["index_size"])
    if size:
        patched(path, int(header["index_offset"]) + 4096, b"\xff" * 768)
    assert len(PackedDataset(place)) == COUNT
    return in_memory(folder, place)
