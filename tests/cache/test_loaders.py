"""Each loader has the cache that its own setting says, and lets go of it when it is closed."""

from __future__ import annotations

import gc
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from plain_pack import plain_pack
from torch.utils.data import Subset

import fastload
import fastload.transforms as T
from fastload import Cache, DataLoader, PackedDataset, mix
from fastload.cache.files import inspect
from fastload.cache.folder import PrivateFolder, folder_path
from fastload.cache.policy import cached_sets
from fastload.cli import main
from fastload.errors import StateError

SIDE, COUNT = 32, 200


@pytest.fixture(scope="module")
def blobs() -> list[bytes]:
    rng = np.random.default_rng(0)
    return [rng.integers(0, 256, 3 * SIDE * SIDE, np.uint8).tobytes() for _ in range(COUNT)]


@pytest.fixture
def dataset(tmp_path: Path, blobs: list[bytes]) -> PackedDataset:
    return plain_pack(tmp_path / "set", blobs, range(COUNT), raw_size=(SIDE, SIDE))


def check(loader: DataLoader, blobs: list[bytes]) -> dict[str, Any]:
    """An epoch of a loader over the dataset; its cache's stats."""
    for images, labels in loader:
        for image, label in zip(images, labels.tolist(), strict=True):
            assert image.permute(1, 2, 0).contiguous().numpy().tobytes() == blobs[label]
    found: dict[str, Any] = loader.stats()["cache"]
    return found


def in_use(root: Path) -> list[bool]:
    """Of each cache file, whether a process uses it."""
    with PrivateFolder(root) as folder:
        names = sorted(path.name for path in folder.path.glob("*.flc"))
        return [inspect(folder, name).in_use for name in names]


def is_mapped(root: Path) -> bool:
    return str(root) in Path("/proc/self/maps").read_text()


def test_loaders_on_one_object_have_each_its_own(
    root: Path, dataset: PackedDataset, blobs: list[bytes]
) -> None:
    (root / "other").mkdir()
    settings = {"first": root, "off": "off", "none": None, "other": root / "other", "again": root}
    loaders = {
        name: DataLoader(dataset, 16, shuffle=True, num_workers=2, cache=setting, seed=0)
        for name, setting in settings.items()
    }
    found = {name: check(loader, blobs) for name, loader in loaders.items()}
    for name in ("off", "none"):
        assert found[name] == {"tier": "encoded", "paths": [], "reason": "switched off"}
    for name in ("first", "other"):
        assert found[name]["stored"] == COUNT
        [path] = found[name]["paths"]
        assert Path(path).parent == folder_path(Path(str(settings[name])))
    assert found["again"]["paths"] == found["first"]["paths"]
    assert (found["again"]["stored"], found["again"]["misses"]) == (0, 0)  # its own counts
    assert found["again"]["hits"] >= COUNT
    assert loaders["first"].stats()["cache"]["hits"] < COUNT  # of what the next epoch begins with
    for loader in loaders.values():
        loader.close()


def test_the_last_one_that_is_closed_lets_go_of_the_file(
    root: Path, dataset: PackedDataset, blobs: list[bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    first = DataLoader(dataset, 16, num_workers=1, cache=root)
    second = DataLoader(dataset, 16, num_workers=1, cache=root)
    check(first, blobs)
    batches = iter(second)
    next(batches)
    before = first.stats()["cache"]
    first.close()
    assert in_use(root) == [True]
    for _ in batches:  # it reads on
        pass
    second.close()
    assert in_use(root) == [False]
    assert not is_mapped(root)
    assert main(["cache", "clear"]) == 0
    assert "1 set removed" in capsys.readouterr().out
    assert in_use(root) == []
    # What is closed still says what it did, and the object still reads.
    after = first.stats()["cache"]
    assert [after[name] for name in ("stored", "misses", "paths")] == [COUNT, COUNT, before["paths"]]
    assert first.stats()["threads"]
    assert (dataset.read(3), dataset.label(3)) == (blobs[3], 3)
    with pytest.raises(StateError, match="closed"):
        next(iter(first))
    with DataLoader(dataset, 16, num_workers=1, cache=root) as loader:
        assert check(loader, blobs)["stored"] == COUNT


def of_one(dataset: PackedDataset) -> Any:
    return dataset


def mixed(dataset: PackedDataset) -> Any:
    return mix([dataset, dataset.folder])


def as_array(image: torch.Tensor) -> Any:
    return image.float()


@pytest.mark.parametrize("build", [of_one, mixed])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"decoded": 16},
        {"transform": T.Compose([T.CenterCrop(16), T.ToDtype("uint8"), as_array])},
        {"transform": T.Compose([T.Resize(16), T.ToDtype("uint8"), as_array])},
        {"collate_fn": list},
    ],
    ids=["native", "decoded", "callable", "sizes", "collate"],
)
def test_a_loader_that_is_dropped_lets_go_too(
    root: Path, dataset: PackedDataset, build: Callable[[PackedDataset], Any], options: dict[str, Any]
) -> None:
    data, cache = build(dataset), Cache(folder=root, decoded=options.get("decoded"))
    options = {name: value for name, value in options.items() if name != "decoded"}
    loader = DataLoader(data, 16, shuffle=True, num_workers=2, cache=cache, **options)
    batches = iter(loader)
    kept = next(batches)
    assert any(in_use(root))
    assert is_mapped(root)
    del loader, batches
    gc.collect()
    assert not any(in_use(root))
    assert not is_mapped(root)
    assert len(kept) > 0
    assert dataset.cache is None


def test_a_copy_for_a_worker_has_no_cache(root: Path, dataset: PackedDataset, blobs: list[bytes]) -> None:
    with DataLoader(dataset, 16, num_workers=1, cache=root) as loader:
        check(loader, blobs)
        copy = pickle.loads(pickle.dumps(dataset))
        assert copy.cache is None
        assert (copy.read(5), copy.label(5)) == (blobs[5], 5)
        torch_loader = torch.utils.data.DataLoader(dataset, 50, num_workers=2, collate_fn=list)
        found = [pair for batch in torch_loader for pair in batch]
        pictures = [(dataset[i][0].tobytes(), i) for i in range(COUNT)]
        assert [(picture.tobytes(), label) for picture, label in found] == pictures
        stats = loader.stats()["cache"]
        assert stats["misses"] == COUNT
        assert stats["hits"] < COUNT  # of what the next epoch begins with


def test_subsets_and_concatenations_read_through_the_caches_of_their_folders(
    root: Path, dataset: PackedDataset, blobs: list[bytes], tmp_path: Path
) -> None:
    """Each folder's own; a loader over the whole then finds there what the subset has stored."""
    other = plain_pack(tmp_path / "other", blobs[::-1], range(COUNT - 1, -1, -1), raw_size=(SIDE, SIDE))
    nest = Subset(other, [7, 3, 3]) + mix([dataset, other])[COUNT - 40 : COUNT + 10] + dataset[:20]
    with DataLoader(nest, 16, shuffle=True, num_workers=2, cache=root, seed=0) as loader:
        found = check(loader, blobs)
        assert len(set(found["paths"])) == 2
        assert found["stored"] >= 70  # of the first 40 and 20, of the other 10; two readers may store one
        assert sum(len(labels) for _, labels in loader) == 73
    with DataLoader(dataset, 16, num_workers=2, cache=root) as loader:
        assert check(loader, blobs)["stored"] == COUNT - 60


def test_the_same_samples_in_other_shards_have_files_of_their_own(
    root: Path, blobs: list[bytes], tmp_path: Path
) -> None:
    """A file has places and a copy of the index for one set's shards; the id does not tell sets apart."""
    pictures = [np.frombuffer(blob, np.uint8).reshape(SIDE, SIDE, 3) for blob in blobs]
    samples = [{"image": picture, "label": number} for number, picture in enumerate(pictures)]
    for name, size, form in (("one", 1 << 30, "arrow"), ("many", 100_000, "lmdb")):
        schema = {"image": "image", "label": "label"}
        fastload.pack(samples, tmp_path / name, schema, raw=True, shard_size=size, format=form, num_proc=1)
    sets = [PackedDataset(tmp_path / name) for name in ("one", "many")]
    assert [len(each.manifest.shards) for each in sets] == [1, 7]
    assert sets[0].id == sets[1].id
    loaders = [DataLoader(each, 16, shuffle=True, num_workers=1, cache=root, seed=0) for each in sets]
    found = [[check(loader, blobs) for loader in loaders] for _ in range(2)][1]
    for one, of in zip(found, sets, strict=True):
        assert (one["stored"], one["misses"]) == (COUNT, COUNT)
        assert one["hits"] >= COUNT
        assert [Path(path).name for path in one["paths"]] == [f"{of.manifest.seal}-encoded-1.flc"]
    for loader in loaders:
        loader.close()
    with PrivateFolder(root) as folder:
        assert [each.stale for each in cached_sets(folder)] == ["", ""]
