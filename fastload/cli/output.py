"""Tables and JSON on stdout."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fastload.cli.streams import raw
from fastload.errors import harmless
from fastload.machine.sizes import counted, human_bytes
from fastload.packing.folders import ignored_words
from fastload.shard.manifest import Manifest

if TYPE_CHECKING:
    from fastload.sample.schema import Schema

__all__ = [
    "classes_row",
    "contents_json",
    "contents_rows",
    "counted",
    "human_bytes",
    "ignored_rows",
    "one_line",
    "print_json",
    "print_lines",
    "print_table",
    "sides_row",
]


_SHOWN = 5  # names of classes


def print_json(body: Any) -> None:
    """One JSON object on a line of its own; what a terminal would obey is escaped as JSON has it."""
    text = json.dumps(body, ensure_ascii=False)
    if harmless(text) != text:
        text = json.dumps(body)
    sys.stdout.write(text + "\n")


def print_table(title: str, rows: Iterable[tuple[str, str]]) -> None:
    """Two columns; a frame only where somebody looks at a terminal."""
    rows = [(one_line(name), one_line(value)) for name, value in rows]
    if sys.stdout.isatty():
        from rich import box
        from rich.console import Console
        from rich.markup import escape
        from rich.table import Table

        table = Table(title=escape(one_line(title)), show_header=False, title_justify="left", box=box.SIMPLE)
        for name, value in rows:
            table.add_row(escape(name), escape(value))
        Console(file=raw(sys.stdout)).print(table)
        return
    width = max((len(name) for name, _ in rows), default=0)
    print_lines([title, *(f"  {name:<{width}}  {value}" for name, value in rows)])


def print_lines(lines: Iterable[str]) -> None:
    """Plain text."""
    sys.stdout.write("".join(f"{line}\n" for line in lines))


def one_line(text: str) -> str:
    """A name or value for a place where only one line is expected, so that it cannot look like another."""
    return harmless(text).replace("\n", "\\n")


def classes_row(schema: Schema, unlabelled: int = 0) -> tuple[str, str]:
    """A table row: how many classes there are, and what the first are called; where samples have none, those
    of their objects.

    Args:
        unlabelled: samples without a label.
    """
    label, of = schema.label_field, ""
    if label is None:
        label = next((field for field in schema if field.kind.name == "labels"), None)
        of = "" if label is None else f" (of objects: {label.name})"
    names: Sequence[str] = () if label is None else label.kind.classes  # type: ignore[attr-defined]
    shown = ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
    said = f"{len(names)}{of}: {shown}" if names else "none"
    if unlabelled and names:
        said += f"; {counted(unlabelled, 'sample')} without (label -1)"
    return "classes", said


def ignored_rows(ignored: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Table rows: what lay in the source and was not packed, though it was no error."""
    return [("source" if number == 0 else "", line) for number, line in enumerate(ignored_words(ignored))]


def contents_rows(manifest: Manifest, container: str, unlabelled: int = 0) -> list[tuple[str, str]]:
    """Table rows: what a dataset holds.

    Args:
        container: what one of its files is called.
        unlabelled: samples without a label.
    """
    files = counted(len(manifest.shards), f"{manifest.format} {container}")
    classes = f" in {counted(len(manifest.classes), 'class')}" if manifest.classes else ""
    return [
        ("records", f"{manifest.num_records}{classes}"),
        classes_row(manifest.schema, unlabelled),
        ("bytes", f"{human_bytes(manifest.data_bytes)} in {files}"),
        ("codecs", ", ".join(f"{name} {count}" for name, count in manifest.codecs.items())),
    ]


def contents_json(manifest: Manifest) -> dict[str, Any]:
    """The same for ``--json``."""
    return {
        "id": manifest.id,
        "format": manifest.format,
        "records": manifest.num_records,
        "bytes": manifest.data_bytes,
        "classes": len(manifest.classes),
        "shards": len(manifest.shards),
        "codecs": dict(manifest.codecs),
    }


def sides_row(sides: dict[str, Any]) -> str:
    """Picture sizes in one line."""
    known = [f"{name} {s['min']} / {s['median']} / {s['max']}" for name, s in sides.items() if s]
    return (", ".join(known) + " pixels (min / median / max)") if known else "not known"
