"""The places of a batch's fields in its memory, for slots, rings, shared slots and memory plans."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

if TYPE_CHECKING:
    from fastload.sample.ragged import Ragged


# ---- Pictures that differ in size ----------------------------------------------------------------------


@dataclass(frozen=True)
class Sizes:
    """The treatment of pictures of different sizes in a batch; ``str()`` gives the value of ``collate=``.

    Args:
        mode: "stack": sizes must not differ; "pad": one padded tensor; "list": a tensor each.
        most: with "pad": always to this height and width.
    """

    mode: Literal["stack", "pad", "list"] = "stack"
    most: tuple[int, int] | None = None

    def __str__(self) -> str:
        return f"Pad{self.most}" if self.most else repr("ragged" if self.mode == "list" else self.mode)


# ---- Places of fields -------------------------------------------------------------------------------

_ALIGN = 64  # bytes; a cache line, and enough for every dtype

#: The core's measurements of a field of n samples: (n + 1,) offsets of rows or objects; (n, 2) height and
#: width of pictures; (n, 3) count, height and width of masks of objects; None if all samples are alike.
Measured: TypeAlias = "npt.NDArray[np.int64] | None"


@dataclass(frozen=True)
class Place:
    """The place of one field in a batch's memory.

    Args:
        begin: first byte.
        nbytes: bytes of all samples.
        stride: bytes from one sample to the next; 0 if they differ.
        size: height and width of pictures, or of objects' masks, in one tensor.
        offsets: (n + 1,) of rows or objects, in rows or bytes; of a list of pictures (n,), in bytes.
        sizes: (n, 2) height and width of pictures that differ; of objects' masks (n, 3), their count first.
        numbers_at: first byte of ``offsets`` or ``sizes`` in the batch's memory.
    """

    begin: int
    nbytes: int
    stride: int = 0
    size: tuple[int, int] = (0, 0)
    offsets: Measured = None
    sizes: Measured = None
    numbers_at: int = 0

    @property
    def measured(self) -> Measured:
        """The core's measurements of the field."""
        return self.offsets if self.sizes is None else self.sizes

    @property
    def numbers(self) -> Measured:
        """The measurements that the batch's memory has, in one dimension."""
        if self.sizes is None or self.offsets is None:
            known = self.measured
            return None if known is None else known.reshape(-1)
        if self.sizes.shape[1] == 2:
            return self.sizes.reshape(-1)
        return np.concatenate([self.offsets, self.sizes[:, 1:].reshape(-1)])


class Planner:
    """An allocator of memory for the fields of a batch of ``size`` samples, one by one."""

    def __init__(self, size: int) -> None:
        self.end = 0
        self._size = size

    def take(self, nbytes: int) -> int:
        """Allocate ``nbytes`` and return their first byte."""
        begin = self.end
        self.end = _aligned(begin + nbytes)
        return begin

    def numbers(self, field: FieldLayout, known: npt.NDArray[np.int64]) -> Place:
        """Allocate the measurements of a field."""
        count = known.size if field.form != "masks" or field.has_offsets else 3 * self._size + 1
        return Place(0, 0, numbers_at=self.take(8 * count))

    def equal(self, stride: int, size: tuple[int, int] = (0, 0), **more: Any) -> Place:
        """Allocate samples of ``stride`` bytes."""
        nbytes = self._size * stride
        return Place(self.take(nbytes), nbytes, stride, size, **more)

    def place(self, field: FieldLayout, known: Measured, at: int) -> Place:
        """Allocate rows, objects, masks or pictures of a field with measurements ``known``, stored at ``at``.

        Raises:
            ValueError: a picture is larger than ``Pad`` allows.
        """
        if field.form == "masks":
            assert known is not None
            return self._masks(field, known, at)
        if field.form != "picture":
            assert known is not None
            nbytes = int(known[-1]) * field.item_bytes
            return Place(self.take(nbytes), nbytes, offsets=known, numbers_at=at)
        if field.mode == "stack":
            nbytes = field.item_bytes * max(1, len(field.steps))
            return self.equal(nbytes, (field.shape[-2], field.shape[-1]))
        assert known is not None
        if field.mode == "pad":
            size = field.padded_size(known)
            return self.equal(field.picture_bytes(*size), size, sizes=known, numbers_at=at)
        known = np.where(known.all(1, keepdims=True), known, field.blank_size)
        offsets, nbytes = _listed(known[:, 0] * known[:, 1] * field.channels * field.dtype.itemsize)
        return Place(self.take(nbytes), nbytes, offsets=offsets, sizes=known, numbers_at=at)

    def _masks(self, field: FieldLayout, known: npt.NDArray[np.int64], at: int) -> Place:
        if field.mode == "stack":
            nbytes = int(known[-1]) * field.item_bytes
            height, width = field.shape
            return Place(self.take(nbytes), nbytes, 0, (height, width), offsets=known, numbers_at=at)
        if field.mode == "list":
            offsets, nbytes = _listed(known.prod(1))
            return Place(self.take(nbytes), nbytes, offsets=offsets, sizes=known, numbers_at=at)
        height, width = field.padded_size(known[:, 1:])
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(known[:, 0])])
        nbytes = int(offsets[-1]) * height * width
        begin = self.take(nbytes)
        return Place(begin, nbytes, 0, (height, width), offsets=offsets, sizes=known, numbers_at=at)


def _aligned(nbytes: Any) -> Any:
    return -(-nbytes // _ALIGN) * _ALIGN


def _listed(lengths: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], int]:
    """Return where samples with these numbers of bytes begin, and the bytes of all."""
    lengths = _aligned(lengths)
    return np.cumsum(lengths) - lengths, int(lengths.sum())


# ---- Layouts ----------------------------------------------------------------------------------------

#: ``fixed``: a tensor with one shape for all samples. ``rows``: any number of rows of numbers per sample.
#: ``objects``: bytes that ``decode`` turns into an object. ``picture``: pixels. ``masks``: pixels of a mask
#: for each of the sample's objects.
Form: TypeAlias = Literal["fixed", "rows", "objects", "picture", "masks"]
#: A batch's key of which positions are samples.
VALID = "valid"
#: A batch's key of where its packs of samples begin, and where the last one ends.
PACK_OFFSETS = "pack_offsets"
#: A batch's key of where each sample's pictures begin among all, where a sample may have several.
PICTURE_OFFSETS = "picture_offsets"
#: A batch's keys of what an image processor of transformers makes: rows are pictures, patches or tiles.
OF_PICTURES = frozenset(
    {
        "pixel_values", "pixel_attention_mask", "image_grid_thw", "spatial_shapes", "image_sizes",
        "batch_num_images", "num_patches", "num_crops",
    }
)  # fmt: skip
#: The key, for a collate, of the numbers on the host of a batch on a device.
HOST = ".host"
#: The keys, for a collate, of sample ids (-1: none), and of how each view shows its picture (``kView`` in
#: csrc/core/sample/field_plan.h).
IDS, VIEW = ".ids", ".view"
#: The key, in slots of batches for a device, of the numbers drawn for each sample's augmentation there.
PARAMETERS = ".parameters"
Cut: TypeAlias = Callable[[int, int], torch.Tensor]


def sizes_name(field: str) -> str:
    """Return a batch's key of the sizes of a field's pictures."""
    return f"{field}_sizes"


@dataclass(frozen=True)
class FieldLayout:
    """The layout of one field in a batch.

    Args:
        name: the key in batches.
        form: see :data:`Form`.
        dtype: of the numbers; for objects uint8, their bytes.
        shape: of a sample (fixed), of a row (rows), or of a picture: (height, width) or (channels, height,
            width), with height and width 0 if they are measured; of masks (height, width) likewise.
        blank: the value at a position without a sample; rows and objects have nothing there.
        mode: for pictures or masks that differ in size: "pad" to one size, or "list"; else "stack".
        multiple: with "pad": the batch's largest height and width are rounded up to multiples of it.
        most: with "pad": always to this height and width; None: to the batch's largest.
        decode: turns bytes into an object.
        view: the number of the sample's view.
        of: the schema's field, if its name differs: a sample with several views has it several times.
        delivered: the dtype that the consumer gets, if it differs.
        behind: the mode after Python callables, if it differs.
        blank_size: with "list": height and width of the picture where the core has measured none; (0, 0): it
            has no pixels.
        steps: of a window: the number of the sample's partner at each step, 0: the sample itself. A fixed
            field's ``shape`` begins with the steps, a picture's is that of one step. (): no window.
        is_pad: whether it says which steps are padding.
    """

    name: str
    form: Form
    dtype: torch.dtype
    shape: tuple[int, ...] = ()
    blank: float = 0
    mode: Literal["stack", "pad", "list"] = "stack"
    multiple: int = 1
    most: tuple[int, int] | None = None
    decode: Callable[[bytes], Any] | None = None
    view: int = 0
    of: str = ""
    delivered: torch.dtype | None = None
    behind: Literal["", "stack", "pad", "list"] = ""
    blank_size: tuple[int, int] = (0, 0)
    steps: tuple[int, ...] = ()
    is_pad: bool = False

    @property
    def is_origin(self) -> bool:
        """Whether it says where a sample comes from; names of the schema's fields never begin with a dot."""
        return self.name in (IDS, VIEW)

    @property
    def is_of_core(self) -> bool:
        """Whether the core fills it."""
        return self.name != PARAMETERS

    @property
    def schema_name(self) -> str:
        """The name of the schema's field."""
        return self.of or self.name

    @property
    def is_measured(self) -> bool:
        """Whether the core must measure the samples before their place is known."""
        return self.has_offsets or self.mode != "stack"

    @property
    def has_offsets(self) -> bool:
        """Whether the measurements are the offsets of each sample's rows, bytes or masks."""
        return self.form in ("rows", "objects") or (self.form == "masks" and self.mode == "stack")

    @property
    def has_one_size(self) -> bool:
        """Whether it has the same bytes in all batches of as many samples."""
        return not self.has_offsets and (
            self.mode == "stack" or (self.form == "picture" and self.most is not None)
        )

    @property
    def item_bytes(self) -> int:
        """Bytes of a sample (fixed), a row (rows), or a picture or mask of the size in ``shape``."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    @property
    def channels(self) -> int:
        """Numbers per pixel."""
        return self.shape[0] if len(self.shape) == 3 else 1

    def picture_bytes(self, height: int, width: int) -> int:
        """Return the bytes of a picture of that size."""
        return height * width * self.channels * self.dtype.itemsize

    def padded_size(self, sizes: npt.NDArray[np.int64]) -> tuple[int, int]:
        """Return height and width to which a batch's pictures are padded.

        Args:
            sizes: (n, 2) height and width of each.

        Raises:
            ValueError: a picture is larger than ``most``.
        """
        largest = tuple(int(side) for side in sizes.max(0)) if len(sizes) else (0, 0)
        if self.most is None:
            height, width = (-(-side // self.multiple) * self.multiple for side in largest)
            return height, width
        if largest[0] > self.most[0] or largest[1] > self.most[1]:
            position = int(np.flatnonzero((sizes > self.most).any(1))[0])
            height, width = sizes[position].tolist()
            raise ValueError(
                f"Field {self.name!r}: the picture at position {position} of a batch has {height} x {width} "
                f"pixels (height x width), and Pad{self.most} has room for less. Name a larger size, pass "
                "collate='pad', or resize in the transform."
            )
        return self.most


@dataclass(frozen=True)
class SampleLayout:
    """The layout of a batch's samples: the fields in order."""

    fields: tuple[FieldLayout, ...]

    @cached_property
    def is_measured(self) -> bool:
        """Whether the core must measure the samples before the places of their fields are known."""
        return any(field.is_measured for field in self.fields)

    def picture_size(self, view: int) -> tuple[int, int]:
        """Return height and width of all pictures of a view; (0, 0) if they differ, or there are none."""
        fields = [field for field in self.fields if field.form == "picture" and field.view == view]
        if not fields or fields[0].mode != "stack":
            return 0, 0
        return fields[0].shape[-2], fields[0].shape[-1]

    def of(self, size: int, measured: Sequence[Measured]) -> BatchLayout:
        """Return the layout of a batch of ``size`` samples.

        Args:
            measured: for each field None, or (size + 1,) offsets, or (size, 2) sizes, or for masks (size, 3)
                counts and sizes, int64.

        Raises:
            ValueError: a picture is larger than ``Pad`` allows.
        """
        planner = Planner(size)
        planner.take(size)  # which positions are samples
        places: dict[int, Place] = {}
        for number, (field, known) in enumerate(zip(self.fields, measured, strict=True)):
            if field.form == "fixed":
                places[number] = planner.equal(field.item_bytes)
            elif known is not None and field.form != "objects":
                places[number] = planner.numbers(field, known)
        for form in ("rows", "masks", "picture", "objects"):
            if form == "objects":
                device_bytes = planner.end
            for number, field in enumerate(self.fields):
                if field.form == form:
                    at = places[number].numbers_at if number in places else 0
                    places[number] = planner.place(field, measured[number], at)
        ordered = tuple(places[number] for number in range(len(self.fields)))
        return BatchLayout(self, size, ordered, device_bytes, planner.end)

    def empty(self, size: int) -> BatchLayout:
        """Return the layout of ``size`` samples that have nothing of what may differ in number or size."""
        return self.of(size, self.split(size, np.zeros(3 * (size + 1) * len(self.fields), np.int64)))

    def split(self, size: int, flat: npt.NDArray[np.int64]) -> list[Measured]:
        """Split :attr:`BatchLayout.measured` into the measurements of each field."""
        measured: list[Measured] = []
        for field in self.fields:
            if not field.is_measured:
                measured.append(None)
                continue
            shape = (size + 1,) if field.has_offsets else (size, 3 if field.form == "masks" else 2)
            count = math.prod(shape)
            measured.append(flat[:count].reshape(shape))
            flat = flat[count:]
        return measured

    def measured_of(self, raw: Mapping[str, Any]) -> list[Measured]:
        """Return what the core would have measured for a batch of :meth:`BatchLayout.raw`."""
        measured: list[Measured] = []
        for field in self.fields:
            value = raw[field.name]
            if field.has_offsets:
                measured.append(value.offsets.numpy())
            elif field.form == "masks" and field.mode == "pad":
                counts = np.diff(value.offsets.numpy())[:, None]
                measured.append(np.concatenate([counts, raw[sizes_name(field.name)].numpy()], 1))
            elif field.form == "masks":
                measured.append(np.array([part.shape for part in value], np.int64).reshape(-1, 3))
            elif field.mode == "pad":
                measured.append(raw[sizes_name(field.name)].numpy())
            elif field.mode == "list":
                measured.append(np.array([part.shape[-2:] for part in value], np.int64).reshape(-1, 2))
            else:
                measured.append(None)
        return measured

    def finished(self, raw: Mapping[str, Any]) -> dict[str, Any]:
        """Return a batch of :meth:`BatchLayout.raw` as its consumer gets it: with objects instead of their
        bytes, in the dtypes that are delivered."""
        batch = dict(raw)
        for field in self.fields:
            if field.delivered is not None:
                batch[field.name] = _converted(batch[field.name], field.delivered)
            if field.decode is not None:
                data, ends = raw[field.name].values.numpy().tobytes(), raw[field.name].offsets.tolist()
                batch[field.name] = [field.decode(data[begin:end]) for begin, end in pairwise(ends)]
        return batch


@dataclass(frozen=True)
class BatchLayout:
    """The places of the fields of one batch; see :class:`SampleLayout`.

    Args:
        layout: the layout of a sample.
        size: the number of samples.
        places: the place of each field.
        device_bytes: the first bytes, which a device needs.
        nbytes: all bytes.
    """

    layout: SampleLayout
    size: int
    places: tuple[Place, ...]
    device_bytes: int
    nbytes: int

    @cached_property
    def for_core(self) -> list[tuple[Any, ...]]:
        """The places as ``_C.Engine.submit`` takes them."""
        fields = zip(self.layout.fields, self.places, strict=True)
        return [_for_core(field, place) for field, place in fields if field.is_of_core]

    @property
    def measured(self) -> npt.NDArray[np.int64]:
        """The measurements of all fields, concatenated; see :meth:`SampleLayout.split`."""
        known = [place.measured for place in self.places]
        flat = [part.reshape(-1) for part in known if part is not None]
        return np.concatenate(flat) if flat else np.empty(0, np.int64)

    def write_numbers(self, memory: npt.NDArray[np.uint8], valid: npt.NDArray[np.bool_]) -> None:
        """Write what is known before decoding: which positions are samples, offsets and sizes."""
        memory[: self.size] = valid
        if not self.layout.is_measured:
            return
        for field, place in zip(self.layout.fields, self.places, strict=True):
            known = place.numbers
            if known is not None and field.form != "objects":
                memory[place.numbers_at : place.numbers_at + known.nbytes] = known.view(np.uint8)

    def raw(
        self, cut: Cut, objects: Cut | None = None, pictures: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Return the batch by field: views of the memory.

        Args:
            cut: returns the bytes from one place up to another, as a tensor.
            objects: likewise, for what lies after ``device_bytes``; None: ``cut``.
            pictures: those of all fields, if they lie elsewhere.

        Returns:
            Tensors with the samples first; :class:`Ragged` for rows, for padded masks and for the bytes of
            objects; lists for pictures, or each sample's masks, that differ in size; the sizes of padded
            ones, (size, 2) int64 height and width; and which positions are samples, (size,) bool.
        """
        batch: dict[str, Any] = {}
        sizes: dict[str, Any] = {}
        for field, place in zip(self.layout.fields, self.places, strict=True):
            if field.form == "objects":
                assert place.offsets is not None
                data = (objects or cut)(place.begin, place.begin + place.nbytes)
                batch[field.name] = _ragged(data, torch.from_numpy(place.offsets))
            elif field.form == "rows":
                values = cut(place.begin, place.begin + place.nbytes).view(field.dtype)
                ends = self._numbers(place, self.size + 1, cut)
                batch[field.name] = _ragged(values.view(-1, *field.shape), ends, place.offsets)
            elif field.form == "picture":
                found = self.pictures(field, place, cut) if pictures is None else pictures[field.name]
                batch[field.name] = found
            elif field.form == "masks":
                batch[field.name] = self._masks(field, place, cut)
            else:
                part = cut(place.begin, place.begin + place.nbytes).view(field.dtype)
                batch[field.name] = part.view(self.size, *field.shape) if field.shape else part
            if field.mode == "pad":
                sizes[sizes_name(field.name)] = self._sizes(field, place, cut)
        return {**batch, **sizes, VALID: cut(0, self.size).view(torch.bool)}

    def write(self, memory: npt.NDArray[np.uint8], raw: Mapping[str, Any]) -> None:
        """Write a batch of :meth:`raw` that this layout was made for."""
        self.write_numbers(memory, raw[VALID].numpy())
        views = self.raw(lambda begin, end: torch.from_numpy(memory[begin:end]))
        for field in self.layout.fields:
            into, value = views[field.name], raw[field.name]
            if isinstance(into, list):
                for picture, source in zip(into, value, strict=True):
                    picture.copy_(source)
            elif field.form in ("objects", "rows", "masks"):
                into.values.copy_(value.values)
            else:
                into.copy_(value)

    def _numbers(self, place: Place, count: int, cut: Cut) -> torch.Tensor:
        return cut(place.numbers_at, place.numbers_at + 8 * count).view(torch.int64)

    def _sizes(self, field: FieldLayout, place: Place, cut: Cut) -> torch.Tensor:
        """Return height and width of each padded picture, or of each sample's padded masks."""
        offsets = self.size + 1 if field.form == "masks" else 0
        return self._numbers(place, offsets + 2 * self.size, cut)[offsets:].view(self.size, 2)

    def _masks(self, field: FieldLayout, place: Place, cut: Cut) -> Any:
        """Return the masks of all objects in one tensor, or of each sample's."""
        assert place.offsets is not None
        if field.mode != "list":
            values = cut(place.begin, place.begin + place.nbytes).view(int(place.offsets[-1]), *place.size)
            return _ragged(values, self._numbers(place, self.size + 1, cut), place.offsets)
        assert place.sizes is not None
        begins = (place.begin + place.offsets).tolist()
        return [
            cut(begin, begin + math.prod(shape)).view(shape)
            for begin, shape in zip(begins, place.sizes.tolist(), strict=True)
        ]

    def pictures(self, field: FieldLayout, place: Place, cut: Cut) -> Any:
        """Return a field's pictures as :meth:`raw` does."""
        if field.mode != "list":
            flat = cut(place.begin, place.begin + place.nbytes).view(field.dtype)
            first = (self.size, len(field.steps)) if field.steps else (self.size,)
            return _pixels(flat, field, first, place.size)
        assert place.offsets is not None
        assert place.sizes is not None
        pictures = []
        for offset, (height, width) in zip(place.offsets.tolist(), place.sizes.tolist(), strict=True):
            begin = place.begin + offset
            flat = cut(begin, begin + field.picture_bytes(height, width)).view(field.dtype)
            pictures.append(_pixels(flat, field, (), (height, width)))
        return pictures


def _for_core(field: FieldLayout, place: Place) -> tuple[Any, ...]:
    if field.form == "picture" and field.mode == "pad":
        height, width = place.size
        return place.begin, place.stride, field.picture_bytes(1, width), height, width
    if field.mode == "list":
        return place.begin, place.offsets, place.sizes
    if field.form == "masks":
        return place.begin, place.offsets, *place.size
    return place.begin, place.stride if place.offsets is None else place.offsets


def _converted(value: Any, dtype: torch.dtype) -> Any:
    """Convert a tensor, a list of tensors, or a Ragged."""
    return [part.to(dtype) for part in value] if isinstance(value, list) else value.to(dtype)


def _pixels(
    flat: torch.Tensor, field: FieldLayout, first: tuple[int, ...], size: tuple[int, int]
) -> torch.Tensor:
    """Return interleaved pixels as (..., channels, height, width), a mask's as (..., height, width)."""
    if len(field.shape) == 2:
        return flat.view(*first, *size)
    pixels = flat.view(*first, *size, field.channels)
    if len(first) == 2:
        return pixels.permute(0, 1, 4, 2, 3)
    return pixels.permute(0, 3, 1, 2) if first else pixels.permute(2, 0, 1)


def _ragged(
    values: torch.Tensor, offsets: torch.Tensor, known: npt.NDArray[np.int64] | None = None
) -> Ragged:
    from fastload.sample.ragged import Ragged  # no batch of images and labels has any

    return Ragged.trusted(values, offsets, None if known is None else torch.from_numpy(known))
