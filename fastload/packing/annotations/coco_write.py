"""COCO's annotations from the values of fields: what unpacking writes, and what packing compares with.

So packing keeps beside the fields whatever these cannot say.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

__all__ = ["annotation_of", "caption_of", "image_of", "kept_apart", "restored"]

Forms = Mapping[str, bool]  # see coco_index.Facts.forms


def annotation_of(values: Mapping[str, Any], image_id: int, forms: Forms) -> dict[str, Any]:
    """An object's annotation.

    Args:
        values: of one row of the fields, by COCO's names, as many of them as the set has.
        image_id: of its picture.
        forms: how the file writes numbers and areas.
    """
    found: dict[str, Any] = {"image_id": image_id}
    for key in ("id", "category_id"):
        if values.get(key) is not None:
            found[key] = values[key]
    found["bbox"] = _numbers(values["bbox"], "bbox" in forms)
    if "area" in values:
        found["area"] = _numbers(np.asarray([values["area"]]), "area" in forms)[0]
    if "iscrowd" in values:
        found["iscrowd"] = int(values["iscrowd"])
    if "segmentation" in values:
        found["segmentation"] = _segmentation(values["segmentation"], forms)
    if "keypoints" in values:
        points = np.asarray(values["keypoints"])
        found["keypoints"] = _numbers(points.reshape(-1), "keypoints" in forms)
        found["num_keypoints"] = int((points[:, 2] > 0).sum())
    return found


def caption_of(text: str, number: int | None, image_id: int) -> dict[str, Any]:
    """A caption's annotation."""
    return {"image_id": image_id, "caption": text, **({} if number is None else {"id": number})}


def image_of(number: int, file_name: str) -> dict[str, Any]:
    """An image's entry in the list of images."""
    return {"id": number, "file_name": file_name}


def kept_apart(wanted: Mapping[str, Any], made: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """What :func:`restored` needs besides ``made`` to give ``wanted``: keys with values, and keys that go."""
    other = {key: value for key, value in wanted.items() if key not in made or not _is_same(value, made[key])}
    return other, sorted(key for key in made if key not in wanted)


def restored(made: Mapping[str, Any], other: Mapping[str, Any], without: list[str]) -> dict[str, Any]:
    """What :func:`kept_apart` was given first."""
    return {key: value for key, value in {**made, **other}.items() if key not in without}


def _is_same(one: Any, other: Any) -> bool:
    """Whether values are equal, and of equal types: 1 is not 1.0, nor true."""
    if type(one) is not type(other) or one != other:
        return False
    if isinstance(one, dict):
        return all(_is_same(value, other[key]) for key, value in one.items())
    if isinstance(one, list):
        kinds = list(map(type, one))
        if kinds != list(map(type, other)):
            return False
        return not {list, dict}.intersection(kinds) or all(map(_is_same, one, other))
    return True


def _numbers(values: Any, whole: bool) -> list[int | float]:
    """Numbers in their shortest form, of float32 that of float32; ``whole``: integers are written as such."""
    is_short = values.dtype == np.float32
    found = [float(str(number)) for number in values] if is_short else values.tolist()
    return [int(n) if whole and n.is_integer() else n for n in found] if whole else found


def _segmentation(value: Any, forms: Forms) -> Any:
    if isinstance(value, Mapping):
        runs = list(value["counts"])
        return {"size": list(value["size"]), "counts": _letters(runs) if "letters" in forms else runs}
    return [_numbers(np.asarray(polygon).reshape(-1), "segmentation" in forms) for polygon in value]


def _letters(runs: list[int]) -> str:
    """Run lengths as COCO's letters: from the fourth on the difference to the run two before, five bits a
    letter, lowest first, bit 32 where more follow, from 48 on (what outlines.py reads)."""
    letters = []
    for place, run in enumerate(runs):
        number = run - runs[place - 2] if place > 2 else run
        while True:
            bits = number & 0x1F
            number >>= 5
            more = number != (-1 if bits & 0x10 else 0)
            letters.append(chr(bits + (32 if more else 0) + 48))
            if not more:
                break
    return "".join(letters)
