"""The transforms' arguments: defaults, canonical values, and what each error says."""

from __future__ import annotations

import enum
import subprocess
import sys
from dataclasses import FrozenInstanceError
from typing import Any

import pytest
import torch

from fastload import transforms as T


class InterpolationMode(enum.Enum):
    """As torchvision's."""

    BICUBIC = "bicubic"
    NEAREST = "nearest"


def test_importing_the_transforms_imports_no_torch() -> None:
    code = "import sys, fastload.transforms; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_defaults_are_torchvisions() -> None:
    crop = T.RandomResizedCrop(224)
    assert (crop.size, crop.scale, crop.ratio) == ((224, 224), (0.08, 1.0), (3 / 4, 4 / 3))
    assert (crop.interpolation, crop.antialias) == ("bilinear", True)
    assert T.Resize(256) == T.Resize([256], "bilinear", None, True)
    assert T.RandomHorizontalFlip().p == 0.5
    assert T.ToDtype("float32").scale is False


@pytest.mark.parametrize(
    ("spec", "field", "value"),
    [
        (T.RandomResizedCrop([7, 9]), "size", (7, 9)),
        (T.RandomResizedCrop((7,)), "size", (7, 7)),
        (T.RandomResizedCrop(7, interpolation=InterpolationMode.BICUBIC), "interpolation", "bicubic"),
        (T.RandomResizedCrop(7, scale=[1, 1]), "scale", (1.0, 1.0)),
        (T.Resize((7, 9)), "size", (7, 9)),
        (T.Resize((7,), max_size=8), "size", 7),
        (T.CenterCrop(5), "size", (5, 5)),
        (T.CenterCrop((5, 6)), "size", (5, 6)),
        (T.RandomHorizontalFlip(1), "p", 1.0),
        (T.Normalize([0, 0, 0], [1, 2, -3]), "std", (1.0, 2.0, -3.0)),
        (T.ToDtype(torch.bfloat16), "dtype", "bfloat16"),
        (T.ToDtype("float16"), "dtype", "float16"),
    ],
)
def test_arguments_become_canonical(spec: Any, field: str, value: object) -> None:
    assert getattr(spec, field) == value
    assert hash(spec) == hash(type(spec)(**{f: getattr(spec, f) for f in spec.__dataclass_fields__}))


def test_specs_are_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        T.CenterCrop(5).size = 6  # type: ignore[misc]


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (
            lambda: T.RandomResizedCrop(0),
            ValueError,
            r"RandomResizedCrop.size must be in \[1, 65500\] pixels. Found: 0",
        ),
        (lambda: T.RandomResizedCrop("9"), TypeError, r"RandomResizedCrop.size must be an int .*Found: '9'"),
        (lambda: T.RandomResizedCrop(True), TypeError, r"size must be an int in .*Found: True"),
        (
            lambda: T.RandomResizedCrop((1, 2, 3)),
            ValueError,
            r"must be an int or \(height, width\). Found: \(1, 2, 3\)",
        ),
        (
            lambda: T.RandomResizedCrop(9, scale=(0.5, 0.1)),
            ValueError,
            r"scale must be .*0 < least <= .*Found: \(0.5, 0.1\)",
        ),
        (lambda: T.RandomResizedCrop(9, ratio=(0, 1)), ValueError, r"ratio must be .*Found: \(0.0, 1.0\)"),
        (lambda: T.RandomResizedCrop(9, ratio=(1, 2, 3)), ValueError, r"ratio must be 2 finite numbers"),
        (lambda: T.RandomResizedCrop(9, scale=None), TypeError, r"scale must be 2 numbers. Found: None"),
        (
            lambda: T.RandomResizedCrop(9, antialias=False),
            ValueError,
            r"antialias must be True: .*Found: False",
        ),
        (
            lambda: T.RandomResizedCrop(9, interpolation="box"),
            ValueError,
            r"interpolation must be one of bilinear, bicubic, lanczos. Found: 'box'",
        ),
        (
            lambda: T.Resize(9, interpolation=InterpolationMode.NEAREST),
            ValueError,
            r"Resize.interpolation must be one of",
        ),
        (lambda: T.Resize(9, antialias=None), ValueError, r"Resize.antialias must be True"),
        (lambda: T.Resize(9, max_size=9), ValueError, r"max_size must be more than size, 9. Found: 9"),
        (
            lambda: T.Resize((9, 9), max_size=10),
            ValueError,
            r"max_size needs an int as size. Found: size \(9, 9\)",
        ),
        (lambda: T.Resize(70_000), ValueError, r"Resize.size must be in .*Found: 70000"),
        (lambda: T.Resize(1.5), TypeError, r"Resize.size must be an int .*Found: 1.5"),
        (lambda: T.CenterCrop(-3), ValueError, r"CenterCrop.size must be in .*Found: -3"),
        (
            lambda: T.RandomHorizontalFlip(1.5),
            ValueError,
            r"RandomHorizontalFlip.p must be in \[0, 1\]. Found: 1.5",
        ),
        (lambda: T.RandomHorizontalFlip("x"), TypeError, r"RandomHorizontalFlip.p must be 1 numbers"),
        (lambda: T.Normalize((1, 1), (1, 1, 1)), ValueError, r"Normalize.mean must be 3 finite numbers"),
        (lambda: T.Normalize((1, 1, 1), (1, float("inf"), 1)), ValueError, r"Normalize.std must be 3 finite"),
        (
            lambda: T.Normalize((1, 1, 1), (1, 0, 1)),
            ValueError,
            r"Normalize.std must not be 0. Found: \(1.0, 0.0, 1.0\)",
        ),
        (
            lambda: T.ToDtype("float64"),
            ValueError,
            r"dtype must be one of uint8, float16, bfloat16, float32. Found: 'float64'",
        ),
        (lambda: T.ToDtype(torch.int64), ValueError, r"ToDtype.dtype must be one of .*Found: torch.int64"),
        (
            lambda: T.Compose([T.CenterCrop(3), 5]),
            TypeError,
            r"Compose takes transforms and callables. Found: 5",
        ),
        *(
            (
                make,
                TypeError,
                rf"must be an object. Found: the class {name}. Call it with its arguments: {name}\(",
            )
            for name, make in {
                "ToDtype": lambda: T.Compose([T.CenterCrop(3), T.ToDtype]),
                "Resize": lambda: T.Views(a=(2, T.Resize)),
                "CenterCrop": lambda: T.ByEpoch({0: T.CenterCrop}),
                "Compose": lambda: T.Compose([T.Compose]),
                "Identity": lambda: T.Views(a=torch.nn.Identity),
            }.items()
        ),
    ],
)
def test_errors_name_argument_value_and_range(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()
