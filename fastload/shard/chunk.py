"""Some samples' values of one field, as the writers of shards take them and as packing keeps them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fastload.shard.index import RECORD

__all__ = ["Chunk"]


@dataclass(frozen=True)
class Chunk:
    """The values of samples, back to back.

    Pictures have index entries, whose offsets count from the start of ``data``; other values are in the bytes
    that FORMAT.md gives them.
    """

    data: npt.NDArray[np.uint8]
    lengths: npt.NDArray[np.uint64]  # bytes of each sample
    records: npt.NDArray[np.void] | None = None  # RECORD, of pictures

    @classmethod
    def of(cls, pieces: Sequence[bytes]) -> Chunk:
        """The values given one by one."""
        return cls(
            np.frombuffer(b"".join(pieces), np.uint8), np.array([len(piece) for piece in pieces], np.uint64)
        )

    def __len__(self) -> int:
        return len(self.lengths)

    def slice(self, start: int, stop: int) -> Chunk:
        """The samples ``[start, stop)``; the bytes are shared."""
        begin = int(self.lengths[:start].sum())
        lengths = self.lengths[start:stop]
        data = self.data[begin : begin + int(lengths.sum())]
        records = None if self.records is None else self.records[start:stop]
        return Chunk(data, lengths, self._placed(lengths, records))

    def keep(self, good: npt.NDArray[np.bool_]) -> Chunk:
        """The samples for which ``good`` is true."""
        if good.all():
            return self
        return Chunk.join([self.slice(i, i + 1) for i in np.flatnonzero(good).tolist()], like=self)

    @staticmethod
    def join(chunks: Sequence[Chunk], like: Chunk | None = None) -> Chunk:
        """The samples of all, one after another; ``like`` says of what kind they are where there are none."""
        first = chunks[0] if chunks else like
        assert first is not None
        if len(chunks) == 1:
            return first
        data = np.concatenate([*(chunk.data for chunk in chunks), np.zeros(0, np.uint8)])
        lengths = np.concatenate([*(chunk.lengths for chunk in chunks), np.zeros(0, np.uint64)])
        if first.records is None:
            return Chunk(data, lengths)
        records = [chunk.records for chunk in chunks if chunk.records is not None]
        return Chunk(data, lengths, Chunk._placed(lengths, np.concatenate([*records, np.zeros(0, RECORD)])))

    @staticmethod
    def _placed(
        lengths: npt.NDArray[np.uint64], records: npt.NDArray[np.void] | None
    ) -> npt.NDArray[np.void] | None:
        if records is None:
            return None
        placed: npt.NDArray[np.void] = records.copy()
        placed["offset"] = np.cumsum(lengths) - lengths
        return placed
