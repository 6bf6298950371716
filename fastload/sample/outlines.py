"""The bytes of Polygons fields: outlines as points, areas as run lengths. Layouts: FORMAT.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastload.sample.numbers import as_numbers

__all__ = [
    "MOST_COORDINATE",
    "decode_mixed",
    "decode_polygons",
    "decode_rle",
    "encode_mixed",
    "encode_polygons",
    "encode_rle",
    "mixed_parts",
]

#: Of mixed outlines, either way: who draws them walks along them.
MOST_COORDINATE = 1 << 20
_U4, _F4, _F8 = np.dtype("<u4"), np.dtype("<f4"), np.dtype("<f8")
_OUTLINE, _AREA = 0, 1  # forms of an object
_MAX_SIDE = 2**31 - 1
Words = npt.NDArray[np.uint32]


class _Reader:
    """Takes 32-bit words from bytes; ValueError where they end."""

    def __init__(self, data: bytes | npt.NDArray[np.uint8]) -> None:
        if len(data) % 4:
            raise ValueError(f"its {len(data)} bytes are no multiple of 4")
        self._words: Words = np.frombuffer(data, _U4)
        self._at = 0

    def take(self, count: int) -> Words:
        left = len(self._words) - self._at
        if count > left:
            raise ValueError(f"{count} words are to come, and {left} are left")
        found = self._words[self._at : self._at + count]
        self._at += count
        return found

    @property
    def taken(self) -> int:
        """Words that were taken."""
        return self._at

    def end(self) -> None:
        left = len(self._words) - self._at
        if left:
            raise ValueError(f"{left} words are left over")


def encode_polygons(value: Any, where: str) -> bytes:
    """Objects, each a list of polygons, each of at least three points, (m, 2) or flat x, y, ...."""
    objects = [[_points(part, where) for part in _list(polygons, where)] for polygons in _list(value, where)]
    if not objects:
        return b""
    counts = [len(objects), *(len(polygons) for polygons in objects)]
    lengths = [len(points) for polygons in objects for points in polygons]
    points = [points.tobytes() for polygons in objects for points in polygons]
    return np.array(counts + lengths, _U4).tobytes() + b"".join(points)


def decode_polygons(data: bytes) -> list[list[npt.NDArray[np.float32]]]:
    """Of each object its polygons, each (m, 2) float32; ValueError: bytes that are none."""
    if not data:
        return []
    words = _Reader(data)
    counts = words.take(int(words.take(1)[0]))
    lengths = words.take(int(counts.sum(dtype=np.uint64)))
    flat = words.take(2 * int(lengths.sum(dtype=np.uint64))).view(_F4).reshape(-1, 2)
    words.end()
    polygons = iter([part.copy() for part in np.split(flat, np.cumsum(lengths, dtype=np.int64)[:-1])])
    return [[next(polygons) for _ in range(count)] for count in counts.tolist()]


def encode_rle(value: Any, where: str) -> bytes:
    """Objects, each ``{"size": [height, width], "counts": ...}``: run lengths column by column, zeros' first,
    as a list or in COCO's compressed letters."""
    objects = [_area(part, where) for part in _list(value, where)]
    if not objects:
        return b""
    heads = [number for height, width, runs in objects for number in (height, width, len(runs))]
    runs = [runs.tobytes() for _, _, runs in objects]
    return np.array([len(objects), *heads], _U4).tobytes() + b"".join(runs)


def decode_rle(data: bytes) -> list[dict[str, list[int]]]:
    """Of each object size and run lengths; ValueError: bytes that are none."""
    if not data:
        return []
    words = _Reader(data)
    count = int(words.take(1)[0])
    heads = words.take(3 * count).reshape(count, 3).tolist()
    found = [
        {"size": [height, width], "counts": words.take(length).tolist()} for height, width, length in heads
    ]
    words.end()
    return found


def encode_mixed(value: Any, where: str) -> bytes:
    """Objects, each a list of polygons as in :func:`encode_polygons`, or an area as in :func:`encode_rle`."""
    forms: list[int] = []
    counts: list[int] = []
    lengths: list[int] = []
    heads: list[int] = []
    points: list[bytes] = []
    runs: list[bytes] = []
    for one in _list(value, where):
        if isinstance(one, Mapping) and not one.get("size") and "outlines" in one:
            one = one["outlines"]  # as Arrow has it, which has both in each object
        if isinstance(one, Mapping):
            height, width, lengths_of = _area(one, where)
            forms.append(_AREA)
            heads += [height, width, len(lengths_of)]
            runs.append(lengths_of.tobytes())
            continue
        polygons = [_near(_points(part, where, _F8), where) for part in _list(one, where)]
        forms.append(_OUTLINE)
        counts.append(len(polygons))
        lengths += map(len, polygons)
        points += [polygon.tobytes() for polygon in polygons]
    if not forms:
        return b""
    words = [len(forms), *forms, *counts, *lengths, *heads]
    padding = [0] * (len(words) % 2)  # numbers of eight bytes follow
    return np.array(words + padding, _U4).tobytes() + b"".join(points) + b"".join(runs)


class MixedParts(NamedTuple):
    """What the bytes of mixed outlines hold."""

    is_area: npt.NDArray[np.bool_]  # of each object, else it has polygons
    counts: Words  # of polygons, of each object that has such
    lengths: Words  # in points, of each polygon
    heads: Words  # (areas, 3): height, width, how many run lengths
    points: npt.NDArray[np.float64]  # (n, 2)
    runs: Words


def mixed_parts(data: bytes | npt.NDArray[np.uint8]) -> MixedParts:
    """The parts of :func:`encode_mixed`'s bytes, in place; ValueError: bytes that are none."""
    words = _Reader(data)
    forms = words.take(int(words.take(1)[0]))
    if (forms > _AREA).any():
        raise ValueError(f"an object's form is {_OUTLINE} or {_AREA}, and one is {int(forms.max())}")
    counts = words.take(int((forms == _OUTLINE).sum()))
    lengths = words.take(int(counts.sum(dtype=np.uint64)))
    heads = words.take(3 * int((forms == _AREA).sum())).reshape(-1, 3)
    if words.taken % 2 and words.take(1)[0]:
        raise ValueError("what fills up its numbers to a multiple of 8 bytes is not 0")
    flat = words.take(4 * int(lengths.sum(dtype=np.uint64))).view(_F8).reshape(-1, 2)
    runs = words.take(int(heads[:, 2].sum(dtype=np.uint64)))
    words.end()
    return MixedParts(forms == _AREA, counts, lengths, heads, flat, runs)


def decode_mixed(data: bytes) -> list[Any]:
    """Of each object its polygons, each (m, 2) float64, or size and run lengths; ValueError: bytes that are
    none."""
    if not data:
        return []
    found = mixed_parts(data)
    heads, runs = found.heads.tolist(), iter(found.runs.tolist())
    areas = iter([{"size": head[:2], "counts": list(islice(runs, head[2]))} for head in heads])
    ends = np.cumsum(found.lengths, dtype=np.int64)
    polygons = iter([part.copy() for part in np.split(found.points, ends[:-1])])
    parts = iter(found.counts.tolist())
    return [
        next(areas) if is_area else [next(polygons) for _ in range(next(parts))]
        for is_area in found.is_area.tolist()
    ]


def _near(points: npt.NDArray[Any], where: str) -> npt.NDArray[Any]:
    far = np.abs(points) > MOST_COORDINATE
    if far.any():
        raise ValueError(
            f"{where}: coordinates must be from {-MOST_COORDINATE} to {MOST_COORDINATE}. "
            f"Found: {points[far][0]}."
        )
    return points


def _list(value: Any, where: str) -> Sequence[Any]:
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Sequence):
        raise TypeError(f"{where} must be a list of objects. Found: {type(value).__name__}.")
    return value


def _points(value: Any, where: str, dtype: np.dtype[Any] = _F4) -> npt.NDArray[Any]:
    points = as_numbers(value, dtype, where)
    if points.ndim == 1 and points.size % 2 == 0:
        points = points.reshape(-1, 2)
    if points.ndim != 2 or points.shape[1] != 2 or len(points) < 3:
        raise ValueError(
            f"{where}: a polygon has at least three points, as (m, 2) x, y or flat x, y, x, y, .... "
            f"Found: shape {points.shape}."
        )
    if not np.isfinite(points).all():
        raise ValueError(f"{where}: coordinates must be finite. Found: {points[~np.isfinite(points)][0]}.")
    return points


def _area(value: Any, where: str) -> tuple[int, int, Words]:
    if not isinstance(value, Mapping) or "size" not in value or "counts" not in value:
        raise TypeError(
            f"{where}: an area is {{'size': [height, width], 'counts': ...}}. Found: {value!r:.80}."
        )
    size = as_numbers(value["size"], np.dtype(np.int64), f"{where}: size").tolist()
    if len(size) != 2 or not all(0 <= side <= _MAX_SIDE for side in size):
        raise ValueError(
            f"{where}: size must be height and width, 0 to {_MAX_SIDE}. Found: {value['size']!r}."
        )
    counts = value["counts"]
    if isinstance(counts, (str, bytes)):
        counts = _uncompressed(
            counts.encode("utf-8", "surrogatepass") if isinstance(counts, str) else counts, where
        )
    runs = as_numbers(counts, _U4, f"{where}: counts").reshape(-1)
    total, area = int(runs.sum(dtype=np.uint64)), size[0] * size[1]
    if total != area:
        raise ValueError(f"{where}: counts must come to height x width, {area}. Found: {total}.")
    return size[0], size[1], _canonical(runs)


def _canonical(runs: Words) -> Words:
    """No runs of no pixels but the first; no pixels, no runs."""
    if not runs.any():
        return runs[:0]
    if not (runs[1:] == 0).any():
        return runs
    kept: list[int] = []
    ones = False  # what the last run in ``kept`` is of
    for position, length in enumerate(runs.tolist()):
        if length == 0:
            continue
        is_ones = position % 2 == 1
        if not kept and is_ones:
            kept.append(0)
        if kept and is_ones == ones and not (len(kept) == 1 and is_ones):
            kept[-1] += length
        else:
            kept.append(length)
        ones = is_ones
    return np.array(kept, _U4)


def _uncompressed(text: bytes, where: str) -> list[int]:
    """COCO's letters as run lengths: 5 bits a letter from 48 on, lowest first, bit 32 says that more follow;
    signed, and from the fourth on the difference to the run two before (pycocotools' rleFrString)."""
    runs: list[int] = []
    number = shift = 0
    for letter in text:
        code = letter - 48
        if not 0 <= code < 64 or shift > 60:
            raise ValueError(f"{where}: counts are not COCO's letters ('0' to 'o'). Found: {text[:40]!r}.")
        number |= (code & 0x1F) << shift
        shift += 5
        if not code & 0x20:
            if code & 0x10:
                number -= 1 << shift
            runs.append(number + (runs[-2] if len(runs) > 2 else 0))
            number = shift = 0
    if shift:
        raise ValueError(f"{where}: counts end within a number. Found: {text[-40:]!r}.")
    return runs
