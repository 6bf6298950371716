"""Ultralytics' ``data.yaml``: where pictures are, and what the numbers in the label files mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastload.errors import PackError
from fastload.extras import need
from fastload.machine.paths import exists
from fastload.packing.annotations.listed import read_text
from fastload.shard.manifest import MAX_NUMBERED

__all__ = ["DataYaml", "read_data_yaml"]

_SPLITS = ("train", "val", "test")


@dataclass(frozen=True)
class DataYaml:
    """What a ``data.yaml`` says."""

    splits: Mapping[str, tuple[Path, ...]]  # folders, and files that list pictures
    names: tuple[str, ...]
    root: Path
    points: tuple[int, int] | None  # of each object: how many points, and numbers a point
    pairs: tuple[tuple[int, int], ...]  # points that change places in a mirror


def read_data_yaml(path: Path) -> DataYaml:
    """Read it.

    Raises:
        LibraryMissing: there is no PyYAML.
        PackError: it cannot be read, or does not say what it must; names what.
    """
    need("yaml", f"YOLO's {path.name}")
    try:
        body = _parsed(read_text(path))
    except (OSError, ValueError, RecursionError) as error:
        raise PackError(f"{path} cannot be read: {error}.") from None
    if not isinstance(body, Mapping):
        raise PackError(f"{path} has no keys; a data.yaml has train, val and names.")
    try:
        points = _points(body)
        pairs = _pairs(body, points[0] if points else 0)
        return DataYaml(_splits(path, body), _names(body), _root(path, body), points, pairs)
    except ValueError as error:
        raise PackError(f"{path}: {error}") from None


def _parsed(text: str) -> Any:
    import yaml

    try:
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, yaml.SafeLoader)):
            raise ValueError(
                "it has aliases (*name), of which a few lines may make more than there is memory"
            )
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None
    except (LookupError, AttributeError) as error:  # as PyYAML raises for "!!int ''" and its like
        raise ValueError(f"a value is not what its tag says ({error})") from None


def _root(path: Path, body: Mapping[str, Any]) -> Path:
    said = body.get("path") or "."
    if not isinstance(said, str):
        raise ValueError(f"'path' must be a folder. Found: {said!r:.200}.")
    return (path.parent / said).absolute()


def _splits(path: Path, body: Mapping[str, Any]) -> dict[str, tuple[Path, ...]]:
    root = _root(path, body)
    if "val" not in body and "validation" in body:
        body = {**body, "val": body["validation"]}
    found = {}
    for split in _SPLITS:
        places = body.get(split) or []
        places = [places] if isinstance(places, str) else places
        if not isinstance(places, Sequence) or not all(isinstance(place, str) for place in places):
            raise ValueError(f"{split!r} must be a folder or a list of them. Found: {places!r:.200}.")
        if places:
            found[split] = tuple(_existing(root, place, split) for place in places)
    if not found:
        raise ValueError("it has none of 'train', 'val' and 'test'.")
    return found


def _existing(root: Path, place: str, split: str) -> Path:
    found = root / place
    if not exists(found) and place.startswith("../"):
        found = root / place.removeprefix("../")  # as some exporters write it, and as Ultralytics reads it
    if not exists(found):
        raise ValueError(
            f"{split!r} is {place!r}, and {found} does not exist. 'path' counts from the folder of the file "
            "itself here."
        )
    return found


def _names(body: Mapping[str, Any]) -> tuple[str, ...]:
    names, count = body.get("names"), body.get("nc")
    if isinstance(names, Mapping):
        if sorted(map(str, names)) != sorted(map(str, range(len(names)))):
            raise ValueError(
                f"'names' must be numbered from 0 to {len(names) - 1}. Found: {list(names)!r:.80}."
            )
        numbered = {int(number): name for number, name in names.items()}
        names = [numbered[number] for number in range(len(names))]
    if names is None and isinstance(count, int) and count > 0:
        if count > MAX_NUMBERED:
            raise ValueError(f"'nc' must be at most {MAX_NUMBERED}. Found: {count!r:.80}.")
        return tuple(f"class_{number}" for number in range(count))
    if not isinstance(names, Sequence) or isinstance(names, str) or not names:
        raise ValueError(f"'names' must be the classes' names. Found: {names!r:.200}.")
    if count is not None and count != len(names):
        raise ValueError(f"'nc' is {count!r}, and there are {len(names)} names.")
    return tuple(map(str, names))


def _points(body: Mapping[str, Any]) -> tuple[int, int] | None:
    shape = body.get("kpt_shape")
    if shape is None:
        return None
    whole = isinstance(shape, Sequence) and all(type(number) is int for number in shape)
    if not whole or len(shape) != 2 or shape[0] < 1 or shape[1] not in (2, 3):
        raise ValueError(f"'kpt_shape' must be how many points, and 2 or 3. Found: {shape!r:.200}.")
    return shape[0], shape[1]


def _pairs(body: Mapping[str, Any], points: int) -> tuple[tuple[int, int], ...]:
    mirror = body.get("flip_idx")
    if mirror is None or not points:
        return ()
    if not isinstance(mirror, Sequence) or sorted(map(repr, mirror)) != sorted(map(repr, range(points))):
        raise ValueError(
            f"'flip_idx' must have each point from 0 to {points - 1} once. Found: {mirror!r:.200}."
        )
    if any(mirror[other] != point for point, other in enumerate(mirror)):
        raise ValueError(f"'flip_idx' must change points in pairs. Found: {mirror!r:.200}.")
    return tuple((point, other) for point, other in enumerate(mirror) if point < other)
