"""Tars of others in a store: which a URL stands for, and each of them here for as long as it is indexed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from fastload.errors import FormatError, PackError
from fastload.machine.threads import started_pool
from fastload.packing.fetched import THREADS, fetch_object
from fastload.remote.location import Location
from fastload.remote.opening import shared_store
from fastload.remote.store import Store
from fastload.shard.suffixes import COMPRESSED_TARS, INDEXED, TABLES

__all__ = ["StoredTar", "contents_of", "tars_at"]


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
        """Likewise, without suffix."""
        return PurePosixPath(self.name).stem

    def __str__(self) -> str:
        return str(self.location)

    @contextmanager
    def here(self, path: Path) -> Iterator[Path]:
        """A copy at ``path``, meanwhile; errors speak of the URL.

        Raises:
            RemoteError: the store does not give it.
            PackError: it is another one by now.
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
    """The tars that URLs stand for: themselves, or those of a folder, by name.

    Raises:
        PackError: they are in several stores.
        FormatError: there is none at one of the URLs, or something else.
        RemoteError: the store does not tell.
    """
    places = [Location.parse(url) for url in urls]
    roots = dict.fromkeys(place.root for place in places)
    if len(roots) > 1:
        raise PackError(f"files of several stores cannot share an index: {', '.join(map(str, roots))}.")
    store = shared_store(places[0], storage_options)
    found = [tar for place in places for tar in _below(place, store)]
    with started_pool(THREADS, "look") as pool:
        facts = list(pool.map(lambda place: store.head(place.path), found))
    missing = next((place for place, fact in zip(found, facts, strict=True) if fact is None), None)
    if missing is not None:
        raise FormatError(f"{missing} does not exist.")
    return [
        StoredTar(place, store, fact.size, fact.etag)
        for place, fact in zip(found, facts, strict=True)
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
    """What changes when one of these gets other contents."""
    hashed = hashlib.blake2b(digest_size=16)
    for tar in tars:
        hashed.update(repr((tar.size, tar.etag)).encode())
    return hashed.hexdigest()
