"""Which files of others a path stands for, and of which format they are."""

from __future__ import annotations

import json
import os
from pathlib import Path

from fastload.errors import FormatError
from fastload.shard.mds import INDEX, shards_of
from fastload.shard.tar_members import BLOCK, is_tar

__all__ = ["find_shards", "format_of_file"]

_SUFFIXES = (".arrow", ".lmdb", ".mdb", ".h5", ".hdf5", ".tar", ".mds", ".parquet")
_LMDB_MAGIC = b"\xde\xc0\xef\xbe"
_COMPRESSED = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
}


def find_shards(path: Path) -> list[Path]:
    """The shard files that ``path`` stands for: itself, or those of an HF or MDS dataset or of a folder.

    Raises:
        FormatError: nothing there, or an HF folder that must be opened otherwise.
    """
    if not path.exists():
        raise FormatError(f"{path} does not exist.")
    if path.is_file() or (path / "data.mdb").exists():
        return [path.absolute()]
    if (path / "dataset_dict.json").exists():
        raise FormatError(f"{path} holds several splits; index one of its folders at a time.")
    if (path / "state.json").exists():
        return _hf_shards(path)
    if (path / INDEX).exists():
        return [shard.absolute() for shard in shards_of(path)]
    found = sorted(p.absolute() for p in path.iterdir() if p.suffix.lower() in _SUFFIXES and p.name[0] != ".")
    tars = {p.stem for p in found if p.suffix.lower() == ".tar"}
    if tars:  # img2dataset writes a table of the same name beside each
        found = [p for p in found if p.suffix.lower() != ".parquet" or p.stem not in tars]
    if not found:
        packed = sorted(p.name for p in path.iterdir() if p.name.lower().endswith((".tar.gz", ".tgz")))
        if packed:
            raise FormatError(_compressed(path / packed[0], "gzip", path))
        raise FormatError(f"{path} holds no {', '.join(_SUFFIXES)} files.")
    return found


def _hf_shards(path: Path) -> list[Path]:
    try:
        state = json.loads((path / "state.json").read_bytes())
        names = [str(file["filename"]) for file in state["_data_files"]]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise FormatError(f"{path / 'state.json'} is not one of an HF dataset: {error!r}") from None
    if state.get("_indices_data_files"):
        raise FormatError(f"{path} has an indices mapping; call flatten_indices() and save it again.")
    if any(os.path.basename(name) != name for name in names):
        raise FormatError(f"{path / 'state.json'} names files outside its folder.")
    return [(path / name).absolute() for name in names]


def format_of_file(path: Path) -> str:
    """The format by the file's first bytes.

    Raises:
        FormatError: none that can be indexed.
    """
    if path.is_dir():
        return "lmdb"
    if path.suffix.lower() == ".mds":  # has no first bytes of its own
        return "mds"
    with open(path, "rb") as file:
        head = file.read(BLOCK)
    if head.startswith(b"\x89HDF\r\n\x1a\n"):
        return "hdf5"
    if head[16:20] == _LMDB_MAGIC:
        return "lmdb"
    if head.startswith((b"ARROW1", b"\xff\xff\xff\xff")):
        return "arrow"
    if head.startswith(b"PAR1"):
        return "parquet"
    if is_tar(head):
        return "tar"
    for magic, word in _COMPRESSED.items():
        if head.startswith(magic):
            raise FormatError(_compressed(path, word, path))
    if path.suffix.lower() == ".tar":
        if head == bytes(BLOCK):  # has no members
            return "tar"
        raise FormatError(f"{path} is not a tar: its first header is cut off or its checksum is wrong.")
    raise FormatError(
        f"{path} is not an Arrow IPC, LMDB, HDF5, tar or MDS file by its first bytes and suffix."
    )


def _compressed(path: Path, word: str, source: Path) -> str:
    return (
        f"{path} cannot be indexed: {word}, so no picture in it is a plain range of bytes; 'fastload pack "
        f"{source} OUTPUT --as wds' packs it."
    )
