"""Schemas: the fields of a dataset's samples, in order; and how texts become captions of a batch."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from typing import Any, Literal

import numpy as np

from fastload.sample import values
from fastload.sample.fields import (
    Boxes,
    Image,
    Images,
    Json,
    Keypoints,
    Kind,
    Label,
    Labels,
    Mask,
    Polygons,
    Storage,
    Texts,
    kind_of,
    leader_of,
    words_of,
)

# ---- Schemas ----------------------------------------------------------------------------------------

MAX_FIELDS = 100  # numbers in the names of their files have two digits
MAX_NAME_BYTES = 128
# A batch's key of which positions are samples, and the end of its keys of pictures' sizes.
_VALID, _SIZES = "valid", "_sizes"
_LEADERS = (Boxes, Keypoints, Polygons, Labels, Texts)  # kinds with an entry for each object


@dataclass(frozen=True)
class Of:
    """The kind of a field whose rows describe the same objects as those of another field.

    Args:
        leader: the other field's name.
        kind: this field's kind.
    """

    leader: str
    kind: Kind

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", kind_of(self.kind))


@dataclass(frozen=True)
class Field:
    """A named field of a sample.

    Args:
        name: its key in batches, and its name in shards for other libraries.
        kind: what it holds; see :mod:`fastload.sample.fields`.
        of: the field whose objects its rows describe, in the same order; None: it stands alone.
        source: its description in the set from which it was packed, as JSON; loaders ignore it.

    Raises:
        ValueError, TypeError: the name or kind is not legal.
    """

    name: str
    kind: Kind
    of: str | None = None
    source: Any = dataclass_field(default=None, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or _wrong_name(self.name):
            legal = _wrong_name(self.name) if isinstance(self.name, str) else "must be a str"
            raise ValueError(f"A field's name {legal}. Found: {self.name!r}.")
        object.__setattr__(self, "kind", kind_of(self.kind))
        if self.of is not None and not isinstance(self.of, str):
            raise TypeError(f"Field {self.name!r}: of must be the name of a field. Found: {self.of!r}.")
        if self.source is not None:
            values.encode(Json(), self.source, f"{self.name}: source")

    @property
    def storage(self) -> Storage:
        """How its values lie on disk: ``"record"``, ``"fixed"`` or ``"ragged"``."""
        return self.kind.storage

    @property
    def item_dtype(self) -> np.dtype[Any]:
        """Dtype of a value (fixed), of a row (ragged; objects: bytes), or of a picture's pixels (record)."""
        return self.kind.item_dtype

    @property
    def item_shape(self) -> tuple[int, ...]:
        """Shape of a value (fixed), of a row (ragged; objects: bytes), or of a pixel (record)."""
        return self.kind.item_shape

    @property
    def item_bytes(self) -> int:
        """Bytes of a value (fixed), of a row (ragged), or of a pixel (record)."""
        return self.kind.item_bytes

    def encode(self, value: Any) -> bytes:
        """Return the bytes of a value; see :func:`fastload.sample.values.encode`."""
        return values.encode(self.kind, value, self.name)

    def decode(self, data: bytes) -> Any:
        """Return the value of such bytes; see :func:`fastload.sample.values.decode`."""
        return values.decode(self.kind, data, self.name)

    def check(self, value: Any) -> None:
        """Raise if the field cannot hold a value; see :func:`fastload.sample.values.encode`."""
        self.encode(value)

    def check_bytes(self, data: bytes) -> None:
        """Raise if bytes are not a legal value; see :func:`fastload.sample.values.check_bytes`."""
        values.check_bytes(self.kind, data, self.name)

    def to_json(self) -> dict[str, Any]:
        """Return name, kind and settings; also ``of`` and ``source``, unless they are None."""
        optional = {"of": self.of, "source": self.source}
        return {
            "name": self.name,
            **self.kind.to_json(),
            **{key: value for key, value in optional.items() if value is not None},
        }

    def __str__(self) -> str:
        return f"{self.name}={words_of(self.kind)}" + (f" of {self.of}" if self.of is not None else "")


@dataclass(frozen=True)
class Schema:
    """The fields of a dataset's samples, in order. Schemas with equal fields are equal.

    Args:
        fields: at least one, at most :data:`MAX_FIELDS`.

    Raises:
        ValueError: the schema is not legal.
    """

    fields: tuple[Field, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "fields", tuple(self.fields))
        names = [field.name for field in self.fields]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"Names of fields must differ. Found twice: {', '.join(twice)}.")
        if not 0 < len(names) <= MAX_FIELDS:
            raise ValueError(f"A schema has 1 to {MAX_FIELDS} fields. Found: {len(names)}.")
        taken = {field.name + _SIZES for field in self.fields if field.storage in ("record", "records")}
        for name in names:
            if name in taken:
                raise ValueError(
                    f"A field cannot be called {name!r}: under this key a batch has the sizes of "
                    f"the pictures of {name.removesuffix(_SIZES)!r}. Choose another name."
                )
        for field in self.fields:
            if field.of is not None:
                self._check_of(field)
        self._check_turned()

    def _check_turned(self) -> None:
        turned = next((f for f in self.fields if isinstance(f.kind, Image) and f.kind.exif == "turn"), None)
        mask = next((field for field in self.fields if isinstance(field.kind, Mask)), None)
        if turned is not None and mask is not None:
            raise ValueError(
                f"Field {turned.name!r} is turned as EXIF says, and a mask is never turned, so {mask.name!r} "
                "would no longer lie on it. Turn the pictures' pixels before they are packed (mogrify "
                "-auto-orient FILE), or leave one of the fields out."
            )

    def _check_of(self, field: Field) -> None:
        where = f"Field {field.name!r} is of {field.of!r}"
        leader = next((other for other in self.fields if other.name == field.of), None)
        if leader is None:
            raise ValueError(f"{where}, and there is no such field. Fields: {', '.join(self.names)}.")
        if not isinstance(leader.kind, _LEADERS) or leader.of is not None:
            legal = ", ".join(kind.name for kind in _LEADERS)
            raise ValueError(
                f"{where}, which must be of kind {legal}, and of no other field itself. Found: {leader}."
            )
        if not isinstance(field.kind, _LEADERS) and not field.kind.has_rows:
            raise ValueError(
                f"{where}, and must have rows, as array(float64, (None,)) has. Found: {words_of(field.kind)}."
            )

    @classmethod
    def of(cls, what: Any) -> Schema:
        """Return a schema from any description of one.

        Args:
            what: a Schema; a mapping of kinds by name; or a sequence of Fields, pairs of name and kind, or
                mappings from :meth:`Field.to_json`. Kinds may be words, such as ``"boxes(xywh)"``, and may
                name their leader: ``Of("boxes", Labels())``, or ``"labels of boxes"``.

        Raises:
            ValueError, TypeError: the schema is not legal.
        """
        if isinstance(what, Schema):
            return what
        if isinstance(what, Mapping):
            return cls(tuple(field_of(name, kind) for name, kind in what.items()))
        if isinstance(what, (str, bytes)) or not isinstance(what, Iterable):
            raise TypeError(
                "A schema is a mapping of kinds by name, as {'image': Image(), 'boxes': Boxes()}, or a "
                f"sequence of fields. Found: {what!r}."
            )
        return cls(tuple(_field_of(part) for part in what))

    @classmethod
    def from_json(cls, text: str | bytes) -> Schema:
        """Return the schema that :meth:`to_json` described.

        Raises:
            ValueError, TypeError: the text does not describe a schema.
        """
        return cls.of(json.loads(text))

    def to_json(self) -> str:
        """Return JSON: a list of the fields, each with name, kind and settings."""
        return json.dumps([field.to_json() for field in self.fields], ensure_ascii=False)

    @property
    def index_field(self) -> Field | None:
        """The field whose records are in the index: the first Image, else the first Mask; None: there is
        none, and the index has no records."""
        pictures = [field for field in self.fields if field.storage == "record"]
        first = next((field for field in pictures if isinstance(field.kind, Image)), None)
        return first or next(iter(pictures), None)

    @property
    def shown(self) -> tuple[bool, bool]:
        """Whether the index's pictures are turned as EXIF says, and whether what is transparent lies on
        white."""
        return (False, False) if self.index_field is None else self.index_field.kind.shown

    @property
    def has_pictures(self) -> bool:
        """Whether any field holds pictures."""
        return any(field.storage in ("record", "records") for field in self.fields)

    @property
    def list_fields(self) -> tuple[Field, ...]:
        """The fields whose samples have any number of pictures."""
        return tuple(field for field in self.fields if isinstance(field.kind, Images))

    @property
    def label_field(self) -> Field | None:
        """The field whose values are the labels in the index: the first Label."""
        return next((field for field in self.fields if isinstance(field.kind, Label)), None)

    @property
    def columns(self) -> tuple[tuple[int, Field], ...]:
        """The fields with separate files, and their positions in the schema."""
        in_index = (self.index_field, self.label_field)
        return tuple((number, field) for number, field in enumerate(self.fields) if field not in in_index)

    def check_rows(self, data: Sequence[bytes | None]) -> None:
        """Check that fields have as many rows as their leaders.

        Args:
            data: a sample's values, in the schema's order; None for pictures.

        Raises:
            ValueError: the number of rows differs.
        """
        for field, value in zip(self.fields, data, strict=True):
            if field.of is None:
                continue
            leader = self[field.of]
            wanted = values.row_count(leader.kind, data[self.position(field.of)] or b"")
            rows = values.row_count(field.kind, value or b"")
            if rows != wanted:
                raise ValueError(
                    f"field {field.name!r} is of {field.of!r} and must have as many rows, {wanted}. "
                    f"Found: {rows}."
                )

    @property
    def is_plain(self) -> bool:
        """Whether it is an image and a label as in version 1.0."""
        return self.is_pair and self.fields[0].kind == Image()

    @property
    def is_pair(self) -> bool:
        """Whether it is an RGB image, however it is shown, and a label: batches are (images, labels)."""
        if [field.name for field in self.fields] != ["image", "label"]:
            return False
        image, label = (field.kind for field in self.fields)
        return (
            all(field.source is None for field in self.fields)
            and isinstance(image, Image)
            and (image.channels, image.bits) == (3, 8)
            and isinstance(label, Label)
        )

    @classmethod
    def plain(cls, classes: Iterable[str] = ()) -> Schema:
        """Return the schema of an image and a label, as in version 1.0."""
        return cls((Field("image", Image()), Field("label", Label(tuple(classes)))))

    def position(self, name: str) -> int:
        """Return the position of a field.

        Raises:
            KeyError: there is no field with this name.
        """
        for number, field in enumerate(self.fields):
            if field.name == name:
                return number
        raise KeyError(f"There is no field {name!r}. Fields: {', '.join(self.names)}.")

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the fields, in order."""
        return tuple(field.name for field in self.fields)

    def __getitem__(self, name: str) -> Field:
        return self.fields[self.position(name)]

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def __iter__(self) -> Iterator[Field]:
        return iter(self.fields)

    def __len__(self) -> int:
        return len(self.fields)

    def __str__(self) -> str:
        return ", ".join(map(str, self.fields))


def field_of(name: str, kind: Any) -> Field:
    """Return a field from its name and any description of its kind and leader."""
    if isinstance(kind, Of):
        return Field(name, kind.kind, kind.leader)
    if isinstance(kind, str):
        kind, leader = leader_of(kind)
        return Field(name, kind_of(kind), leader)
    return Field(name, kind_of(kind))


def _field_of(part: Any) -> Field:
    if isinstance(part, Field):
        return part
    if isinstance(part, Mapping):
        if "name" not in part:
            raise ValueError(f"A field needs a 'name'. Found: {dict(part)!r}.")
        return Field(part["name"], Kind.from_json(part), part.get("of"), part.get("source"))
    if isinstance(part, (tuple, list)) and len(part) == 2:
        return field_of(*part)
    raise TypeError(f"A field is a Field, a pair of name and kind, or a mapping. Found: {part!r}.")


def _wrong_name(name: str) -> str | None:
    """Return what is not legal about a field's name; None: nothing."""
    if not name or name.startswith(".") or "/" in name or not name.isprintable():
        return "must be printable characters without '/', and not begin with '.'"
    if len(name.encode("utf-8", "replace")) > MAX_NAME_BYTES:
        return f"must have at most {MAX_NAME_BYTES} bytes of UTF-8"
    if name == _VALID:
        return f"must not be {_VALID!r}: under this key a batch says which of its positions are samples"
    return None


# ---- Captions ---------------------------------------------------------------------------------------

_PICKS = ("one", "first", "all")


@dataclass(frozen=True)
class Captions:
    """``DataLoader(text={"captions": Captions(...)})``: the choice of a sample's texts and their tokenizer
    (``docs/guide/text.md``).

    Args:
        tokenize: takes a batch's texts, a list of str, and returns what the batch gets: a tensor, a list, or
            a mapping of these, with a row for each text. It runs in separate threads, batches ahead, and its
            result must depend on its texts alone. None: the texts themselves.
        pick: of several texts: "one", drawn anew in each epoch; "first"; or "all". Without any: "".

    Raises:
        TypeError: ``tokenize`` is not callable.
        ValueError: ``pick`` is not legal.
    """

    tokenize: Callable[[list[str]], Any] | None = None
    pick: Literal["one", "first", "all"] = "one"

    def __post_init__(self) -> None:
        if self.tokenize is not None and not callable(self.tokenize):
            raise TypeError(f"Captions.tokenize must be callable. Found: {self.tokenize!r}.")
        if self.pick not in _PICKS:
            raise ValueError(f"Captions.pick must be one of {', '.join(_PICKS)}. Found: {self.pick!r}.")
