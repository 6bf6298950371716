"""Recognition of transforms of torchvision, timm and CLIP, and of libraries that only run in Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fastload.transforms.operations.operation import from_torchvision_antialias
from fastload.transforms.operations.registry import operation_of_torchvision

# ---- torchvision, timm and CLIP ---------------------------------------------------------------------
# Classes are recognised by module, name and attributes; none of the libraries is imported. An object becomes
# specs only if its parameters mean exactly the same; any other stays a user's callable.

_TIMM = "timm.data.transforms"
# Modules that stand before the class name in the rows of the registry.
_TIMMS = (_TIMM, "timm.data.auto_augment", "timm.data.random_erasing")
_REFERENCES = "v2_extras"  # a script beside torchvision's references for segmentation
_TO_RGB = {("clip.clip", "_convert_image_to_rgb"), ("open_clip.transform", "_convert_to_rgb")}


def _class_name(item: Any) -> str:
    """Return the class name of a torchvision transform, timm's with its module; "" for anything else."""
    kind = type(item)
    module = kind.__module__ or ""
    if module in _TIMMS or module == _REFERENCES:
        return f"{module}.{kind.__name__}"
    inside = module == "torchvision.transforms" or module.startswith("torchvision.transforms.")
    return kind.__name__ if inside else ""


def composed(item: Any) -> list[Any] | None:
    """Return the parts of a torchvision ``Compose``; None for anything else."""
    return list(item.transforms) if _class_name(item) == "Compose" else None


def translate(item: Any, state: str = "image") -> tuple[Any, ...] | None:
    """Return the specs that equal a known transform: () for a no-op on RGB pictures.

    None: nothing equals it (another filter, ``antialias=False``, another class). ``state``: what pictures
    are at this point, "pil", "image" or "tensor".
    """
    name = _class_name(item)
    if name in _NO_OPS or _names(item) in _TO_RGB:
        return ()
    make = _maker(name)
    if make is None or _other_types(item, state):
        return None
    try:
        return make(item)
    except (AttributeError, TypeError, ValueError):
        return None  # parameters that our spec does not take


def _other_types(item: Any, state: str) -> bool:
    """Return whether it maps types to dtypes, but not the type that pictures have at this point."""
    dtypes = getattr(item, "dtype", None)
    if not isinstance(dtypes, Mapping):
        return False
    names = {getattr(key, "__name__", key) for key in dtypes} & {"Image", "Tensor"}
    return bool(names) and ("Tensor" if state == "tensor" else "Image") not in names


def refusal(item: Any, state: str = "image") -> str:
    """Return why :func:`translate` gives None, in words."""
    name = _class_name(item)
    make = _maker(name)
    if _other_types(item, state):
        return f"it names no dtype of a picture that is {_KINDS[state]}"
    if make is not None:
        try:
            make(item)
        except (AttributeError, TypeError, ValueError) as error:
            return f"the core does not take its parameters: {str(error).rstrip('.')}"
    if name:
        return f"the core has no {name.rpartition('.')[2]}"
    return other_refusal(item) or "a callable that the core does not know"


def advice(item: Any) -> str:
    """Return what would keep a transform off the Python path; "" if nothing would."""
    if type(item).__name__ in _CROPS:
        return "name its chains as views, transform=fastload.transforms.Views(first=..., second=...)"
    name = _class_name(item)
    operation, short = operation_of_torchvision(name), name.rpartition(".")[2]
    if operation is not None and short not in _ADVICE:
        return operation.advice.get(short, "")
    return _ADVICE.get(short, "") or other_advice(item)


def _maker(name: str) -> Callable[[Any], tuple[Any, ...]] | None:
    if name == "ImageClassification":
        return _image_classification
    operation = operation_of_torchvision(name)
    return None if operation is None else operation.torchvision.get(name)


def _names(item: Any) -> tuple[str, str]:
    return getattr(item, "__module__", None) or "", getattr(item, "__qualname__", "")


def on_tensor(item: Any) -> Any:
    """Return ``item`` for decoded tensors, with torchvision's converters replaced, which refuse tensors."""
    name = _class_name(item)
    if name == "ToTensor":
        return scale_to_float32
    if name == "PILToTensor":
        return unchanged
    return adapted(item)


def scale_to_float32(tensor: Any) -> Any:
    """Do as torchvision's ``ToTensor``: uint8 becomes float32 in [0, 1], float tensors stay."""
    return tensor if tensor.is_floating_point() else tensor.float().div(255)


def unchanged(tensor: Any) -> Any:
    """Do as torchvision's ``PILToTensor``, for what already is a tensor."""
    return tensor


def _image_classification(item: Any) -> tuple[Any, ...]:
    """Return the specs of the ``weights.transforms()`` of torchvision's classification models."""
    from fastload.transforms.operations.crops import CenterCrop
    from fastload.transforms.operations.output import Normalize, ToDtype
    from fastload.transforms.operations.resizes import Resize

    return (
        Resize(item.resize_size, item.interpolation, None, from_torchvision_antialias(item)),
        CenterCrop(item.crop_size),
        ToDtype("float32", scale=True),
        Normalize(item.mean, item.std),
    )


_KINDS = {"pil": "PIL's", "image": "a tv_tensors.Image", "tensor": "a plain tensor"}
# No-ops on RGB uint8 pictures.
_NO_OPS = {"PILToTensor", "ToImage", "RGB", "Identity", "ToPureTensor", f"{_TIMM}.MaybePILToTensor"}
_BATCHES = "works on whole batches, on the device if there is one: batch_transform="
_ADVICE = {
    "MixUp": f"fastload.transforms.batch.MixUp {_BATCHES}MixUp(num_classes)",
    "CutMix": f"fastload.transforms.batch.CutMix {_BATCHES}CutMix(num_classes)",
}
# Classes in the original code of SimCLR, MoCo and DINO, which return lists of crops.
_CROPS = {"TwoCropsTransform", "TwoCropTransform", "ContrastiveLearningViewGenerator", "DataAugmentationDINO"}


# ---- Albumentations and Kornia ----------------------------------------------------------------------
# The core has no equals of them: Albumentations resizes with OpenCV, which does not antialias, and Kornia
# works on float tensors, so pixels differ from Pillow's. They run in Python, called as each expects.


def _library(item: Any) -> str:
    return (type(item).__module__ or "").partition(".")[0]


def other_refusal(item: Any) -> str:
    """Return why the core does not do it, in words; "" if it belongs to neither library."""
    return {
        "albumentations": "Albumentations uses OpenCV, whose pixels differ from Pillow's",
        "kornia": "Kornia works on float tensors, whose pixels differ from Pillow's",
    }.get(_library(item), "")


def other_advice(item: Any) -> str:
    """Return what would keep it off the Python path; "" if it belongs to neither library."""
    return {
        "albumentations": "fastload.transforms has most of its operations, with Pillow's pixels",
        "kornia": "it takes whole batches, on the device if there is one: batch_transform=",
    }.get(_library(item), "")


def adapted(item: Any) -> Any:
    """Return a callable for a sample: Albumentations wants arrays, passed by name."""
    return Named(item) if _library(item) == "albumentations" else item


class Named:
    """An Albumentations transform as a callable for PIL pictures and ``(C, H, W)`` tensors: it gets an
    ``(H, W, C)`` array as ``image=`` and returns its ``"image"``."""

    def __init__(self, transform: Any) -> None:
        self.transform = transform
        kind = type(transform)
        self.__qualname__ = f"{kind.__module__}.{kind.__qualname__}"

    def __call__(self, picture: Any) -> Any:
        import numpy as np

        array = np.asarray(picture.permute(1, 2, 0) if hasattr(picture, "permute") else picture)
        return self.transform(image=np.ascontiguousarray(array))["image"]
