"""Tars and MDS shards that lie, given to ``fastload index`` and ``fastload pack``."""

from __future__ import annotations

import io
import json
import os
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from attack_rules import MIB, Rule, attack, honest
from mds_reference import write_mds
from tar_reference import write_tar
from uses import BLOBS, index_and_read, pack_and_read

KIND = "archives"
PACKED = "packed archives"  # packing reserves addresses for records of any legal length
TARS = Rule("FORMAT.md", "Indexed datasets", "tars as WebDataset reads them (ustar, GNU tar or pax)")
MDS = Rule("FORMAT.md", "Indexed datasets", "MosaicML Streaming's MDS shards")
RANGES = Rule(
    "FORMAT.md",
    "Indexed datasets",
    "Whatever is not a plain byte range there (compressed batches, chunks with filters, sparse "
    "members) is refused.",
)
MEMORY = Rule("SECURITY.md", "What is trusted", "take memory without a bound")
NAMES = Rule("FORMAT.md", "Keys", "A key MUST NOT be used as a path without a check")
REFUSED = "."
MEMBERS = [(f"{i}.{s}", d) for i in range(5) for s, d in (("jpg", BLOBS[i]), ("cls", b"%d" % i))]
ROWS = [{"image": blob, "y": number} for number, blob in enumerate(BLOBS)]


def tar(folder: Path, members: list[tuple[str, bytes]] = MEMBERS) -> Path:
    folder.mkdir()
    return write_tar(folder / "a.tar", members)


def mds(folder: Path, **changes: Any) -> Path:
    """A folder of one shard, whose entry in index.json is changed."""
    folder.mkdir()
    place = write_mds(folder / "mds", {"image": "jpeg", "y": "int"}, ROWS)
    body = json.loads((place / "index.json").read_text())
    body["shards"][0] |= changes
    (place / "index.json").write_text(json.dumps(body))
    return place


def shard_changed(folder: Path, at: int, value: bytes) -> Path:
    place = mds(folder)
    path = place / "shard.00000.mds"
    data = bytearray(path.read_bytes())
    data[at : at + len(value)] = value
    path.write_bytes(data)
    return place


@honest(KIND)
def a_small_tar(folder: Path) -> Callable[[], Any]:
    return index_and_read(tar(folder))


@honest(PACKED)
def a_small_tar_packed(folder: Path) -> Callable[[], Any]:
    return pack_and_read(tar(folder), as_="wds")


@honest(KIND)
def a_small_mds(folder: Path) -> Callable[[], Any]:
    return index_and_read(mds(folder))


@attack(KIND, MEMORY, REFUSED)
def a_tar_member_of_8_eib(folder: Path) -> Callable[[], Any]:
    path = tar(folder)
    data = bytearray(path.read_bytes())
    data[124:136] = b"\x80" + b"\0" * 3 + b"\x7f" + b"\xff" * 7
    head = data[:512]
    head[148:156] = b" " * 8
    data[148:156] = b"%06o\0 " % sum(head)
    path.write_bytes(data)
    return index_and_read(path)


@attack(KIND, MEMORY, REFUSED)
def a_tar_with_a_long_name_of_64_mib(folder: Path) -> Callable[[], Any]:
    path = tar(folder)
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 64 * MIB
    path.write_bytes(info.tobuf(tarfile.GNU_FORMAT) + b"x" * (64 * MIB) + path.read_bytes())
    return index_and_read(path)


@attack(PACKED, MEMORY, REFUSED)
def a_tar_with_a_pax_header_of_64_mib_to_be_packed(folder: Path) -> Callable[[], Any]:
    path = tar(folder)
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as file:
        info = tarfile.TarInfo("9.jpg")
        info.pax_headers = {"comment": "x" * (64 * MIB)}
        file.addfile(info, io.BytesIO())
    path.write_bytes(out.getvalue()[: -2 * 512] + path.read_bytes())
    return pack_and_read(path, as_="wds")


@attack(KIND, TARS, None)
def a_tar_of_zeros(folder: Path) -> Callable[[], Any]:
    path = tar(folder)
    path.write_bytes(bytes(1 << 20))
    return index_and_read(path)


@attack(KIND, RANGES, REFUSED)
def a_tar_packed_by_gzip(folder: Path) -> Callable[[], Any]:
    path = tar(folder)
    with tarfile.open(path.with_suffix(".tar.gz"), "w:gz") as file:
        file.add(path, "a.jpg")
    return index_and_read(path.with_suffix(".tar.gz"))


@attack(KIND, TARS, None)
def a_tar_of_devices_and_fifos(folder: Path) -> Callable[[], Any]:
    folder.mkdir()
    with tarfile.open(folder / "a.tar", "w") as file:
        for number, kind in enumerate((tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.LNKTYPE, tarfile.SYMTYPE)):
            info = tarfile.TarInfo(f"{number}.jpg")
            info.type, info.linkname = kind, "/etc/passwd"
            file.addfile(info)
    return index_and_read(folder / "a.tar")


@attack(KIND, TARS, "too deeply|nested|JSON|recursion")
def a_tar_with_json_of_a_million_brackets(folder: Path) -> Callable[[], Any]:
    members = [("0.jpg", BLOBS[0]), ("0.json", b"[" * 10**6 + b"]" * 10**6)]
    return index_and_read(tar(folder, members))


@attack(PACKED, MEMORY, REFUSED)
def a_tar_with_an_npy_of_2_to_the_60_numbers(folder: Path) -> Callable[[], Any]:
    head = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1152921504606846976,), }"
    npy = b"\x93NUMPY\1\0" + (len(head) + 1).to_bytes(2, "little") + head + b"\n"
    return pack_and_read(tar(folder, [("0.jpg", BLOBS[0]), ("0.npy", npy)]), as_="wds")


@attack(PACKED, TARS, REFUSED)
def a_tar_with_a_pickle(folder: Path) -> Callable[[], Any]:
    pickle = b"cposix\nsystem\n(S'touch /tmp/attacked'\ntR."
    npy = b"\x93NUMPY\1\0" + (70).to_bytes(2, "little")
    npy += b"{'descr': '|O', 'fortran_order': False, 'shape': (1,), }".ljust(69) + b"\n" + pickle
    return pack_and_read(tar(folder, [("0.jpg", BLOBS[0]), ("0.npy", npy)]), as_="wds")


@attack(KIND, MDS, "no file of its folder")
def an_mds_shard_outside_of_its_folder(folder: Path) -> Callable[[], Any]:
    return index_and_read(mds(folder, raw_data={"basename": "../../etc/passwd", "bytes": 9, "hashes": {}}))


@attack(KIND, MDS, REFUSED)
def an_mds_shard_with_a_nul_in_its_name(folder: Path) -> Callable[[], Any]:
    return index_and_read(mds(folder, raw_data={"basename": "a\0b", "bytes": 9, "hashes": {}}))


@attack(KIND, MDS, REFUSED)
def an_mds_shard_that_is_a_fifo(folder: Path) -> Callable[[], Any]:
    place = mds(folder, raw_data={"basename": "shard.00000.mds", "bytes": 0, "hashes": {}})
    (place / "shard.00000.mds").unlink()
    os.mkfifo(place / "shard.00000.mds")
    return index_and_read(place)


@attack(KIND, MDS, REFUSED)
def an_mds_index_that_is_a_fifo(folder: Path) -> Callable[[], Any]:
    place = mds(folder)
    (place / "index.json").unlink()
    os.mkfifo(place / "index.json")
    return index_and_read(place)


@attack(KIND, MEMORY, REFUSED)
def an_mds_shard_of_2_to_the_32_samples(folder: Path) -> Callable[[], Any]:
    return index_and_read(mds(folder, samples=2**32 - 1))


@attack(KIND, MDS, REFUSED)
def an_mds_shard_of_minus_one_sample(folder: Path) -> Callable[[], Any]:
    return index_and_read(mds(folder, samples=-1))


@attack(KIND, MDS, REFUSED)
def an_mds_shard_of_infinitely_many_samples(folder: Path) -> Callable[[], Any]:
    return index_and_read(mds(folder, samples=float("inf")))


@attack(KIND, MDS, REFUSED)
def an_mds_column_of_minus_8_bytes(folder: Path) -> Callable[[], Any]:
    return index_and_read(mds(folder, column_sizes=[None, -8]))


@attack(KIND, MDS, REFUSED)
def an_mds_column_of_2_to_the_70_bytes(folder: Path) -> Callable[[], Any]:
    return index_and_read(mds(folder, column_sizes=[None, 2**70]))


@attack(KIND, MDS, REFUSED)
def mds_columns_that_are_numbers(folder: Path) -> Callable[[], Any]:
    return index_and_read(mds(folder, column_names=[1, {}], column_encodings=[[], 2]))


@attack(KIND, MEMORY, REFUSED)
def an_mds_array_of_2_to_the_60_numbers(folder: Path) -> Callable[[], Any]:
    return index_and_read(mds(folder, column_encodings=["jpeg", "ndarray:float64:1073741824,1073741824"]))


@attack(KIND, MDS, REFUSED)
def mds_samples_that_lie_behind_the_file(folder: Path) -> Callable[[], Any]:
    return index_and_read(shard_changed(folder, 12, b"\xff" * 8))


@attack(KIND, MDS, REFUSED)
def an_mds_picture_longer_than_its_sample(folder: Path) -> Callable[[], Any]:
    place = mds(folder)
    begin = int.from_bytes((place / "shard.00000.mds").read_bytes()[4:8], "little")
    data = bytearray((place / "shard.00000.mds").read_bytes())
    data[begin : begin + 4] = b"\xff" * 4
    (place / "shard.00000.mds").write_bytes(data)
    return index_and_read(place)
