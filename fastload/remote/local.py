"""``file://``: the file system as a store."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fastload.errors import ObjectMissing, RemoteError
from fastload.remote.location import Location
from fastload.remote.store import Facts, Listed

_TEMPORARY = ".tmp-"


class LocalStore:
    """The file system of this machine. Paths are absolute, without their first slash.

    A file is written under a temporary name in its folder, synced and renamed, so it appears complete or not
    at all.
    """

    def __init__(self) -> None:
        self.root = Location("file", "")

    def __reduce__(self) -> Any:
        return LocalStore, ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def head(self, path: str) -> Facts | None:
        """See :class:`~fastload.remote.store.Store`; the etag combines inode, time and size."""
        try:
            status = os.stat(_local(path))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise _failed(path, "looked at", error) from error
        return Facts(status.st_size, f"{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_size:x}")

    def get(self, path: str, begin: int = 0, end: int | None = None, most: int | None = None) -> bytes:
        """See :class:`~fastload.remote.store.Store`."""
        try:
            with open(_local(path), "rb") as file:
                file.seek(begin)
                wanted = end - begin if end is not None else -1 if most is None else most + 1
                data = file.read(wanted)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise ObjectMissing(f"{self.root}{path} does not exist.") from error
        except OSError as error:
            raise _failed(path, "read", error) from error
        if end is None and most is not None and len(data) > most:
            raise RemoteError(f"{self.root}{path} has over {most} bytes, and may have {most} at most.")
        if end is not None and len(data) != end - begin:
            raise RemoteError(
                f"{self.root}{path} ends at byte {begin + len(data)}. Wanted: {begin} to {end}."
            )
        return data

    def list(self, prefix: str) -> Iterator[Listed]:
        """See :class:`~fastload.remote.store.Store`; temporary files are left out."""
        folder = _local(prefix.rpartition("/")[0])

        def failed(error: OSError) -> None:
            if not isinstance(error, FileNotFoundError | NotADirectoryError):
                raise _failed(str(error.filename)[1:], "listed", error) from error

        below = os.walk(folder, onerror=failed)
        found = [
            path.as_posix()[1:]
            for path in (Path(at) / name for at, _, names in below for name in names)
            if not path.name.startswith(_TEMPORARY)
        ]
        for path in sorted(found):
            facts = self.head(path) if path.startswith(prefix) else None
            if facts is not None:
                yield Listed(path, facts.size)

    def put(self, path: str, data: bytes, *, if_absent: bool = False) -> bool:
        """See :class:`~fastload.remote.store.Store`."""
        final = _local(path)
        temporary = _temporary(final)
        try:
            final.parent.mkdir(parents=True, exist_ok=True)
            with open(temporary, "xb") as file:
                file.write(data)
            return _publish(temporary, final, if_absent)
        except OSError as error:
            raise _failed(path, "written", error) from error
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)

    def upload(self, path: str, file: Path) -> None:
        """See :class:`~fastload.remote.store.Store`."""
        final = _local(path)
        temporary = _temporary(final)
        try:
            final.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, temporary)
            _publish(temporary, final, if_absent=False)
        except OSError as error:
            raise _failed(path, "written", error) from error
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)

    def delete(self, path: str) -> None:
        """See :class:`~fastload.remote.store.Store`."""
        try:
            _local(path).unlink(missing_ok=True)
        except OSError as error:
            raise _failed(path, "removed", error) from error

    def core(self, paths: Sequence[str] = ()) -> None:
        """Return None: the core reads local files by their paths."""


def _local(path: str) -> Path:
    return Path("/" + path)


def _temporary(final: Path) -> Path:
    """Return a temporary name unique to this writer: two may write the same object."""
    return final.with_name(f"{_TEMPORARY}{secrets.token_hex(4)}-{final.name}")


def _publish(temporary: Path, final: Path, if_absent: bool) -> bool:
    _sync(temporary, os.O_RDONLY)
    try:
        if if_absent:
            os.link(temporary, final)  # unlike a rename, it fails if the file exists
        else:
            os.replace(temporary, final)
    except FileExistsError:
        if not if_absent:
            raise
        return False
    _sync(final.parent, os.O_RDONLY | os.O_DIRECTORY)
    return True


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _failed(path: str, what: str, error: OSError) -> RemoteError:
    return RemoteError(f"/{path} cannot be {what}: {error.strerror or error}.")
