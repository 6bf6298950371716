"""``fastload.Cache(decoded=...)`` and ``fastload warm --decoded``, together."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from cache_folder import cache_of
from epochs import all_batches, same
from odd_files import ODD_FILES, odd_file
from plain_pack import plain_pack

from fastload import DataLoader, PackedDataset, mix
from fastload import transforms as T
from fastload.cli import main
from fastload.errors import CacheError
from fastload.loader.compared import compared
from fastload.ranks.world import World

CROP = T.Compose([T.RandomResizedCrop(24), T.RandomHorizontalFlip()])


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    blobs = list(ODD_FILES.values()) * 4
    return plain_pack(tmp_path_factory.mktemp("odd"), blobs, range(len(blobs))).folder


def known(folder: Path) -> int:
    return int((PackedDataset(folder).records["width"] > 0).sum())


def loader(data: Any, cache: Any, side: Any = 48, **options: Any) -> DataLoader:
    settings = {"batch_size": 8, "shuffle": True, "seed": 1, "num_workers": 2, "transform": CROP}
    return DataLoader(data, cache=cache_of(cache, decoded=side), **{**settings, **options})


def two_epochs(made: DataLoader) -> tuple[list[Any], dict[str, Any]]:
    with made:
        batches = all_batches(made) + all_batches(made)
    return batches, made.stats()["cache"]


@pytest.mark.parametrize("side", [48, "full"])
@pytest.mark.parametrize("limit", [None, "250kB"])
def test_batches_are_those_without_a_cache(root: Path, odd: Path, side: Any, limit: str | None) -> None:
    expected, off = two_epochs(loader(odd, "off", side))
    assert off == {"tier": f"decoded-{side}", "paths": [], "reason": "switched off"}
    for count in range(2):
        found, stats = two_epochs(loader(odd, limit or root, side))
        assert same(found, expected)
        assert stats["tier"] == f"decoded-{side}"
        assert 0 < stats["room_records"] <= known(odd)
        assert (stats["room_records"] == known(odd)) == (limit is None)
        assert stats["hits"] > 0
        assert stats["ready_records"] == stats["room_records"]
        assert (stats["stored"] == 0) == (count == 1)


def test_operations_before_the_crop_leave_what_is_kept_as_it_is(root: Path, odd: Path) -> None:
    chain = T.Compose([T.RandomRotation(30), T.ColorJitter(0.5, 0.5), CROP])
    expected, _ = two_epochs(loader(odd, "off", transform=chain))
    for _ in range(2):
        found, stats = two_epochs(loader(odd, root, transform=chain))
        assert same(found, expected)
        assert stats["hits"] > 0


def test_auto_makes_one_whatever_the_disk_and_finds_it(root: Path, odd: Path) -> None:
    """The page cache is no substitute for decoded pictures."""
    _, stats = two_epochs(loader(odd, "auto"))
    assert "pictures are kept decoded" in stats["reason"]
    assert stats["stored"] == known(odd)
    _, stats = two_epochs(loader(odd, "auto"))
    assert "using" in stats["reason"]
    assert stats["stored"] == 0
    _, stats = two_epochs(loader(odd, "auto", None))
    assert stats["tier"] == "encoded"
    assert stats["reason"].startswith("no cache: the ")


def test_warm_fills_what_loaders_use(root: Path, odd: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["warm", str(odd), "--decoded", "48", "--json"]) == 0
    [facts] = json.loads(capsys.readouterr().out)["sets"]
    assert facts["put_records"] == known(odd)
    assert facts["path"].endswith("-decoded-48-1.flc")
    expected, _ = two_epochs(loader(odd, "off"))
    found, stats = two_epochs(loader(odd, "auto"))
    assert same(found, expected)
    assert stats["stored"] == 0
    assert stats["ready_records"] == known(odd)
    assert main(["warm", str(odd), "--decoded", "48", "--json", "--to", str(root)]) == 0
    [facts] = json.loads(capsys.readouterr().out)["sets"]
    assert facts["put_records"] == 0
    assert facts["there_records"] == known(odd)


def test_samples_of_different_sizes_are_kept_too(root: Path, odd: Path) -> None:
    transform = T.Compose([T.Resize(30), T.ToDtype("uint8"), lambda image: image.float().mean(dim=(1, 2))])
    expected, _ = two_epochs(loader(odd, "off", transform=transform))
    found, stats = two_epochs(loader(odd, "auto", transform=transform))
    assert same(found, expected)
    assert stats["ready_records"] == stats["stored"] == known(odd)
    again, stats = two_epochs(loader(odd, "auto", transform=transform))
    assert same(again, expected)
    assert stats["stored"] == 0
    assert stats["hits"] >= 2 * known(odd)


@pytest.mark.parametrize("side", ["0", "70000", "half", "-3"])
def test_warm_refuses_other_sides(odd: Path, side: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["warm", str(odd), f"--decoded={side}"]) == 2
    assert "SIDE must be" in capsys.readouterr().err


def test_warm_decoded_is_not_for_the_page_cache(odd: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["warm", str(odd), "--decoded", "48", "--page-cache"]) == 2
    assert "leave out --page-cache" in capsys.readouterr().err


def test_parts_of_a_mix_have_files_of_their_own(root: Path, odd: Path, tmp_path: Path) -> None:
    other = plain_pack(tmp_path, [odd_file(100 + i, 90) for i in range(12)]).folder
    expected, _ = two_epochs(loader(mix([odd, other]), "off"))
    found, stats = two_epochs(loader(mix([odd, other]), root))
    assert same(found, expected)
    assert len(stats["paths"]) == 2
    assert stats["stored"] == known(odd) + 12


def test_memory_plan_and_pickling(root: Path, odd: Path) -> None:
    made = loader(odd, root)
    plan = made.memory_plan()["cache_bytes"]
    batches, stats = two_epochs(made)
    assert stats["bytes"] <= plan <= stats["bytes"] + 2 * 4096
    assert same(two_epochs(pickle.loads(pickle.dumps(loader(odd, root))))[0], batches)


def test_ranks_must_agree_on_it(odd: Path) -> None:
    described = []
    for side, cache in ((None, "off"), (48, "off"), (48, "auto"), ("full", "off")):
        made = loader(odd, cache, side)
        made.close()
        arranged, core = made._loader_plan, made.sampler.core
        parts = made.dataset, len(made.dataset), core, arranged.plan, arranged.options, arranged.order
        described.append(compared(*parts, World(), 0))
    assert described[1] == described[2]  # where pixels come from is each rank's own affair
    assert described[0] != described[1] != described[3]
    assert [one["Cache.decoded"] for one in described] == [None, 48, 48, "full"]


@pytest.mark.parametrize("more", [{}, {"collate_fn": list}, {"collate": "ragged"}])
def test_without_sizes_in_the_index_nothing_has_room(
    root: Path, tmp_path: Path, more: dict[str, Any]
) -> None:
    folder = plain_pack(tmp_path / "set", [b"no picture"] * 4, [0, 1, 0, 1], probe=False).folder
    with (
        loader(folder, root, **more) as made,
        pytest.raises(CacheError, match=r"its index has no sizes .* Leave out Cache\(decoded=\.\.\.\)"),
    ):
        next(iter(made))
