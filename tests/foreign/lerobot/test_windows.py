"""Windows of packed LeRobot sets against ``LeRobotDataset.__getitem__``, for every sample.

Columns and padding are equal bit for bit. Pictures of packs of quality 100 differ by what JPEG does to
smooth pictures: at most 6 of 255, and on average 1; JPEGs and coefficient records of them alike.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import bare_torchvision  # noqa: F401
import numpy as np
import pytest
import torch
from lerobot.datasets.lerobot_dataset import LeRobotDataset
from lerobot.datasets.v30.convert_dataset_v21_to_v30 import convert_dataset
from lerobot_sets import Made, make_set
from lerobot_written import CAMERAS, FPS, LENGTHS, STILL, TOP, WRIST, write_set
from long_forms import SEED, as_drawn, how_many

import fastload
from fastload.transforms import Compose, ToDtype

# LeRobot's own: statistics of booleans, files that it does not close.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::ResourceWarning")
MOST, MEAN = 6 / 255, 1 / 255  # of a picture's values
FLOATS = Compose([ToDtype("float32", scale=True)])
WINDOWS: dict[str, dict[str, list[float]] | None] = {
    "none": None,
    "as ACT": {"action": [step / FPS for step in range(5)]},
    "as diffusion": {
        **{name: [-0.1, 0.0] for name in (*CAMERAS, "observation.state", "observation.grid")},
        "action": [step / FPS for step in range(-1, 7)],
    },
    "as SmolVLA": {**{name: [0.0] for name in (*CAMERAS, "observation.state")}, "action": [0.0, 0.1]},
    "anything": {
        TOP: [0.3, -0.2, 0.0, 0.0], STILL: [-2.0, 5.0], "next.reward": [0.1, 0.0], "next.done": [0.0, 0.1],
        "flags": [-0.1, 0.2], "fine": [0.1], "count": [-0.3, 0.3], "frame_index": [-0.1, 0.0, 0.1],
        "episode_index": [-0.4, 0.4], "index": [-0.1, 0.1], "timestamp": [0.0], "observation.grid": [0, 0.5],
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The set that LeRobot's own writer makes."""
    return write_set(tmp_path_factory.mktemp("written") / "set")


@pytest.fixture(scope="module", params=["jpeg", "coefficients"])
def packed(request: pytest.FixtureRequest, written: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same set, packed."""
    folder = tmp_path_factory.mktemp("packed") / "set"
    pack(written, folder, coefficients="small" if request.param == "coefficients" else None)
    return folder


def pack(source: Path, folder: Path, **options: Any) -> None:
    fastload.pack(source, folder, as_="lerobot", quality=100, num_proc=1, **options)


def ours_of(folder: Any, windows: Any, **order: Any) -> list[dict[str, Any]]:
    """Every sample as LeRobot's Dataset would give it: from batches of several, the last one short."""
    fields = fastload.Fields(windows=windows)
    found: list[dict[str, Any]] = []
    with fastload.DataLoader(folder, 4, transform=FLOATS, fields=fields, num_workers=2, **order) as loader:
        for batch in loader:
            for number in range(len(batch["index"])):
                found.append({name: values[number] for name, values in batch.items()})
    return found


def check(ours: dict[str, Any], theirs: dict[str, Any], videos: list[str]) -> None:
    """Everything of theirs is there, and equal; ``videos`` have no axis there for a window of one step."""
    assert set(ours) - set(theirs) == {"valid"}
    assert set(theirs) <= set(ours)
    for name, wanted in theirs.items():
        found = ours[name]
        if isinstance(wanted, str):
            assert found == wanted
            continue
        if name in videos and found.ndim == 4 and len(found) == 1:
            found = found[0]
        assert found.shape == wanted.shape, name
        if name in CAMERAS:
            assert found.dtype == wanted.dtype == torch.float32
            far = (found - wanted).abs()
            assert far.max() <= MOST, name
            assert far.mean() <= MEAN, name
        else:
            # LeRobot makes tensors of Python's numbers: any integer is int64, any float float32.
            assert found.dtype == wanted.dtype or (name, found.dtype) in OWN_DTYPES, name
            assert torch.equal(found.to(wanted.dtype), wanted), name


OWN_DTYPES = {("count", torch.int32), ("fine", torch.float64)}


@pytest.mark.parametrize("name", WINDOWS)
def test_each_sample_is_that_of_lerobots_dataset(name: str, written: Path, packed: Path) -> None:
    windows = WINDOWS[name]
    theirs = LeRobotDataset("me/made", root=written, delta_timestamps=windows)
    ours = ours_of(packed, windows)
    assert len(ours) == len(theirs) == sum(LENGTHS)
    for number, found in enumerate(ours):
        check(found, theirs[number], [TOP, WRIST])


FIELDS = (*CAMERAS, "observation.state", "observation.grid", "action", "next.reward", "next.done", "count",
          "fine", "flags", "frame_index", "index")  # fmt: skip


def test_drawn_windows(written: Path, packed: Path) -> None:
    """Any fields, any offsets: 8 draws; 1,000 in the long form (tests/reference/long_forms.py)."""
    draws = how_many(8, 1000)
    assert draws > 0
    for draw in range(draws):
        random = np.random.default_rng([SEED, draw])
        names = random.choice(FIELDS, random.integers(1, 6), replace=False)
        windows = {
            str(name): (random.integers(-11, 12, random.integers(1, 7)) / FPS).tolist() for name in names
        }
        case = as_drawn(f"draw {draw}: {windows}")
        theirs = LeRobotDataset("me/made", root=written, delta_timestamps=windows)
        ours = ours_of(packed, windows, shuffle=True, seed=draw)
        rows = {(int(one["episode_index"]), float(one["timestamp"])): one for one in ours}
        assert len(rows) == len(theirs), case
        for number in range(len(theirs)):
            wanted = theirs[number]
            try:
                check(rows[int(wanted["episode_index"]), float(wanted["timestamp"])], wanted, [TOP, WRIST])
            except AssertionError as error:
                raise AssertionError(f"{case}, row {number}: {error}") from error


def test_neighbours_and_cameras_are_further_apart_than_the_bound(written: Path) -> None:
    """A picture of another row would show."""
    rows = LeRobotDataset("me/made", root=written)
    assert len(rows) == sum(LENGTHS)
    for camera in CAMERAS:
        for number in range(len(rows) - 1):
            far = (rows[number][camera] - rows[number + 1][camera]).abs()
            assert far.mean() > 4 * MEAN, (camera, number)


def test_some_episodes(written: Path, packed: Path) -> None:
    """As the page says it: a Subset of the runs' samples."""
    windows = {"action": [-0.2, 0.0, 0.4], TOP: [-0.1, 0.0]}
    theirs = LeRobotDataset("me/made", root=written, delta_timestamps=windows, episodes=[1, 3])
    dataset = fastload.PackedDataset(packed)
    ours = ours_of(torch.utils.data.Subset(dataset, dataset.runs.ids_in([1, 3])), windows)
    assert len(ours) == len(theirs) == LENGTHS[1] + LENGTHS[3]
    for number, found in enumerate(ours):
        check(found, theirs[number], [TOP, WRIST])


def test_the_statistics_are_those_of_the_packed_folder(written: Path, packed: Path) -> None:
    theirs = LeRobotDataset("me/made", root=written).meta
    from lerobot.datasets.lerobot_dataset import LeRobotDatasetMetadata

    ours = LeRobotDatasetMetadata("me/made", root=packed)
    assert ours.features == theirs.features
    assert ours.stats.keys() == theirs.stats.keys()
    for name, of in theirs.stats.items():
        for kind, values in of.items():
            assert (ours.stats[name][kind] == values).all()
    assert ours.episodes["dataset_to_index"] == theirs.episodes["dataset_to_index"]
    assert ours.tasks.equals(theirs.tasks)


def test_what_lerobot_refuses_is_refused(written: Path, packed: Path) -> None:
    for windows in ({"action": [0.15]}, {"nothing": [0.1]}):
        with pytest.raises(ValueError, match=r"."):
            LeRobotDataset("me/made", root=written, delta_timestamps=windows)[0]
        with pytest.raises(ValueError, match=r"0\.15|nothing"):
            ours_of(packed, windows)
    close = {"action": [0.10009]}
    theirs = LeRobotDataset("me/made", root=written, delta_timestamps=close)
    assert torch.equal(ours_of(packed, close)[3]["action"], theirs[3]["action"])


@pytest.mark.filterwarnings("ignore:Pictures of .* are stretched")
@pytest.mark.parametrize("version", ["v2.1", "v3.0"])
def test_sets_of_both_versions(version: str, tmp_path: Path) -> None:
    """A set of version 2.1 is that of version 3.0 which LeRobot's own converter makes of it."""
    made = Made(version=version)
    root = make_set(tmp_path / "me" / "made", made)
    pack(root, tmp_path / "packed")
    if version == "v2.1":
        convert_dataset("me/made", root=tmp_path, push_to_hub=False)
        pack(root, tmp_path / "converted")
    windows = {"action": [0.0, 0.1], TOP: [-0.1, 0.0]}
    theirs = LeRobotDataset("me/made", root=root, delta_timestamps=windows)
    found = [ours_of(folder, windows) for folder in tmp_path.iterdir() if (folder / "dataset.json").exists()]
    assert len(found) == (2 if version == "v2.1" else 1)
    for ours in found:
        assert len(ours) == len(theirs)
        for number, one in enumerate(ours):
            wanted = theirs[number]
            assert torch.equal(one["action"], wanted["action"])
            assert torch.equal(one["action_is_pad"], wanted["action_is_pad"])
            assert one["task"] == wanted["task"]
            assert (one[TOP] - wanted[TOP]).abs().mean() < 5 / 255  # these pictures have sharp edges
    for a, b in zip(found[0], found[-1], strict=True):
        assert a.keys() == b.keys()
        for name, value in a.items():
            assert torch.equal(value, b[name]) if isinstance(value, torch.Tensor) else value == b[name]
