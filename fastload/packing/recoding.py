"""Pictures recoded while they are packed: baseline JPEGs, coefficient records, smaller ones, raw pixels."""

from __future__ import annotations

import functools
import io
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from fastload._native import _C
from fastload.dataset.decoding import pillow_words, shown_by_pil, thread_decoder, wanted_format
from fastload.errors import FastloadError
from fastload.extras import need
from fastload.machine.threads import started_pool
from fastload.packing.coefficients import RecodeOutcome, to_record
from fastload.packing.files import ESCAPED
from fastload.packing.options import PackOptions
from fastload.packing.pictures import Picture, PictureList, Value, png_file, raw_picture
from fastload.packing.rows import Batch, plain_fields
from fastload.sample.fields import Boxes, Image, Images, Keypoints, Kind, Mask, Polygons
from fastload.sample.schema import Schema
from fastload.sample.values import decode_mixed, decode_rle, encode_mixed, encode_rle
from fastload.shard.codecs import CODECS, JPEG, PILLOW_FORMATS, PROGRESSIVE, SIXTEEN_BIT
from fastload.shard.columns import Chunk
from fastload.shard.index import as_rows

# ---- Records that differ from their files -----------------------------------------------------------
# Options: ``--max-side``, ``--raw``, ``--baseline``, ``--coefficients``.

#: The feature that needs Pillow, in words.
SMALLER = "making pictures smaller (--max-side, --size)"

Pixels = npt.NDArray[np.uint8]  # (height, width, 3)
Size = tuple[int, int]  # width, height


def file_transcoder(schema: Schema, options: PackOptions) -> Callable[[Batch], Batch]:
    """Return the function that changes a batch of files as ``options`` say, some files at a time."""
    one = Transcoder(schema, options)
    shown = one.file_kind.shown
    threads = threads_for(options)

    def changed(batch: Batch) -> Batch:
        with started_pool(threads, "fastload-records") as pool:
            pictures = pool.map(one.of_file, (data.tobytes() for data in _pieces(batch.fields[0])))
            return _rebuilt(batch, list(pictures), shown)

    return changed


def threads_for(options: PackOptions) -> int:
    """Return the threads that change pictures in each process."""
    return max(1, len(os.sched_getaffinity(0)) // options.num_proc) if options.num_proc else 1


def _pieces(chunk: Chunk) -> Iterator[npt.NDArray[np.uint8]]:
    ends = np.cumsum(chunk.lengths).tolist()
    return (chunk.data[end - length : end] for end, length in zip(ends, chunk.lengths.tolist(), strict=True))


def _rebuilt(batch: Batch, pictures: list[Picture | str], shown: tuple[bool, bool]) -> Batch:
    """Return a batch of files with these pictures, or the reasons why there are none."""
    before, good = batch.fields[0].records, [i for i, one in enumerate(pictures) if isinstance(one, Picture)]
    assert before is not None
    kept = [one for one in pictures if isinstance(one, Picture)]
    records = before[good]
    records["flags"] &= ESCAPED
    data, keys = Chunk.of([one.data for one in kept]), [batch.keys[i] for i in good]
    for record, one in zip(records, kept, strict=True):
        for name, value in (one.raw or {}).items():
            record[name] = value | record[name] if name == "flags" else value
    records["length"] = data.lengths
    records["offset"] = np.cumsum(data.lengths) - data.lengths
    describe_anew(data.data, records, shown)
    failures = [
        (int(batch.positions[i]), batch.keys[i].decode(), one)
        for i, one in enumerate(pictures)
        if isinstance(one, str)
    ]
    outcomes = [
        (int(batch.positions[i]), key.decode(), one.outcome)
        for i, key, one in zip(good, keys, kept, strict=True)
        if one.outcome is not None
    ]
    return replace(
        batch, positions=batch.positions[good], keys=keys, fields=plain_fields(data.data, records),
        failures=[*batch.failures, *failures], outcomes=outcomes,
        baselines=sum(one.was_progressive for one in kept),
    )  # fmt: skip


def describe_anew(
    data: npt.NDArray[np.uint8], records: npt.NDArray[np.void], shown: tuple[bool, bool] = (False, False)
) -> None:
    """Fill in the index entries of pictures that were made here, and keep the marks of their keys."""
    marks = records["flags"] & ESCAPED
    problems = _C.describe(data, as_rows(records), shown)
    records["flags"] |= marks
    assert not problems, problems


def bounded(width: int, height: int, max_side: int) -> tuple[int, int]:
    """Scale width and height so that the longer side is ``max_side``; the shorter is rounded, at least 1."""
    [[width, height]] = _C.bounded_sizes(
        np.array([width], np.uint32), np.array([height], np.uint32), max_side
    ).tolist()
    return width, height


def smaller_jpeg(
    data: Pixels,
    pixels: Pixels,
    limit: int | Size,
    quality: int,
    deep: bool = False,
    shown: tuple[bool, bool] = (False, False),
) -> Pixels:
    """Return an encoded picture as a JPEG of another size, if it has another; by Pillow.

    Args:
        data: the encoded picture.
        pixels: its pixels as the core decodes them, (height, width, 1 or 3), used if Pillow does not open
            the picture, as with a text of many megabytes in a PNG.
        limit: its size, (width, height), or the longer side.
        deep: whether it has 16 bits, which Pillow would clip at 255; then ``pixels`` are used, too.
        shown: how the field shows it; what is turned here is not turned again.
    """
    from PIL import Image

    source, sampling, orientation, profile = _opened(data, pixels, deep, shown)
    size = bounded(source.width, source.height, limit) if isinstance(limit, int) else limit
    if size == source.size:
        return data
    exif = Image.Exif()
    if orientation is not None:
        exif[0x0112] = orientation
    tags = {"exif": exif.tobytes() if orientation is not None else b"", "icc_profile": profile}
    return np.frombuffer(_jpeg(source, size, quality, sampling if sampling >= 0 else 2, **tags), np.uint8)


def _jpeg(source: Any, size: Size, quality: int, sampling: int, **tags: Any) -> bytes:
    """Return Pillow's picture, scaled if it has another size, as a JPEG."""
    from PIL import Image

    scaled = source if size == source.size else source.resize(size, Image.Resampling.BICUBIC)
    encoded = io.BytesIO()
    scaled.save(encoded, "JPEG", quality=quality, subsampling=sampling, **tags)
    return encoded.getvalue()


def frame_picture(kind: Image, pixels: Pixels, sampling: int, options: PackOptions) -> Picture:
    """Return a frame of a video as it is stored: a JPEG scaled as the options say, or with ``raw`` pixels.

    Args:
        kind: the field's kind.
        pixels: (height, width, 3) RGB.
        sampling: JPEG's number for how finely colours are stored: 0 is 4:4:4, 1 is 4:2:2, 2 is 4:2:0.
        options: those of the pack.
    """
    if options.raw:
        return raw_picture(kind, pixels)  # which the Transcoder scales
    need("PIL.Image", "storing videos' frames as JPEG")
    from PIL import Image as Pillow

    source, target = Pillow.fromarray(pixels), scaled_size((pixels.shape[1], pixels.shape[0]), options)
    return Picture(_jpeg(source, target, options.quality, sampling))


def scaled_size(size: Size, options: PackOptions) -> Size:
    """Return the size that a picture of a size is stored with."""
    if options.size is not None:
        return options.size
    limit = options.max_side
    return bounded(*size, limit) if limit is not None and max(size) > limit else size


def _opened(data: Pixels, pixels: Pixels, deep: bool, shown: tuple[bool, bool]) -> tuple[Any, int, Any, Any]:
    """Return Pillow's picture, gray or RGB, and the file's chroma sampling (-1: none), orientation, ICC."""
    from PIL import Image, JpegImagePlugin

    if not deep:
        try:
            with Image.open(io.BytesIO(data.tobytes()), formats=PILLOW_FORMATS) as image:
                sampling = JpegImagePlugin.get_sampling(image) if image.format == "JPEG" else -1
                turned, on_white = shown
                orientation = None if turned else image.getexif().get(0x0112)
                profile = image.info.get("icc_profile")
                seen = shown_by_pil(image, turned=turned, on_white=on_white)
                return seen.convert("L" if seen.mode == "L" else "RGB"), sampling, orientation, profile
        except Exception:  # SyntaxError, struct.error and others; the core has read the picture
            pass
    return Image.fromarray(pixels if pixels.shape[2] == 3 else pixels[:, :, 0]), -1, None, None


# ---- Samples that differ from what was given --------------------------------------------------------
# The fields of a sample change together, as under a view of the engine: masks by nearest pixels, and values
# in pixels of the first image by the engine's own arithmetic.

T = TypeVar("T")


@dataclass(frozen=True)
class Transcoder:
    """Changes a sample's values into those that are stored.

    Args:
        schema: the fields, in the order of the values.
        options: with ``raw``, ``max_side``, ``size``, ``baseline`` or ``coefficients``.
    """

    schema: Schema
    options: PackOptions

    def __post_init__(self) -> None:
        if self.options.raw or (self.options.max_side is None and self.options.size is None):
            return
        if any(isinstance(field.kind, Image) and field.kind.bits == 8 for field in self.schema):
            need("PIL.Image", SMALLER)

    def values(self, values: Sequence[Value]) -> list[Value]:
        """Return the changed values.

        Raises:
            ValueError: a picture does not decode, or has more pixels than the index has room for.
        """
        index = self.schema.index_field
        size = target = (0, 0)
        if index is not None:
            first = values[self.schema.position(index.name)]
            assert isinstance(first, Picture)
            size = self._guarded(index.name, functools.partial(_size_of, index.kind), first)
            target = scaled_size(size, self.options)
        changed: list[Value] = []
        for field, value in zip(self.schema, values, strict=True):
            if isinstance(value, Picture):
                make = functools.partial(self._made, field.kind)
                changed.append(self._guarded(field.name, make, value))
            elif isinstance(value, PictureList):
                assert isinstance(field.kind, Images)
                make = functools.partial(self._made, field.kind.each)
                changed.append(value.map(functools.partial(self._guarded, field.name, make)))
            else:
                changed.append(value if target == size else _moved(field.kind, value, size, target))
        return changed

    @property
    def file_kind(self) -> Kind:
        """The kind of a file without other fields."""
        assert self.schema.index_field is not None
        return self.schema.index_field.kind

    def of_file(self, data: bytes) -> Picture | str:
        """Return the record of a file without other fields, or the reason why there is none."""
        try:
            return self._made(self.file_kind, Picture(data))
        except Exception as error:  # Pillow raises SyntaxError, struct.error and others on bad files
            return (
                f"{'does not decode' if self.options.raw else 'cannot be re-encoded'}: {pillow_words(error)}"
            )

    def _guarded(self, name: str, make: Callable[[Picture], T], picture: Picture) -> T:
        try:
            return make(picture)
        except Exception as error:  # Pillow raises SyntaxError, struct.error and others on bad files
            raise ValueError(f"field {name!r}: cannot be re-encoded: {error}") from error

    def _made(self, kind: Kind, picture: Picture) -> Picture:
        recoded, form = self._picture(kind, picture), self.options.coefficients
        return recoded if form is None or isinstance(kind, Mask) else _coefficients(kind, recoded, form)

    def _picture(self, kind: Kind, picture: Picture) -> Picture:
        size = _size_of(kind, picture)
        target = scaled_size(size, self.options)
        if isinstance(kind, Mask):
            return picture if target == size else Picture(png_file(_pixels(kind, picture, size, target)))
        assert isinstance(kind, Image)
        if self.options.raw or (target != size and kind.channels not in (1, 3)):
            return raw_picture(kind, _pixels(kind, picture, size, target))
        if target == size:
            return _baseline(picture) if self.options.baseline else picture
        deep = bool(_flags_of(picture) & SIXTEEN_BIT)
        if kind.bits == 16 or (deep and not self.schema.is_pair):  # a JPEG has 8 bits
            return Picture(png_file(_pixels(kind, picture, size, target)))
        # Pillow would fill the missing part of a JPEG with gray, and the result would look whole.
        data, options = _bytes_of(picture), self.options
        pixels = thread_decoder().decode(data, wanted_format(kind), shown=kind.shown)
        limit = options.size or options.max_side
        assert limit is not None
        small = smaller_jpeg(data, pixels, limit, options.quality, deep, kind.shown)
        return Picture(small.tobytes())


def _moved(kind: Kind, value: bytes, size: Size, target: Size) -> bytes:
    """Return positions in a picture of one size as positions in the picture scaled to another."""
    if isinstance(kind, Boxes):
        points, relative = kind.format, kind.relative
    elif isinstance(kind, Keypoints):
        points, relative = "xyv" if kind.visibility else "xy", False
    elif isinstance(kind, Polygons) and kind.format == "mixed":
        return _moved_mixed(value, size, target)
    elif isinstance(kind, Polygons):
        points, relative = kind.format, False
    else:
        return value
    return _viewed(points, relative, value, size, target)


def _moved_mixed(value: bytes, size: Size, target: Size) -> bytes:
    """Move outlines by their scale, and areas as the engine moves them."""
    objects = decode_mixed(value)
    areas = encode_rle([obj for obj in objects if isinstance(obj, dict)], "areas")
    moved = iter(decode_rle(_viewed("rle", False, areas, size, target)))
    scale = np.divide(target, size)
    return encode_mixed(
        [next(moved) if isinstance(obj, dict) else [part * scale for part in obj] for obj in objects], "mixed"
    )


def _viewed(points: str, relative: bool, value: bytes, size: Size, target: Size) -> bytes:
    held = np.frombuffer(value, np.uint8)
    moved = _C.view_points(_whole(size, target), *size, points, relative, held)
    return bytes(cast("npt.NDArray[np.uint8]", moved))


def _whole(size: Size, target: Size) -> Any:
    """Return the view of a whole picture, resized."""
    return (0, 0, *size), target, (0, 0, *target), False


def _bytes_of(picture: Picture) -> npt.NDArray[np.uint8]:
    return np.frombuffer(picture.data, np.uint8)


def _flags_of(picture: Picture) -> int:
    return picture.raw["flags"] if picture.raw is not None else _C.probe(_bytes_of(picture))[4]


def _size_of(kind: Kind, picture: Picture) -> Size:
    if picture.raw is not None:
        return picture.raw["width"], picture.raw["height"]
    _, width, height, *_ = _C.probe(_bytes_of(picture), kind.shown)
    if width and height:
        return width, height
    decoded = thread_decoder().decode_rgb(_bytes_of(picture), shown=kind.shown)  # only Pillow knows its size
    return decoded.shape[1], decoded.shape[0]


def _pixels(kind: Image | Mask, picture: Picture, size: Size, target: Size) -> npt.NDArray[Any]:
    """Return the pixels, (height, width, channels), resized like the engine's: images as Pillow does."""
    wanted = wanted_format(kind)
    raw = None
    if picture.raw is not None:
        bits = 16 if picture.raw["flags"] & SIXTEEN_BIT else 8
        raw = (*size, picture.raw["channels"], bits)
    pixels = np.ascontiguousarray(thread_decoder().decode(_bytes_of(picture), wanted, raw, shown=kind.shown))
    if target != size:
        stored = (*size, wanted[0], wanted[1])
        store = _C.StoreSpec(dtype="uint8" if kind.bits == 8 else "int32")
        is_mask = isinstance(kind, Mask)
        cut = _C.cut(
            pixels.reshape(-1).view(np.uint8), _whole(size, target), wanted, store, is_mask, raw=stored
        )
        pixels = cut.view(np.uint8 if kind.bits == 8 else np.int32).astype(pixels.dtype, copy=False)
    return pixels.reshape(target[1], target[0], wanted[0])


def _baseline(picture: Picture) -> Picture:
    """Return a progressive JPEG as a baseline one with the same coefficients, or the picture unchanged."""
    if picture.raw is not None:
        return picture
    codec, *_, flags = _C.probe(_bytes_of(picture))
    if codec != CODECS[JPEG].name or not flags & PROGRESSIVE:
        return picture
    try:
        baseline = bytes(cast("npt.NDArray[np.uint8]", _C.jpeg_to_baseline(_bytes_of(picture))))
        return Picture(baseline, was_progressive=True)
    except FastloadError:
        return picture  # its index entry says that it is progressive


def _coefficients(kind: Kind, picture: Picture, form: str) -> Picture:
    """Return a JPEG as a coefficient record; one that cannot be stays, and its outcome says why."""
    if picture.raw is not None or _C.probe(_bytes_of(picture))[0] != CODECS[JPEG].name:
        return picture
    turned, _ = kind.shown
    if turned and _C.orientation(_bytes_of(picture)) != 1:
        return replace(picture, outcome=RecodeOutcome(len(picture.data), 0, "EXIF turns it"))
    data, outcome = to_record(picture.data, form)
    return Picture(data, outcome=outcome)
