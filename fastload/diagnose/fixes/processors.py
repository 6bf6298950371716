"""Image processors of transformers that fastload can do: found in a loader, and timed beside fastload."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator
from functools import partial
from types import FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

import fastload
from fastload._native import _C

_DEEP = 3  # from the collate function to a helper's object's processor
_MOST = 2000  # things that are looked at
_ROUNDS = 3


def known_processor(*users: Any) -> tuple[str, Any] | None:
    """Return the first processor that ``fastload.Vision`` reads, and the name it is used by.

    Args:
        users: a collate function, a dataset: what functions use and objects keep is looked through.
    """
    seen: set[int] = set()
    level = [("", user) for user in users if user is not None]
    for _ in range(_DEEP + 1):
        below: list[tuple[str, Any]] = []
        for name, one in level:
            if id(one) in seen or len(seen) > _MOST:
                continue
            seen.add(id(one))
            if any(kind.__module__.startswith("transformers.") for kind in type(one).__mro__):
                if _is_known(one):
                    return name or "processor", one
            else:
                below += _parts(one)
        level = below
    return None


def _is_known(processor: Any) -> bool:
    try:
        fastload.Vision(processor)
    except (TypeError, ValueError):
        return False
    return True


def _parts(thing: Any) -> Iterator[tuple[str, Any]]:
    """Yield what a function uses, or an object keeps, with its names."""
    if isinstance(thing, partial):
        yield "", thing.func
        yield from (("", value) for value in thing.args)
        yield from thing.keywords.items()
    elif isinstance(thing, MethodType):
        yield "", thing.__func__
        yield "", thing.__self__
    elif isinstance(thing, FunctionType):
        names = thing.__globals__
        yield from ((name, names[name]) for name in thing.__code__.co_names if name in names)
        for name, cell in zip(thing.__code__.co_freevars, thing.__closure__ or (), strict=True):
            try:
                yield name, cell.cell_contents
            except ValueError:  # not filled yet
                continue
    elif not isinstance(thing, ModuleType | type):
        yield from getattr(thing, "__dict__", {}).items()


def picture_seconds(processor: Any, width: int, height: int) -> tuple[float, float]:
    """Return the CPU seconds of a picture in the processor, and in fastload, which decodes it, too."""
    from PIL import Image

    vision = fastload.Vision(processor)
    family, numbers = vision.core()
    rule = _C.VisionRule(family, **numbers)
    coarse = np.random.default_rng(0).integers(0, 256, (12, 16, 3), np.uint8)
    picture = Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)
    file = io.BytesIO()
    picture.save(file, "JPEG", quality=90)
    data = np.frombuffer(file.getvalue(), np.uint8)
    images = getattr(processor, "image_processor", processor)
    ways: tuple[Callable[[], Any], ...] = (
        lambda: images(images=[picture], return_tensors="pt"),
        lambda: _C.vision_rows(rule, data, dtype=vision.dtype),
    )
    total = [0.0, 0.0]
    for number in range(_ROUNDS + 1):
        for at, way in enumerate(ways):
            began = time.process_time()
            way()
            total[at] += time.process_time() - began if number else 0.0  # the first warms up
    return total[0] / _ROUNDS, total[1] / _ROUNDS
