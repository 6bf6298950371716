"""A finished shard's share of the index, kept beside the shards until the manifest is published."""

from __future__ import annotations

import json
import os
import shutil
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from fastload.errors import PackError
from fastload.machine.paths import exists
from fastload.packing.files import publish, temporary_of
from fastload.shard.columns import Chunk
from fastload.shard.index import RECORD

__all__ = ["ShardPart"]


_AT_ONCE = 1 << 20
_DAMAGE = (ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile, zlib.error)


def _damaged(path: Path, error: Exception) -> Exception:
    if isinstance(error.__context__, OSError):
        return error.__context__  # zipfile calls damaged what the system could not read
    return PackError(f"{path} is damaged ({error}); pack again with --restart.")


@dataclass(frozen=True)
class ShardPart:
    """Entries (offsets in the shard file; ``shard`` not yet set), keys and skipped files of one shard."""

    records: npt.NDArray[np.void]  # RECORD
    keys: list[bytes]
    skipped: list[tuple[str, str]]  # key, reason
    shard_bytes: int
    transcoded: int = 0  # progressive JPEGs that became baseline ones
    further: tuple[Chunk, ...] = ()  # the values of the schema's columns; not read by read()
    stop: int = 0  # of samples: one past the last position that the shard covers
    plan: str = ""  # PackPlan.digest of the plan that the shard was written by
    left_out: Sequence[tuple[str, str, str]] = ()  # annotations: key, which, reason
    facts: Mapping[str, Any] = field(default_factory=dict)  # of an indexed file, or of JPEGs; JSON

    def write(self, path: Path, spooled: Sequence[IO[bytes]] = ()) -> None:
        """Publish atomically; from then on the shard counts as finished.

        ``spooled``: files that have the bytes of ``further``, in place of these; what has records has none.
        """
        ends = np.cumsum([len(key) for key in self.keys], dtype=np.uint64)
        facts = {"skipped": self.skipped, "shard_bytes": self.shard_bytes, "transcoded": self.transcoded}
        facts |= {"left_out": list(self.left_out), "facts": dict(self.facts)}
        texts = json.dumps({**facts, "stop": self.stop, "plan": self.plan}).encode()
        arrays: dict[str, npt.NDArray[Any] | IO[bytes]] = {
            "records": self.records.view(np.uint8),
            "ends": ends,
            "keys": np.frombuffer(b"".join(self.keys), np.uint8),
            "texts": np.frombuffer(texts, np.uint8),
        }
        for number, chunk in enumerate(self.further):
            arrays[f"data{number}"] = spooled[number] if spooled else chunk.data
            arrays[f"lengths{number}"] = chunk.lengths
            if chunk.records is not None:
                arrays[f"records{number}"] = chunk.records.view(np.uint8)
        temporary = temporary_of(path)
        with zipfile.ZipFile(temporary, "w") as archive:  # what np.savez writes, without having it in memory
            for name, values in arrays.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as out:
                    _write(values, out)
        publish(temporary, path)

    @classmethod
    def read(cls, path: Path) -> ShardPart:
        """Read what :meth:`write` wrote.

        Raises:
            PackError: damaged.
            OSError: it cannot be read, whole as it may be.
        """
        try:
            with np.load(path) as arrays:
                blob, ends = arrays["keys"].tobytes(), arrays["ends"].tolist()
                records = arrays["records"].view(RECORD)
                texts = json.loads(arrays["texts"].tobytes())
            starts: Sequence[int] = [0, *ends[:-1]]
            keys = [blob[begin:end] for begin, end in zip(starts, ends, strict=False)]
            skipped = [(str(key), str(reason)) for key, reason in texts["skipped"]]
            transcoded, stop = int(texts.get("transcoded", 0)), int(texts.get("stop", 0))
            plan = str(texts.get("plan", ""))
            left_out = [(str(key), str(which), str(why)) for key, which, why in texts.get("left_out", ())]
            size = int(texts["shard_bytes"])
            facts = dict(texts.get("facts", {}))
            return cls(records, keys, skipped, size, transcoded, (), stop, plan, left_out, facts)
        except _DAMAGE as error:
            raise _damaged(path, error) from None

    @staticmethod
    def read_column(path: Path, number: int) -> Chunk:
        """The values of one of the schema's columns that :meth:`write` wrote; the others are not read.

        Raises:
            PackError: damaged.
        """
        try:
            with np.load(path) as arrays:
                name = f"records{number}"
                records = arrays[name].view(RECORD) if name in arrays else None
                if records is not None:
                    return Chunk(np.zeros(0, np.uint8), arrays[f"lengths{number}"], records)
                return Chunk(arrays[f"data{number}"], arrays[f"lengths{number}"])
        except _DAMAGE as error:
            raise _damaged(path, error) from None

    @staticmethod
    def read_lengths(path: Path, number: int) -> npt.NDArray[np.uint64]:
        """The lengths of a column's values.

        Raises:
            PackError: damaged.
        """
        try:
            with np.load(path) as arrays:
                lengths: npt.NDArray[np.uint64] = arrays[f"lengths{number}"]
                return lengths
        except _DAMAGE as error:
            raise _damaged(path, error) from None

    @staticmethod
    def read_values(path: Path, number: int, width: int = 1) -> Iterator[bytes]:
        """The bytes of a column that has no records, some at a time: a multiple of ``width``.

        Raises:
            PackError: damaged.
        """
        most = max(_AT_ONCE // width, 1) * width
        try:
            with zipfile.ZipFile(path) as archive, archive.open(f"data{number}.npy") as file:
                np.lib.format.read_magic(file)
                (left,), _, _ = np.lib.format.read_array_header_1_0(file)
                while left:
                    data = file.read(min(most, left))
                    if not data:
                        raise EOFError(f"data{number} ends {left} bytes early")
                    left -= len(data)
                    yield data
        except _DAMAGE as error:
            raise _damaged(path, error) from None

    @staticmethod
    def finished(path: Path, data_file: Path) -> bool:
        """Whether the shard of this part is there, whole."""
        if not exists(path) or not exists(data_file):
            return False
        return ShardPart.read(path).shard_bytes == os.stat(data_file).st_size


def _write(values: npt.NDArray[Any] | IO[bytes], out: IO[bytes]) -> None:
    """An array as np.save writes it; of a file its bytes as such an array."""
    if isinstance(values, np.ndarray):
        np.lib.format.write_array(out, values)
        return
    size = values.seek(0, os.SEEK_END)
    header = {"descr": "|u1", "fortran_order": False, "shape": (size,)}
    np.lib.format.write_array_header_1_0(out, header)
    values.seek(0)
    shutil.copyfileobj(values, out, _AT_ONCE)
