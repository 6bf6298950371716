"""Progressive JPEGs as baseline ones: other bytes, the same coefficients, segments and pixels."""

from __future__ import annotations

import io
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from decode_images import encode, patch_frame, photo, pillow_rgb, resampled_jpeg, scans
from pack_trees import make_tree, snapshot
from PIL import Image

from fastload import PackedDataset
from fastload._native import _C
from fastload.cli import main
from fastload.errors import DecodeError, PackError
from fastload.packing import PackOptions, pack
from fastload.packing.unpack import unpack
from fastload.packing.verify import verify

KINDS = {
    "4:4:4": {"subsampling": 0},
    "4:2:2": {"subsampling": 1},
    "4:2:0": {"subsampling": 2},
    "gray": {"mode": "L"},
    "CMYK": {"mode": "CMYK"},
}


def to_baseline(data: bytes, **limits: int) -> bytes:
    return bytes(_C.jpeg_to_baseline(np.frombuffer(data, np.uint8), **limits).tobytes())


def our_rgb(data: bytes) -> np.ndarray:
    return np.asarray(_C.Decoder().decode_rgb(np.frombuffer(data, np.uint8)))


def segments(jpeg: bytes) -> Iterator[bytes]:
    """The APPn and COM segments before the first scan, whole."""
    at = 2
    while jpeg[at + 1] != 0xDA:
        length = 2 + int.from_bytes(jpeg[at + 2 : at + 4], "big")
        if 0xE0 <= jpeg[at + 1] <= 0xEF or jpeg[at + 1] == 0xFE:
            yield jpeg[at : at + length]
        at += length


@pytest.mark.parametrize("size", [(1, 1), (9, 7), (16, 16), (17, 33), (123, 77)])
@pytest.mark.parametrize("kind", KINDS)
def test_equal_to_the_same_picture_written_as_baseline(kind: str, size: tuple[int, int]) -> None:
    """libjpeg writes the same quantised coefficients either way: so the bytes must come out the same."""
    options = {"quality": 85, **KINDS[kind]}
    progressive = encode(photo(*size), "JPEG", progressive=True, **options)
    found = to_baseline(progressive)
    assert found == encode(photo(*size), "JPEG", optimize=True, **options)
    assert np.array_equal(pillow_rgb(found), pillow_rgb(progressive))
    assert np.array_equal(our_rgb(found), our_rgb(progressive))
    codec, width, height, _, flags = _C.probe(np.frombuffer(found, np.uint8))
    assert (codec, width, height, flags) == ("jpeg", *size, 0)
    assert to_baseline(progressive) == found


@pytest.mark.parametrize("sampling", ["4:4:0", "4:1:1", "1x4"])
def test_rare_samplings(sampling: str) -> None:
    progressive = resampled_jpeg(sampling, 3, 4, (0, 0), progressive=True)
    found = to_baseline(progressive)
    assert np.array_equal(pillow_rgb(found), pillow_rgb(progressive))
    assert np.array_equal(our_rgb(found), our_rgb(progressive))


def test_metadata_stays_in_its_order() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    profile = bytes(range(256)) * 600  # several APP2 segments
    options = {"exif": exif.tobytes(), "icc_profile": profile, "comment": b"a comment", "dpi": (72, 300)}
    for mode in ("RGB", "CMYK"):
        progressive = encode(photo(40, 30), "JPEG", mode, progressive=True, **options)
        found = to_baseline(progressive)
        assert len(list(segments(progressive))) >= 5
        assert list(segments(found)) == list(segments(progressive))
        with Image.open(io.BytesIO(found)) as image:
            assert image.getexif()[0x0112] == 6
            assert image.info["icc_profile"] == profile


def test_what_it_refuses() -> None:
    whole = encode(photo(50, 40), "JPEG", progressive=True)
    parts = scans(whole)
    missing = whole[: parts[-1][0]] + b"\xff\xd9"
    pillow_rgb(missing)  # decoders take it, and smooth it
    comment = b"\xff\xfe\x00\x03x"
    between = whole[: parts[3][0]] + comment + whole[parts[3][0] :]
    cases = {
        "scans are missing": missing,
        "between the scans": between,
        "not progressive": encode(photo(50, 40), "JPEG"),
        "Premature end": whole[:-60],
        "more than 5 scans": whole,
        "Not a JPEG": b"\x89PNG" + whole,
    }
    for reason, data in cases.items():
        with pytest.raises(DecodeError, match=reason):
            to_baseline(data, max_scans=5 if "more" in reason else 100)
    with pytest.raises(DecodeError, match="image of 50 x 40 pixels; the limits are 1999 pixels"):
        to_baseline(whole, max_pixels=1999)
    with pytest.raises(DecodeError, match="image of 65500 x 65500 pixels"):
        to_baseline(patch_frame(whole, width=65500, height=65500))
    with pytest.raises(DecodeError):
        to_baseline(b"")


def test_damaged_files_are_refused_or_keep_their_pixels() -> None:
    rng = random.Random(3)
    whole = encode(photo(64, 48), "JPEG", progressive=True, quality=70)
    accepted = 0
    for _ in range(400):
        damaged = bytearray(whole)
        for _ in range(rng.choice((1, 1, 2, 8))):
            damaged[rng.randrange(2, len(damaged))] = rng.randrange(256)
        data = bytes(damaged[: rng.choice((len(damaged), rng.randrange(len(damaged))))])
        try:
            found = to_baseline(data)
        except DecodeError:
            continue
        accepted += 1
        assert np.array_equal(our_rgb(found), our_rgb(data))
    assert 20 < accepted < 300


@pytest.fixture
def files() -> dict[str, bytes]:
    """Progressive ones (the last lacks its end), and others that must not be touched."""
    made = {f"c/{i}.jpg": encode(photo(60 + i, 50, i), "JPEG", progressive=True) for i in range(6)}
    made["c/6.jpg"] = encode(photo(60, 50), "JPEG", "CMYK", progressive=True)
    made["d/0.jpg"] = encode(photo(60, 50), "JPEG")
    made["d/1.png"] = encode(photo(60, 50), "PNG")
    made["d/2.jpg"] = made["c/0.jpg"][:-80]
    return made


def test_pack(files: dict[str, bytes], tmp_path: Path, format_name: str) -> None:
    source = make_tree(tmp_path / "source", files)
    options = PackOptions(format=format_name, baseline=True, num_proc=1, shard_size=20000)
    [result] = pack(source, tmp_path / "set", options)
    assert (result.manifest.options["transcoded"], result.entries.progressive) == (7, 1)
    assert (result.entries.with_entries, result.entries.unsuited) == (7, 1)
    dataset = PackedDataset(tmp_path / "set")
    for i, (name, data) in enumerate(files.items()):
        changed = name.startswith("c/")
        assert dataset.key(i) == name
        assert dataset.read(i) == (to_baseline(data) if changed else data)
        assert dataset.records["flags"][i] == (1 if name == "d/2.jpg" else 0)
    assert verify(tmp_path / "set", entries=True) == ([], len(files))
    unpack(tmp_path / "set", tmp_path / "back")
    assert snapshot(tmp_path / "back") == {name: dataset.read(i) for i, name in enumerate(files)}
    pack(source, tmp_path / "two" / "set", PackOptions(**{**vars(options), "num_proc": 2}))
    assert snapshot(tmp_path / "two" / "set") == snapshot(tmp_path / "set")


def test_pack_resumes_with_the_same_bytes_and_counts(
    files: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = make_tree(tmp_path / "source", files)
    options = PackOptions(baseline=True, num_proc=1, shard_size=6000)
    pack(source, tmp_path / "whole" / "set", options)
    expected, replace = snapshot(tmp_path / "whole" / "set"), os.replace
    for limit in (3, 5, 8):
        left = [limit]

        def failing(old: object, new: object, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] < 0:
                raise OSError(5, "no more")
            replace(old, new)  # type: ignore[arg-type]

        output = tmp_path / "failing" / "set"
        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", failing)
            with pytest.raises(PackError, match="no more"):
                pack(source, output, options)
        with pytest.raises(PackError, match="baseline was True, now None"):
            pack(source, output, PackOptions(num_proc=1, shard_size=6000))
        pack(source, output, options)
        assert snapshot(output) == expected
        shutil.rmtree(output)


def test_with_max_side(files: dict[str, bytes], tmp_path: Path) -> None:
    source = make_tree(tmp_path / "source", files)
    [result] = pack(source, tmp_path / "set", PackOptions(baseline=True, max_side=62, num_proc=1))
    dataset = PackedDataset(tmp_path / "set")
    assert result.manifest.options["transcoded"] == 4  # of at most 62 pixels
    assert (dataset.records["width"] <= 62).all()
    assert dataset.read(2) == to_baseline(files["c/2.jpg"])
    assert dataset.read(4) != to_baseline(files["c/4.jpg"])


def test_command_line(files: dict[str, bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, output = make_tree(tmp_path / "source", files), tmp_path / "set"
    assert main(["pack", str(source), str(output), "--baseline", "--num-proc", "1"]) == 0
    assert "7 progressive JPEGs converted to baseline, 1 cannot be" in capsys.readouterr().out
    assert main(["pack", str(source), str(output), "--baseline", "--json"]) == 0
    assert '"transcoded": 7' in capsys.readouterr().out
    assert main(["pack", str(source), str(tmp_path / "no"), "--baseline", "--raw"]) == 1
    assert "baseline and raw exclude each other" in capsys.readouterr().err
