"""Packed datasets as torch Datasets: ImageFolder's samples, indices, copies, torch's own workers."""

from __future__ import annotations

import copy
import io
import pickle
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from epochs import all_batches, same
from picklable import as_array, plus_ten
from pictures import encoded, jpegs, picture
from PIL import Image
from plain_pack import plain_pack
from torch.utils.data import Subset

import fastload
from fastload import DataLoader, PackedDataset, errors
from fastload import transforms as T

LABELS = [i % 5 for i in range(52)]


def pil(data: bytes) -> Image.Image:
    return Image.open(io.BytesIO(data)).convert("RGB")


def test_a_sample_is_what_image_folder_gives(packed: PackedDataset) -> None:
    assert isinstance(packed, torch.utils.data.Dataset)
    for i in range(52):
        image, label = packed[i]
        assert isinstance(image, Image.Image)
        assert image.mode == "RGB"
        assert np.array_equal(image, pil(packed.read(i)))
        assert type(label) is int
        assert label == LABELS[i] == packed.label(i)
    image.putpixel((0, 0), (1, 2, 3))  # it is the caller's own
    assert packed[51][0].getpixel((0, 0)) == pil(packed.read(51)).getpixel((0, 0))


@pytest.mark.parametrize("format", ["PNG", "WEBP", "GIF", "BMP"])
@pytest.mark.parametrize("mode", ["RGB", "L", "P"])
def test_every_format_comes_in_rgb(tmp_path: Path, format: str, mode: str) -> None:
    image = picture(3, 31, 17).convert(mode)
    lossless = {"lossless": True} if format == "WEBP" else {}
    data = encoded(image.convert("RGB") if (format, mode) == ("WEBP", "P") else image, format, **lossless)
    found, label = plain_pack(tmp_path / "set", [data])[0]
    assert (found.mode, found.size, label) == ("RGB", (31, 17), -1)
    assert np.array_equal(found, pil(data))


def test_raw_records_are_pictures_too(tmp_path: Path) -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (6, 4, 3), dtype=np.uint8)
    found, _ = plain_pack(tmp_path / "set", [pixels.tobytes()], raw_size=(6, 4))[0]
    assert np.array_equal(found, pixels)


def test_transforms_are_image_folders(folder: Path) -> None:
    dataset = PackedDataset(folder, as_array, plus_ten)
    image, label = dataset[7]
    assert torch.equal(image, as_array(pil(dataset.read(7))))
    assert label == 12
    dataset.transform = dataset.target_transform = None  # as timm's create_loader sets it
    assert np.array_equal(dataset[7][0], pil(dataset.read(7)))
    assert dataset[7][1] == 2
    assert "transform=" not in repr(dataset)
    assert f"transform={as_array!r}" in repr(PackedDataset(folder, as_array))


@pytest.mark.parametrize("index", [3, -49, np.int64(3), np.uint8(3), torch.tensor(3), torch.tensor([3])])
def test_integers_of_all_kinds(packed: PackedDataset, index: Any) -> None:
    assert np.array_equal(packed[index][0], pil(packed.read(3)))
    assert packed[index][1] == 3


@pytest.mark.parametrize(
    "index",
    [1.0, True, np.bool_(True), np.float32(1), torch.tensor(1.0), torch.tensor(True), "1", None, [1], (0, 1)],
)
def test_what_is_no_integer_is_refused(packed: PackedDataset, index: Any) -> None:
    with pytest.raises(TypeError, match="index must be an integer. Found: "):
        packed[index]
    with pytest.raises(TypeError, match="index must be an integer. Found: "):
        packed.key(index)


@pytest.mark.parametrize("index", [52, -53, 10**30])
def test_an_index_out_of_range_says_so(packed: PackedDataset, index: int) -> None:
    with pytest.raises(IndexError, match=rf"^index {index} is out of range for 52 samples.$"):
        packed[index]


@pytest.mark.parametrize("sample", [52, -1])
@pytest.mark.parametrize("name", ["read", "key", "record", "label"])
def test_sample_ids_out_of_range_say_so(packed: PackedDataset, name: str, sample: int) -> None:
    message = f"Sample id {sample} is out of range for {{}} samples: legal are 0 to {{}}."
    with pytest.raises(IndexError, match=message.format(52, 51)):
        getattr(packed, name)(sample)
    if name != "record":
        with pytest.raises(IndexError, match=message.format(52, 51)):
            getattr(fastload.mix([packed]), name)(sample)


def test_slices_are_subsets(packed: PackedDataset) -> None:
    for part, expected in ((packed[3:20:4], [3, 7, 11, 15, 19]), (packed[-2:], [50, 51]), (packed[60:], [])):
        assert isinstance(part, Subset)
        assert part.dataset is packed
        assert list(part.indices) == expected
    assert [label for _, label in packed[3:20:4]] == [LABELS[i] for i in (3, 7, 11, 15, 19)]


def test_iteration_ends_with_the_last_sample(packed: PackedDataset) -> None:
    assert [label for _, label in packed] == LABELS
    assert packed.__getitems__([4, 0])[0][1] == 4


def test_listings(packed: PackedDataset) -> None:
    assert packed.targets == LABELS
    assert type(packed.targets) is list
    assert type(packed.targets[0]) is int
    assert Counter(packed.targets)[4] == 10
    assert packed.labels.tolist() == LABELS
    assert len(packed.samples) == len(packed.imgs) == 52
    assert packed.samples[-1] == ("51.img", 1) == packed.imgs[51]
    assert packed.samples[1:3] == [("1.img", 1), ("2.img", 2)]
    assert list(packed.samples) == [(f"{i}.img", label) for i, label in enumerate(LABELS)]
    with pytest.raises(IndexError, match="index 52 is out of range for 52 samples"):
        packed.samples[52]
    assert packed.root == str(packed.folder)


def test_targets_share_their_ints(packed: PackedDataset, tmp_path: Path) -> None:
    """A list of 10^7 labels takes 80 MB, not 400."""
    dataset = plain_pack(tmp_path / "set", [bytes(3)] * 4, [70000, 70001, 70000, -1], raw_size=(1, 1))
    assert dataset.targets == [70000, 70001, 70000, -1]
    assert dataset.targets[0] is dataset.targets[2]


def test_a_bad_record_names_shard_and_key(tmp_path: Path) -> None:
    dataset = plain_pack(tmp_path / "set", [*jpegs(2), b"\xff\xd8\xff no JPEG"], probe=False)
    with pytest.raises(
        errors.SampleError, match=rf"Sample 2 \(key '2.img' in {dataset.folder}/data.bin\): "
    ) as caught:
        dataset[-1]
    assert isinstance(caught.value.__cause__, errors.DecodeError)
    assert f"'fastload verify {dataset.folder} --decode'" in str(caught.value)
    assert (caught.value.sample, caught.value.key) == (2, "2.img")
    mixed = fastload.mix([dataset, dataset])
    with pytest.raises(errors.SampleError, match=r"Sample 5 \(key '2.img'"):
        mixed[5]
    blob = (dataset.folder / "data.bin").read_bytes()
    (dataset.folder / "data.bin").write_bytes(bytes([blob[0] ^ 1]) + blob[1:])
    with pytest.raises(errors.SampleError, match=r"Sample 0 \(key '0.img'") as caught:
        PackedDataset(dataset.folder)[0]
    assert isinstance(caught.value.__cause__, errors.ChecksumError)


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_torchs_own_loader_reads_it(folder: Path, start: str) -> None:
    dataset = PackedDataset(folder, as_array, plus_ten)
    loader = torch.utils.data.DataLoader(dataset, 10, num_workers=2, multiprocessing_context=start)
    batches = list(loader)
    assert torch.equal(
        torch.cat([images for images, _ in batches]),
        torch.stack([as_array(pil(dataset.read(i))) for i in range(52)]),
    )
    assert torch.cat([labels for _, labels in batches]).tolist() == [label + 10 for label in LABELS]


@pytest.mark.parametrize("workers", [0, 2])
def test_torchs_own_loader_says_once_that_the_engine_does_not_read(folder: Path, workers: int) -> None:
    code = (
        "import sys, torch\n"
        "from fastload import DataLoader, PackedDataset\n"
        "dataset = PackedDataset(sys.argv[1], transform=len_of)\n"
        "list(DataLoader(dataset, 10, seed=0, num_workers=0))\n"
        "print('ours is through', file=sys.stderr, flush=True)\n"
        "for _ in range(2):\n"
        f"    list(torch.utils.data.DataLoader(dataset, 10, num_workers={workers}))\n"
    ).replace("dataset = ", "len_of = lambda image: image.width\ndataset = ")
    run = subprocess.run(
        [sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=True, cwd=folder
    )
    before, after = run.stderr.split("ours is through")
    assert "torch's DataLoader reads" not in before
    assert after.count("torch's DataLoader reads PackedDataset(") == 1


class Named(PackedDataset):
    """A user's subclass, with an argument and an attribute of its own."""

    def __init__(self, name: str, folder: Path) -> None:
        super().__init__(folder, entries=False)
        self.name = name


def copies(dataset: Any) -> list[Any]:
    return [pickle.loads(pickle.dumps(dataset)), copy.copy(dataset), copy.deepcopy(dataset)]


def test_copies_keep_what_was_set(folder: Path) -> None:
    dataset = Named("mine", folder)
    dataset.transform = as_array
    assert dataset.targets == LABELS
    assert len(pickle.dumps(dataset)) < 2000  # targets and labels are not in it
    for other in copies(dataset):
        assert type(other) is Named
        assert (other.name, other.transform, other.target_transform) == ("mine", as_array, None)
        assert other.entries is None
        assert torch.equal(other[5][0], dataset[5][0])
        assert other.targets == LABELS
        other.transform = None
        assert dataset.transform is as_array


def test_a_set_that_was_packed_anew_is_not_taken_for_the_old_one(tmp_path: Path) -> None:
    pickled = pickle.dumps(plain_pack(tmp_path / "set", jpegs(3)))
    assert len(pickle.loads(pickled)) == 3
    plain_pack(tmp_path / "set", jpegs(2))
    with pytest.raises(errors.FormatError, match="it was packed again"):
        pickle.loads(pickled)


def test_a_mix_gives_pictures_with_joined_labels(packed: PackedDataset, tmp_path: Path) -> None:
    other = plain_pack(tmp_path / "set", jpegs(3), [0, 1, -1], ["e", "f"])
    mixed = fastload.mix([packed, other], transform=as_array, target_transform=plus_ten)
    assert mixed.classes == ["a", "b", "c", "d", "e", "f"]
    assert (
        [mixed.label(i) for i in range(55)] == [*LABELS, 4, 5, -1] == mixed.targets == mixed.labels.tolist()
    )
    for index in (52, -3):
        assert torch.equal(mixed[index][0], as_array(pil(other.read(0))))
        assert mixed[index][1] == 14
    assert mixed.samples[53] == ("1.img", 5)
    assert list(mixed[50:53].indices) == [50, 51, 52]
    for again in copies(mixed):
        assert torch.equal(again[53][0], mixed[53][0])
    with pytest.raises(IndexError, match="index 55 is out of range for 55 samples"):
        mixed[55]


def test_a_mix_does_not_drop_its_parts_transforms(folder: Path) -> None:
    with pytest.raises(ValueError, match="has its own target_transform.*Pass target_transform= to mix"):
        fastload.mix([folder, PackedDataset(folder, target_transform=plus_ten)])


def test_without_pillow_it_says_what_to_install(
    packed: PackedDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(ImportError, match=r'pip install "fastload\[pil\]"'):
        packed[0]


def test_names_are_found_before_torch_is_imported() -> None:
    """By completion and ``dir()``; and the classes of the engine need no torch."""
    code = (
        "import sys, fastload\n"
        "import fastload.dataset.mixture, fastload.shard.dataset, fastload.dataset.decoding\n"
        "assert set(fastload.__all__) <= set(dir(fastload)), dir(fastload)\n"
        "assert 'torch' not in sys.modules\n"
        "from fastload import PackedDataset, MixedDataset, DataLoader, mix\n"
        "assert 'torch' in sys.modules and fastload.PackedDataset is PackedDataset\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parent)


CHAIN = T.Compose([T.RandomResizedCrop(24), T.RandomHorizontalFlip(), T.ToDtype("float32", scale=True)])


def test_the_engine_takes_the_datasets_transform(folder: Path) -> None:
    options = {"batch_size": 8, "shuffle": True, "seed": 3, "num_workers": 2}
    expected = all_batches(DataLoader(folder, transform=CHAIN, **options))
    dataset = PackedDataset(folder)
    dataset.transform = CHAIN  # after it was made, as timm does it
    for own in (dataset, PackedDataset(folder, CHAIN)):
        assert same(all_batches(DataLoader(own, **options)), expected)
    mixed = DataLoader(fastload.mix([folder], transform=CHAIN), **options)
    assert all_batches(mixed)[0][0].dtype == torch.float32
    with pytest.raises(ValueError, match="dataset has a transform and the loader was given one, too"):
        DataLoader(dataset, transform=CHAIN, **options)


def test_fastloads_own_transforms_work_on_single_samples(folder: Path) -> None:
    """As the engine applies them; random ones draw by torch's generator."""
    chain = T.Compose([T.Resize(40), T.CenterCrop(32), T.Normalize((0.5,) * 3, (0.2,) * 3)])
    dataset = PackedDataset(folder, chain)
    images = torch.cat([images for images, _ in DataLoader(folder, 8, transform=chain)])
    assert all(torch.equal(dataset[i][0], images[i]) for i in range(52))
    dataset.transform = T.Compose([T.RandomResizedCrop(24), T.ToDtype("uint8"), torch.clone])
    torch.manual_seed(5)
    first = [dataset[3][0], dataset[3][0]]
    assert not torch.equal(*first)
    assert first[0].shape == (3, 24, 24)
    torch.manual_seed(5)
    assert torch.equal(dataset[3][0], first[0])
    dataset.transform = T.RandomHorizontalFlip(1.0)
    assert torch.equal(dataset[3][0], PackedDataset(folder, T.RandomHorizontalFlip(0.0))[3][0].flip(2))


@pytest.mark.parametrize("name", ["samples", "imgs", "targets", "labels", "class_to_idx"])
def test_what_would_change_nothing_cannot_be_set(folder: Path, name: str) -> None:
    for dataset in (PackedDataset(folder), fastload.mix([folder])):
        before = getattr(dataset, name)
        with pytest.raises(AttributeError, match=f"^{name} of a packed dataset cannot be set.*Subset"):
            setattr(dataset, name, before[:3] if name != "class_to_idx" else {})
