"""Which field of a schema is what in a batch of objects: the image, its boxes, their labels and so on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from fastload.sample.fields import Boxes, Image, Keypoints, Polygons
from fastload.sample.schema import Field

__all__ = ["Names", "Roles"]


@dataclass(frozen=True, kw_only=True)
class Names:
    """Names of fields, as a user may give them; None: found by kind, or by this very name.

    Args:
        image, boxes, labels: always needed.
        masks, keypoints, area, iscrowd, image_id: delivered where they are.
    """

    image: str | None = None
    boxes: str | None = None
    labels: str | None = None
    masks: str | None = None
    keypoints: str | None = None
    area: str | None = None
    iscrowd: str | None = None
    image_id: str | None = None


@dataclass(frozen=True)
class Roles:
    """The fields that a batch of objects is made of.

    Args:
        image, boxes, labels, masks, keypoints, area, iscrowd, image_id: names; None: there is no such field.
        format, relative: of the boxes.
        numbers: the number that the source calls each class; empty: its index.
    """

    image: str
    boxes: str
    labels: str
    masks: str | None
    keypoints: str | None
    area: str | None
    iscrowd: str | None
    image_id: str | None
    format: str
    relative: bool
    numbers: tuple[int, ...] = ()

    @classmethod
    def of(cls, schema: Sequence[Field], names: Names) -> Roles:
        """The roles of these fields.

        Args:
            schema: the fields that batches may have.
            names: what the user has said.

        Raises:
            ValueError: an image, boxes or labels are not there, or it is not known which they are; or a field
                is not of the kind that is needed.
        """
        find = _Finder(schema)
        image = find.one("image", names.image, lambda field: isinstance(field.kind, Image))
        boxes = find.one("boxes", names.boxes, lambda field: isinstance(field.kind, Boxes) and not _of(field))
        find.leader = boxes.name
        labels = find.one("labels", names.labels, _holds_labels)
        kind: Any = boxes.kind
        return cls(
            image.name,
            boxes.name,
            labels.name,
            find.perhaps("masks", names.masks, lambda field: isinstance(field.kind, Polygons)),
            find.perhaps("keypoints", names.keypoints, lambda field: isinstance(field.kind, Keypoints)),
            find.perhaps("area", names.area, _holds_numbers("area")),
            find.perhaps("iscrowd", names.iscrowd, _holds_numbers("iscrowd")),
            find.perhaps("image_id", names.image_id, lambda field: field.name == "image_id"),
            kind.format,
            kind.relative,
            tuple(getattr(labels.kind, "ids", ())),
        )

    def without(self, role: str) -> Roles:
        """The same without one that is not always needed."""
        return replace(self, **{role: None})  # type: ignore[arg-type]

    @property
    def names(self) -> tuple[str, ...]:
        """The fields that batches need, each once."""
        found = (getattr(self, one.name) for one in fields(Names))
        return tuple(name for name in found if name is not None)


class _Finder:
    def __init__(self, schema: Sequence[Field]) -> None:
        self._schema = schema
        self.leader = ""  # the boxes, once they are known

    def one(self, role: str, name: str | None, fits: Callable[[Field], bool]) -> Field:
        """The field of a role that there must be."""
        found = self._found(role, name, fits)
        if len(found) == 1:
            return found[0]
        have = ", ".join(map(str, self._schema))
        which = f"{len(found)} may be it: {', '.join(field.name for field in found)}" if found else "none is"
        raise ValueError(
            f"collate needs a field that is the {role}; of those that batches have, {which}. Found: {have}. "
            f'Name it: collate=fastload.Detection("list", {role}=NAME), and see that fields=[...] has it.'
        )

    def perhaps(self, role: str, name: str | None, fits: Callable[[Field], bool]) -> str | None:
        """The name of the field of a role, if there is one."""
        found = self._found(role, name, fits)
        return found[0].name if len(found) == 1 else None

    def _found(self, role: str, name: str | None, fits: Callable[[Field], bool]) -> list[Field]:
        if name is not None:
            found = [field for field in self._schema if field.name == name]
            if not found:
                have = ", ".join(field.name for field in self._schema)
                raise ValueError(
                    f"Detection({role}={name!r}): batches have no such field. They have: {have}."
                )
            return found
        found = [field for field in self._schema if fits(field) and _of(field) in ("", self.leader)]
        grouped = [field for field in found if _of(field)]
        return grouped if len(grouped) == 1 else found


def _of(field: Field) -> str:
    """The field that leads the group that this one belongs to; "": it belongs to none."""
    return getattr(field, "of", None) or ""


def _holds_labels(field: Field) -> bool:
    return field.kind.name == "labels" or (field.name == "labels" and _is_row_of_numbers(field))


def _holds_numbers(name: str) -> Callable[[Field], bool]:
    return lambda field: field.name == name and _is_row_of_numbers(field)


def _is_row_of_numbers(field: Field) -> bool:
    return field.kind.has_rows and field.item_shape == ()
