"""fastload.mix: pixels and labels of several packed datasets, exact shares, resume, ranks, bad samples."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from epochs import all_batches, joined, same
from pictures import encoded, jpegs, picture
from plain_pack import plain_pack

import fastload
from fastload import DataLoader, MixedDataset, PackedDataset, Ranks, errors
from fastload import transforms as T

CROP = T.RandomResizedCrop(24)
EVAL = T.Compose([T.Resize(40), T.CenterCrop(32)])


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> list[PackedDataset]:
    """Three datasets of 12, 20 and 8 pictures; the third has its classes in another order, and one more."""
    root = tmp_path_factory.mktemp("parts")
    blobs = jpegs(40)
    return [
        plain_pack(root / "a", blobs[:12], [i % 2 for i in range(12)], ["cat", "dog"]),
        plain_pack(root / "b", blobs[12:32], [i % 2 for i in range(20)], ["cat", "dog"]),
        plain_pack(root / "c", blobs[32:], [i % 3 for i in range(8)], ["dog", "owl", "cat"]),
    ]


def load(dataset: Any, **options: Any) -> DataLoader:
    return DataLoader(
        dataset,
        **{"batch_size": 8, "shuffle": True, "seed": 7, "num_workers": 2, "transform": CROP, **options},
    )


def test_evaluation_is_the_parts_one_after_the_other(parts: list[PackedDataset]) -> None:
    mixed = fastload.mix(parts)
    assert len(mixed) == 40
    images = torch.cat([images for images, _ in DataLoader(mixed, 7, transform=EVAL)])
    alone = [torch.cat([images for images, _ in DataLoader(part, 5, transform=EVAL)]) for part in parts]
    assert torch.equal(images, torch.cat(alone))


def test_labels_follow_class_names(parts: list[PackedDataset]) -> None:
    mixed = fastload.mix(parts)
    assert mixed.classes == ["cat", "dog", "owl"]
    assert mixed.class_to_idx == {"cat": 0, "dog": 1, "owl": 2}
    names = [part.classes[label] for part in parts for label in part.labels]
    assert [mixed.classes[label] for label in mixed.labels] == names
    labels = torch.cat([labels for _, labels in DataLoader(mixed, 7, transform=EVAL)])
    assert labels.tolist() == mixed.labels.tolist() == [mixed.label(i) for i in range(40)]
    assert parts[2].read(3) == mixed.read(35)
    assert mixed.key(35) == "3.img"


def test_shares_are_exact_and_epochs_go_on_through_each_dataset(parts: list[PackedDataset]) -> None:
    """Of 40 samples 10 are a's (12 in all) and 30 b's (20): two epochs go through b three times."""
    mixed = fastload.mix(parts[:2], weights=[1, 3], num_samples=40)
    assert mixed.counts.tolist() == [10, 30]
    loader = load(mixed)
    assert len(loader) == 5
    seen = [int(i) for epoch in (0, 1) for step in range(5) for i in loader.sampler.batch(epoch, 0, step).ids]
    assert [sum(i < 12 for i in seen[:40]), sum(i < 12 for i in seen[40:])] == [10, 10]
    second = [i for i in seen if i >= 12]
    assert all(sorted(second[k : k + 20]) == list(range(12, 32)) for k in (0, 20, 40))
    assert [len(labels) for _, labels in loader] == [8] * 5


def test_without_weights_every_sample_comes_once(parts: list[PackedDataset]) -> None:
    loader = load(fastload.mix(parts), num_workers=3)
    for epoch in range(2):
        ids = [int(i) for step in range(5) for i in loader.sampler.batch(epoch, 0, step).ids]
        assert sorted(ids) == list(range(40))
    assert torch.bincount(torch.cat([y for _, y in loader])).tolist() == [18, 19, 3]


def test_a_sample_that_comes_twice_is_augmented_differently(parts: list[PackedDataset]) -> None:
    loader = load(fastload.mix([parts[0], parts[2]], weights=[1, 4], num_samples=40))
    ids = [int(i) for step in range(5) for i in loader.sampler.batch(0, 0, step).ids]
    images = torch.cat([images for images, _ in loader])
    twice = [k for k, i in enumerate(ids) if i == 15]
    assert len(twice) == 4
    assert len({images[k].numpy().tobytes() for k in twice}) == 4


@pytest.mark.parametrize("threads", [1, 5])
@pytest.mark.parametrize("world", [1, 2, 4])
def test_resume_from_every_step_on_any_number_of_ranks(
    parts: list[PackedDataset], threads: int, world: int
) -> None:
    mixed = fastload.mix(parts, weights=[2, 1, 1], num_samples=48)
    loader = load(mixed)
    states, batches = [loader.state_dict()], []
    for images, labels in loader:
        batches.append((images.clone(), labels.clone()))
        states.append(loader.state_dict())
    assert {tuple(state) for state in states} == {tuple(states[0])}
    for step, state in enumerate(states):
        ranks = [
            load(mixed, batch_size=8 // world, ranks=Ranks(rank, world), num_workers=threads)
            for rank in range(world)
        ]
        for rank in ranks:
            rank.load_state_dict(state)
        assert same(joined([all_batches(rank) for rank in ranks]), batches[step:])


def test_a_state_of_another_mix_is_refused(parts: list[PackedDataset]) -> None:
    state = load(fastload.mix(parts, weights=[2, 1, 1])).state_dict()
    load(fastload.mix([part.folder for part in parts], weights=[4, 2, 2])).load_state_dict(state)
    for other in (fastload.mix(parts), fastload.mix(parts[::-1], weights=[1, 1, 2]), parts[0]):
        with pytest.raises(errors.StateError, match="dataset was"):
            load(other).load_state_dict(state)


def test_a_python_transform_and_bad_samples_know_their_dataset(
    parts: list[PackedDataset], tmp_path: Path
) -> None:
    bad = plain_pack(tmp_path / "bad", [b"\xff\xd8\xff not a JPEG", *jpegs(3)], [0] * 4, ["cat"], probe=False)
    mixed = fastload.mix([parts[0], bad])
    with pytest.raises(errors.SampleError, match=rf"Sample 12 \(key '0.img' in {bad.folder}") as caught:
        all_batches(load(mixed, shuffle=False))
    assert f"fastload verify {bad.folder} --decode" in str(caught.value)
    skipping = load(mixed, shuffle=False, on_error="skip")
    labels = torch.cat([labels for _, labels in skipping])
    assert labels.tolist() == [0, 1] * 6 + [-100, 0, 0, 0]
    assert skipping.errors[0].shard == str(bad.folder / "data.bin")

    def fails(image: torch.Tensor) -> torch.Tensor:
        raise KeyError("nothing")

    with pytest.raises(errors.SampleError, match=r"Sample 0 \(key '0.img' .*raised KeyError"):
        all_batches(load(mixed, shuffle=False, transform=T.Compose([EVAL, fails])))


def test_a_callable_may_do_all_of_the_geometry(parts: list[PackedDataset]) -> None:
    def corner(image: torch.Tensor) -> torch.Tensor:
        return image[:, :20, :20].clone()

    transform = T.Compose([T.ToDtype("uint8"), corner])
    batches = all_batches(load(fastload.mix(parts), shuffle=False, transform=transform))
    alone = [all_batches(load(part, shuffle=False, transform=transform)) for part in parts]
    expected = torch.cat([images for part in alone for images, _ in part])
    assert torch.equal(torch.cat([images for images, _ in batches]), expected)


def test_samplers_choose_among_all_ids(parts: list[PackedDataset]) -> None:
    mixed = fastload.mix(parts)
    loader = load(mixed, shuffle=False, sampler=fastload.SubsetSampler([39, 0, 12], shuffle=False))
    assert torch.cat([labels for _, labels in loader]).tolist() == [mixed.label(i) for i in (39, 0, 12)]


def test_a_mix_pickles(parts: list[PackedDataset]) -> None:
    mixed = pickle.loads(pickle.dumps(fastload.mix(parts, [1, 2, 3], 60)))
    assert isinstance(mixed, MixedDataset)
    assert mixed.counts.tolist() == [10, 20, 30]
    loader = load(mixed)
    next(iter(loader))
    assert same(all_batches(pickle.loads(pickle.dumps(loader))), all_batches(loader))


def test_formats_may_differ_and_labels_may_be_missing(parts: list[PackedDataset], tmp_path: Path) -> None:
    gifs = plain_pack(tmp_path / "gifs", [encoded(picture(i, 50, 40), "GIF") for i in range(3)])
    mixed = fastload.mix([parts[2], gifs])
    labels = torch.cat([labels for _, labels in DataLoader(mixed, 4, transform=EVAL)])
    assert labels.tolist() == [i % 3 for i in range(8)] + [-1] * 3


def test_memory_plan_and_stats(parts: list[PackedDataset]) -> None:
    loader = load(fastload.mix(parts))
    assert loader.memory_plan()["slot_bytes"] == 8 * 3 * 24 * 24 + 2 * 64  # labels, and which are samples
    all_batches(loader)
    assert loader.stats()["samples"] == 40


def test_errors(parts: list[PackedDataset], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least one sample each. Found sizes: \\[\\]"):
        fastload.mix([])
    for other in (parts[0][:3], fastload.mix(parts), 3):
        with pytest.raises(
            TypeError, match=f"Found: {type(other).__name__}. For subsets use a torch ConcatDataset"
        ):
            fastload.mix([parts[0], other])
    for weights in ([1], [1, 0], [1, -1], [1, float("inf")]):
        with pytest.raises(ValueError, match="2 finite numbers > 0"):
            fastload.mix(parts[:2], weights)
    with pytest.raises(ValueError, match="would have no sample in an epoch of 40"):
        fastload.mix(parts, [1, 1e6, 1])
    with pytest.raises(ValueError, match="num_samples must be an integer from 1 to .* Found: 0"):
        fastload.mix(parts, num_samples=0)
    numbers = plain_pack(tmp_path / "numbers", jpegs(2), [4, 5])
    with pytest.raises(ValueError, match="has labels but no class names"):
        fastload.mix([parts[0], numbers])
    assert fastload.mix([numbers, numbers]).labels.tolist() == [4, 5, 4, 5]
    with pytest.raises(ValueError, match="different sizes"):
        next(iter(DataLoader(fastload.mix(parts), 4)))
