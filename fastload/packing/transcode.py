"""Records that differ from their files: re-encoded smaller (``--max-side``), decoded (``--raw``),
progressive JPEGs made baseline (``--baseline``), or JPEGs as coefficient records (``--coefficients``)."""

from __future__ import annotations

import functools
import io
import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from fastload._native import _C
from fastload.dataset.decoding import decode_with_pil, pillow_words
from fastload.errors import FastloadError
from fastload.extras import need
from fastload.machine.threads import started_pool
from fastload.packing.coefficients import Outcome, Tally, to_record
from fastload.packing.ingest import Group, as_rows
from fastload.packing.names import ESCAPED
from fastload.packing.options import PackOptions
from fastload.shard.codecs import JPEG, PILLOW_FORMATS, PROGRESSIVE, RAW, SIXTEEN_BIT

__all__ = ["SMALLER", "bounded", "smaller_jpeg", "transcoder"]

#: What needs Pillow here, in words.
SMALLER = "making pictures smaller (--max-side)"

Pixels = npt.NDArray[np.uint8]  # (height, width, 3)


def transcoder(options: PackOptions) -> Callable[[Group], Group]:
    """What ``options`` make of a group."""
    if options.raw:
        return _Raw(options).apply
    steps: list[Callable[[Group], Group]] = []
    if options.max_side is not None:
        steps.append(_Smaller(options).apply)
    if options.baseline:
        steps.append(_baseline)
    if options.coefficients is not None:
        threads = len(os.sched_getaffinity(0)) // options.num_proc if options.num_proc else 1
        steps.append(functools.partial(_coefficients, options.coefficients, max(1, threads)))
    return lambda group: functools.reduce(lambda made, step: step(made), steps, group)


def bounded(width: int, height: int, max_side: int) -> tuple[int, int]:
    """Width and height scaled so that the longer side is ``max_side``; the shorter is rounded, at least 1."""
    [[width, height]] = _C.bounded_sizes(
        np.array([width], np.uint32), np.array([height], np.uint32), max_side
    ).tolist()
    return width, height


def _rebuild(
    group: Group, records: npt.NDArray[np.void], pieces: list[Pixels], failed: dict[int, str]
) -> Group:
    """The group with ``pieces`` (one a record that did not fail) as its data."""
    good = [i for i in range(len(records)) if i not in failed]
    records = records[good]
    records["length"] = [piece.size for piece in pieces]
    records["offset"] = np.cumsum(records["length"], dtype=np.uint64) - records["length"]
    data = np.concatenate([*(piece.reshape(-1) for piece in pieces), np.zeros(0, np.uint8)])
    marks = records["flags"] & ESCAPED
    problems = _C.describe(data, as_rows(records))
    records["flags"] |= marks
    assert not problems, problems  # we made these bytes
    failures = [*group.failures, *((group.keys[i], reason) for i, reason in failed.items())]
    return replace(group, data=data, records=records, keys=[group.keys[i] for i in good], failures=failures)


def _baseline(group: Group) -> Group:
    """Progressive JPEGs become baseline ones of the same coefficients; those that cannot stay as they are."""
    wanted = (group.records["codec"] == JPEG) & ((group.records["flags"] & PROGRESSIVE) != 0)
    if not wanted.any():
        return group
    pieces: list[Pixels] = []
    done = 0
    for record, progressive in zip(group.records, wanted.tolist(), strict=True):
        data = group.data[int(record["offset"]) : int(record["offset"]) + int(record["length"])]
        if progressive:
            try:
                pieces.append(cast(Pixels, _C.jpeg_to_baseline(data)))
                done += 1
                continue
            except FastloadError:
                pass  # kept; its entry in the index says that it is progressive, and so it is counted
        pieces.append(data)
    records = group.records.copy()
    records["flags"] &= ESCAPED
    return replace(_rebuild(group, records, pieces, {}), transcoded=done)


def _coefficients(form: str, threads: int, group: Group) -> Group:
    """JPEGs become coefficient records, by some threads; those that cannot stay as they are."""
    tally, pieces = Tally(), []

    def made(record: np.void) -> tuple[Pixels, Outcome | None]:
        data = group.data[int(record["offset"]) : int(record["offset"]) + int(record["length"])]
        if record["codec"] != JPEG:
            return data, None
        found, outcome = to_record(data.tobytes(), form)
        return np.frombuffer(found, np.uint8), outcome

    with started_pool(threads, "fastload-records") as pool:
        for key, (data, outcome) in zip(group.keys, pool.map(made, group.records), strict=True):
            if outcome is not None:
                tally.add(key.decode(), outcome)
            pieces.append(data)
    records = group.records.copy()
    records["flags"] &= ESCAPED
    return replace(_rebuild(group, records, pieces, {}), coefficients=tally.to_json())


class _Raw:
    """Decoded by the core, scaled by its antialiased bilinear resize: the pixels that training sees."""

    def __init__(self, options: PackOptions) -> None:
        self._size, self._max_side = options.size, options.max_side
        self._decoder = _C.Decoder(fallback=decode_with_pil)

    def apply(self, group: Group) -> Group:
        records, pieces, failed = group.records.copy(), [], {}
        for i, record in enumerate(group.records):
            data = group.data[int(record["offset"]) : int(record["offset"]) + int(record["length"])]
            try:
                pixels = self._scaled(self._decoder.decode_rgb(data))
            except (FastloadError, ValueError) as error:
                failed[i] = f"does not decode: {error}"
                continue
            pieces.append(np.ascontiguousarray(pixels))
            records[i]["height"], records[i]["width"] = pixels.shape[:2]
        records["codec"], records["channels"] = RAW, 3
        records["flags"] &= ESCAPED
        return _rebuild(group, records, pieces, failed)

    def _scaled(self, pixels: Pixels) -> Pixels:
        height, width = pixels.shape[:2]
        target = self._size or (bounded(width, height, self._max_side) if self._max_side else (width, height))
        if target == (width, height):
            return pixels
        whole = (0, 0, *target)
        scaled: Pixels = _C.resize(pixels, _C.View(((0, 0, width, height), target, whole, False)))
        return scaled.reshape(target[1], target[0], 3)


class _Smaller:
    """Images above the limit are re-encoded as JPEG by Pillow; the others stay as they are."""

    def __init__(self, options: PackOptions) -> None:
        need("PIL.Image", SMALLER)
        assert options.max_side is not None
        self._max_side, self._quality = options.max_side, options.quality
        self._decoder = _C.Decoder(fallback=decode_with_pil)

    def apply(self, group: Group) -> Group:
        records, pieces, failed = group.records.copy(), [], {}
        for i, record in enumerate(group.records):
            data = group.data[int(record["offset"]) : int(record["offset"]) + int(record["length"])]
            known = int(record["width"]) > 0
            if known and max(int(record["width"]), int(record["height"])) <= self._max_side:
                pieces.append(data)
                continue
            try:
                # Pillow fills what a JPEG does not have with gray, and the result would look whole.
                pixels = self._decoder.decode_rgb(data)
                deep = bool(record["flags"] & SIXTEEN_BIT)
                pieces.append(smaller_jpeg(data, pixels, self._max_side, self._quality, deep))
            except Exception as error:  # Pillow raises SyntaxError, struct.error and others on bad files
                failed[i] = f"cannot be re-encoded: {pillow_words(error)}"
        records["flags"] &= ESCAPED
        return _rebuild(group, records, pieces, failed)


def smaller_jpeg(data: Pixels, pixels: Pixels, max_side: int, quality: int, deep: bool = False) -> Pixels:
    """An encoded picture as a JPEG whose longer side is ``max_side``, if it is longer; by Pillow.

    Args:
        data: the picture.
        pixels: what the core decodes it to, (height, width, 1 or 3). They are used where Pillow does not open
            the picture, as for a text of many megabytes in a PNG.
        deep: it has 16 bits, which Pillow would cut off at 255; then they are used, too.
    """
    from PIL import Image

    source, sampling, orientation, profile = _opened(data, pixels, deep)
    size = bounded(source.width, source.height, max_side)
    if size == source.size:
        return data
    small = source.resize(size, Image.Resampling.BICUBIC)
    exif = Image.Exif()
    if orientation is not None:
        exif[0x0112] = orientation
    encoded = io.BytesIO()
    small.save(
        encoded, "JPEG", quality=quality, subsampling=sampling if sampling >= 0 else 2,
        exif=exif.tobytes() if orientation is not None else b"", icc_profile=profile,
    )  # fmt: skip
    return np.frombuffer(encoded.getvalue(), np.uint8)


def _opened(data: Pixels, pixels: Pixels, deep: bool) -> tuple[Any, int, Any, Any]:
    """Pillow's picture, gray or RGB, and its file's chroma sampling (-1: none), orientation and profile."""
    from PIL import Image, JpegImagePlugin

    if not deep:
        try:
            with Image.open(io.BytesIO(data.tobytes()), formats=PILLOW_FORMATS) as image:
                sampling = JpegImagePlugin.get_sampling(image) if image.format == "JPEG" else -1
                orientation, profile = image.getexif().get(0x0112), image.info.get("icc_profile")
                return image.convert("L" if image.mode == "L" else "RGB"), sampling, orientation, profile
        except Exception:  # SyntaxError, struct.error and others; the core has read the picture
            pass
    return Image.fromarray(pixels if pixels.shape[2] == 3 else pixels[:, :, 0]), -1, None, None
