"""Files of other programs that a path or URL names, on disk or in a store, and their format."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BufferedReader
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from fastload.errors import FormatError, PackError
from fastload.machine.paths import exists, is_dir, is_file, meant
from fastload.machine.threads import started_pool
from fastload.packing.fetched import THREADS, fetch_object
from fastload.packing.folders import is_split
from fastload.remote.http import RangeFile
from fastload.remote.location import Location
from fastload.remote.opening import shared_store
from fastload.remote.store import Store
from fastload.shard.mds import INDEX, shards_of
from fastload.shard.suffixes import COMPRESSED_TARS, INDEXED, TABLES, is_image
from fastload.shard.tar import BLOCK, is_tar

# ---- The files that a path stands for, and their format ---------------------------------------------

_Named = TypeVar("_Named", bound="Path | StoredTar")
_BRACES = re.compile(r"\{(?:(\d{1,9})\.\.(\d{1,9})|([^{},]*(?:,[^{},]*)+))\}")
_MOST_BRACED = 1_000_000
_AT_ONCE = 2 << 20  # bytes of one request
_LMDB_MAGIC = b"\xde\xc0\xef\xbe"
_COMPRESSED = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
}


def braced(given: str | os.PathLike[str]) -> list[str]:
    """Expand ``{000..099}`` and ``{a,b}`` in a path or URL, like WebDataset and shells; return the path
    itself if there is such a file.

    Raises:
        FormatError: a range has no end, or there are too many files.
    """
    text = os.fspath(given)
    match = _BRACES.search(text)
    if match is None or exists(text):
        return [text]
    before, after = text[: match.start()], braced(text[match.end() :])
    if match[3] is not None:
        words = match[3].split(",")
    else:
        first, last = int(match[1]), int(match[2])
        if not 0 <= last - first < _MOST_BRACED:
            raise FormatError(
                f"{text}: {match[0]} must be at most {_MOST_BRACED} numbers, the smaller one first."
            )
        padded = any(len(word) > 1 and word[0] == "0" for word in (match[1], match[2]))
        width = max(len(match[1]), len(match[2])) if padded else 0
        words = [f"{number:0{width}d}" for number in range(first, last + 1)]
    if len(words) * len(after) > _MOST_BRACED:
        raise FormatError(f"{text}: it stands for {len(words) * len(after)} files; at most {_MOST_BRACED}.")
    return [before + word + rest for word in words for rest in after]


def find_shards(path: Path) -> list[Path]:
    """Return the shard files that ``path`` stands for: itself, or those of an HF or MDS dataset or a folder.

    Raises:
        FormatError: there are none, or an HF folder must be opened otherwise.
    """
    if not exists(path):
        glob = " Leave the quotes out, so that the shell expands it." if "*" in path.name else ""
        raise FormatError(f"{path} does not exist.{glob or meant(path) or ' Check the path.'}")
    if is_file(path) or exists(path / "data.mdb"):
        return [path.absolute()]
    if exists(path / "dataset_dict.json"):
        raise FormatError(f"{path} holds several splits; index one of its folders at a time.")
    if exists(path / "state.json"):
        return _hf_shards(path)
    if exists(path / INDEX):
        return [shard.absolute() for shard in shards_of(path)]
    visible = [p.absolute() for p in path.iterdir() if p.name[0] != "."]
    shards = sorted(p for p in visible if p.suffix.lower() in INDEXED)
    tars = {p.stem for p in shards if p.suffix.lower() == ".tar"}
    if any(p.suffix.lower() == ".parquet" and p.stem not in tars for p in visible):  # img2dataset: one a tar
        raise _is_parquet(path)
    splits = by_split(shards)
    if len(splits) > 1:
        first = next(iter(splits.values()))[0].name
        raise FormatError(
            f"{path} holds files of several splits by their names ({', '.join(map(repr, splits))}, as "
            f"{first}); index the files of each apart."
        )
    if not shards:
        parts = sorted(p.name for p in path.iterdir() if is_dir(p) and is_split(p.name))
        if parts:
            raise FormatError(f"{path} holds several splits; index {path / parts[0]} and the others apart.")
        packed = sorted(p.name for p in path.iterdir() if p.name.lower().endswith(COMPRESSED_TARS))
        if packed:
            raise FormatError(_compressed(path / packed[0], _word_of(path / packed[0]), path))
        below = next((p for p in sorted(path.iterdir()) if _has_shards(p)), None)
        more = f" itself; index {below}" if below is not None else ""
        if _has_pictures(path) or any(_has_pictures(folder) for folder in path.iterdir()):
            more += f"; 'fastload pack {path} OUTPUT' packs pictures that are files of their own"
        raise FormatError(f"{path} holds no {', '.join(INDEXED)} files{more or '; give a folder that does'}.")
    return shards


def _has_shards(path: Path) -> bool:
    """Whether a folder holds files that can be indexed, for a message."""
    if not is_dir(path):
        return False
    known, suffixes = (INDEX, "state.json", "data.mdb"), (*INDEXED, *TABLES)
    return any(name in known or name.lower().endswith(suffixes) for name in os.listdir(path))


def _has_pictures(path: Path) -> bool:
    """Whether a folder holds files that are pictures by their names, for a message."""
    return is_dir(path) and any(map(is_image, os.listdir(path)))


def by_split(paths: Sequence[_Named]) -> dict[str, list[_Named]]:
    """Group files by the split that a word of their names says, as in ``set-train-000.tar`` or
    ``val-00001-of-00004.parquet``; all under ``""`` if there are not at least two."""
    splits: dict[str, list[_Named]] = {}
    for path in paths:
        words = re.split(r"[^a-z]+", path.name.partition(".")[0].lower())
        splits.setdefault(next(filter(is_split, words), ""), []).append(path)
    return splits if len(splits.keys() - {""}) > 1 else {"": list(paths)}


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
    """Return the format by the file's first bytes.

    Raises:
        FormatError: the format cannot be indexed.
    """
    if is_dir(path):
        return "lmdb"
    if path.suffix.lower() == ".mds":  # it has no fixed first bytes
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
        raise _is_parquet(path)
    if is_tar(head):
        return "tar"
    if any(map(head.startswith, _COMPRESSED)):
        raise FormatError(_compressed(path, _word_of(path), path))
    if path.suffix.lower() == ".tar":
        if head == bytes(BLOCK):  # has no members
            return "tar"
        raise FormatError(f"{path} is not a tar: its first header is cut off or its checksum is wrong.")
    raise FormatError(
        f"{path} is not an Arrow IPC, LMDB, HDF5, tar or MDS file by its first bytes and suffix."
    )


def _word_of(path: Path) -> str:
    """Return how a file is compressed, in a word."""
    with open(path, "rb") as file:
        head = file.read(8)
    return next((word for magic, word in _COMPRESSED.items() if head.startswith(magic)), "compressed")


def _is_parquet(path: Path) -> FormatError:
    return FormatError(
        f"{path} cannot be indexed: Parquet files are not read in place. 'fastload pack {path} OUTPUT' packs "
        "them."
    )


def _compressed(path: Path, word: str, source: Path) -> str:
    return (
        f"{path} cannot be indexed: {word}, so no picture in it is a plain range of bytes; 'fastload pack "
        f"{source} OUTPUT --as wds' packs it."
    )


# ---- Tars in a store, each copied here while it is indexed ------------------------------------------


@dataclass(frozen=True)
class StoredTar:
    """A tar in a store."""

    location: Location
    store: Store = field(repr=False, compare=False)
    size: int = 0  # bytes
    etag: str = ""

    @property
    def name(self) -> str:
        """The last part of its URL."""
        return self.location.name

    @property
    def stem(self) -> str:
        """The name without suffixes."""
        return PurePosixPath(self.name).stem

    def __str__(self) -> str:
        return str(self.location)

    def opened(self) -> BufferedReader:
        """Open the tar, to be read from any place on."""
        return BufferedReader(RangeFile(self.store, self.location.path, self.size), _AT_ONCE)

    @contextmanager
    def here(self, path: Path) -> Iterator[Path]:
        """Copy the tar to ``path`` for the duration of the context; errors name the URL.

        Raises:
            RemoteError: the store does not deliver it.
            PackError: it has changed meanwhile.
        """
        try:
            fetch_object(self.store, self.location.path, self.size, path)
            now = self.store.head(self.location.path)
            if now is None or (now.size, now.etag) != (self.size, self.etag):
                raise PackError(
                    f"{self} was changed while it was indexed. Index it again when it is finished."
                )
            yield path
        except FormatError as error:
            pack = f"'fastload pack {self.name} "
            text = str(error).replace(f"'fastload pack {path} ", f"on a machine that has it {pack}")
            raise type(error)(text.replace(str(path), str(self))) from None
        finally:
            path.unlink(missing_ok=True)


def tars_at(urls: Sequence[str], storage_options: Mapping[str, Any] | None) -> list[StoredTar]:
    """Return the tars that URLs stand for: themselves, or those of a folder, by name.

    Raises:
        PackError: they are in several stores.
        FormatError: there is none at one of the URLs, or something else.
        RemoteError: the store does not answer.
    """
    places = [Location.parse(url) for url in urls]
    roots = dict.fromkeys(place.root for place in places)
    if len(roots) > 1:
        raise PackError(f"files of several stores cannot share an index: {', '.join(map(str, roots))}.")
    store = shared_store(places[0], storage_options)
    return stored_tars([tar for place in places for tar in _below(place, store)], store)


def stored_tars(tars: Sequence[Location], store: Store) -> list[StoredTar]:
    """Return tars of one store, with their sizes.

    Raises:
        FormatError: one of them does not exist.
        RemoteError: the store does not answer.
    """
    with started_pool(THREADS, "look") as pool:
        facts = list(pool.map(lambda place: store.head(place.path), tars))
    missing = next((place for place, fact in zip(tars, facts, strict=True) if fact is None), None)
    if missing is not None:
        raise FormatError(f"{missing} does not exist.")
    return [
        StoredTar(place, store, fact.size, fact.etag)
        for place, fact in zip(tars, facts, strict=True)
        if fact is not None
    ]


def _below(place: Location, store: Store) -> list[Location]:
    if place.name.lower().endswith(".tar"):
        return [place]
    if place.name.lower().endswith((*COMPRESSED_TARS, *INDEXED, *TABLES)):
        raise FormatError(
            f"{place}: of files in a store uncompressed tars are indexed. Copy it to this machine: 'fastload "
            "index' and 'fastload pack' take more there."
        )
    if place.scheme in ("http", "https"):
        raise FormatError(
            f"{place}: a web server has no listing. Give the URLs of its tars, as "
            f"{place}/{{00000..00099}}.tar."
        )
    prefix = f"{place.path}/" if place.path else ""
    names = [each.path for each in store.list(prefix)]
    tars = sorted(n for n in names if n.lower().endswith(".tar") and "/" not in n[len(prefix) :])
    if not tars:
        raise FormatError(f"{place} holds no .tar files ({len(names)} objects of other names, or below).")
    return [place.root / name for name in tars]


def contents_of(tars: Sequence[StoredTar]) -> str:
    """Return a digest that changes when one of these gets other contents."""
    hashed = hashlib.blake2b(digest_size=16)
    for tar in tars:
        hashed.update(repr((tar.size, tar.etag)).encode())
    return hashed.hexdigest()
