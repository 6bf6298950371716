"""Crops and pads: which part of the picture a sample shows, and what surrounds it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fastload.transforms import arguments
from fastload.transforms.operations.operation import (
    Draft,
    Operation,
    as_pair,
    from_torchvision_antialias,
    geometry,
    misplaced,
    resize,
    set_field,
    with_objects,
)
from fastload.transforms.plan import Fill, GeometryUse

# ---- Centre crop ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CenterCrop:
    """Crop the middle ``(height, width)`` pixels; smaller pictures are padded with zeros, as in torchvision.

    Raises:
        TypeError, ValueError: a side is outside [1, 65500] pixels.
    """

    size: int | Sequence[int]

    def __post_init__(self) -> None:
        set_field(self, "size", arguments.pair("CenterCrop.size", self.size))


def _add_center_crop(draft: Draft, spec: CenterCrop, strict: bool) -> Draft:
    size = as_pair(spec.size)
    return geometry(draft, spec, GeometryUse("center_crop", size, size, fill=Fill()))


CENTER_CROP = Operation(CenterCrop, _add_center_crop, {"CenterCrop": lambda item: (CenterCrop(item.size),)})


# ---- Padding ----------------------------------------------------------------------------------------

_MODES = ("constant", "edge", "reflect", "symmetric")
_OTHERS = ("PIL Image", "Image", "others")  # keys of pictures in a fill by type


@dataclass(frozen=True)
class Pad:
    """Add pixels around the picture: torchvision's ``Pad``.

    Args:
        padding: one number, (left and right, top and bottom), or (left, top, right, bottom), in [0, 65500].
        fill: a number of the stored picture (before it is scaled or normalised) for all channels, one for
            each, or ``{"image": of images, "mask": of masks}``. Masks are padded with their ignore value
            unless given here, masks of instances with 0.
        padding_mode: ``"constant"``: the fill; or the picture's own pixels, as in ``numpy.pad``: ``"edge"``,
            ``"reflect"`` or ``"symmetric"``. A chain can have one such border, without any fill and without
            a later resize. Boxes, keypoints and outlines cannot follow, as in torchvision.

    Raises:
        TypeError, ValueError: an argument outside its range.
    """

    padding: int | Sequence[int]
    fill: Any = 0
    padding_mode: str = "constant"

    def __post_init__(self) -> None:
        set_field(self, "padding", sides_of("Pad.padding", self.padding))
        arguments.fill_of("Pad.fill", self.fill)
        border_number("Pad.padding_mode", self.padding_mode)


def border_number(where: str, mode: Any) -> int:
    """Return a padding mode as the core takes it; 0: fill.

    Raises:
        ValueError: the mode is not one of torchvision's.
    """
    if mode not in _MODES:
        raise ValueError(f"{where} must be one of {', '.join(_MODES)}. Found: {mode!r}.")
    return _MODES.index(mode)


def sides_of(where: str, value: Any) -> tuple[int, int, int, int]:
    """Return a padding as (left, top, right, bottom)."""
    values = tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else (value,)
    sides = tuple(arguments.whole(where, side, 0, arguments.MAX_SIDE) for side in values)
    if len(sides) == 1:
        sides *= 4
    elif len(sides) == 2:
        sides *= 2
    if len(sides) != 4:
        raise ValueError(
            f"{where} must be an int, (left and right, top and bottom), or (left, top, right, bottom). "
            f"Found: {value!r}."
        )
    left, top, right, bottom = sides
    return left, top, right, bottom


def fill_of_torchvision(item: Any) -> dict[str, Any]:
    """Return the fill of torchvision's object. Masks get it, too, unless it is by type; with a colour they
    get their pixels without a class."""
    fill = item.fill
    if not isinstance(fill, dict):
        if not isinstance(fill, Sequence):
            return {"image": fill, "mask": int(fill or 0)}
        return {"image": fill, "mask": int(fill[0])} if len(set(fill)) == 1 else {"image": fill}
    by_name = {getattr(key, "__name__", key): value for key, value in fill.items()}
    if hasattr(fill, "default_factory") and by_name.keys().isdisjoint(_OTHERS):
        raise ValueError("its fill is a defaultdict, which torchvision's releases ask for different types")
    other = by_name.get("others", 0)
    image = next((by_name[name] for name in _OTHERS if name in by_name), 0)
    fills: dict[str, Any] = {"image": image}
    mask = by_name.get("Mask", other)
    if isinstance(mask, Sequence):
        if "Mask" in by_name and len(set(mask)) > 1:
            raise ValueError(f"its fill of masks, {mask!r}, has several numbers, and masks have one")
        mask = mask[0] if len(set(mask)) == 1 else None
        return fills if mask is None else {**fills, "mask": int(mask)}
    return {**fills, "mask": int(mask or 0)}


def _add_pad(draft: Draft, spec: Pad, strict: bool) -> Draft:
    left, top, right, bottom = sides_of("Pad.padding", spec.padding)
    size = draft.on_source().plan.output_size
    if size is not None:
        size = size[0] + top + bottom, size[1] + left + right
    border = border_number("Pad.padding_mode", spec.padding_mode)
    if border:
        use = GeometryUse("pad_border", (left, top, right, bottom, border), size)
    else:
        fill = arguments.fill_of("Pad.fill", spec.fill)
        use = GeometryUse("pad", (left, top, right, bottom), size, fill=fill)
    return geometry(draft, spec, use)


def _pad_from_torchvision(item: Any) -> tuple[Pad]:
    return (Pad(item.padding, fill_of_torchvision(item), getattr(item, "padding_mode", "constant")),)


PAD = Operation(Pad, _add_pad, {"Pad": _pad_from_torchvision})


# ---- Random crop ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RandomCrop:
    """Crop ``(height, width)`` pixels at a uniformly random position of the picture.

    torchvision's ``RandomCrop``. A smaller picture makes its batch raise, unless it is padded: put a
    :class:`Resize` to at least this size before it, or set ``pad_if_needed``.

    Args:
        size: ``(height, width)`` of the crop; an int for a square.
        padding: pixels to add around the picture first: one number, (left and right, top and bottom), or
            (left, top, right, bottom).
        pad_if_needed: pad a picture that is too small, on both sides, as torchvision does.
        fill, padding_mode: see :class:`Pad`.

    Raises:
        TypeError, ValueError: a side is outside [1, 65500] pixels, :class:`Pad` refuses the padding or fill,
            or ``padding_mode`` is not "constant" with both ``padding`` and ``pad_if_needed``.
    """

    size: int | Sequence[int]
    padding: int | Sequence[int] | None = None
    pad_if_needed: bool = False
    fill: Any = 0
    padding_mode: str = "constant"

    def __post_init__(self) -> None:
        set_field(self, "size", arguments.pair("RandomCrop.size", self.size))
        if self.padding is not None:
            set_field(self, "padding", sides_of("RandomCrop.padding", self.padding))
        arguments.fill_of("RandomCrop.fill", self.fill)
        border = border_number("RandomCrop.padding_mode", self.padding_mode)
        if border and self.padding is not None and self.pad_if_needed:
            raise ValueError(
                f"RandomCrop.padding_mode={self.padding_mode!r} goes with padding or with pad_if_needed. "
                "Found: both. Leave one out, or pad by a callable."
            )


def _add_random_crop(draft: Draft, spec: RandomCrop, strict: bool) -> Draft:
    size = as_pair(spec.size)
    border = border_number("RandomCrop.padding_mode", spec.padding_mode)
    pads = bool(spec.padding or spec.pad_if_needed) and not border
    fill = arguments.fill_of("RandomCrop.fill", spec.fill) if pads else None
    uses: list[GeometryUse] = []
    if spec.padding is not None:
        sides = sides_of("RandomCrop.padding", spec.padding)
        bordered = GeometryUse("pad_border", (*sides, border))
        uses.append(bordered if border else GeometryUse("pad", sides, fill=fill))
    if spec.pad_if_needed:
        bordered = GeometryUse("pad_border_to", (*size, border))
        uses.append(bordered if border else GeometryUse("pad_to", size, fill=fill))
    return geometry(draft, spec, *uses, GeometryUse("random_crop", size, size, drawn=True, fill=fill))


def _random_crop_from_torchvision(item: Any) -> tuple[RandomCrop]:
    if item.padding is None and not item.pad_if_needed:
        return (RandomCrop(item.size),)
    padding = item.padding
    if isinstance(padding, (list, tuple)) and len(padding) == 4 and _is_parsed(item):
        left, right, top, bottom = padding  # torchvision v2 keeps them so
        padding = (left, top, right, bottom)
    mode = getattr(item, "padding_mode", "constant")
    return (RandomCrop(item.size, padding, bool(item.pad_if_needed), fill_of_torchvision(item), mode),)


def _is_parsed(item: Any) -> bool:
    return type(item).__module__.startswith("torchvision.transforms.v2")


RANDOM_CROP = Operation(RandomCrop, _add_random_crop, {"RandomCrop": _random_crop_from_torchvision})


# ---- Random resized crop ----------------------------------------------------------------------------


@dataclass(frozen=True)
class RandomResizedCrop:
    """Crop a random part of the picture and resize it to ``size``.

    The crop is drawn as in torchvision's ``RandomResizedCrop.get_params``: ten tries at an area of ``scale``
    times the picture's and a ratio (width over height) uniform in logarithm over ``ratio``, then the
    central crop. The resize equals Pillow 13's on uint8, bit for bit.

    Args:
        size: ``(height, width)`` of the result in pixels; an int for a square.
        scale: least and greatest share of the picture's area, ``0 < least <= greatest``.
        ratio: least and greatest width over height, ``0 < least <= greatest``.
        interpolation: ``"bilinear"``, ``"bicubic"`` or ``"lanczos"`` (or torchvision's
            ``InterpolationMode``), or, as in timm, ``"random"``: one of the first two, drawn for each sample.
        antialias: only ``True``.

    Raises:
        TypeError, ValueError: an argument outside its range.
    """

    size: int | Sequence[int]
    scale: Sequence[float] = (0.08, 1.0)
    ratio: Sequence[float] = (3 / 4, 4 / 3)
    interpolation: Any = "bilinear"
    antialias: bool = True

    def __post_init__(self) -> None:
        where = "RandomResizedCrop"
        set_field(self, "size", arguments.pair(f"{where}.size", self.size))
        for name in ("scale", "ratio"):
            low, high = arguments.floats(f"{where}.{name}", getattr(self, name), 2)
            if not 0 < low <= high:
                raise ValueError(
                    f"{where}.{name} must be (least, greatest) with 0 < least <= greatest. "
                    f"Found: {(low, high)}."
                )
            set_field(self, name, (low, high))
        if self.interpolation != "random":
            name = arguments.interpolation_name(f"{where}.interpolation", self.interpolation)
            set_field(self, "interpolation", name)
        arguments.require_antialias(f"{where}.antialias", self.antialias)


def _add_random_resized_crop(draft: Draft, spec: RandomResizedCrop, strict: bool) -> Draft:
    size = as_pair(spec.size)
    use = GeometryUse("random_resized_crop", (*size, *spec.scale, *spec.ratio), size, drawn=True)
    if spec.interpolation != "random":
        return resize(draft, spec, spec.interpolation, use)
    return resize(draft, spec, None, use, GeometryUse("random_filter", (), keeps_size=True, drawn=True))


def _random_resized_crop_from_torchvision(item: Any) -> tuple[RandomResizedCrop]:
    antialias = from_torchvision_antialias(item)
    return (RandomResizedCrop(item.size, item.scale, item.ratio, item.interpolation, antialias),)


def _from_timm(item: Any) -> tuple[RandomResizedCrop]:
    filter = item.interpolation
    if isinstance(filter, (tuple, list)):
        names = sorted(arguments.interpolation_name("interpolation", name) for name in filter)
        if names != ["bicubic", "bilinear"]:
            raise ValueError(f"it draws its interpolation from {filter}")
        filter = "random"
    return (RandomResizedCrop(item.size, item.scale, item.ratio, filter),)


RANDOM_RESIZED_CROP = Operation(
    RandomResizedCrop,
    _add_random_resized_crop,
    {
        "RandomResizedCrop": _random_resized_crop_from_torchvision,
        "timm.data.transforms.RandomResizedCropAndInterpolation": _from_timm,
    },
)


# ---- Crop or pad to one size ------------------------------------------------------------------------


@dataclass(frozen=True)
class FixedSizeCrop:
    """Crop at random along sides longer than ``size``, and pad shorter sides at the right and bottom.

    ``FixedSizeCrop`` of torchvision's detection references, the second half of large scale jitter after
    :class:`ScaleJitter`. As there, one random number places the crop along both sides, boxes are clipped to
    it, and objects whose box lies outside are dropped.

    Args:
        size: ``(height, width)`` of the result; an int for a square.
        fill: see :class:`Pad`.

    Raises:
        TypeError, ValueError: an argument outside its range.
    """

    size: int | Sequence[int]
    fill: Any = 0

    def __post_init__(self) -> None:
        set_field(self, "size", arguments.pair("FixedSizeCrop.size", self.size))
        arguments.fill_of("FixedSizeCrop.fill", self.fill)


def _add_fixed_size_crop(draft: Draft, spec: FixedSizeCrop, strict: bool) -> Draft:
    size = as_pair(spec.size)
    fill = arguments.fill_of("FixedSizeCrop.fill", spec.fill)
    use = GeometryUse("fixed_size_crop", size, size, drawn=True, fill=fill)
    draft = geometry(draft, spec, use)
    return with_objects(draft, spec, clip=True, drop=True, min_size=0.0, min_area=0.0)


FIXED_SIZE_CROP = Operation(FixedSizeCrop, _add_fixed_size_crop, {})


# ---- Crop to a bucket's size ------------------------------------------------------------------------


@dataclass(frozen=True)
class BucketCrop:
    """Resize the picture in proportion until it covers the bucket of the nearest aspect ratio, and crop it
    to that size. With a :class:`fastload.BucketSampler` of the same sizes, each batch has pictures of one
    size, so that ``collate="pad"`` pads nothing.

    Args:
        sizes: ``(height, width)`` of the buckets; ties go to the first.
        anywhere: crop at a uniformly random position; False: centre crop.
        interpolation: ``"bilinear"``, ``"bicubic"`` or ``"lanczos"``.

    Raises:
        TypeError, ValueError: an argument outside its range.
    """

    sizes: Sequence[Sequence[int]]
    anywhere: bool = False
    interpolation: Any = "bilinear"

    def __post_init__(self) -> None:
        sizes = tuple(arguments.pair("BucketCrop.sizes", size) for size in self.sizes)
        if not sizes:
            raise ValueError("BucketCrop.sizes must have at least one (height, width). Found: none.")
        set_field(self, "sizes", sizes)
        name = arguments.interpolation_name("BucketCrop.interpolation", self.interpolation)
        set_field(self, "interpolation", name)


def _add_bucket_crop(draft: Draft, spec: BucketCrop, strict: bool) -> Draft:
    sides = tuple(side for size in spec.sizes for side in size)
    size = (spec.sizes[0][0], spec.sizes[0][1]) if len(set(spec.sizes)) == 1 else None
    use = GeometryUse("bucket_cover", (float(spec.anywhere), *sides), size, drawn=bool(spec.anywhere))
    return resize(draft, spec, spec.interpolation, use)


BUCKET_CROP = Operation(BucketCrop, _add_bucket_crop, {})


# ---- Larger canvas ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class RandomZoomOut:
    """Place the picture, with probability ``p``, at a random position on a single-colour canvas ``r`` times
    as wide and high, ``r`` uniform in ``side_range``: torchvision's ``RandomZoomOut``. The canvas costs next
    to nothing: it is not resized.

    Args:
        fill: see :class:`Pad`.
        side_range: least and greatest factor, ``1 <= least <= greatest``.
        p: probability, in [0, 1].

    Raises:
        TypeError, ValueError: an argument outside its range.
    """

    fill: Any = 0
    side_range: Sequence[float] = (1.0, 4.0)
    p: float = 0.5

    def __post_init__(self) -> None:
        where = "RandomZoomOut"
        arguments.fill_of(f"{where}.fill", self.fill)
        low, high = arguments.floats(f"{where}.side_range", self.side_range, 2)
        if not 1.0 <= low <= high:
            raise ValueError(
                f"{where}.side_range must be (least, greatest), 1 <= least <= greatest. Found: {(low, high)}."
            )
        set_field(self, "side_range", (low, high))
        set_field(self, "p", arguments.probability(f"{where}.p", self.p))


def _add_random_zoom_out(draft: Draft, spec: RandomZoomOut, strict: bool) -> Draft:
    low, high = spec.side_range
    fill = arguments.fill_of("RandomZoomOut.fill", spec.fill)
    use = GeometryUse("random_zoom_out", (low, high, spec.p), drawn=True, fill=fill)
    return geometry(draft, spec, use)


def _random_zoom_out_from_torchvision(item: Any) -> tuple[RandomZoomOut]:
    return (RandomZoomOut(fill_of_torchvision(item), item.side_range, item.p),)


RANDOM_ZOOM_OUT = Operation(
    RandomZoomOut, _add_random_zoom_out, {"RandomZoomOut": _random_zoom_out_from_torchvision}
)


# ---- Crop around an object --------------------------------------------------------------------------

_OPTIONS = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)


@dataclass(frozen=True)
class RandomIoUCrop:
    """Crop a random part of the picture that contains the centre of an object and overlaps its box enough:
    torchvision's ``RandomIoUCrop``, the crop of SSD.

    The overlap (intersection over union) that is enough is drawn from ``sampler_options``; 1 or more leaves
    the picture as it is. An unfit part is drawn again, up to ``trials`` times, then another option is drawn.
    A picture stays as it is if it has no boxes, or if 800 rounds find nothing (torchvision goes on for ever).
    Boxes whose centre is not in the part become zeros: put :class:`SanitizeBoundingBoxes` after it to drop
    these objects.

    Args:
        min_scale, max_scale: least and greatest share of the picture's width and height.
        min_aspect_ratio, max_aspect_ratio: least and greatest width over height of the part.
        sampler_options: overlaps; None for 0, 0.1, 0.3, 0.5, 0.7, 0.9 and 1.
        trials: parts to draw for each option, in [1, 32767].

    Raises:
        TypeError, ValueError: an argument outside its range.
    """

    min_scale: float = 0.3
    max_scale: float = 1.0
    min_aspect_ratio: float = 0.5
    max_aspect_ratio: float = 2.0
    sampler_options: Sequence[float] | None = None
    trials: int = 40

    def __post_init__(self) -> None:
        where = "RandomIoUCrop"
        for name, most in (("scale", 1.0), ("aspect_ratio", float("inf"))):
            ends = (getattr(self, f"min_{name}"), getattr(self, f"max_{name}"))
            low, high = arguments.floats(f"{where}.min_{name}, max_{name}", ends, 2)
            if not 0.0 < low <= high <= most:
                raise ValueError(f"{where}: 0 < min_{name} <= max_{name} <= {most:g}. Found: {(low, high)}.")
            set_field(self, f"min_{name}", low)
            set_field(self, f"max_{name}", high)
        options = tuple(_OPTIONS if self.sampler_options is None else self.sampler_options)
        if not options:
            raise ValueError(f"{where}.sampler_options must have at least one number. Found: none.")
        set_field(
            self, "sampler_options", arguments.floats(f"{where}.sampler_options", options, len(options))
        )
        set_field(self, "trials", arguments.whole(f"{where}.trials", self.trials, 1, 32_767))


def _add_random_iou_crop(draft: Draft, spec: RandomIoUCrop, strict: bool) -> Draft:
    numbers = (
        spec.min_scale,
        spec.max_scale,
        spec.min_aspect_ratio,
        spec.max_aspect_ratio,
        float(spec.trials),
    )
    use = GeometryUse("random_iou_crop", (*numbers, *(spec.sampler_options or ())), drawn=True)
    if any(step.name == use.name for step in draft.plan.geometry):
        raise misplaced(spec)
    draft = geometry(draft, spec, use, whole=True)
    return with_objects(draft, spec, clip=True, draws=True, needed=True)


def _random_iou_crop_from_torchvision(item: Any) -> tuple[RandomIoUCrop]:
    return (
        RandomIoUCrop(
            item.min_scale,
            item.max_scale,
            item.min_aspect_ratio,
            item.max_aspect_ratio,
            item.options,
            item.trials,
        ),
    )


RANDOM_IOU_CROP = Operation(
    RandomIoUCrop, _add_random_iou_crop, {"RandomIoUCrop": _random_iou_crop_from_torchvision}
)


# ---- Padding of small pictures ----------------------------------------------------------------------


@dataclass(frozen=True)
class PadIfSmaller:
    """Pad a picture smaller than ``size`` at the right and bottom: ``PadIfSmaller`` of torchvision's
    segmentation references, for use before ``RandomCrop``.

    Args:
        size: ``(height, width)``; an int for a square.
        fill: see :class:`Pad`.

    Raises:
        TypeError, ValueError: an argument outside its range.
    """

    size: int | Sequence[int]
    fill: Any = 0

    def __post_init__(self) -> None:
        set_field(self, "size", arguments.pair("PadIfSmaller.size", self.size))
        arguments.fill_of("PadIfSmaller.fill", self.fill)


def _add_pad_if_smaller(draft: Draft, spec: PadIfSmaller, strict: bool) -> Draft:
    fill = arguments.fill_of("PadIfSmaller.fill", spec.fill)
    return geometry(draft, spec, GeometryUse("pad_below", as_pair(spec.size), fill=fill))


def _from_references(item: Any) -> tuple[PadIfSmaller]:
    return (PadIfSmaller(item.size, fill_of_torchvision(item)),)


PAD_IF_SMALLER = Operation(PadIfSmaller, _add_pad_if_smaller, {"v2_extras.PadIfSmaller": _from_references})
