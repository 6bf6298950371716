"""Entry points on the command line: the option, table rows and JSON."""

from __future__ import annotations

import argparse
from typing import Any

from fastload.cli.output import counted, human_bytes
from fastload.packing.entries import DEFAULT_SPACING, parse_spacing
from fastload.packing.entry_facts import EntryFacts

__all__ = ["ENTRIES_HELP", "entry_json", "entry_rows", "spacing_argument"]

ENTRIES_HELP = (
    "spacing of the JPEGs' entry points in pixels (8 to 65535), 'row' for one per row of blocks, or "
    f"'none' (default: {DEFAULT_SPACING})"
)


def spacing_argument(text: str) -> int | None:
    """The value of ``--entries``; argparse shows the error with the usage."""
    try:
        return parse_spacing(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def entry_json(facts: EntryFacts) -> dict[str, Any]:
    """The facts as ``--json`` prints them; ``spacing`` as ``--entries`` takes it."""
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
    """Table rows: what there is, and which JPEGs have none."""
    if facts.spacing is None:
        rows = [("entry points", "damaged, and left out" if facts.damaged else "none")]
    else:
        where = "one a row of blocks" if facts.spacing == 0 else f"every {facts.spacing} pixels"
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
