"""Pictures and masks in two folders, by names that people use, ADE20K's and Cityscapes'."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from annotated_trees import ids_of, write_mask, write_photo
from PIL import Image as pillow

import fastload
from fastload import Image, Mask
from fastload.cli import main
from fastload.errors import PackError
from fastload.packing.annotations.annotated_files import Paths
from fastload.shard.dataset import PackedFiles


def pixels(dataset: PackedFiles, sample: int, name: str = "mask") -> npt.NDArray[Any]:
    return np.asarray(pillow.open(io.BytesIO(dataset.value_bytes(name, sample))))


def pairs(root: Path, names: list[str], images: str = "images", masks: str = "masks") -> None:
    for number, name in enumerate(names):
        write_photo(root / images / f"{name}.jpg", number)
        write_mask(root / masks / f"{name}.png", ids_of(number))


@pytest.mark.parametrize("masks", ["masks", "annotations", "labels", "mask"])
def test_two_folders_of_the_same_names(tmp_path: Path, masks: str) -> None:
    pairs(tmp_path / "in", ["b", "sub/a", "c"], masks=masks)
    (result,) = fastload.pack(tmp_path / "in", tmp_path / "set")
    dataset = PackedFiles(result.output)
    assert dataset.schema.names == ("image", "mask")
    assert [dataset.key(i) for i in range(3)] == ["images/b.jpg", "images/c.jpg", "images/sub/a.jpg"]
    for sample, number in enumerate((0, 2, 1)):
        assert np.array_equal(pixels(dataset, sample), ids_of(number))
        assert dataset.value("image", sample) == (tmp_path / "in" / dataset.key(sample)).read_bytes()


def test_a_mask_that_changes_is_another_sample(tmp_path: Path) -> None:
    pairs(tmp_path / "in", [f"{i:03}" for i in range(9)])
    fastload.pack(tmp_path / "in", tmp_path / "set")
    write_mask(tmp_path / "in" / "masks" / "007.png", ids_of(9, (50, 30)))
    with pytest.raises(PackError, match="of other samples"):
        fastload.pack(tmp_path / "in", tmp_path / "set")


def test_ade20k_has_a_set_a_split(tmp_path: Path) -> None:
    for split in ("training", "validation"):
        for i in range(3):
            name = f"ADE_{split[:5]}_{i:08}"
            write_photo(tmp_path / "in" / "images" / split / f"{name}.jpg", i)
            write_mask(tmp_path / "in" / "annotations" / split / f"{name}.png", ids_of(i, most=151))
    found = fastload.pack(tmp_path / "in", tmp_path / "out")
    assert [result.output.name for result in found] == ["training", "validation"]
    assert PackedFiles(tmp_path / "out" / "training").key(0) == "images/training/ADE_train_00000000.jpg"


def cityscapes(root: Path) -> None:
    for number, city in enumerate(("aachen", "bochum")):
        stem = f"{city}_000000_000019"
        write_photo(root / "leftImg8bit" / "train" / city / f"{stem}_leftImg8bit.png", number)
        fine = root / "gtFine" / "train" / city
        write_mask(fine / f"{stem}_gtFine_labelIds.png", ids_of(number))
        write_mask(fine / f"{stem}_gtFine_instanceIds.png", ids_of(number, most=30000))
        pillow.new("RGBA", (40, 30)).save(fine / f"{stem}_gtFine_color.png")


def test_cityscapes(tmp_path: Path) -> None:
    cityscapes(tmp_path / "in")
    (result,) = fastload.pack(tmp_path / "in", tmp_path / "out")
    dataset = PackedFiles(result.output)
    assert result.output.name == "train"
    assert dataset.schema.names == ("image", "mask", "instances")
    assert [dataset.schema[name].kind for name in dataset.schema.names] == [
        Image(), Mask(), Mask(16, ignore=65535)
    ]  # fmt: skip
    for number in range(2):
        assert np.array_equal(pixels(dataset, number), ids_of(number))
        assert np.array_equal(pixels(dataset, number, "instances"), ids_of(number, most=30000))


def test_coarse_and_fine_masks_are_two_sets(tmp_path: Path) -> None:
    cityscapes(tmp_path / "in")
    (tmp_path / "in" / "gtCoarse").mkdir()
    with pytest.raises(PackError, match=r"several sets:\n  pairs: leftImg8bit and gtFine\n.* and gtCoarse"):
        fastload.pack(tmp_path / "in", tmp_path / "out")
    fastload.pack(tmp_path / "in" / "leftImg8bit", tmp_path / "out", masks=tmp_path / "in" / "gtFine")
    assert len(PackedFiles(tmp_path / "out" / "train")) == 2


def test_folders_that_are_named(tmp_path: Path) -> None:
    pairs(tmp_path, ["x", "y"], "here/photos", "there/ids")
    fastload.pack(tmp_path / "here/photos", tmp_path / "set", masks=tmp_path / "there/ids")
    assert PackedFiles(tmp_path / "set").key(1) == "here/photos/y.jpg"


def test_splits_with_folders_of_their_own(tmp_path: Path) -> None:
    pairs(tmp_path / "in" / "train", ["x"])
    pairs(tmp_path / "in" / "val", ["y", "z"])
    found = fastload.pack(tmp_path / "in", tmp_path / "out")
    assert [(result.output.name, result.manifest.num_records) for result in found] == [
        ("train", 1),
        ("val", 2),
    ]


def test_settings_of_masks_are_said(tmp_path: Path) -> None:
    pairs(tmp_path / "in", ["x"])
    said = {"mask": Mask(classes=("sky", "sea"), ignore=0), "image": Image()}
    fastload.pack(tmp_path / "in", tmp_path / "set", said)
    assert PackedFiles(tmp_path / "set").schema["mask"].kind == said["mask"]
    with pytest.raises(PackError, match="'boxes' in these samples, only image, mask"):
        fastload.pack(tmp_path / "in", tmp_path / "two", {"image": "image", "boxes": "boxes"})
    with pytest.raises(PackError, match="cannot be packed as Image"):
        fastload.pack(tmp_path / "in", tmp_path / "two", {"image": "image", "mask": "image"})


def test_what_has_no_partner_is_listed(tmp_path: Path) -> None:
    pairs(tmp_path / "in", ["a", "b", "c"])
    (tmp_path / "in" / "masks" / "b.png").unlink()
    write_mask(tmp_path / "in" / "masks" / "alone.png", ids_of(3))
    pillow.new("RGB", (40, 30)).save(tmp_path / "in" / "masks" / "c.png")
    with pytest.raises(PackError, match="3 samples cannot be packed") as caught:
        fastload.pack(tmp_path / "in", tmp_path / "set")
    for words in ("b.jpg: there is no mask", "alone.png: there is no picture", "c.png is a PNG of colours"):
        assert words in str(caught.value)
    (result,) = fastload.pack(tmp_path / "in", tmp_path / "set", on_error="skip")
    assert (result.manifest.num_records, result.manifest.skipped) == (1, 3)


def test_two_masks_of_one_name(tmp_path: Path) -> None:
    pairs(tmp_path / "in", ["a"])
    (tmp_path / "in" / "masks" / "a.tif").write_bytes(b"II*")
    with pytest.raises(PackError, match=r"a\.png and masks/a\.tif have the same name"):
        fastload.pack(tmp_path / "in", tmp_path / "set")


def test_one_depth_for_all(tmp_path: Path) -> None:
    """One deep mask among those looked at makes all fields 16 bits; one that is not looked at is refused."""
    pairs(tmp_path / "in", [f"{i:02}" for i in range(5)])
    write_mask(tmp_path / "in" / "masks" / "04.png", ids_of(4, most=1000))
    (result,) = fastload.pack(tmp_path / "in", tmp_path / "set")
    assert result.manifest.schema["mask"].kind == Mask(16, ignore=65535)
    assert np.array_equal(pixels(PackedFiles(tmp_path / "set"), 4), ids_of(4, most=1000))


def test_said_wrongly(tmp_path: Path) -> None:
    pairs(tmp_path / "in", ["a"])
    with pytest.raises(PackError, match="is not a set of the layout 'pairs'"):
        fastload.pack(tmp_path / "in" / "images", tmp_path / "set", as_="pairs")
    with pytest.raises(PackError, match="'photos' is not one of"):
        fastload.pack(tmp_path / "in", tmp_path / "set", as_="photos")
    with pytest.raises(PackError, match="lies inside the source"):
        fastload.pack(tmp_path / "in", tmp_path / "in" / "set")
    with pytest.raises(PackError, match="masks is for a folder of images"):
        fastload.pack([], tmp_path / "set", masks="x")
    with pytest.raises(PackError, match="is not a folder"):
        fastload.pack(tmp_path / "in" / "images", tmp_path / "set", masks=tmp_path / "none")


def test_a_class_folder_stays_one(tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        write_photo(tmp_path / "in" / name / "a.jpg", 1)
    (result,) = fastload.pack(tmp_path / "in", tmp_path / "set")
    assert result.manifest.is_plain


def test_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pairs(tmp_path, ["x", "y"], "photos", "ids")
    words = ["pack", str(tmp_path / "photos"), str(tmp_path / "set"), "--masks", str(tmp_path / "ids")]
    assert main([*words, "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["dry_run"][0]["schema"] == "image=image, mask=mask"
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["datasets"][0]["records"] == 2


def test_paths_are_kept_as_bytes() -> None:
    names = [b"", b"a/b\xff.jpg", b"", b"c"]
    assert list(Paths(names)) == names
