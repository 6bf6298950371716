"""Tables and JSON on stdout."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import Any

from fastload.machine.sizes import counted, human_bytes
from fastload.shard.manifest import Manifest

__all__ = [
    "contents_json",
    "contents_rows",
    "counted",
    "human_bytes",
    "print_json",
    "print_lines",
    "print_table",
    "sides_row",
]


def print_json(body: Any) -> None:
    """One JSON object on a line of its own."""
    sys.stdout.write(json.dumps(body, ensure_ascii=False) + "\n")


def print_table(title: str, rows: Iterable[tuple[str, str]]) -> None:
    """Two columns; a frame only where somebody looks at a terminal."""
    rows = list(rows)
    if sys.stdout.isatty():
        from rich import box
        from rich.console import Console
        from rich.markup import escape
        from rich.table import Table

        table = Table(title=escape(title), show_header=False, title_justify="left", box=box.SIMPLE)
        for name, value in rows:
            table.add_row(escape(name), escape(value))
        Console().print(table)
        return
    width = max((len(name) for name, _ in rows), default=0)
    print_lines([title, *(f"  {name:<{width}}  {value}" for name, value in rows)])


def print_lines(lines: Iterable[str]) -> None:
    """Plain text; a name that is not valid text is shown escaped."""
    sys.stdout.write("".join(line.encode("utf-8", "backslashreplace").decode() + "\n" for line in lines))


def contents_rows(manifest: Manifest, container: str) -> list[tuple[str, str]]:
    """Table rows: what a dataset holds; ``container``: what one of its files is called."""
    files = counted(len(manifest.shards), f"{manifest.format} {container}")
    return [
        ("records", f"{manifest.num_records} in {counted(len(manifest.classes), 'class')}"),
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
