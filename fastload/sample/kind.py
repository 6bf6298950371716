"""What the kinds of fields have in common; :mod:`fastload.sample.fields` has them all."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np

from fastload._native import _C

__all__ = ["DTYPES", "MAX_VALUE_BYTES", "Kind", "Storage", "optional"]

#: ``record``: byte ranges of the shards. ``fixed``: equally many bytes a sample. ``ragged``: any number.
Storage: TypeAlias = Literal["record", "fixed", "ragged"]
#: Names of the numbers that scalars and arrays may have; on disk little-endian, a bool one byte of 0 or 1.
DTYPES = (
    "bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64",
    "float16", "float32", "float64",
)  # fmt: skip
MAX_VALUE_BYTES = 1 << 30  # of one sample's value; a record's limit, too


def optional(default: Any) -> Any:
    """A setting that is not in sets written before it came, and in later ones where it differs."""
    return dataclasses.field(default=default, metadata={"optional": True})


@dataclass(frozen=True)
class Kind:
    """What a field holds; its subclasses are the kinds there are."""

    name: ClassVar[str]  # in FORMAT.md and _C.FIELD_KINDS

    @property
    def number(self) -> int:
        """Its number in ``_C.FIELD_KINDS``."""
        return int(_C.FIELD_KINDS[self.name][0])

    @property
    def storage(self) -> Storage:
        """How its values lie on disk."""
        found: Storage = _C.FIELD_KINDS[self.name][1]
        return found

    @property
    def item_dtype(self) -> np.dtype[Any]:
        """Of a value (fixed), of a row (ragged; objects: bytes), or of a picture's pixels (record)."""
        return np.dtype(np.uint8)

    @property
    def item_shape(self) -> tuple[int, ...]:
        """Shape of a value (fixed), of a row (ragged; objects: bytes), or of a pixel (record)."""
        return ()

    @property
    def item_bytes(self) -> int:
        """Bytes of a value (fixed), of a row (ragged), or of a pixel (record)."""
        return math.prod(self.item_shape) * np.dtype(self.item_dtype).itemsize

    @property
    def has_rows(self) -> bool:
        """Whether a sample has any number of rows of numbers."""
        return False

    def to_json(self) -> dict[str, Any]:
        """Name and settings, as in the manifest's ``fields``: those that came later only where they differ
        from their default."""
        said = [(setting, getattr(self, setting.name)) for setting in fields(self)]
        return {
            "kind": self.name,
            **{
                setting.name: _plain(value)
                for setting, value in said
                if not (_is_optional(setting) and value == setting.default)
            },
        }

    @staticmethod
    def from_json(body: Mapping[str, Any]) -> Kind:
        """The kind that :meth:`to_json` described; what it does not know is ignored.

        Raises:
            ValueError, TypeError: no such kind, or settings that are missing or wrong.
        """
        from fastload.sample.fields import KINDS

        name = body.get("kind")
        cls = KINDS.get(name) if isinstance(name, str) else None
        if cls is None:
            raise ValueError(f"'kind' must be one of {', '.join(KINDS)}. Found: {name!r}.")
        missing = [s.name for s in fields(cls) if s.name not in body and not _is_optional(s)]
        if missing:
            raise ValueError(f"a field of kind {name!r} needs {', '.join(map(repr, missing))}.")
        return cls(**{s.name: _tuples(body[s.name]) for s in fields(cls) if s.name in body})

    def _fail(self, setting: str, legal: str) -> None:
        found = getattr(self, setting)
        raise ValueError(f"{type(self).__name__}: {setting} must be {legal}. Found: {found!r}.")

    def _check_integer(self, setting: str, low: int, high: int) -> None:
        value = getattr(self, setting)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            self._fail(setting, f"an integer from {low} to {high}")

    def _check_choice(self, setting: str, legal: tuple[Any, ...]) -> None:
        value = getattr(self, setting)
        if not any(value is one or (value == one and type(value) is type(one)) for one in legal):
            self._fail(setting, " or ".join(map(repr, legal)))

    def _check_names(self, setting: str) -> None:
        names = getattr(self, setting)
        if isinstance(names, str) or not all(isinstance(name, str) for name in names):
            self._fail(setting, "a sequence of str")
        object.__setattr__(self, setting, tuple(names))


def _is_optional(setting: dataclasses.Field[Any]) -> bool:
    return bool(setting.metadata.get("optional"))


def _plain(value: Any) -> Any:
    return [_plain(part) for part in value] if isinstance(value, tuple) else value


def _tuples(value: Any) -> Any:
    return tuple(_tuples(part) for part in value) if isinstance(value, list) else value
