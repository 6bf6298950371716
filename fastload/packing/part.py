"""A finished shard's share of the index, kept beside the shards until the manifest is published."""

from __future__ import annotations

import json
import os
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fastload.errors import PackError
from fastload.packing.files import publish, temporary_of
from fastload.shard.index import RECORD

__all__ = ["Part"]


@dataclass(frozen=True)
class Part:
    """Entries (offsets in the shard file; ``shard`` not yet set), keys and skipped files of one shard."""

    records: npt.NDArray[np.void]  # RECORD
    keys: list[bytes]
    skipped: list[tuple[str, str]]  # key, reason
    shard_bytes: int
    transcoded: int = 0  # progressive JPEGs that became baseline ones

    def write(self, path: Path) -> None:
        """Publish atomically; from then on the shard counts as finished."""
        ends = np.cumsum([len(key) for key in self.keys], dtype=np.uint64)
        facts = {"skipped": self.skipped, "shard_bytes": self.shard_bytes, "transcoded": self.transcoded}
        texts = json.dumps(facts).encode()
        temporary = temporary_of(path)
        with open(temporary, "wb") as file:
            np.savez(
                file,
                records=self.records.view(np.uint8),
                ends=ends,
                keys=np.frombuffer(b"".join(self.keys), np.uint8),
                texts=np.frombuffer(texts, np.uint8),
            )
        publish(temporary, path)

    @classmethod
    def read(cls, path: Path) -> Part:
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
            return cls(records, keys, skipped, int(texts["shard_bytes"]), int(texts.get("transcoded", 0)))
        except (ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            raise PackError(f"{path} is damaged ({error}); pack again with --restart.") from None

    @staticmethod
    def finished(path: Path, data_file: Path) -> bool:
        """Whether the shard of this part is there, whole."""
        if not path.exists() or not data_file.exists():
            return False
        return Part.read(path).shard_bytes == os.stat(data_file).st_size
