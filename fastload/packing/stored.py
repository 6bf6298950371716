"""Sources in a store: listed once, and opened in a folder of this machine that looks like theirs."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from fastload.errors import FastloadError, ObjectMissing, PackError, ShardError
from fastload.machine.paths import exists, is_dir, reading_of
from fastload.machine.temporary import TemporaryFolder
from fastload.packing.fetched import fetch_object
from fastload.packing.files import failed_writes_reported, printable, remove
from fastload.packing.listing import Row
from fastload.packing.options import PackOptions
from fastload.remote.http import RangeFile
from fastload.remote.location import Location
from fastload.remote.opening import open_store
from fastload.remote.store import Store
from fastload.shard.suffixes import TABLES, TEXT_TABLES

# ---- A place in a store, and its files --------------------------------------------------------------

_THREADS = 32  # requests at a time: images are small, and a request takes tens of milliseconds
_LARGE = 64 << 20  # bytes that are not held in memory
_KINDS = {"table": TEXT_TABLES, "tables": TABLES, "yaml": (".yaml", ".yml")}
Names = list[tuple[str, int]]  # path below the source's folder, bytes


@dataclass(frozen=True)
class StoreFiles:
    """The place of a source's files in a store."""

    store: Store
    prefix: str  # of their keys; the rest of a key is the path below the source's folder

    @contextmanager
    def here(self, rows: Sequence[Row], folder: Path) -> Iterator[bytes]:
        """Fetch the files of rows into a folder, and yield it; see :class:`fastload.packing.rows.Files`."""
        remove(folder)
        try:
            self.fetch(((row.files, row.size) for row in rows), folder)
            yield os.fsencode(folder)
        finally:
            remove(folder)

    def fetch(self, files: Iterable[tuple[bytes, int]], folder: Path) -> None:
        """Fetch files of known sizes into a folder; those that are gone are left out.

        Raises:
            PackError: a file has another size.
            RemoteError: the store does not deliver a file.
        """
        wanted = list(files)
        for parent in {os.path.dirname(path) for path, _ in wanted} | {b""}:
            (folder / os.fsdecode(parent)).mkdir(parents=True, exist_ok=True)
        with ThreadPoolExecutor(_THREADS, "fetch") as pool:
            try:
                for _ in pool.map(lambda file: self._fetch_one(folder, *file), wanted):
                    pass
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise

    def _fetch_one(self, folder: Path, path: bytes, size: int) -> None:
        name = path.decode()
        key, file = self.prefix + name, folder / name
        try:
            if size > _LARGE:
                facts = self.store.head(key)
                found = -1 if facts is None else facts.size
                if found == size:
                    fetch_object(self.store, key, size, file)
            else:
                data = self.store.get(key)
                found = len(data)
        except ObjectMissing:
            found = -1
        if found < 0:
            file.unlink(missing_ok=True)
            return  # packing reports it, like any file that is gone
        if found != size:
            raise _changed(self.store.root / key, size, found)
        if size <= _LARGE:
            with failed_writes_reported(file, size):
                file.write_bytes(data)


def _changed(location: Location, before: int, now: int) -> PackError:
    return PackError(
        f"the source has changed since this pack was planned: {location} had {before} bytes, and has {now}. "
        "--restart throws the unfinished pack away."
    )


class StorePlace:
    """A source by URL, which is listed when somebody asks, and then once.

    Args:
        url: a folder's, or that of a table or of a ``data.yaml`` with files beside it.
        storage_options: the store's options.

    Raises:
        PackError: the URL is invalid.
    """

    def __init__(self, url: str, storage_options: Mapping[str, Any] | None) -> None:
        self.url = url
        try:
            self.location = Location.parse(url)
        except ValueError as error:
            raise PackError(str(error)) from None
        name = self.location.name.lower()
        self.pattern = self.location.path if set("*?[") & set(name) else ""
        #: What its name says: a "folder", a "table" or a "yaml" with other files beside it, or "tables".
        self.kind = next((kind for kind, suffixes in _KINDS.items() if name.endswith(suffixes)), "folder")
        self.kind = "tables" if self.pattern else self.kind
        self.folder = self.location if self.kind == "folder" else self.location.parent
        store = open_store(self.location, None if self.location.scheme == "file" else storage_options)
        self.files = StoreFiles(store, f"{self.folder.path}/" if self.folder.path else "")

    def __str__(self) -> str:
        return str(self.location)

    @cached_property
    def names(self) -> Names:
        """The files in its folder, by their paths below it.

        Raises:
            PackError: a key is no path.
            RemoteError: the store cannot be listed.
        """
        return self._below(self.files.prefix)

    def _below(self, prefix: str) -> Names:
        names = [
            (file.path[len(prefix) :], file.size)
            for file in self.files.store.list(prefix)
            if not file.path.endswith("/") and not file.path[len(prefix) :].startswith(".fastload")
        ]
        for name, _ in names:
            parts = name.split("/")
            if {"", ".", ".."} & set(parts) or len(os.fsencode(max(parts, key=len))) > 255:
                root = self.files.store.root
                raise PackError(f"the key {prefix + name!r} of {root} cannot be the path of a file.")
        return names

    @cached_property
    def table(self) -> FolderCopy:
        """A copy of the folder in which the table is opened.

        Raises:
            PackError: there is no such table.
        """
        if self.location.name not in {name for name, _ in self.names}:
            raise PackError(f"{self} does not exist.")
        made = self.copied(PackOptions())[0]
        names = (self.location.name, self.location.name.rpartition(".")[0] + ".schema.json")
        made.fetch(name for name, _ in self.names if name in names)
        return made

    def copied(self, options: PackOptions) -> tuple[FolderCopy, Path, PackOptions]:
        """Return a copy of the folder and of what the options name beside it, where the source is in it, and
        the options with paths in it.

        Raises:
            PackError, LocationError: a key is no path, or a name is that of no place in this store.
        """
        masks, annotations = options.masks, [self.folder / name for name in options.annotations]
        beside = [place.parent for place in annotations]  # with PNGs that go with them
        beside += [self.folder / masks] if masks else []
        folders = [self.folder.path, *(place.path for place in beside)]
        top = replace(self.folder, path=posixpath.commonpath(folders))
        files = StoreFiles(self.files.store, f"{top.path}/" if top.path else "")
        names = {self.files.prefix + name: size for name, size in self.names}
        for path in folders:
            prefix = f"{path}/" if path else ""
            if not prefix.startswith(self.files.prefix):
                names |= {prefix + name: size for name, size in self._below(prefix)}
        made = FolderCopy(top, files, [(name[len(files.prefix) :], size) for name, size in names.items()])
        options = replace(
            options,
            annotations=tuple(str(made.path_of(place)) for place in annotations),
            masks=str(made.path_of(self.folder / masks)) if masks else None,
        )
        return made, made.path_of(self.location), options


Source = str | os.PathLike[str] | StorePlace


# ---- One file of a table, on this machine or in a store ---------------------------------------------


@dataclass(frozen=True)
class TableFile:
    """One file of a table; pyarrow is imported when it is opened.

    Args:
        name: its path or URL, for messages.
        size: bytes.
        path: its path on this machine, or its key in a store.
        store: the store; None: this machine.
        version: a commit or an ETag of the store, which with name and size tells files apart.
        mtime_ns: when it was modified, on this machine.
    """

    name: str
    size: int
    path: str
    store: Store | None = None
    version: str = ""
    mtime_ns: int = 0

    @property
    def is_parquet(self) -> bool:
        """Whether its name says Parquet; otherwise it is Arrow IPC."""
        return self.path.lower().endswith(".parquet")

    @contextmanager
    def opened(self) -> Iterator[Any]:
        """Open the file for pyarrow.

        Raises:
            PackError: the file cannot be read, is damaged, or does not fit into memory.
        """
        import pyarrow as pa

        try:
            if self.store is None:
                with pa.OSFile(self.path) as local:
                    yield local
            else:
                with RangeFile(self.store, self.path, self.size) as remote:
                    yield pa.PythonFile(remote, mode="r")
        except pa.ArrowMemoryError as error:  # a page of any size may be packed into a few bytes
            raise PackError(
                f"{self.name} needs more memory than this process can take: {str(error).rstrip('.')}. "
                "Write it with smaller pages and row groups, or allow more memory."
            ) from error
        except (OSError, ValueError) as error:  # pyarrow's are some of these
            kind = "Parquet" if self.is_parquet else "Arrow IPC"
            of_system = isinstance(error, ShardError) or (isinstance(error, OSError) and error.errno)
            what = "cannot be read" if of_system else f"is not a whole {kind} file"
            raise PackError(f"{self.name} {what}: {str(error).rstrip('.')}.") from error


# ---- A folder of this machine that looks like one in a store ----------------------------------------


class _NotFetched(Exception):
    """A store's failure on its way past readers that take errors for those of their file."""

    def __init__(self, error: FastloadError) -> None:
        super().__init__(str(error))
        self.error = error


class FolderCopy:
    """A copy of a folder of a store: its files have their names and sizes, and their bytes when somebody
    wants them. It is removed with its owner, and used by other processes of this machine until then.

    Args:
        location: the folder.
        files: its files in the store.
        names: their names and sizes.
    """

    def __init__(self, location: Location, files: StoreFiles, names: Names) -> None:
        self.location, self._files = location, files
        self.names = [name for name, _ in names]
        self._folder = TemporaryFolder("source")
        self.path = self._folder.path / (location.name or "files")
        for parent in {posixpath.dirname(name) for name, _ in names} | {""}:
            (self.path / parent).mkdir(parents=True, exist_ok=True)
        for name, size in names:
            place = self.path / name
            if not is_dir(place):  # some programs write an empty object for each folder
                place.touch()
                os.truncate(place, size)
                os.utime(place, (0, 0))  # until it has its bytes

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "names": []}  # only its owner opens it

    @property
    def root(self) -> bytes:
        """Its path."""
        return os.fsencode(self.path)

    def path_of(self, location: Location) -> Path:
        """Return where a place in the store is in the copy."""
        return self.path / location.path[len(self.location.path) :].strip("/")

    def fetch(self, names: Iterable[str]) -> None:
        """Fetch the bytes of files.

        Raises:
            PackError, RemoteError: see :meth:`StoreFiles.fetch`.
        """
        missing = [os.fsencode(name) for name in names]
        self._files.fetch([(name, size) for name in missing if (size := self._missing(name)) >= 0], self.path)

    def _missing(self, name: bytes) -> int:
        """Return the bytes that a file will have; -1: it has them already, or does not exist."""
        try:
            status = os.stat(os.path.join(self.root, name))
        except OSError:
            return -1
        return status.st_size if status.st_mtime_ns == 0 else -1

    @contextmanager
    def opening(self) -> Iterator[None]:
        """Fetch each file that is opened meanwhile, and name the store's folder in errors."""

        def fetch_one(path: str | bytes | os.PathLike[str]) -> None:
            inside = os.path.relpath(os.fsencode(path), self.root)
            if inside.startswith(b"../"):
                return
            try:
                self.fetch([os.fsdecode(inside)])
            except FastloadError as error:
                raise _NotFetched(error) from error

        former = reading_of.set(fetch_one)
        try:
            with self.named():
                yield
        except _NotFetched as wrapped:
            raise wrapped.error from None
        finally:
            reading_of.reset(former)

    @contextmanager
    def named(self, root: bytes = b"") -> Iterator[None]:
        """Name the store's folder in errors in place of the copy, or of the folder ``root`` that has fetched
        files."""
        try:
            yield
        except FastloadError as error:
            error.args = tuple(self.words(arg, root) if isinstance(arg, str) else arg for arg in error.args)
            raise

    def words(self, text: str, root: bytes = b"") -> str:
        """Return a text with the store's folder in place of the copy."""
        for path in {self.root, root} - {b""}:
            text = text.replace(os.fsdecode(path), str(self.location).rstrip("/"))
        return text

    def row(self, row: Row, root: bytes) -> Row:
        """Return a row whose files are named from the copy on, not from a folder in it.

        Raises:
            PackError: a file lies outside.
        """
        names = []
        for name in row.files.split(b"\0") if row.files else ():
            inside = os.path.relpath(os.path.join(root, name), self.root)
            if inside.startswith(b"../"):
                shown = inside if name.startswith(os.path.dirname(self.root)) else name
                raise PackError(
                    f"{printable(shown)} does not lie in {self.location}, and cannot be fetched from there. "
                    "Name files by their paths below that."
                )
            names.append(inside)
        return row._replace(files=b"\0".join(names), mtime_ns=0)

    @contextmanager
    def here(self, rows: Sequence[Row], folder: Path) -> Iterator[bytes]:
        """Fetch the files of rows into a folder, and yield it; see :class:`fastload.packing.rows.Files`."""
        remove(folder)
        try:
            names = set()
            for row in rows:
                names |= self._checked(row)
            missing = {name: size for name in names if (size := self._missing(name)) >= 0}
            self._files.fetch(missing.items(), folder)
            for name in map(os.fsdecode, names - missing.keys()):
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).symlink_to(self.path / name)
            yield os.fsencode(folder)
        finally:
            remove(folder)

    def _checked(self, row: Row) -> set[bytes]:
        """Return those of a row's files that exist; raise PackError if they have other sizes than planned."""
        names = row.files.split(b"\0") if row.files else []
        places = [os.path.join(self.root, name) for name in names]
        sizes = [os.stat(place).st_size if exists(os.fsdecode(place)) else -1 for place in places]
        if names and min(sizes) >= 0 and sum(sizes) != row.size:
            raise _changed(self.location / os.fsdecode(names[0]), row.size, sum(sizes))
        return {name for name, size in zip(names, sizes, strict=True) if size >= 0}
