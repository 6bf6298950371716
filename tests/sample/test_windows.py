"""Windows of a loader against a slow reference: rows are looked up in Python, pictures decoded alone."""

from __future__ import annotations

import os
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fastload
from fastload import Fields, Windows
from fastload.errors import StateError
from fastload.transforms import Compose, Resize, ToDtype

NIGHTLY = bool(os.environ.get("FASTLOAD_NIGHTLY"))
SIZE = (24, 32)  # height and width in batches
RESIZE = Resize(SIZE)
SCHEMA = {
    "front": "image",
    "wrist": "image",
    "action": "array(float32, (3,))",
    "reward": "float32",
    "done": "bool",
    "episode": "int64",
    "frame": "int32",
    "stamp": "float64",
    "task": "text",
}


@dataclass
class Made:
    """A packed set of runs, and its rows as they were made."""

    folder: Path
    rows: list[dict[str, Any]]
    frames: dict[str, torch.Tensor]  # of each camera, by sample id, as a loader without windows gives them

    def run(self, sample: int) -> list[int]:
        """The sample ids of a sample's run, in order."""
        mine = [at for at, row in enumerate(self.rows) if row["episode"] == self.rows[sample]["episode"]]
        return sorted(mine, key=lambda at: self.rows[at]["frame"])

    def samples(self, batch: dict[str, Any]) -> list[int]:
        """The sample ids of a batch."""
        by_place = {(row["episode"], row["frame"]): at for at, row in enumerate(self.rows)}
        own = zip(batch["episode"].tolist(), batch["frame"].tolist(), strict=True)
        return [by_place[place] for place in own]


def picture(height: int, width: int, number: int) -> np.ndarray:
    pixels = np.random.default_rng(number).integers(0, 256, (4, 4, 3), np.uint8)
    return np.kron(pixels, np.ones((height // 4, width // 4, 1), np.uint8))


def rows_of(
    lengths: list[int], shuffled: bool = False, fps: float = 10.0, first: int = 0
) -> list[dict[str, Any]]:
    """Make rows of runs with these lengths; ``shuffled``: the set does not have them in order; ``first``: the
    number that makes the first row's values."""
    rows: list[dict[str, Any]] = []
    for episode, length in enumerate(lengths):
        for frame in range(length):
            number = first + len(rows)
            row = {
                "front": picture(48, 64, number),
                "wrist": picture(40, 40, number + 10**6),
                "action": np.array([number, -number, number / 2], np.float32),
                "reward": float(number),
                "done": frame == length - 1,
                "episode": episode + 5,
                "frame": frame,
                "stamp": frame / fps,
                "task": f"task {episode}",
            }
            rows.append(row)
    if shuffled:
        random.Random(0).shuffle(rows)
    return rows


def made(folder: Path, rows: list[dict[str, Any]]) -> Made:
    fastload.pack(rows, folder, schema=SCHEMA, runs="episode:frame:stamp")
    plain = list(fastload.DataLoader(folder, batch_size=16, transform=RESIZE, fields=["front", "wrist"]))
    frames = {name: torch.cat([batch[name] for batch in plain]) for name in ("front", "wrist")}
    return Made(folder, rows, frames)


@pytest.fixture(scope="module", params=[False, True], ids=["in order", "shuffled"])
def robots(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Made:
    return made(tmp_path_factory.mktemp("robots") / "set", rows_of([7, 1, 12, 3, 9], request.param))


def expected(of: Made, sample: int, offsets: Any) -> tuple[list[int], list[bool]]:
    """The samples at a window's steps, and which are padding: one by one."""
    run = of.run(sample)
    own = run.index(sample)
    ids, pads = [], []
    for offset in offsets:
        wanted = own + (round(offset * 10) if isinstance(offset, float) else offset)
        ids.append(run[min(max(wanted, 0), len(run) - 1)])
        pads.append(not 0 <= wanted < len(run))
    return ids, pads


def check_batch(of: Made, batch: dict[str, Any], windows: dict[str, Any]) -> list[int]:
    """Compare a batch with the reference; return its samples."""
    samples = of.samples(batch)
    assert samples
    for name, offsets in windows.items():
        pads_of_batch = batch[f"{name}_is_pad"]
        assert pads_of_batch.dtype == torch.bool
        assert batch[name].shape[:2] == pads_of_batch.shape == (len(samples), len(offsets))
        for at, sample in enumerate(samples):
            ids, pads = expected(of, sample, offsets)
            assert pads_of_batch[at].tolist() == pads, (name, sample)
            if name in of.frames:
                wanted = of.frames[name][ids]
            else:
                wanted = torch.from_numpy(np.stack([of.rows[one][name] for one in ids])).to(batch[name].dtype)
            assert torch.equal(batch[name][at], wanted), (name, sample)
    assert batch["task"] == [of.rows[sample]["task"] for sample in samples]
    return samples


WINDOWS: dict[str, Any] = {
    "front": [-0.2, -0.1, 0.0],
    "wrist": [0, 3],
    "action": range(-2, 6),
    "reward": [1.0],
    "done": [-1, 0, 1, 0],
}


def loader_of(of: Made, windows: Any, **more: Any) -> fastload.DataLoader:
    return fastload.DataLoader(of.folder, transform=RESIZE, fields=Fields(windows=windows), **more)


# ---- Rows, pads and pictures ------------------------------------------------------------------------


@pytest.mark.parametrize("batch_size", [1, 5, 64])
@pytest.mark.parametrize("shuffle", [False, True])
def test_every_window_is_that_of_the_reference(robots: Made, batch_size: int, shuffle: bool) -> None:
    loader = loader_of(robots, WINDOWS, batch_size=batch_size, shuffle=shuffle, seed=3)
    assert len(loader) == -(-len(robots.rows) // batch_size)
    seen = [sample for batch in loader for sample in check_batch(robots, batch, WINDOWS)]
    assert sorted(seen) == list(range(len(robots.rows)))


@pytest.mark.parametrize("seed", range(300 if NIGHTLY else 12))
def test_windows_drawn_at_random(robots: Made, seed: int) -> None:
    draw = random.Random(seed)
    windows: dict[str, Any] = {}
    for name in draw.sample(list(WINDOWS), draw.randint(1, 5)):
        offsets: Any = [draw.randint(-9, 9) for _ in range(draw.randint(1, 6))]
        windows[name] = [one / 10 for one in offsets] if draw.random() < 0.5 else offsets
    stride, drop_short = draw.randint(1, 3), draw.random() < 0.3

    def has_window(sample: int) -> bool:
        if robots.rows[sample]["frame"] % stride:
            return False
        return not drop_short or not any(any(expected(robots, sample, one)[1]) for one in windows.values())

    wanted = [sample for sample in range(len(robots.rows)) if has_window(sample)]
    given = Windows(windows, stride=stride, drop_short=drop_short)
    more: dict[str, Any] = {"batch_size": draw.randint(1, 9), "shuffle": draw.random() < 0.5, "seed": seed}
    if not wanted:
        with pytest.raises(ValueError, match="whole window"):
            loader_of(robots, given, **more)
        return
    ranks = draw.randint(1, 3)
    seen: list[int] = []
    for rank in range(ranks):
        own = fastload.Ranks(rank, ranks, handshake="off")
        for batch in loader_of(robots, given, ranks=own, padding="drop", **more):
            if len(batch["episode"]):
                seen += check_batch(robots, batch, windows)
    assert sorted(seen) == wanted


def test_float_pictures_are_those_of_a_loader_without_windows(robots: Made) -> None:
    transform = Compose([RESIZE, ToDtype("float32", scale=True)])
    more: dict[str, Any] = {"batch_size": 8, "transform": transform}
    windowed = fastload.DataLoader(robots.folder, fields=Fields(windows={"front": [-1, 0]}), **more)
    plain = list(fastload.DataLoader(robots.folder, fields=["front"], **more))
    assert len(plain) == 4
    for batch, alone in zip(windowed, plain, strict=True):
        assert batch["front"].dtype == torch.float32
        assert torch.equal(batch["front"][:, 1], alone["front"])


# ---- Order ------------------------------------------------------------------------------------------


def test_a_resumed_loader_goes_on_with_the_same_windows(robots: Made) -> None:
    def make() -> fastload.DataLoader:
        return loader_of(robots, Windows(WINDOWS, stride=2), batch_size=4, shuffle=True, seed=1)

    whole, first = list(make()), make()
    iterator = iter(first)
    begun = [next(iterator), next(iterator)]
    second = make()
    second.load_state_dict(first.state_dict())
    both = [*begun, *second]
    assert len(both) == len(whole)
    for one, other in zip(both, whole, strict=True):
        for name in (*WINDOWS, "episode", "front_is_pad"):
            assert torch.equal(one[name], other[name]), name


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("per_run", [1, 4])
def test_so_many_windows_of_each_run(robots: Made, per_run: int, shuffle: bool) -> None:
    loader = loader_of(
        robots, Windows({"action": [0, 1]}, per_run=per_run), batch_size=4, shuffle=shuffle, seed=1
    )
    lengths: dict[int, int] = {}
    for row in robots.rows:
        lengths[row["episode"]] = lengths.get(row["episode"], 0) + 1
    epochs = []
    for _ in range(3):
        samples = [sample for batch in loader for sample in check_batch(robots, batch, {"action": [0, 1]})]
        assert len(samples) == sum(min(length, per_run) for length in lengths.values())
        for episode, length in lengths.items():
            mine = sorted(
                robots.rows[one]["frame"] for one in samples if robots.rows[one]["episode"] == episode
            )
            count = min(length, per_run)
            parts = [(k * length // count, (k + 1) * length // count) for k in range(count)]
            assert all(low <= frame < high for frame, (low, high) in zip(mine, parts, strict=True))
        epochs.append(samples)
    assert (epochs[0] != epochs[1]) is shuffle


def test_a_subset_has_windows_that_reach_beyond_it(robots: Made) -> None:
    dataset = fastload.PackedDataset(robots.folder)
    some = [3, 9, 20, 21]
    loader = fastload.DataLoader(
        torch.utils.data.Subset(dataset, some),
        batch_size=3,
        transform=RESIZE,
        fields=Fields(windows=WINDOWS),
    )
    assert [one for batch in loader for one in check_batch(robots, batch, WINDOWS)] == some


def test_windows_of_a_mix_stay_in_their_set(tmp_path: Path) -> None:
    # The sets have the same episodes and frames, and other rewards, actions and pictures.
    sets = [
        made(tmp_path / "one", rows_of([4, 6])),
        made(tmp_path / "other", rows_of([4, 6, 2], shuffled=True, first=1000)),
    ]
    mixed = fastload.mix([one.folder for one in sets], weights=[1, 2], num_samples=60)
    windows = {**WINDOWS, "reward": [0]}
    loader = fastload.DataLoader(
        mixed, batch_size=4, shuffle=True, seed=2, transform=RESIZE, fields=Fields(windows=windows)
    )
    counts = [0, 0]
    for batch in loader:
        for at, reward in enumerate(batch["reward"][:, 0].tolist()):
            number = int(reward >= 1000)
            one = {name: value[at : at + 1] for name, value in batch.items()}
            assert len(check_batch(sets[number], one, windows)) == 1
            counts[number] += 1
    assert counts == [20, 40]


@pytest.mark.parametrize("order", ["list", "weights", "batches", "block"])
def test_a_sampler_of_the_whole_set_is_refused_where_samples_are_left_out(robots: Made, order: str) -> None:
    count = len(robots.rows)
    given: dict[str, Any] = {
        "list": {"sampler": [1, 2, 8]},
        "weights": {"sampler": torch.utils.data.WeightedRandomSampler([1.0] * count, 8)},
        "batches": {"batch_sampler": [[1, 2], [3]]},
        "block": {"shuffle": "block"},
    }[order]
    with pytest.raises(ValueError, match="leaves samples out"):
        loader_of(robots, Windows(WINDOWS, stride=2), **given)
    if order != "batches":
        given["batch_size"] = 4
    assert sum(len(check_batch(robots, batch, WINDOWS)) for batch in loader_of(robots, WINDOWS, **given)) >= 3


def test_so_many_of_each_run_do_not_go_with_weights(robots: Made, tmp_path: Path) -> None:
    other = made(tmp_path / "other", rows_of([3, 5]))
    windows = Windows({"action": [0]}, per_run=2)
    weighted = fastload.mix([robots.folder, other.folder], weights=[9, 1], num_samples=40)
    with pytest.raises(ValueError, match="weights and num_samples of a mix"):
        fastload.DataLoader(weighted, 4, transform=RESIZE, fields=Fields(windows=windows))
    whole = fastload.DataLoader(
        fastload.mix([robots.folder, other.folder]), 4, transform=RESIZE, fields=Fields(windows=windows)
    )
    lengths = [7, 1, 12, 3, 9, 3, 5]
    assert sum(len(batch["action"]) for batch in whole) == sum(min(2, length) for length in lengths)


def test_a_state_of_another_order_of_runs_does_not_fit(robots: Made) -> None:
    def make(per_run: int | None) -> fastload.DataLoader:
        windows = Windows({"action": [0]}, per_run=per_run)
        return loader_of(robots, windows, batch_size=2, shuffle=True, seed=1)

    loader = make(2)
    next(iter(loader))
    state = loader.state_dict()
    make(2).load_state_dict(state)
    for other in (3, None):
        with pytest.raises(StateError, match="does not fit"):
            make(other).load_state_dict(state)
