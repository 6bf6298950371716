"""One file of a table, on this machine or in a store. pyarrow is imported when one is opened."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from fastload.errors import PackError, ShardError
from fastload.remote.http import RangeFile
from fastload.remote.store import Store

__all__ = ["TableFile"]


@dataclass(frozen=True)
class TableFile:
    """One file of a table.

    Args:
        name: for messages: its path or URL.
        size: bytes.
        path: on this machine; of a store its key.
        store: what has it; None: this machine.
        version: with name and size it tells one file from another: a commit, a time.
    """

    name: str
    size: int
    path: str
    store: Store | None = None
    version: str = ""

    @property
    def is_parquet(self) -> bool:
        """Whether it is Parquet, by its name; else Arrow IPC."""
        return self.path.lower().endswith(".parquet")

    @contextmanager
    def opened(self) -> Iterator[Any]:
        """As pyarrow reads it.

        Raises:
            PackError: it cannot be read, or is damaged.
        """
        import pyarrow as pa

        try:
            if self.store is None:
                with pa.OSFile(self.path) as local:
                    yield local
            else:
                with RangeFile(self.store, self.path, self.size) as remote:
                    yield pa.PythonFile(remote, mode="r")
        except (OSError, ValueError) as error:  # pyarrow's are some of these
            kind = "Parquet" if self.is_parquet else "Arrow IPC"
            of_system = isinstance(error, ShardError) or (isinstance(error, OSError) and error.errno)
            what = "cannot be read" if of_system else f"is not a whole {kind} file"
            raise PackError(f"{self.name} {what}: {str(error).rstrip('.')}.") from error
