"""``Cache(format="auto")``: the arithmetic, what it looks at, and that it never changes a batch."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from epochs import same
from pictures import encoded, jpegs, picture
from plain_pack import plain_pack
from test_cached_coefficients import epochs, fill, loader

import fastload
import fastload.cache.policy
from fastload import Cache, DataLoader, PackedDataset
from fastload.cache import record_format as cache_format
from fastload.cache.opening import file_bytes
from fastload.cache.record_format import Choice, Facts, choose, decide
from fastload.cache.settings import CacheSetting
from fastload.cache.tiers import COEFFICIENTS
from fastload.errors import CacheError

COUNT = 40
GB = 10**9
FACTS = Facts(1_000_000, 1.0, 270.0, 110.0, 700.0, 1.05, 130 * GB, 130 * GB, 16)


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return plain_pack(tmp_path_factory.mktemp("photos"), jpegs(COUNT), range(COUNT)).folder


@pytest.mark.parametrize(
    ("changes", "kept", "pays", "reason"),
    [
        ({}, "coefficients", 6, "pays from epoch 6 on; over 10 epochs (assumed) it saves 1440 s"),
        ({"transcode_us": 160.0 * 9}, "coefficients", 10, "pays from epoch 10 on"),
        ({"transcode_us": 160.0 * 9 + 1}, "jpeg", 11, "from epoch 11 on, and 10 epochs are assumed"),
        ({"coefficients_us": 270.0}, "jpeg", None, "pays never"),
        ({"coefficients_us": 300.0}, "jpeg", None, "pays never"),
        ({"room": 130 * GB - 1}, "jpeg", 6, "coefficients need 130.0 GB of memory"),
        ({"jpegs": 0.0}, "jpeg", None, "no measured record"),
        ({"epochs": 5}, "jpeg", 6, "5 epochs are assumed"),
        ({"jpegs": 0.5}, "coefficients", 6, "it saves 720 s of threads for 350 s"),
    ],
)
def test_arithmetic(changes: dict[str, Any], kept: str, pays: int | None, reason: str) -> None:
    found = decide(replace(FACTS, **changes))
    assert found.format == kept
    assert found.facts.get("pays_from_epoch") == pays
    assert reason in found.reason
    assert found.facts["epochs"] == changes.get("epochs", 10)


def test_what_a_loader_says(
    root: Path, photos: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It measures records of the set, shows its numbers, and its batches are those of JPEGs."""
    expected, _ = epochs(loader(photos, "off", "jpeg"))
    with caplog.at_level(logging.INFO, "fastload"):
        found, stats = epochs(loader(photos, root, "auto"))
    assert same(found, expected)
    assert stats["format"] in ("jpeg", "coefficients")
    facts = stats["format_facts"]
    assert facts["records"] == COUNT
    assert facts["jpegs"] == 1
    assert min(facts["jpeg_us"], facts["coefficients_us"], facts["transcode_us"], facts["bytes_ratio"]) > 0
    assert facts["need"] == file_bytes(PackedDataset(photos), COEFFICIENTS)
    assert stats["format_reason"] in caplog.text
    for changes, kept in (({"transcode_us": 1.0}, "coefficients"), ({"transcode_us": 1e9}, "jpeg")):
        given = replace(FACTS, transcode_us=changes["transcode_us"])
        monkeypatch.setattr(cache_format, "_measured", lambda *_, given=given: given)
        monkeypatch.setenv("FASTLOAD_CACHE_DIR", str(root / kept))
        (root / kept).mkdir()
        found, stats = epochs(loader(photos, "20MB", "auto"))
        assert same(found, expected)
        assert stats["format"] == kept
        assert (stats["tier"] == "coefficients") == (kept == "coefficients")
        assert stats["format_facts"]["transcode_us"] == changes["transcode_us"]


def test_what_is_there_is_used_without_measuring(
    root: Path, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(photos, root)
    monkeypatch.setattr(cache_format, "_measured", None)
    dataset = PackedDataset(photos)
    assert choose("auto", [dataset], CacheSetting(), "") == Choice(
        "coefficients", "they are there already", {}
    )
    assert choose("auto", [dataset], CacheSetting("off"), "") == Choice("jpeg", "there is no cache", {})
    assert choose("auto", [dataset], CacheSetting(), "a reason") == Choice("jpeg", "a reason", {})
    assert choose("coefficients", [dataset], CacheSetting(), "a reason").format == "jpeg"


def test_sets_without_jpegs_and_damaged_ones_keep_what_they_have(root: Path, tmp_path: Path) -> None:
    pictures = [encoded(picture(i, 40, 30), "PNG") for i in range(8)]
    plain = plain_pack(tmp_path / "png", pictures, range(8)).folder
    _, stats = epochs(loader(plain, root, "auto"), 1)
    assert stats["format"] == "jpeg"
    assert "no measured record can become coefficients" in stats["format_reason"]
    damaged = plain_pack(tmp_path / "damaged", jpegs(8), range(8)).folder
    (damaged / "data.bin").write_bytes(bytes((damaged / "data.bin").stat().st_size))
    found = choose("auto", [PackedDataset(damaged)], CacheSetting(), "")
    assert found.format == "jpeg"
    assert "nothing could be measured" in found.reason


def test_too_small_a_cache_keeps_jpegs(root: Path, photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of those more records have room."""
    monkeypatch.setattr(cache_format, "_measured", lambda _, need, room: replace(FACTS, need=need, room=room))
    size = PackedDataset(photos).manifest.data_bytes
    _, stats = epochs(loader(photos, f"{size // 2}B", "auto"), 1)
    assert stats["format"] == "jpeg"
    assert "may be taken" in stats["format_reason"]
    room = fastload.cache.policy.Room(1000, 1000, 1000, "a limit", "Raise it")
    monkeypatch.setattr("fastload.cache.opening.find_room", lambda *_, **__: room)
    with pytest.raises(CacheError, match="of memory, but a limit leaves 1.0 kB"):
        epochs(loader(photos, "20MB", "coefficients"), 1)
    found = choose("auto", [PackedDataset(photos)], CacheSetting("on", limit=20_000_000), "")
    assert ", 0 bytes may be taken" in found.reason


@pytest.mark.parametrize(
    ("cache", "backend", "text"),
    [
        ({"format": "png"}, "native", "Cache.format must be one of jpeg, coefficients, auto"),
        ({"size": "off", "format": "coefficients"}, "native", 'size="off" keeps nothing'),
        ({"decoded": 64, "format": "auto"}, "native", "exclude each other"),
        ({"format": "coefficients"}, "dali", "is for backend='native'"),
    ],
)
def test_what_does_not_go_together(photos: Path, cache: dict[str, Any], backend: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        DataLoader(photos, batch_size=4, cache=Cache(**cache), backend=backend)
    with pytest.raises(ValueError, match="is for packed datasets"):
        DataLoader([1, 2, 3], batch_size=1, cache=Cache(format="coefficients"))


def test_sets_of_coefficients_have_nothing_to_gain(root: Path, photos: Path, tmp_path: Path) -> None:
    (tmp_path / "files" / "a").mkdir(parents=True)
    for number, blob in enumerate(jpegs(8)):
        (tmp_path / "files" / "a" / f"{number}.jpg").write_bytes(blob)
    fastload.pack(tmp_path / "files", tmp_path / "set", coefficients="fast")
    found = choose("auto", [PackedDataset(tmp_path / "set")], CacheSetting(), "")
    assert found.format == "jpeg"
    assert "no measured record can become coefficients" in found.reason
