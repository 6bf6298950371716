"""Tables and JSON on stdout, and the rows that several verbs share."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fastload.cli.streams import raw
from fastload.errors import harmless
from fastload.machine.sizes import counted, human_bytes
from fastload.packing.entries import DEFAULT_SPACING, parse_spacing
from fastload.packing.facts import EntryFacts
from fastload.packing.folders import ignored_words
from fastload.shard.manifest import Manifest

if TYPE_CHECKING:
    from fastload.sample.schema import Schema


# ---- Tables and JSON --------------------------------------------------------------------------------

_SHOWN = 5  # class names in a row


def print_json(body: Any) -> None:
    """Print one JSON object on one line, with the characters that a terminal would obey escaped."""
    text = json.dumps(body, ensure_ascii=False)
    if harmless(text) != text:
        text = json.dumps(body)
    sys.stdout.write(text + "\n")


def print_table(title: str, rows: Iterable[tuple[str, str]]) -> None:
    """Print two columns, with a frame only on a terminal."""
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
    """Print plain text."""
    sys.stdout.write("".join(f"{line}\n" for line in lines))


def one_line(text: str) -> str:
    """Return a name or value as one line, so that a part of it cannot look like another line."""
    return harmless(text).replace("\n", "\\n")


def classes_row(schema: Schema, unlabelled: int = 0) -> tuple[str, str]:
    """Return a table row: the number of classes and the first names; without any, those of the objects.

    Args:
        unlabelled: samples without a label.
    """
    label, of = schema.label_field, ""
    if label is None:
        label = next((field for field in schema if field.kind.name == "labels"), None)
        of = "" if label is None else f" (of objects: {label.name})"
    names: Sequence[str] = () if label is None else label.kind.classes  # type: ignore[attr-defined]
    shown = ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
    words = f"{len(names)}{of}: {shown}" if names else "none"
    if unlabelled and names:
        words += f"; {counted(unlabelled, 'sample')} without (label -1)"
    return "classes", words


def ignored_rows(ignored: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return table rows: what was in the source and was not packed, without being an error."""
    return [("source" if number == 0 else "", line) for number, line in enumerate(ignored_words(ignored))]


def contents_rows(manifest: Manifest, container: str, unlabelled: int = 0) -> list[tuple[str, str]]:
    """Return table rows: what a dataset holds.

    Args:
        container: what one of its files is called.
        unlabelled: samples without a label.
    """
    files = counted(len(manifest.shards), f"{manifest.format} {container}")
    classes = f" in {counted(len(manifest.classes), 'class')}" if manifest.classes else ""
    runs = manifest.runs
    return [
        ("records", f"{manifest.num_records}{classes}"),
        classes_row(manifest.schema, unlabelled),
        *([] if runs is None else [("runs", f"{runs.count}, by {runs.spec}")]),
        ("bytes", f"{bytes_words(manifest)} in {files}"),
        ("codecs", ", ".join(f"{name} {count}" for name, count in manifest.codecs.items())),
    ]


def bytes_words(manifest: Manifest) -> str:
    """Return the bytes of the records, and of which field they are if others have records, too."""
    have = [field for field in manifest.schema if field.storage in ("record", "records")]
    first = manifest.schema.index_field
    return human_bytes(manifest.data_bytes) + (f" of {first.name}" if first and len(have) > 1 else "")


def contents_json(manifest: Manifest) -> dict[str, Any]:
    """Return what a dataset holds, for ``--json``."""
    return {
        "id": manifest.id,
        "format": manifest.format,
        "records": manifest.num_records,
        "bytes": manifest.data_bytes,
        "classes": len(manifest.classes),
        **({} if manifest.runs is None else {"runs": manifest.runs.count}),
        "shards": len(manifest.shards),
        "codecs": dict(manifest.codecs),
    }


def sides_row(sides: dict[str, Any]) -> str:
    """Return picture sizes as one line."""
    known = [f"{name} {s['min']} / {s['median']} / {s['max']}" for name, s in sides.items() if s]
    return (", ".join(known) + " pixels (min / median / max)") if known else "not known"


# ---- Entry points -----------------------------------------------------------------------------------

ALPHA_HELP = "drop the alpha of images that become RGB or gray (default), or put them on white"
RUNS_HELP = (
    "which samples belong together, in which order: BY and ORDER are fields, or / (the folder and the number "
    "in the file name of a sample's key), TIME is a field (timestamp, or stamp@us) or a rate (30fps), as in "
    "episode_index:frame_index:timestamp or /:/:30fps; none: no runs (default: those of a packed set)"
)
ENTRIES_HELP = (
    "spacing of the JPEGs' entry points in pixels (8 to 65535), 'row' for one per row of blocks, or "
    f"'none' (default: {DEFAULT_SPACING})"
)


def spacing_argument(text: str) -> int | None:
    """Parse the value of ``--entries``; argparse shows the error with the usage."""
    try:
        return parse_spacing(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def entry_json(facts: EntryFacts) -> dict[str, Any]:
    """Return the facts for ``--json``; ``spacing`` is a value that ``--entries`` takes."""
    spacing = "none" if facts.spacing is None else "row" if facts.spacing == 0 else facts.spacing
    return {
        "spacing": spacing,
        "bytes": facts.bytes,
        "records": facts.with_entries,
        "jpegs": facts.jpegs,
        "progressive": facts.progressive,
        "unsuited": facts.unsuited,
        "other": facts.other,
    } | {name: True for name in ("damaged", "estimated") if getattr(facts, name)}


def entry_rows(facts: EntryFacts) -> list[tuple[str, str]]:
    """Return table rows: the entry points, and which JPEGs have none."""
    if facts.spacing is None:
        rows = [("entry points", "damaged, not used" if facts.damaged else "none")]
    else:
        where = "one per row of blocks" if facts.spacing == 0 else f"every {facts.spacing} pixels"
        share = 100 * facts.with_entries / max(facts.records, 1)
        have = f"{_about(facts)}{counted(facts.with_entries, 'record')} ({share:.1f}%)"
        rows = [("entry points", f"{where}, {have}, {human_bytes(facts.bytes)}")]
    reasons = [
        (facts.progressive, "progressive JPEG", "cannot have any: 'pack --baseline' converts without loss"),
        (facts.unsuited, "CMYK, 12-bit or lossless JPEG", "cannot have any"),
        (facts.other, "other JPEG", _WITHOUT[facts.other > 1]),
    ]
    kinds = [(f"{_about(facts)}{counted(count, what)}", reason) for count, what, reason in reasons if count]
    return rows + [("", f"{kind} {reason}") for kind, reason in kinds]


_WITHOUT = (
    "has no entry points: it has restart markers, which do the same, unusual subsampling, or is damaged",
    "have no entry points: they have restart markers, which do the same, unusual subsampling, or are damaged",
)


def _about(facts: EntryFacts) -> str:
    return "about " if facts.estimated else ""


# ---- Fields -----------------------------------------------------------------------------------------


def field_rows(facts: Sequence[dict[str, Any]], about: bool) -> list[tuple[str, str]]:
    """Return one row per field.

    Args:
        facts: of :func:`fastload.packing.facts.field_facts`.
        about: whether only a part of the samples was looked at.
    """
    return [
        (f"field {field['name']}", f"{field['kind']}: {'about ' * about}{_words(field) or 'no values'}")
        for field in facts
    ]


def _words(facts: dict[str, Any]) -> str:
    parts = []
    if "sides" in facts:
        codecs = ", ".join(f"{name} {count}" for name, count in facts["codecs"].items())
        parts += [codecs, human_bytes(facts["bytes"]), sides_row(facts["sides"])]
    if "different" in facts:
        of = f" of {facts['classes']}" if facts["classes"] else ""
        parts.append(f"{facts['different']}{of} classes")
    for unit in ("rows", "bytes"):
        sizes = facts.get(unit)
        if isinstance(sizes, dict):
            parts.append(f"{sizes['mean']:g} {unit} per sample (min {sizes['min']}, max {sizes['max']})")
    if "min" in facts:
        parts.append(f"values {_number(facts['min'])} to {_number(facts['max'])}")
    if facts.get("nan"):
        parts.append(f"{facts['nan']} NaN")
    if facts.get("without"):
        parts.append(f"{facts['without']} samples without")
    return ", ".join(filter(None, parts))


def _number(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def lerobot_rows(options: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the line about a packed LeRobot set, for a table; nothing for other sets.

    Args:
        options: the manifest's.
    """
    facts = options.get("lerobot")
    if not isinstance(facts, Mapping):
        return []
    rate = f"{facts['fps']:g} fps"
    if facts["packed_fps"] != facts["fps"]:
        rate += f", packed with {facts['packed_fps']:g}"
    decoder = f", decoded by {facts['decoder']}" if facts["decoder"] else ""
    episodes = counted(facts["episodes"], "episode")
    return [("source", f"LeRobot {facts['version']}, {episodes}, {rate}{decoder}")]
