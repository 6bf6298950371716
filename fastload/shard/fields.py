"""The manifest's ``fields``: the schema, and where each field's values lie (FORMAT.md, "Fields")."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # an image and a label need none of it
    from fastload.sample.schema import Field, Schema

__all__ = [
    "SECOND",
    "ColumnFile",
    "Entries",
    "column_file",
    "column_name",
    "entries_of",
    "fields_digest",
    "minor_of",
    "schema_of",
]

#: Behind the names of a set's files that stand beside others until the manifest names them: of one that was
#: recoded in place.
SECOND = "-2"
#: One JSON object a field.
Entries = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class ColumnFile:
    """A field's own file."""

    file: str  # its name, in the dataset's folder
    size: int  # bytes
    digest: int  # CRC-32C of its header and page table


def column_name(position: int, mark: str = "") -> str:
    """The file of the field that stands at ``position`` of the schema; ``mark``: "" or :data:`SECOND`."""
    return f"field-{position:02}{mark}.fli"


def entries_of(schema: Schema, files: Mapping[str, ColumnFile]) -> list[dict[str, Any]]:
    """What a manifest says about fields; nothing where version 1.0 says it all.

    Args:
        schema: the dataset's.
        files: by name, of the fields that have files.
    """
    if schema.is_plain:
        return []
    entries = []
    for field in schema:
        entry = field.to_json()
        if field == schema.index_field:
            entry["stored"] = "index"
        elif field == schema.label_field:
            del entry["classes"]  # the manifest has them
            entry["stored"] = "label"
        else:
            file = files[field.name]
            entry |= {"stored": "column", "file": file.file, "size": file.size, "digest": file.digest}
        entries.append(entry)
    return entries


def minor_of(entries: Entries) -> int:
    """The format's minor version that has all that is said of fields; older readers would miss some."""
    if not entries:
        return 0
    if any(entry.get("null") for entry in entries):
        return 4
    return 2 if any(map(_is_of_version_2, entries)) else 1


def _is_of_version_2(entry: Mapping[str, Any]) -> bool:
    return bool(
        entry["kind"] in ("labels", "texts")
        or (entry["kind"], entry.get("format")) == ("polygons", "mixed")
        or entry.keys() & {"of", "source", "pairs"}
    )


def fields_digest(entries: Entries) -> bytes:
    """What the index's header has about them: BLAKE2b of 16 bytes over their canonical JSON; b"": none."""
    if not entries:
        return b""
    text = json.dumps(list(entries), ensure_ascii=True, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def schema_of(entries: Entries, classes: Sequence[str]) -> Schema:
    """The schema that a manifest's ``fields`` and ``classes`` describe.

    Raises:
        ValueError, TypeError: they break a rule of FORMAT.md, in words.
    """
    from fastload.sample.schema import Schema

    if not entries:
        return Schema.plain(classes)
    schema = Schema(tuple(_field(number, entry, classes) for number, entry in enumerate(entries)))
    for number, (field, entry) in enumerate(zip(schema, entries, strict=True)):
        wanted = "column"
        if field is schema.index_field:
            wanted = "index"
        elif field is schema.label_field:
            wanted = "label"
        if entry["stored"] != wanted:
            raise ValueError(
                f"field {field.name!r} must be stored as {wanted!r}. Found: {entry['stored']!r:.200}."
            )
        if wanted == "column":
            column_file(number, entry)
    return schema


def column_file(number: int, entry: Mapping[str, Any]) -> ColumnFile:
    """The file of a field that has one.

    Raises:
        ValueError: its entry breaks a rule of FORMAT.md, in words.
    """
    names, found = [column_name(number, mark) for mark in ("", SECOND)], entry.get("file")
    if found not in names:
        raise ValueError(f"the file of field {entry['name']!r} must be {names[0]!r}. Found: {found!r}.")
    for key, most in (("size", 2**63 - 1), ("digest", 2**32 - 1)):
        value = entry.get(key)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
            raise ValueError(
                f"{key!r} of field {entry['name']!r} must be an integer from 0 to {most}. Found: {value!r}."
            )
    return ColumnFile(found, entry["size"], entry["digest"])


def _field(number: int, entry: Any, classes: Sequence[str]) -> Field:
    from fastload.sample.fields import Kind, Label
    from fastload.sample.schema import Field

    if not isinstance(entry, Mapping) or not {"name", "kind", "stored"} <= entry.keys():
        raise ValueError(
            f"field {number} must be an object with 'name', 'kind' and 'stored'. Found: {entry!r:.200}."
        )
    is_label = entry["stored"] == "label" and entry["kind"] == Label.name
    try:
        kind = Label(tuple(classes)) if is_label else Kind.from_json(entry)
        return Field(entry["name"], kind, entry.get("of"), entry.get("source"))
    except TypeError as error:  # a setting of another type than any legal one
        raise ValueError(f"field {number} has settings that are wrong: {error}.") from None
