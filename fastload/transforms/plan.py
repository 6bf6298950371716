"""The result of compiling a transform: a :class:`Plan` of what the core does, and the callables after it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from fastload._native import _C

#: What a step does to a sample: "moves" pixels, and every position with them; changes only "colours",
#: "boxes", "points" or "types"; drops "objects"; "nothing"; or "unknown", whatever a callable does.
Does: TypeAlias = Literal["moves", "colours", "boxes", "points", "objects", "types", "nothing", "unknown"]


#: What a picture is in torchvision's chain: "pil", "image" (``tv_tensors.Image``) or "tensor".
ImageState: TypeAlias = Literal["pil", "image", "tensor"]


@dataclass(frozen=True)
class Called:
    """A callable of a transform's tail.

    Args:
        function: the callable, as the user passed it.
        takes: "sample": all of it, whatever that is; "v2": all of it, as torchvision's v2 takes samples;
            "image": only a picture.
        moves: whether it may move pixels without moving boxes, masks and points itself.
        field: the field of an "image"; None: the only one.
        refuses: what v2 raises an error for: "objects" (boxes, masks, points), "samples" (it is for
            batches), or "".
        state: what pictures are when they reach it.
        pure: whether nothing is a tv_tensor any more, after ``ToPureTensor``.
        name: for messages.
    """

    function: Any = field(repr=False)
    takes: Literal["sample", "v2", "image"]
    moves: bool = False
    field: str | None = None
    refuses: str = ""
    state: ImageState = "pil"
    pure: bool = False
    name: str = ""


@dataclass(frozen=True)
class Step:
    """One item of a transform: where it runs, and why."""

    name: str
    native: bool  # in the core; else in Python
    why: str
    keep: str = ""  # what would keep it in the core; "" if nothing is known to
    does: Does = "unknown"
    takes: str = "sample"  # "image": only a picture, from the field `field`, or from the only one
    field: str | None = None
    view: int | None = None  # the number of its view of the sample
    erases: bool = False  # parts of the stored picture: after normalisation, wherever that runs


@dataclass(frozen=True)
class Fill:
    """The colour around the picture in a view: numbers of the stored picture, one for all channels or one
    for each; and the id that masks have there, None: their id of pixels without a class."""

    image: tuple[int, ...] = (0,)
    mask: int | None = None


@dataclass(frozen=True)
class GeometryUse:
    """A step of the geometry as the core takes it: its name in ``_C.GEOMETRY_OPERATIONS``, its numbers, and
    what follows from them."""

    name: str
    numbers: tuple[float, ...]
    size: tuple[int, int] | None = field(default=None, compare=False)  # (height, width) after it, if known
    keeps_size: bool = field(default=False, compare=False)
    drawn: bool = field(default=False, compare=False)  # for each sample
    fill: Fill | None = None  # where it may show more than the picture

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(f'{number:.6g}' for number in self.numbers)})"


@dataclass(frozen=True)
class Drawn:
    """A number of an operation that is drawn for each sample: a kind and its values
    (csrc/core/transform/pixels/number.h)."""

    kind: str
    values: tuple[float, ...]


@dataclass(frozen=True)
class PixelUse:
    """An operation on pixels as the core takes it: its name in ``_C.PIXEL_OPERATIONS``, its probability for a
    sample, and its numbers; or a group ("all", "order", "choice" with weights as numbers) with its parts."""

    name: str
    probability: float
    numbers: tuple[float | Drawn, ...] = ()
    parts: tuple[PixelUse, ...] = ()

    @property
    def is_random(self) -> bool:
        """Whether anything of it is drawn for each sample."""
        if 0.0 < self.probability < 1.0 or (self.name in _DRAWING and len(self.parts) > 1):
            return True
        if self.name in _OF_ITS_OWN:
            return True
        return any(isinstance(number, Drawn) for number in self.numbers) or any(
            part.is_random for part in self.parts
        )

    @property
    def moves(self) -> bool:
        """Whether it moves pixels, so that later operations cannot run before it."""
        return self.name in _C.MOVING_OPERATIONS or any(part.moves for part in self.parts)

    @property
    def mirrors(self) -> bool:
        """Whether left and right may change places."""
        if self.probability <= 0.0:
            return False
        return self.name in _MIRRORS or any(part.mirrors for part in self.parts)

    @property
    def mixes(self) -> bool:
        """Whether it, or one of its parts, mixes pictures, which takes additional memory."""
        return self.name in _MIXES or any(part.mixes for part in self.parts)

    def as_node(self) -> tuple[Any, ...]:
        """Return it as ``_C.PixelSpec`` takes it."""
        numbers = [
            (number.kind, list(number.values)) if isinstance(number, Drawn) else number
            for number in self.numbers
        ]
        return self.name, self.probability, numbers, [part.as_node() for part in self.parts]


def _first(one: tuple[int, Any]) -> int:
    return one[0]


_MIRRORS = ("horizontal_flip", "vertical_flip")
_DRAWING = ("choice", "order", "some")  # groups that draw
_MIXES = ("augmix", "mix_and_blend", "blend_in_turn")
_OF_ITS_OWN = ("perspective", *_MIXES)  # operations that draw more than their numbers


@dataclass(frozen=True)
class MosaicUse:
    """A mosaic as the core takes it (csrc/core/transform/mosaic.h), and how often a sample becomes one."""

    size: int
    tiles: int
    p: float
    motion: tuple[float, float, float, float, float]  # degrees, translate, scale, shear, perspective
    fill: tuple[int, int, int]
    mixup: float = 0.0  # probability of being mixed with another sample
    alpha: float = 32.0  # Beta(alpha, alpha) gives their weights

    def as_tuple(self) -> tuple[Any, ...]:
        """Return it as ``_C.Engine`` takes it."""
        return self.size, self.tiles, self.motion, self.fill, self.alpha

    @property
    def records(self) -> int:
        """The most records that make up a sample."""
        return self.tiles * (2 if self.mixup > 0.0 else 1)


@dataclass(frozen=True)
class Erasing:
    """Rectangles of a stored picture that are filled (csrc/core/transform/erase.h)."""

    probability: float
    area: tuple[float, float]
    log_ratio: tuple[float, float]
    count: tuple[int, int]
    fill: str
    value: tuple[float, float, float]

    def as_tuple(self) -> tuple[Any, ...]:
        """Return it as ``_C.StoreSpec`` takes it."""
        return (self.probability, self.area, self.log_ratio, self.count, self.fill, self.value)


@dataclass(frozen=True)
class ObjectsUse:
    """What happens to a sample's objects (csrc/core/sample/objects_plan.h)."""

    clip: bool = False  # boxes, at each crop, pad and operation that moves pixels
    clamp: bool = False  # boxes, at the picture's border
    inside: bool = False  # with ``drop``: also objects whose boxes reach over the border
    drop: bool = False  # objects whose boxes are below the two numbers
    min_size: float = 1.0
    min_area: float = 1.0
    without: str | None = None  # a field: objects for which it is true are dropped
    boxes: str | None = None  # the field of boxes; None: the only one
    draws: bool = False  # the geometry draws from boxes
    needed: bool = False  # there must be boxes
    closed: bool = False  # runs at the end; a later crop or motion turns it into a step of the geometry
    judges: bool = False  # objects are dropped between two steps of the geometry
    implied: bool = False  # only by steps of torchvision's v2: nobody asked for anything

    @property
    def drops(self) -> bool:
        """Whether there may be fewer objects than are stored."""
        return self.drop or self.judges or self.without is not None


@dataclass(frozen=True)
class Plan:
    """What the core does to each picture: ``source``, ``geometry`` and ``pixels`` in turn, storing (the
    fields of StoreSpec); then the ``tail``.

    ``tail`` holds the callables to run, in order: on a PIL picture, if ``picture``, else on a ``(C, H, W)``
    tensor of ``dtype``; on samples with other fields as ``called`` says. ``steps`` says where each item of
    the transform runs, and why.
    """

    mosaic: MosaicUse | None = None  # of several samples, in place of the picture
    source: tuple[PixelUse, ...] = ()  # on the whole picture, in order, before the crop
    geometry: tuple[GeometryUse, ...] = ()  # which pixels of the picture, and to which size
    filter: str = "bilinear"  # of the resize, unless a step of the geometry draws it
    pixels: tuple[PixelUse, ...] = ()  # on the cropped picture, in order, before it is stored
    dtype: str = "uint8"
    scale: bool = False
    normalize: bool = False
    mean: tuple[float, float, float] = (0.0, 0.0, 0.0)
    std: tuple[float, float, float] = (1.0, 1.0, 1.0)
    erase: Erasing | None = None  # in the stored picture
    objects: ObjectsUse | None = None  # None: all stay, and no box is clipped
    box_format: str | None = None  # format to which boxes are converted; None: as they are stored
    tail_format: str | None = None  # format to which the tail converts boxes
    mask_dtype: str | None = None  # dtype of delivered masks; None: as they are stored
    # The fill of masks at each step that may show the surroundings of a picture; None: their ignored id.
    mask_fills: tuple[int | None, ...] = field(default=(), compare=False)
    clips: bool = field(default=False, compare=False)  # steps are torchvision v2's, which clip boxes
    tail: tuple[Callable[[Any], Any], ...] = ()
    picture: bool = False
    steps: tuple[Step, ...] = field(default=(), compare=False)
    # What is known of each callable of the tail, and what pictures are before it in torchvision's chain;
    # whether anything in the chain is torchvision v2's, so that callables get tv_tensors.
    called: tuple[Called, ...] = field(default=(), compare=False)
    state: ImageState = field(default="tensor", compare=False)
    is_v2: bool = field(default=False, compare=False)
    tail_drops: bool = field(default=False, compare=False)  # the tail drops objects with their boxes
    views: tuple[tuple[str, Plan], ...] = ()  # by name, if a sample has several; the tail gets all
    # For what there is one draw: the sample with all its pictures, each field of them, or each frame.
    each: Literal["sample", "camera", "frame"] = "sample"
    # The pictures as a vision-language model takes them (fastload.vlm.Vision), in place of all this.
    vision: Any = None
    # By first epoch, if the plan changes; the other fields are those of the largest plan.
    scheduled: tuple[tuple[int, Plan], ...] = ()

    def at(self, epoch: int) -> Plan:
        """Return the plan of an epoch; the plan itself if it does not change."""
        return max((one for one in self.scheduled if one[0] <= epoch), default=(0, self), key=_first)[1]

    def of_view(self, number: int) -> Plan:
        """Return the plan of one of the sample's views; the plan itself if there is only one."""
        return self.views[number][1] if self.views else self

    @property
    def every(self) -> tuple[Plan, ...]:
        """The plan of each of the sample's views."""
        return tuple(plan for _, plan in self.views) or (self,)

    @property
    def of_objects(self) -> ObjectsUse | None:
        """What happens to objects, also because of torchvision v2's steps."""
        if not self.clips:
            return self.objects
        return replace(self.objects or ObjectsUse(implied=True), clip=True)

    @property
    def mirrors(self) -> bool:
        """Whether left and right may change places."""
        flips = (use for use in self.geometry if use.name in _MIRRORS and use.numbers[0] > 0)
        return any(flips) or any(use.mirrors for use in (*self.source, *self.pixels))

    @property
    def output_size(self) -> tuple[int, int] | None:
        """``(height, width)`` of every sample in pixels; None if it depends on the picture."""
        for use in reversed(self.geometry):
            if not use.keeps_size:
                return use.size
        return None if self.mosaic is None else (self.mosaic.size, self.mosaic.size)

    @property
    def puts_together(self) -> bool:
        """Whether samples are made of several, in some epoch."""
        return self.mosaic is not None or any(plan.puts_together for _, plan in self.scheduled)

    @property
    def keeps_size(self) -> bool:
        """Whether pictures are delivered whole and in their own size."""
        return self.mosaic is None and all(use.keeps_size for use in self.geometry)

    @property
    def is_random(self) -> bool:
        """Whether the core draws for each sample."""
        if self.scheduled:
            return any(plan.is_random for _, plan in self.scheduled)
        if self.views:
            return any(plan.is_random for plan in self.every)
        if self.mosaic is not None or (self.erase is not None and self.erase.probability > 0.0):
            return True
        return any(use.drawn for use in self.geometry) or any(
            use.is_random for use in (*self.source, *self.pixels)
        )

    @property
    def fill(self) -> Fill:
        """The colour around the picture, which all steps of the geometry share."""
        fill = next((use.fill for use in self.geometry if use.fill is not None), Fill())
        masks = set(self.mask_fills)
        return replace(fill, mask=masks.pop()) if len(masks) == 1 else fill

    @property
    def needs_boxes(self) -> bool:
        """Whether the geometry is drawn from the sample's boxes."""
        if self.scheduled:
            return any(plan.needs_boxes for _, plan in self.scheduled)
        return any(use.name == "random_iou_crop" for plan in self.every for use in plan.geometry)

    @property
    def needs_engine(self) -> bool:
        """Whether samples are made of other samples' pictures, too, which only the engine has."""
        parts = [plan for _, plan in (*self.views, *self.scheduled)]
        return self.mosaic is not None or any(plan.needs_engine for plan in parts)

    def geometry_spec(self) -> _C.GeometrySpec:
        """Return the core's description of crop, resize, window and flip."""
        steps = [(use.name, list(use.numbers)) for use in self.geometry]
        return _C.GeometrySpec(steps, self.filter, self._colour(), self.fill.mask)

    def _colour(self) -> list[int]:
        """Return the fill of images; [] for zeros."""
        return list(self.fill.image) if any(self.fill.image) else []

    def source_spec(self) -> _C.PixelSpec:
        """Return the core's description of the operations on the whole picture."""
        return _C.PixelSpec([use.as_node() for use in self.source])

    def pixel_spec(self) -> _C.PixelSpec:
        """Return the core's description of the operations on pixels, which draw apart from the source's."""
        return _C.PixelSpec([use.as_node() for use in self.pixels], self.source_spec())

    def store_spec(self, channels_last: bool = True) -> _C.StoreSpec:
        """Return the core's description of dtype, scaling and layout (``channels_last``: HWC, else CHW).

        Raises:
            ValueError: float32 cannot hold a mean or std.
        """
        return _C.StoreSpec(
            dtype=self.dtype,
            channels_last=channels_last,
            scale=self.scale,
            normalize=self.normalize,
            mean=self.mean,
            std=self.std,
            erase=self.erase.as_tuple() if self.erase is not None else None,
        )

    def made_of(self, picture: Any, seed: int, epoch: int = 0, sample: int = 0, draw: int = 0) -> Any:
        """Transform one (height, width, 3) uint8 picture outside a batch; return (h, w, 3 * itemsize) bytes
        of ``dtype``.

        Raises:
            ValueError: it needs other samples, or the sample's boxes.
        """
        if self.needs_boxes:
            raise ValueError(
                "RandomIoUCrop draws from the sample's boxes, which are not available with a picture alone. "
                "Read a set with a field of boxes by fastload.DataLoader, or leave it out."
            )
        if self.needs_engine:
            raise ValueError(
                "Mosaic puts several samples together, which fastload.DataLoader does. Found: one picture."
            )
        geometry, (height, width) = self.geometry_spec(), picture.shape[:2]
        if self.source:
            picture = _C.operate(picture, self.source_spec(), seed, epoch, sample, draw)
        key = (geometry, width, height, seed, epoch, sample, draw)
        view = _C.draw_view(*key)
        filter = view.filter
        store = self.store_spec()
        if self.pixels:
            pixels = _C.resize(picture, view, filter, fill=self._colour())
            stored = _C.store(_C.operate(pixels, self.pixel_spec(), seed, epoch, sample, draw), store)
        else:
            stored = _C.resize_store(picture, view, filter, store, fill=self._colour())
        if self.erase is not None:
            _C.erase(stored, store, seed, epoch, sample, draw)
        return stored
