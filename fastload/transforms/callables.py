"""Recognition of Python callables: whether they take the whole sample or a picture, and may move pixels.
Modules and names decide; no library is imported."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from fastload.transforms.compose import ImageOnly
from fastload.transforms.plan import Called, Does, ImageState

# torchvision's classes, v1 and v2, that leave every pixel where it is.
_STILL = frozenset((
    "ClampBoundingBoxes", "ClampKeyPoints", "ColorJitter", "ConvertBoundingBoxFormat", "ConvertImageDtype",
    "GaussianBlur", "GaussianNoise", "Grayscale", "Identity", "JPEG", "Normalize", "PILToTensor", "RGB",
    "RandomAdjustSharpness", "RandomAutocontrast", "RandomChannelPermutation", "RandomEqualize",
    "RandomErasing", "RandomGrayscale", "RandomInvert", "RandomPhotometricDistort", "RandomPosterize",
    "RandomSolarize", "SanitizeBoundingBoxes", "SanitizeKeyPoints", "SetClampingMode", "ToDtype", "ToImage",
    "ToPILImage", "ToPureTensor", "ToTensor", "UniformTemporalSubsample",
))  # fmt: skip
_ONE_BY_ONE = ("Compose", "RandomApply", "RandomChoice", "RandomOrder")
_REFUSE_OBJECTS = ("AugMix", "AutoAugment", "FiveCrop", "RandAugment", "TenCrop", "TrivialAugmentWide")
_OF_BATCHES = ("CutMix", "MixUp")
_OF_PICTURES = ("albumentations", "imgaug", "kornia", "PIL", "timm", "torch", "torchvision")
_V1, _V2 = "torchvision.transforms", "torchvision.transforms.v2"
# Beginnings of the names of torchvision's functions that leave every pixel where it is.
_STILL_FUNCTIONS = (
    "adjust_", "autocontrast", "convert_image", "equalize", "gaussian_", "invert", "normalize", "pil_to",
    "posterize", "rgb_", "solarize", "to_",
)  # fmt: skip


def _is_in(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def _module(item: Any) -> str:
    of = item if isinstance(getattr(item, "__qualname__", None), str) else type(item)
    return getattr(of, "__module__", None) or ""


def short_name(item: Any) -> str:
    """Return the name of a torchvision class, v1 or v2; "" for anything else, including users' subclasses."""
    return type(item).__name__ if _is_in(type(item).__module__ or "", _V1) else ""


def is_v2(item: Any) -> bool:
    """Return whether it is torchvision v2's, or a user's subclass of one."""
    return any(_is_in(base.__module__ or "", _V2) for base in type(item).__mro__)


def calls_v2(item: Any) -> bool:
    """Return whether it is torchvision v2's, or a callable whose code, attributes or closure use v2: a preset
    that keeps a chain, a function that calls ``v2.functional``. Such a callable wants ``tv_tensors``."""
    seen: dict[int, Any] = {}  # keeps temporary objects alive, so that no other object gets their ids
    waiting = [item]
    while waiting and len(seen) < _MOST_SEEN:
        part = waiting.pop()
        if id(part) in seen:
            continue
        seen[id(part)] = part
        name = part.__name__ if isinstance(part, ModuleType) else _module(part)
        if is_v2(part) or any(_is_in(name, package) for package in (_V2, _TYPES)):
            return True
        if isinstance(part, CodeType) and _imports_v2(part):
            return True
        waiting += _within(part, name)
    return False


_MOST_SEEN = 4096  # objects reached from a callable
_MOST_ITEMS = 256  # of a list or a dict
_TYPES = "torchvision.tv_tensors"
_CLOSED = ("builtins", "fastload", "numpy", "torch", "torchvision", "PIL")  # packages without users' classes


def _imports_v2(code: CodeType) -> bool:
    """Return whether code reaches v2 through the name torchvision, or imports it when it runs."""
    names = code.co_names
    if any(_is_in(name, package) for name in names for package in (_V2, _TYPES)):
        return True
    return any(_is_in(name, "torchvision") for name in names) and not {"v2", "tv_tensors"}.isdisjoint(names)


def _within(item: Any, module: str) -> list[Any]:
    """Return what a callable's code may use: names, closure, attributes and items."""
    if isinstance(item, (list, tuple, set, frozenset)):
        return list(islice(item, _MOST_ITEMS))
    if isinstance(item, dict):
        return list(islice(item.values(), _MOST_ITEMS))
    if isinstance(item, CodeType):
        return [const for const in item.co_consts if isinstance(const, CodeType)]
    if isinstance(item, FunctionType):
        used = {name: item.__globals__.get(name) for name in _names_in(item.__code__)}
        cells = [cell.cell_contents for cell in item.__closure__ or () if _is_filled(cell)]
        return [item.__code__, *used.values(), *cells, *(item.__defaults__ or ())]
    if isinstance(item, MethodType):
        return [item.__func__, item.__self__]
    if isinstance(item, functools.partial):
        return [item.func, *item.args, *item.keywords.values()]
    if isinstance(item, ModuleType) or type(item) in _PLAIN or type(item).__module__ in ("torch", "numpy"):
        return []
    if not isinstance(item, type):
        return [type(item), *getattr(item, "__dict__", {}).values()]
    is_users = module.partition(".")[0] not in _CLOSED
    return [_code(value) for kind in item.__mro__[:-1] for value in vars(kind).values()] if is_users else []


_PLAIN = (str, bytes, int, float, bool, type(None))


def _names_in(code: CodeType) -> set[str]:
    inner = [const for const in code.co_consts if isinstance(const, CodeType)]
    return {*code.co_names}.union(*map(_names_in, inner))


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:  # it is still empty
        return False


def _code(value: Any) -> Any:
    """Return the function of a class's attribute, also of a static method or a property; else None."""
    if isinstance(value, property):
        return value.fget
    if isinstance(value, (staticmethod, classmethod)):
        return value.__func__
    return value if isinstance(value, FunctionType) else None


def parts_of(item: Any) -> list[Any] | None:
    """Return the callables in a torchvision container or torch's ``Sequential``; None for anything else."""
    kind = type(item)
    if short_name(item) in _ONE_BY_ONE:
        return list(item.transforms)
    if (kind.__module__, kind.__name__) == ("torch.nn.modules.container", "Sequential"):
        return list(item)
    return None


def look(item: Any) -> Called:
    """Return what a callable takes, and whether it moves pixels."""
    if isinstance(item, ImageOnly):
        return Called(item.transform, "image", field=item.image)
    if isinstance(item, functools.partial):
        return replace(look(item.func), function=item)
    parts = parts_of(item)
    if parts is not None:
        return _of_parts(item, [look(part) for part in parts])
    name = short_name(item)
    if name == "Lambda" and not is_v2(item):
        return Called(item, "sample")
    refuses = "samples" if name in _OF_BATCHES else "objects" if name in _REFUSE_OBJECTS else ""
    if is_v2(item):
        return Called(item, "v2", name not in _STILL | {"Lambda"}, refuses=refuses)
    module = _module(item)
    if name:
        return Called(item, "image", name not in _STILL)
    if module.partition(".")[0] not in _OF_PICTURES:
        return Called(item, "sample")
    function = getattr(item, "__name__", "")
    still = module.startswith("torchvision") and function.startswith(_STILL_FUNCTIONS)
    return Called(item, "image", not still and type(item).__name__ != "Identity")


def _of_parts(item: Any, parts: Iterable[Called]) -> Called:
    parts = list(parts)
    takes = {part.takes for part in parts}
    called = Called(item, "v2" if takes & {"v2", "sample"} or is_v2(item) else "image")
    refuses = next((part.refuses for part in parts if part.refuses), "")
    return replace(called, moves=any(part.moves for part in parts), refuses=refuses)


def all_parts(called: Called) -> Iterator[Called]:
    """Yield a callable, or the contents of its containers, one by one."""
    parts = parts_of(called.function)
    if parts is None:
        yield called
        return
    for part in parts:
        yield from all_parts(replace(look(part), state=called.state, pure=called.pure))


def does_in_python(called: Called) -> Does:
    """Return what a callable does to a sample, as far as it is known."""
    name = short_name(called.function)
    if called.moves:
        return "moves"
    if called.takes == "sample" or name in ("Lambda", *_ONE_BY_ONE):
        return "unknown"
    return next((does for does, names in _DOES.items() if name in names), "colours")


_DOES: dict[Does, tuple[str, ...]] = {
    "nothing": ("Identity",),
    "objects": ("SanitizeBoundingBoxes",),
    "boxes": ("ClampBoundingBoxes", "ConvertBoundingBoxFormat", "SetClampingMode"),
    "points": ("ClampKeyPoints", "SanitizeKeyPoints"),
    "types": (
        "ConvertImageDtype",
        "PILToTensor",
        "ToDtype",
        "ToImage",
        "ToPILImage",
        "ToPureTensor",
        "ToTensor",
    ),
}


def state_behind(item: Any, state: ImageState) -> ImageState:
    """Return what a picture is after a transform of torchvision's or timm's."""
    name = short_name(item) or type(item).__name__
    if not short_name(item) and not (type(item).__module__ or "").startswith("timm."):
        return state
    if name == "ToImage":
        return "image"
    if name == "ToPILImage":
        return "pil"
    if name == "ToPureTensor" and state != "pil":
        return "tensor"
    makes = ("ToTensor", "PILToTensor", "MaybeToTensor", "MaybePILToTensor", "ToDtype", "ConvertImageDtype",
             "Normalize", "ImageClassification")  # fmt: skip
    return "tensor" if name in makes and state == "pil" else state
