"""The tree of causes: each leaf is told from its neighbours, and the page is the program's table."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastload.diagnose.attribution import WORDS, Place
from fastload.diagnose.causes import (
    BY_KEY,
    CAUSES,
    Evidence,
    cause_of,
    headline,
    page,
    place_of,
)
from fastload.diagnose.spots import Spot

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "causes.md"


LIBRARIES = {"decode": "PIL", "transform": "torchvision"}


def place(kind: str, share: float, library: str = "", text: str = "f(x)") -> Place:
    spot = Spot("sample", kind, "/home/user/data.py", 41, text, "Data.__getitem__", library)
    return Place(kind, spot, share)


def evidence(makers: dict[str, float] | None = None, library: str = "", **changes: Any) -> Evidence:
    """Two workers on two CPUs that make samples as ``makers`` says, for a loop that waits."""
    makers = makers or {"decode": 0.5, "transform": 0.4, "python": 0.1}
    given: dict[str, Any] = {
        "wait": 0.8,
        "workers": 2,
        "cpus": 2.0,
        "persistent": True,
        "makers": makers,
        "place": {
            kind: place(kind, share, library or LIBRARIES.get(kind, "")) for kind, share in makers.items()
        },
        "sample_seconds": 0.01,
        "sample_bytes": 100e3,
        "picture_side": 500,
        "batch_side": 224,
    }
    return Evidence(**given | changes)


STEP = evidence(is_limited_by_data=False, wait=0.02, loop={"step": 0.98})
HEAVY = {"transform": place("transform", 0.8, "torchvision")}
WAITS = {"reading": 0.8, "decode": 0.2}

#: A cause, its evidence, and changes of the evidence with the neighbour that they show.
LEAVES: dict[str, tuple[Evidence, list[tuple[dict[str, Any], str]]]] = {
    "step": (
        STEP,
        [
            ({"loop": {"step": 0.6, "sync": 0.3}}, "step-sync"),
            ({"loop": {"step": 0.6, "logging": 0.3}}, "step-logging"),
            ({"copies": 0.3}, "transfer"),
            ({"batch_size": 1, "fixed": 0.9}, "batch-size"),
            ({"is_limited_by_data": True, "wait": 0.5}, "decode"),
        ],
    ),
    "step-sync": (
        replace(STEP, loop={"step": 0.6, "sync": 0.3}),
        [
            ({"loop": {"step": 0.6, "sync": 0.2, "logging": 0.25}}, "step-logging"),
            ({"loop": {"step": 0.9, "sync": 0.05}}, "step"),
            ({"is_limited_by_data": True, "wait": 0.6}, "decode"),
        ],
    ),
    "step-logging": (
        replace(STEP, loop={"step": 0.6, "logging": 0.3}),
        [({"loop": {"step": 0.9, "logging": 0.08}}, "step")],
    ),
    "transfer": (replace(STEP, copies=0.2), [({"copies": 0.05}, "step")]),
    "batch-size": (
        replace(STEP, batch_size=2, fixed=0.8),
        [
            ({"fixed": 0.2}, "step"),
            ({"batch_size": 64}, "step"),
            ({"fixed": None}, "step"),
            ({"is_limited_by_data": True, "wait": 0.9}, "decode"),
        ],
    ),
    "no-workers": (
        evidence(workers=0, gains={"workers": 0.8}),
        [
            ({"workers": 1}, "few-workers"),
            ({"makers": {"collate": 0.7, "decode": 0.3}}, "collate"),
            ({"makers": {"python": 0.7, "decode": 0.3}}, "python"),
        ],
    ),
    "few-workers": (
        evidence(workers=1, gains={"workers": 0.6}),
        [
            ({"gains": {"workers": 0.02}, "workers": 2}, "decode"),
            ({"workers": 0}, "no-workers"),
            ({"makers": WAITS, "waits": {"open": 0.8}}, "storage-latency"),
        ],
    ),
    "many-workers": (
        evidence(workers=16, gains={"fewer-workers": 0.2}),
        [({"gains": {}}, "decode"), ({"workers": 2}, "decode")],
    ),
    "workers-restarted": (
        evidence(persistent=False, starting=0.2, first=0.1),
        [
            ({"persistent": True, "starting": 0.0, "first": 0.2}, "short-epochs"),
            ({"starting": 0.03, "first": 0.02}, "decode"),
            ({"workers": 0}, "no-workers"),
        ],
    ),
    "short-epochs": (evidence(first=0.3), [({"first": 0.05}, "decode")]),
    "storage-latency": (
        evidence(WAITS, waits={"open": 0.8}, sample_seconds=0.05),
        [
            ({"sample_seconds": 0.004, "sample_bytes": 9e3}, "small-files"),
            ({"waits": {"read": 0.8}, "sample_bytes": 2e6}, "storage-bandwidth"),
            ({"waits": {}, "makers": {"python": 0.8, "decode": 0.2}}, "python"),
            ({"is_limited_by_data": False, "wait": 0.0}, "step"),
        ],
    ),
    "small-files": (
        evidence(WAITS, waits={"open": 0.8}, sample_seconds=0.004, sample_bytes=9e3),
        [({"sample_seconds": 0.05}, "storage-latency"), ({"sample_bytes": 0.0}, "storage-latency")],
    ),
    "storage-bandwidth": (
        evidence(WAITS, waits={"read": 0.8}, sample_bytes=2e6),
        [
            ({"waits": {"open": 0.8}, "sample_seconds": 0.05}, "storage-latency"),
            ({"gains": {"workers": 2.0}, "sample_seconds": 0.05}, "storage-latency"),
        ],
    ),
    "sequential-format": (
        evidence({"reading": 0.9, "python": 0.1}, "tarfile"),
        [
            ({"place": {"reading": place("reading", 0.9, "h5py")}}, "chunked-container"),
            ({"makers": {"reading": 0.1, "decode": 0.9}}, "decode"),
        ],
    ),
    "chunked-container": (
        evidence({"reading": 0.9, "python": 0.1}, "h5py"),
        [
            ({"place": {"reading": place("reading", 0.9, "gzip")}}, "sequential-format"),
            ({"makers": {"reading": 0.5, "lock": 0.4}}, "lock"),
        ],
    ),
    "lock": (
        evidence({"lock": 0.5, "reading": 0.5}, "h5py"),
        [({"makers": {"lock": 0.1, "reading": 0.9}}, "chunked-container")],
    ),
    "processor": (
        evidence({"processor": 0.7, "decode": 0.3}, "transformers"),
        [({"makers": {"processor": 0.1, "transform": 0.9}, "place": HEAVY}, "augmentation")],
    ),
    "video": (
        evidence({"video": 0.5, "reading": 0.4, "python": 0.1}, "lerobot"),
        [
            ({"makers": {"video": 0.1, "python": 0.9}}, "python"),
            ({"makers": {"video": 0.2, "decode": 0.8}, "picture_side": 4000}, "large-pictures"),
            ({"is_limited_by_data": False}, "step"),
        ],
    ),
    "large-pictures": (
        evidence({"decode": 0.7, "transform": 0.3}, picture_side=4000),
        [
            ({"picture_side": 500}, "decode"),
            ({"batch_side": 2000}, "decode"),
            ({"makers": {"decode": 0.2, "transform": 0.8}, "place": HEAVY}, "augmentation"),
        ],
    ),
    "python": (
        evidence({"python": 0.7, "decode": 0.3}),
        [
            ({"makers": {"python": 0.2, "transform": 0.8}, "place": HEAVY}, "augmentation"),
            ({"makers": {"python": 0.2, "decode": 0.8}}, "decode"),
            ({"makers": {"python": 0.3, "collate": 0.7}}, "collate"),
        ],
    ),
    "augmentation": (
        evidence({"transform": 0.8, "decode": 0.2}),
        [
            ({"place": {"transform": place("transform", 0.3, "torchvision")}}, "transform"),
            ({"makers": {"python": 0.8, "transform": 0.2}}, "python"),
        ],
    ),
    "collate": (
        evidence({"collate": 0.7, "python": 0.3}),
        [({"makers": {"shared-memory": 0.7, "python": 0.3}}, "shared-memory")],
    ),
    "shared-memory": (
        evidence({"shared-memory": 0.6, "python": 0.4}),
        [
            ({"makers": {"shared-memory": 0.1, "python": 0.9}}, "python"),
            ({"loop": {"pickling": 0.7}}, "pickling"),
        ],
    ),
    "pickling": (
        evidence({"pickling": 0.6, "python": 0.4}),
        [({"makers": {"pickling": 0.1, "python": 0.9}}, "python")],
    ),
    "swap": (evidence(swapping=0.4), [({"swapping": 0.01}, "decode")]),
    "copy-on-write": (evidence(copied=60e6), [({"copied": 1e6}, "decode"), ({"workers": 0}, "no-workers")]),
    "quota": (
        evidence(limited=0.5),
        [({"limited": 0.02}, "decode"), ({"waits": {"open": 0.8}, "makers": WAITS}, "storage-latency")],
    ),
    "decode": (evidence(), [({"makers": {"transform": 0.6, "decode": 0.4}, "place": {}}, "transform")]),
    "transform": (
        evidence({"transform": 0.6, "decode": 0.4}, place={}),
        [
            ({"makers": {"transform": 0.1, "decode": 0.9}}, "decode"),
            ({"makers": {"transform": 0.25, "decode": 0.35, "python": 0.2}}, "samples"),
        ],
    ),
    "samples": (
        evidence({"decode": 0.34, "python": 0.3, "transform": 0.24, "shared-memory": 0.06}),
        [
            ({"makers": {"decode": 0.3, "python": 0.28, "transform": 0.3}}, "transform"),
            ({"makers": {"decode": 0.3, "python": 0.45, "transform": 0.25}}, "python"),
            ({"makers": {"decode": 0.5, "python": 0.25, "transform": 0.2}}, "decode"),
            ({"gains": {"workers": 0.3}}, "few-workers"),
        ],
    ),
    "unknown": (evidence({"idle": 1.0}, busy=0.1), [({"makers": {"decode": 1.0}, "busy": 1.0}, "decode")]),
}

ELSEWHERE = {"divided-twice", "mesh", "uneven-ranks", "ranks", "storage", "prefetch"}


def test_every_leaf_that_evidence_shows_has_a_test() -> None:
    shown = {cause.key for cause in CAUSES if cause.holds is not None}
    assert shown == set(LEAVES)
    assert set(BY_KEY) - shown == ELSEWHERE
    assert len(BY_KEY) == len(CAUSES)


@pytest.mark.parametrize("key", LEAVES)
def test_a_leaf_is_found(key: str) -> None:
    assert cause_of(LEAVES[key][0]).key == key


@pytest.mark.parametrize(
    ("key", "changes", "neighbour"),
    [(key, changes, other) for key, (_, rows) in LEAVES.items() for changes, other in rows],
)
def test_its_neighbour_is_another(key: str, changes: dict[str, Any], neighbour: str) -> None:
    assert key != neighbour
    assert cause_of(replace(LEAVES[key][0], **changes)).key == neighbour


@pytest.mark.parametrize("key", LEAVES)
def test_every_headline_can_be_said(key: str) -> None:
    said = headline(BY_KEY[key], LEAVES[key][0])
    assert said.endswith(".")
    assert "{" not in said


def test_the_words_of_a_person() -> None:
    line = place("python", 0.72, "pandas", "df[df.id == i]")
    of = evidence({"python": 0.8, "decode": 0.2}, place={"python": line})
    cause = cause_of(of)
    assert headline(cause, of) == (
        "The Dataset's Python is the bottleneck: data.py line 41 (`df[df.id == i]`) takes 72% of the time "
        "that samples take."
    )
    assert place_of(cause, of) is line


def test_the_words_of_parts() -> None:
    of = LEAVES["samples"][0]
    assert headline(cause_of(of), of) == (
        "Making samples is the bottleneck, in several places: decoding 34% (data.py line 41 (`f(x)`)), "
        "Python code 30% (data.py line 41 (`f(x)`)), transforms 24% (data.py line 41 (`f(x)`)) of "
        "the time that samples take."
    )


@settings(max_examples=300)
@given(
    st.dictionaries(st.sampled_from(sorted(WORDS)), st.floats(0.05, 1.0), min_size=1),
    st.integers(1, 4),
    st.booleans(),
)
def test_makers_that_work_are_never_a_riddle(drawn: dict[str, float], workers: int, persistent: bool) -> None:
    """However the time that samples take is divided, a loop that waits for them gets a cause."""
    whole = sum(drawn.values())
    makers = {kind: share / whole for kind, share in drawn.items()}
    of = evidence(makers, workers=workers, persistent=persistent)
    cause = cause_of(of)
    assert cause.key != "unknown"
    assert "not found" not in headline(cause, of)


def test_the_page_is_the_table() -> None:
    if os.environ.get("FASTLOAD_WRITE_PAGES"):
        PAGE.write_text(page(), encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == page(), "FASTLOAD_WRITE_PAGES=1 writes it"
