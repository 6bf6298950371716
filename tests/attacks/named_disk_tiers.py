"""What somebody else has left in the folder of the disk tier: samples are right, or words come."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from attack_rules import EITHER, attack
from named_caches import COUNT, FOLDER, KIND, TIER, WORDS, on_disk, patched, replaced, tier

from fastload._native import _C


def tables_words(path: Path) -> tuple[int, int, int]:
    """Where the places and the slots' words begin, and how many slots there are."""
    head = path.read_bytes()[:16384]
    slots, places_at, slots_at = (struct.unpack_from("<Q", head, at)[0] for at in (40, 48, 56))
    return places_at, slots_at, slots


def resealed_tier(path: Path, at: int, value: bytes) -> None:
    data = bytearray(path.read_bytes())
    data[at : at + len(value)] = value
    data[16380:16384] = _C.crc32c(np.frombuffer(bytes(data[:16380]), np.uint8)).to_bytes(4, "little")
    path.write_bytes(data)


@attack(KIND, TIER, None)
def slots_that_hold_something_else(folder: Path) -> Callable[[], Any]:
    place, table = tier(folder)
    data = table.with_name(table.name + ".data")
    size = data.stat().st_size
    data.write_bytes(b"\xff\xd8" * (size // 2))
    return on_disk(folder, place)


@attack(KIND, TIER, None)
def a_file_of_slots_that_was_cut(folder: Path) -> Callable[[], Any]:
    place, table = tier(folder)
    os.truncate(table.with_name(table.name + ".data"), 4096)
    return on_disk(folder, place)


@attack(KIND, FOLDER, None)
def a_fifo_in_the_place_of_the_slots(folder: Path) -> Callable[[], Any]:
    place, table = tier(folder)
    replaced(table.with_name(table.name + ".data"), lambda path: os.mkfifo(path, 0o600))
    return on_disk(folder, place)


@attack(KIND, WORDS, None)
def all_samples_in_the_first_slot(folder: Path) -> Callable[[], Any]:
    place, table = tier(folder)
    patched(table, tables_words(table)[0], struct.pack("<I", 1) * COUNT)
    return on_disk(folder, place)


@attack(KIND, WORDS, None)
def places_in_slots_that_there_are_not(folder: Path) -> Callable[[], Any]:
    place, table = tier(folder)
    patched(table, tables_words(table)[0], b"\xff" * (4 * COUNT))
    return on_disk(folder, place)


@attack(KIND, WORDS, None)
def slots_of_samples_that_there_are_not(folder: Path) -> Callable[[], Any]:
    place, table = tier(folder)
    _, slots_at, slots = tables_words(table)
    patched(table, slots_at, struct.pack("<I", 2**31 - 2) * slots)
    return on_disk(folder, place)


@attack(KIND, WORDS, None)
def live_words_without_bound(folder: Path) -> Callable[[], Any]:
    place, table = tier(folder)
    patched(table, 16384, b"\xff" * 4096)
    return on_disk(folder, place)


TIER_HEADERS: dict[str, tuple[int, bytes]] = {
    "2_to_the_64_bytes": (16, b"\xff" * 16),
    "2_to_the_63_records_and_slots": (32, struct.pack("<QQ", 2**63, 2**63)),
    "tables_that_wrap_round": (48, struct.pack("<QQ", 2**64 - 4, 2**64 - 4)),
    "255_classes_of_nothing": (92, struct.pack("<I", 255)),
    "2_to_the_32_classes": (92, b"\xff" * 4),
    "classes_without_bound": (8192, struct.pack("<QQQQ", 2**63, 0, 2**63, 2**63)),
    "classes_of_no_slots": (8192, bytes(32)),
    "a_source_of_4_gib": (160, b"\xff" * 4),
}


def _tiered(name: str, at: int, value: bytes) -> None:
    def make(folder: Path) -> Callable[[], Any]:
        place, table = tier(folder)
        resealed_tier(table, at, value)
        return on_disk(folder, place)

    make.__name__ = f"a_tier_that_says_{name}"
    attack(KIND, WORDS, EITHER)(make)


for _name, (_at, _value) in TIER_HEADERS.items():
    _tiered(_name, _at, _value)
