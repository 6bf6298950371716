"""Arrow, LMDB and HDF5 files that lie, given to ``fastload index``, and Parquet to ``fastload pack``."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import lmdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from attack_rules import MIB, Rule, attack, honest
from uses import BLOBS, index_and_read, pack_and_read

KIND = "containers"
RANGES = Rule(
    "FORMAT.md",
    "Indexed datasets",
    "Whatever is not a plain byte range there (compressed batches, chunks with filters, sparse "
    "members) is refused.",
)
TAKEN = Rule(
    "FORMAT.md",
    "Indexed datasets",
    "LMDB databases whose values are images, and HDF5 files with variable-length uint8 rows",
)
ERROR = Rule(
    "SECURITY.md",
    "What is trusted",
    "may make a job fail with an error; it must not crash the process, corrupt memory, run code",
)
MEMORY = Rule("SECURITY.md", "What is trusted", "take memory without a bound")
ELSEWHERE = Rule(
    "SECURITY.md",
    "What is not",
    "Opening a stranger's data set therefore reads files that it names and that you may read; their "
    "bytes are used as images only.",
)

REFUSED = "."  # any words, if they are ours


def within(folder: Path, name: str) -> Path:
    folder.mkdir()
    return folder / name


def arrow(path: Path, **options: Any) -> bytes:
    """A stream of one batch."""
    table = pa.table({"image": pa.array(BLOBS, pa.binary()), "label": list(range(5))})
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema, **options) as writer:
        writer.write_table(table)
    return path.read_bytes()


def environment(path: Path, large: bool = False) -> Path:
    """An LMDB whose values are pictures; large ones lie on overflow pages."""
    with lmdb.open(str(path), map_size=8 * MIB) as env, env.begin(write=True) as txn:
        for number, blob in enumerate(BLOBS):
            txn.put(b"%08d" % number, blob + bytes(9000 * large))
    return path / "data.mdb"


def patched(path: Path, *places: tuple[int, bytes]) -> Path:
    data = bytearray(path.read_bytes())
    for at, value in places:
        data[at : at + len(value)] = value
    path.write_bytes(data)
    return path


def heap_file(path: Path) -> Path:
    with h5py.File(path, "w") as file:
        rows = file.create_dataset("image", (5,), h5py.vlen_dtype(np.uint8))
        for number, blob in enumerate(BLOBS):
            rows[number] = np.frombuffer(blob, np.uint8)
    return path


@honest(KIND)
def small_arrow(folder: Path) -> Callable[[], Any]:
    arrow(within(folder, "a.arrow"))
    return index_and_read(folder / "a.arrow")


@honest(KIND)
def small_lmdb(folder: Path) -> Callable[[], Any]:
    environment(within(folder, "a.lmdb"))
    return index_and_read(folder / "a.lmdb")


@honest(KIND)
def small_hdf5(folder: Path) -> Callable[[], Any]:
    return index_and_read(heap_file(within(folder, "a.h5")))


@honest(KIND)
def small_parquet(folder: Path) -> Callable[[], Any]:
    path = within(folder, "a.parquet")
    pq.write_table(
        pa.table({"image": pa.array(BLOBS, pa.binary())}), path, compression="none", use_dictionary=False
    )
    return pack_and_read(path)


# ---- Arrow --------------------------------------------------------------------------------------


@attack(KIND, ERROR, REFUSED)
def an_arrow_message_of_2_gib(folder: Path) -> Callable[[], Any]:
    path = within(folder, "a.arrow")
    arrow(path)
    return index_and_read(patched(path, (4, struct.pack("<i", 2**31 - 1))))


@attack(KIND, ERROR, REFUSED)
def an_arrow_message_of_minus_8_bytes(folder: Path) -> Callable[[], Any]:
    path = within(folder, "a.arrow")
    arrow(path)
    return index_and_read(patched(path, (4, struct.pack("<i", -8))))


@attack(KIND, ERROR, REFUSED)
def an_arrow_flatbuffer_whose_root_lies_outside(folder: Path) -> Callable[[], Any]:
    path = within(folder, "a.arrow")
    arrow(path)
    return index_and_read(patched(path, (8, b"\xff\xff\xff\x7f")))


def offsets_at(data: bytes) -> int:
    ends = np.cumsum([0, *map(len, BLOBS)]).astype("<i4").tobytes()
    return data.index(ends)


@attack(KIND, ERROR, REFUSED)
def arrow_offsets_that_fall(folder: Path) -> Callable[[], Any]:
    path = within(folder, "a.arrow")
    at = offsets_at(arrow(path))
    return index_and_read(
        patched(path, (at + 8, struct.pack("<i", 2**31 - 1)), (at + 12, struct.pack("<i", 0)))
    )


@attack(KIND, ERROR, REFUSED)
def arrow_offsets_below_zero(folder: Path) -> Callable[[], Any]:
    path = within(folder, "a.arrow")
    at = offsets_at(arrow(path))
    return index_and_read(patched(path, (at, struct.pack("<ii", -(2**31), -1))))


@attack(KIND, ERROR, REFUSED)
def arrow_offsets_behind_the_buffer(folder: Path) -> Callable[[], Any]:
    path = within(folder, "a.arrow")
    at = offsets_at(arrow(path))
    return index_and_read(patched(path, (at + 20, struct.pack("<i", 2**31 - 1))))


@attack(KIND, RANGES, "compress")
def an_arrow_body_that_unpacks_to_2_to_the_62_bytes(folder: Path) -> Callable[[], Any]:
    path = within(folder, "a.arrow")
    data = arrow(path, options=pa.ipc.IpcWriteOptions(compression="zstd"))
    at = data.index(b"\x28\xb5\x2f\xfd") - 8
    return index_and_read(patched(path, (at, struct.pack("<q", 2**62))))


@attack(KIND, MEMORY, REFUSED)
def an_arrow_schema_nested_5000_times(folder: Path) -> Callable[[], Any]:
    path = within(folder, "a.arrow")
    kind: Any = pa.binary()
    for _ in range(200):
        kind = pa.struct([("x", kind)])
    schema = pa.schema([("image", kind)])
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, schema):
        pass
    return index_and_read(path)


@attack(KIND, ERROR, REFUSED)
def an_arrow_file_whose_footer_is_as_long_as_2_gib(folder: Path) -> Callable[[], Any]:
    path = within(folder, "a.arrow")
    table = pa.table({"image": pa.array(BLOBS, pa.binary())})
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    size = path.stat().st_size
    return index_and_read(patched(path, (size - 10, struct.pack("<i", 2**31 - 1))))


# ---- LMDB: pages of 4096 bytes, two of them meta pages, the header of a page 16 bytes -----------

PAGE = 4096
META_ROOT = 16 + 24 + 48 + 40  # of a meta page: the main database's root; after magic, version, address, size


@attack(KIND, TAKEN, REFUSED)
def an_lmdb_whose_root_is_its_own_meta_page(folder: Path) -> Callable[[], Any]:
    path = environment(within(folder, "a.lmdb"))
    return index_and_read(patched(path, *((page * PAGE + META_ROOT, bytes(8)) for page in (0, 1))).parent)


@attack(KIND, TAKEN, REFUSED)
def an_lmdb_whose_root_lies_behind_the_file(folder: Path) -> Callable[[], Any]:
    path = environment(within(folder, "a.lmdb"))
    return index_and_read(
        patched(path, *((page * PAGE + META_ROOT, struct.pack("<Q", 2**40)) for page in (0, 1))).parent
    )


@attack(KIND, TAKEN, REFUSED)
def an_lmdb_of_pages_of_one_byte(folder: Path) -> Callable[[], Any]:
    path = environment(within(folder, "a.lmdb"))
    return index_and_read(
        patched(path, *((page * PAGE + 40, struct.pack("<I", 1)) for page in (0, 1))).parent
    )


@attack(KIND, TAKEN, REFUSED)
def an_lmdb_that_says_it_is_2_to_the_60_bytes(folder: Path) -> Callable[[], Any]:
    path = environment(within(folder, "a.lmdb"))
    lies = [(page * PAGE + 32, struct.pack("<Q", 2**60)) for page in (0, 1)]
    lies += [(page * PAGE + META_ROOT + 8, struct.pack("<Q", 2**48)) for page in (0, 1)]
    return index_and_read(patched(path, *lies).parent)


def leaf_at(path: Path) -> int:
    """Where the leaf with the records lies: flags 2 at byte 10 of a page."""
    data = path.read_bytes()
    return max(
        at
        for at in range(2 * PAGE, len(data), PAGE)
        if data[at + 10] == 2 and b"00000004" in data[at : at + PAGE]
    )


@attack(KIND, TAKEN, REFUSED)
def an_lmdb_branch_that_leads_to_itself(folder: Path) -> Callable[[], Any]:
    path = environment(within(folder, "a.lmdb"), large=True)
    at = leaf_at(path)
    node = at + PAGE - 24
    page = at // PAGE
    lies = [(at + 10, b"\1\0"), (at + 12, struct.pack("<HH", 16 + 10, PAGE - 24))]
    lies += [(at + 16 + 2 * i, struct.pack("<H", PAGE - 24)) for i in range(5)]
    lies += [(node, struct.pack("<HHHH", page & 0xFFFF, page >> 16, 0, 8))]
    return index_and_read(patched(path, *lies).parent)


@attack(KIND, TAKEN, REFUSED)
def an_lmdb_value_of_2_to_the_31_bytes(folder: Path) -> Callable[[], Any]:
    path = environment(within(folder, "a.lmdb"), large=True)
    data, at = path.read_bytes(), leaf_at(path)
    key = data.index(b"00000002", at)
    return index_and_read(patched(path, (key - 8, struct.pack("<I", 2**31 - 1))).parent)


@attack(KIND, TAKEN, REFUSED)
def an_lmdb_value_on_a_page_that_there_is_not(folder: Path) -> Callable[[], Any]:
    path = environment(within(folder, "a.lmdb"), large=True)
    data, at = path.read_bytes(), leaf_at(path)
    key = data.index(b"00000002", at)
    return index_and_read(patched(path, (key + 8, struct.pack("<Q", 2**50))).parent)


@attack(KIND, TAKEN, REFUSED)
def an_lmdb_node_behind_its_page(folder: Path) -> Callable[[], Any]:
    path = environment(within(folder, "a.lmdb"))
    at = leaf_at(path)
    return index_and_read(patched(path, (at + 16, b"\xff\xff" * 5)).parent)


@attack(KIND, TAKEN, REFUSED)
def an_lmdb_cut_behind_its_meta_pages(folder: Path) -> Callable[[], Any]:
    path = environment(within(folder, "a.lmdb"))
    path.write_bytes(path.read_bytes()[: 2 * PAGE])
    return index_and_read(path.parent)


@attack(KIND, TAKEN, "its pages take")
def an_lmdb_that_lost_its_last_page(folder: Path) -> Callable[[], Any]:
    path = environment(within(folder, "a.lmdb"), large=True)
    path.write_bytes(path.read_bytes()[:-PAGE])
    return index_and_read(path.parent)


# ---- HDF5 ---------------------------------------------------------------------------------------


@attack(KIND, ELSEWHERE, REFUSED)
def an_hdf5_whose_pictures_are_another_file(folder: Path) -> Callable[[], Any]:
    path = within(folder, "a.h5")
    with h5py.File(path, "w") as file:
        file["image"] = h5py.ExternalLink("/etc/passwd", "/image")
        file["link"] = h5py.SoftLink("/link")
    return index_and_read(path)


@attack(KIND, ELSEWHERE, REFUSED)
def an_hdf5_whose_bytes_are_those_of_etc_passwd(folder: Path) -> Callable[[], Any]:
    path = within(folder, "a.h5")
    with h5py.File(path, "w") as file:
        size = Path("/etc/passwd").stat().st_size
        file.create_dataset("image", (1, 1, size // 3, 3), np.uint8, external=[("/etc/passwd", 0, size)])
    return index_and_read(path)


@attack(KIND, RANGES, REFUSED)
def an_hdf5_with_a_filter_that_is_a_library(folder: Path) -> Callable[[], Any]:
    path = within(folder, "a.h5")
    with h5py.File(path, "w") as file:
        rows = file.create_dataset("image", (2, 8, 8, 3), np.uint8, chunks=(1, 8, 8, 3), compression="gzip")
        rows[...] = 1
    data = path.read_bytes()
    at = data.index(b"deflate") - 8
    return index_and_read(patched(path, (at, struct.pack("<H", 32001))))


@attack(KIND, MEMORY, REFUSED)
def an_hdf5_of_2_to_the_40_rows(folder: Path) -> Callable[[], Any]:
    path = within(folder, "a.h5")
    with h5py.File(path, "w") as file:
        file.create_dataset("image", (2**40,), h5py.vlen_dtype(np.uint8), chunks=(1024,))
    return index_and_read(path)


@attack(KIND, MEMORY, None)
def an_hdf5_of_2_to_the_32_labels_of_nothing(folder: Path) -> Callable[[], Any]:
    path = heap_file(within(folder, "a.h5"))
    with h5py.File(path, "a") as file:
        file.create_dataset("label", (2**32,), np.int64, chunks=(1024,))
    return index_and_read(path)


@attack(KIND, RANGES, REFUSED)
def an_hdf5_of_pictures_that_are_made_up_of_other_files(folder: Path) -> Callable[[], Any]:
    path = within(folder, "a.h5")
    layout = h5py.VirtualLayout((2, 8, 8, 3), np.uint8)
    layout[0] = h5py.VirtualSource("/etc/passwd", "x", (8, 8, 3))
    with h5py.File(path, "w") as file:
        file.create_virtual_dataset("image", layout)
    return index_and_read(path)


# ---- Parquet ------------------------------------------------------------------------------------


@attack(KIND, MEMORY, REFUSED)
def a_parquet_footer_of_2_gib(folder: Path) -> Callable[[], Any]:
    path = within(folder, "a.parquet")
    pq.write_table(pa.table({"image": pa.array(BLOBS, pa.binary())}), path, compression="none")
    return pack_and_read(patched(path, (path.stat().st_size - 8, struct.pack("<I", 2**31 - 1))))


@attack(KIND, MEMORY, REFUSED)
def a_parquet_footer_nested_without_end(folder: Path) -> Callable[[], Any]:
    path = within(folder, "a.parquet")
    footer = b"\x1c" * (4 * MIB)  # structs in structs, as Thrift's compact protocol writes them
    path.write_bytes(b"PAR1" + footer + struct.pack("<I", len(footer)) + b"PAR1")
    return pack_and_read(path)


@attack(KIND, MEMORY, REFUSED)
def a_parquet_page_that_claims_2_to_the_31_values(folder: Path) -> Callable[[], Any]:
    path = within(folder, "a.parquet")
    pq.write_table(
        pa.table({"image": pa.array(BLOBS, pa.binary())}), path, compression="none", use_dictionary=False
    )
    # A page's header begins with three varints: type, and its sizes.
    return pack_and_read(patched(path, (7, b"\xfe\xff\xff\xff\x0f")))
