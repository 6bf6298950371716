"""Objects that look like torchvision's, which is not needed to be installed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def from_torchvision(name: str, module: str = "torchvision.transforms.v2._misc", **attributes: Any) -> Any:
    """An object that looks like torchvision's (which is not needed to be installed)."""

    def call(self: Any, image: Any) -> Any:
        if name in ("ToTensor", "PILToTensor"):
            raise TypeError(f"pic should be PIL Image or ndarray. Got {type(image)}")
        return image

    kind = type(name, (), {"__module__": module, "__call__": call})
    item = kind()
    item.__dict__.update(attributes)
    return item


def tv_crop(**changes: Any) -> Any:
    attributes: dict[str, Any] = {
        "size": [224, 224],
        "scale": (0.08, 1.0),
        "ratio": (3 / 4, 4 / 3),
        "interpolation": SimpleNamespace(value="bilinear"),
        "antialias": True,
    }
    return from_torchvision("RandomResizedCrop", **{**attributes, **changes})


def tv_normalize() -> Any:
    return from_torchvision("Normalize", mean=list(MEAN), std=list(STD), inplace=False)


def tv_to_dtype(dtype: Any, scale: bool) -> Any:
    return from_torchvision("ToDtype", dtype=dtype, scale=scale)
