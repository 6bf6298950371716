"""Detection: batches of pictures and the objects in them, in the form that some trainer's code expects."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from fastload.collate.detr import for_detr
from fastload.collate.listed import listed
from fastload.collate.planned import Collation, Delivered
from fastload.collate.roles import Names, Roles
from fastload.collate.yolo import for_yolo
from fastload.sample.schema import Field

__all__ = ["Detection"]

#: For each form what makes it, and the ``sizes`` that it goes with, the first one where pictures differ.
_FORMS: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    "list": (listed, ("list", "stack")),
    "detr": (for_detr, ("pad", "stack")),
    "yolo": (for_yolo, ("stack",)),
}


@dataclass(frozen=True)
class Detection(Names):
    """``DataLoader(collate=Detection("list", ...))``: objects in the form of some trainer's code
    (``docs/guide/detection.md``); the word alone, ``collate="list"``, where fields are found by themselves.

    Args:
        form: "list": a list of pictures and a list of dicts, as torchvision's detection models take them;
            "detr": padded pictures, pixel mask and normalised boxes, as DETR in transformers; "yolo": flat
            rows with the picture's number, as Ultralytics' trainers.
        image, boxes, labels: the names of these fields, where a set has several, or calls labels otherwise.
        masks, keypoints, area, iscrowd, image_id: likewise; not needed. Masks are delivered with
            ``masks="dense"``, or where ``fields`` names them.
        tv_tensors: "list": boxes and masks are torchvision's ``BoundingBoxes`` and ``Mask``.

    Raises:
        ValueError: there is no such form.
    """

    form: str
    tv_tensors: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        if self.form not in _FORMS:
            raise ValueError(f"Detection's form must be one of {', '.join(_FORMS)}. Found: {self.form!r}.")
        if self.tv_tensors and self.form != "list":
            raise ValueError(f'tv_tensors are for "list". Found: form={self.form!r}.')

    def planned(
        self, schema: Sequence[Field], given: Mapping[str, Any], views: Sequence[str], one_size: bool
    ) -> Collation:
        """Fitted to a loader.

        Args:
            schema: the fields that batches may have.
            given: the loader's arguments.
            views: the names of the views that its transform makes of a sample, if it makes several.
            one_size: whether the transform leaves all pictures at one size.

        Raises:
            ValueError: a field that is needed is not there, or an argument does not go with the form.
        """
        if views:
            raise ValueError(
                f"collate={self.form!r} makes targets of one picture a sample. Found: Views of "
                f"{', '.join(views)}. Leave out the one or the other; a callable takes dicts of any views."
            )
        roles = Roles.of(schema, self)
        if given["masks"] != "dense" and (given["fields"] is None or roles.masks not in given["fields"]):
            roles = roles.without("masks")
        make, legal = _FORMS[self.form]
        sizes = given["sizes"]
        if sizes == "stack" and not (one_size and "stack" in legal):
            sizes = legal[0]
        if (sizes if isinstance(sizes, str) else "pad") not in legal:
            raise ValueError(
                f"collate={self.form!r} goes with sizes={' or '.join(map(repr, legal))}. Found: "
                f"sizes={given['sizes']!r}. Leave sizes out."
            )
        more = {"tv_tensors": True} if self.tv_tensors else {}
        if self.form == "detr" and not isinstance(sizes, str):
            more = {"fixed": True}
        changes = {"fields": list(roles.names), "sizes": sizes}
        if roles.masks is not None:
            changes["masks"] = "dense"
        return Collation(partial(_made, make, roles, more), changes, self, True)


def _made(make: Callable[..., Any], roles: Roles, more: Mapping[str, Any], delivered: Delivered) -> Any:
    return make(delivered, roles, **more)
