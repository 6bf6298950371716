"""Windows over sets that grow, sets with dropped samples, and sets in stores; and beside other options."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fault_server import FaultServer

import fastload
from fastload import Fields, Windows
from fastload import transforms as T
from fastload.errors import StateError
from fastload.packing.drop import drop

SCHEMA = {
    "front": "image",
    "action": "array(int16, (2,))",
    "note": "text",
    "episode": "text",
    "stamp": "int64",
}
RUNS = "episode:stamp:stamp@ms"
CHAIN = T.Resize((16, 20))


def row(episode: int, frame: int) -> dict[str, Any]:
    number = 20 * episode + frame
    return {
        "front": np.full((24, 30, 3), number, np.uint8), "action": np.array([number, 0], np.int16),
        "note": f"{number}", "episode": f"run {episode}", "stamp": 100 * frame,
    }  # fmt: skip


def rows(lengths: list[int], start: int = 0) -> list[dict[str, Any]]:
    return [row(episode, frame) for episode, length in enumerate(lengths) for frame in range(start, length)]


def actions(loader: fastload.DataLoader) -> dict[int, tuple[list[int], list[bool]]]:
    """The window and the padding of each sample, by its own number."""
    found = {}
    for batch in loader:
        assert (batch["front"][:, 0, 2] == batch["action"][:, 1, :1, None]).all()  # the number is in blue
        for note, action, pad in zip(batch["note"], batch["action"], batch["action_is_pad"], strict=True):
            found[int(note)] = action[:, 0].tolist(), pad.tolist()
    return found


WINDOWS = {"front": [0], "action": [-1, 0, 1]}


def loader_of(dataset: Any, windows: Any = WINDOWS, **more: Any) -> fastload.DataLoader:
    names = ["front", "action", "note"]
    return fastload.DataLoader(
        dataset, 3, transform=CHAIN, fields=Fields(names, windows=windows), seed=1, **more
    )


def test_runs_go_on_in_samples_that_are_appended(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    fastload.pack(rows([3, 2]), folder, schema=SCHEMA, runs=RUNS)
    before = actions(loader_of(folder))
    assert before[2] == ([1, 2, 2], [False, False, True])
    fastload.pack([row(0, 3), row(0, 4), row(2, 0)], folder, schema=SCHEMA, append=True)
    after = actions(loader_of(folder))
    assert after[2] == ([1, 2, 3], [False, False, False])
    assert after[4] == ([3, 4, 4], [False, False, True])
    assert after[40] == ([40, 40, 40], [True, False, True])
    assert actions(loader_of(fastload.PackedDataset(folder, generation=1))) == before


def test_a_job_goes_on_with_the_runs_of_its_generation(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    fastload.pack(rows([5, 4]), folder, schema=SCHEMA, runs=RUNS)
    first = loader_of(folder, shuffle=True)
    iterator = iter(first)
    begun = [next(iterator)["note"]]
    state = first.state_dict()
    wanted = [*begun, *(batch["note"] for batch in iterator)]
    fastload.pack([row(0, 5), row(1, 4)], folder, schema=SCHEMA, append=True)
    second = loader_of(folder, shuffle=True)
    with pytest.warns(UserWarning, match="goes on with generation 1"):
        second.load_state_dict(state)
    later = list(second)
    assert [*begun, *(batch["note"] for batch in later)] == wanted
    ends = {
        note: action[2, 0].item()
        for batch in later
        for note, action in zip(batch["note"], batch["action"], strict=True)
    }
    assert all(ends.get(last, int(last)) == int(last) for last in ("4", "23"))


def test_two_generations_in_one_job_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    fastload.pack(rows([5, 4]), folder, schema=SCHEMA, runs=RUNS)
    first = loader_of(folder, shuffle=True)
    next(iter(first))
    state = first.state_dict()
    fastload.pack([row(0, 5)], folder, schema=SCHEMA, append=True)
    migrated = fastload.migrate(state, fastload.PackedDataset(folder)).state
    with pytest.raises(StateError, match="Windows are of one generation"):
        loader_of(folder, shuffle=True).load_state_dict(migrated)


def test_dropped_samples_are_in_no_window(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    fastload.pack(rows([7]), folder, schema=SCHEMA, runs=RUNS)
    drop(folder, [2])
    with pytest.warns(
        UserWarning, match="1 of 1 runs have gaps: in episode 'run 0', stamp 100 is followed by"
    ):
        found = actions(loader_of(folder))
    assert found[1] == ([0, 1, 3], [False, False, False])
    assert 2 not in found
    # By time, the row is missing.
    in_seconds = Windows({"front": [0], "action": [-0.1, 0.0, 0.1]}, drop_short=True)
    whole = actions(loader_of(folder, in_seconds))
    assert whole == {4: ([3, 4, 5], [False] * 3), 5: ([4, 5, 6], [False] * 3)}


def test_windows_of_a_set_in_a_store(tmp_path: Path) -> None:
    folder = tmp_path / "robots"
    fastload.pack(rows([6, 1, 4]), folder, schema=SCHEMA, runs=RUNS)
    files = {f"/robots/{path.name}": path.read_bytes() for path in folder.iterdir()}
    here = actions(loader_of(folder, shuffle=True))
    with FaultServer(files) as server:
        assert actions(loader_of(f"{server.url}/robots", shuffle=True)) == here
    assert len(here) == 11


def test_samples_one_by_one_and_valid_rows(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    fastload.pack(rows([4, 1]), folder, schema=SCHEMA, runs=RUNS)
    fields = Fields(["front", "action"], windows=WINDOWS)
    single = list(fastload.DataLoader(folder, None, transform=CHAIN, fields=fields))
    assert [tuple(one["front"].shape) for one in single] == [(1, 3, 16, 20)] * 5
    assert single[0]["action"][:, 0].tolist() == [0, 0, 1]
    assert single[0]["action_is_pad"].tolist() == [True, False, False]
    last = fastload.DataLoader(
        folder, 3, transform=CHAIN, fields=fields, ranks=fastload.Ranks(0, 2, handshake="off")
    )
    (batch,) = list(last)
    assert batch["valid"].tolist() == [True, True, False]
    kept = fastload.valid(batch)
    assert [len(kept[name]) for name in ("front", "action", "action_is_pad")] == [2, 2, 2]


def test_several_views_of_windows(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    fastload.pack(rows([4, 3]), folder, schema=SCHEMA, runs=RUNS)
    views = T.Views(large=T.Resize((16, 20)), small=T.Resize((8, 10)))
    fields = Fields(["front"], windows={"front": [-1, 0]})
    batches = list(fastload.DataLoader(folder, 7, transform=views, fields=fields))
    alone = {
        name: next(iter(fastload.DataLoader(folder, 7, transform=T.Resize(size), fields=fields)))
        for name, size in (("large", (16, 20)), ("small", (8, 10)))
    }
    for name in ("large", "small"):
        assert torch.equal(batches[0][name], alone[name]["front"])
    assert torch.equal(batches[0]["front_is_pad"], alone["large"]["front_is_pad"])


def test_a_loader_with_windows_can_be_reshared(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    fastload.pack(rows([14, 10]), folder, schema=SCHEMA, runs=RUNS)
    whole = actions(loader_of(folder, shuffle=True))
    ranks = [loader_of(folder, shuffle=True, ranks=fastload.Ranks(0, 1, handshake="off"))]
    iterator = iter(ranks[0])
    found = {}
    for batch in [next(iterator), next(iterator)]:
        for note, action in zip(batch["note"], batch["action"], strict=True):
            found[int(note)] = action[:, 0].tolist()
    state = ranks[0].state_dict()
    ranks.append(loader_of(folder, shuffle=True, ranks=fastload.Ranks(1, 2, handshake="off")))
    ranks[0].reshard(rank=0, world_size=2)
    ranks[1].load_state_dict(state)
    for batches in (iterator, iter(ranks[1])):
        for batch in batches:
            for at, is_there in enumerate(batch["valid"].tolist()):
                if is_there:
                    found[int(batch["note"][at])] = batch["action"][at][:, 0].tolist()
    assert found == {note: window for note, (window, _) in whole.items()}


def test_the_loader_explains_its_windows(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    fastload.pack(rows([4]), folder, schema=SCHEMA, runs=RUNS)
    fields = Fields(["front"], windows={"front": [0, 1]})
    loader = fastload.DataLoader(folder, 2, transform=T.DrawEach("frame", T.RandomCrop(8)), fields=fields)
    text = str(loader.explain())
    assert "Windows({'front': [0, 1]})" in text
    assert "drawn for each frame" in text


def test_the_arguments_pickle(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    fastload.pack(rows([4]), folder, schema=SCHEMA, runs=RUNS)
    loader = loader_of(folder, Windows({"action": range(3), "front": [0]}, stride=2))
    again = pickle.loads(pickle.dumps(loader))
    assert actions_only(again) == actions_only(loader) == [[0, 1, 2], [2, 3, 3]]


def actions_only(loader: fastload.DataLoader) -> list[list[int]]:
    return [window for batch in loader for window in batch["action"][..., 0].tolist()]


def test_times_of_float32_are_steady_for_hours(tmp_path: Path) -> None:
    """float32 has steps of a quarter of a millisecond after an hour, more than the tolerance."""
    start = 2 * 3600 * 30
    stamps = (np.arange(start, start + 40) / 30).astype(np.float32)
    made = [{"value": float(at), "episode": 0, "time": float(time)} for at, time in enumerate(stamps)]
    schema = {"value": "float32", "episode": "int64", "time": "float32"}
    assert np.abs(np.diff(stamps.astype(np.float64)) - 1 / 30).max() > 1e-4
    fastload.pack(made, tmp_path / "set", schema=schema, runs="episode:time:time")
    fields = Fields(windows={"value": [-1 / 30, 0.0, 2 / 30]})
    (batch,) = list(fastload.DataLoader(tmp_path / "set", 40, fields=fields))
    rows = np.arange(40)[:, None] + [-1, 0, 2]
    assert batch["value"].tolist() == rows.clip(0, 39).tolist()


def test_a_rate_keeps_the_times_of_rows_that_remain(tmp_path: Path) -> None:
    made = [{"value": float(at), "episode": 0, "frame": at} for at in range(8)]
    schema = {"value": "float32", "episode": "int64", "frame": "int64"}
    fastload.pack(made, tmp_path / "set", schema=schema, runs="episode:frame:10fps")
    drop(tmp_path / "set", [3])
    windows = Windows({"value": [-0.2, 0.0, 0.2]}, drop_short=True)
    (batch,) = list(fastload.DataLoader(tmp_path / "set", 8, fields=Fields(windows=windows)))
    assert batch["value"].tolist() == [[0, 2, 4], [2, 4, 6]]


def test_ids_of_some_runs(tmp_path: Path) -> None:
    fastload.pack(rows([3, 2, 4]), tmp_path / "set", schema=SCHEMA, runs=RUNS)
    dataset = fastload.PackedDataset(tmp_path / "set")
    assert dataset.runs is not None
    some = dataset.runs.ids_in([2, 0])
    assert some.tolist() == [5, 6, 7, 8, 0, 1, 2]
    assert dataset.runs.ids_in([]).tolist() == []
    found = actions(loader_of(torch.utils.data.Subset(dataset, some.tolist())))
    assert sorted(found) == [0, 1, 2, 40, 41, 42, 43]
