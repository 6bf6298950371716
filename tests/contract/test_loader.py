"""The DataLoader's contract: torch's names, lazy iteration, shapes and dtypes, exact evaluation."""

from __future__ import annotations

import copy
import gc
import inspect
import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from epochs import all_batches, same
from pictures import encoded, jpegs, picture
from plain_pack import plain_pack
from process import left_over, settled, tasks

from fastload import DataLoader, PackedDataset, Ranks, errors
from fastload import transforms as T
from fastload.backends import options

CROP = T.RandomResizedCrop(24)
EVAL = T.Compose([T.Resize(40), T.CenterCrop(32)])


def test_has_all_of_torchs_parameters_in_torchs_order() -> None:
    theirs = list(inspect.signature(torch.utils.data.DataLoader.__init__).parameters)
    ours = list(inspect.signature(DataLoader.__init__).parameters)
    assert ours[: len(theirs)] == theirs


def test_shapes_dtypes_and_layout(folder: Path) -> None:
    for dtype in ("uint8", "float16", "bfloat16", "float32"):
        images, labels = next(
            iter(DataLoader(folder, 5, transform=T.Compose([CROP, T.ToDtype(dtype, scale=dtype != "uint8")])))
        )
        assert images.shape == (5, 3, 24, 24)
        assert images.dtype == getattr(torch, dtype)
        assert images.is_contiguous(memory_format=torch.channels_last)
        assert labels.dtype == torch.int64
        assert labels.tolist() == [0, 1, 2, 3, 4]


def test_length_is_batches_of_this_rank(folder: Path) -> None:
    assert len(DataLoader(folder, 8, transform=CROP)) == 7
    assert len(DataLoader(folder, 8, drop_last=True, transform=CROP)) == 6
    assert len(DataLoader(folder, 8, transform=CROP, ranks=Ranks(0, 3))) == 3
    assert len(all_batches(DataLoader(folder, 8, transform=CROP))) == 7


def test_iter_is_lazy_and_starts_nothing(folder: Path) -> None:
    gc.collect()
    before = tasks()
    loader = DataLoader(folder, 4, num_workers=3, transform=CROP)
    iter(loader)
    iterator = iter(loader)
    assert left_over(before) == set()
    next(iterator)
    assert len(tasks().keys() - before) == 3 + 1  # one looks whether records are in memory
    loader.close()
    assert left_over(before) == set()


def test_an_unstarted_iterator_costs_no_epoch(folder: Path) -> None:
    loader, other = (DataLoader(folder, 8, shuffle=True, seed=0, transform=CROP) for _ in range(2))
    iter(loader)
    iter(loader)
    assert same(all_batches(loader), all_batches(other))


def test_a_new_iteration_leaves_the_one_before_as_it_is(folder: Path) -> None:
    loader, other = (DataLoader(folder, 8, shuffle=True, seed=3, transform=CROP) for _ in range(2))
    expected = [all_batches(other), all_batches(other)]
    first = iter(loader)
    begun = all_batches([next(first)])
    second = iter(loader)
    begun_second = all_batches([next(second)])
    assert same(begun + all_batches(first), expected[0])
    assert same(begun_second + all_batches(second), expected[1])


def test_exact_evaluation_marks_padding(folder: Path) -> None:
    """Every sample exactly once over three ranks, batches of equal size, padding has label -100."""
    ranks = [all_batches(DataLoader(folder, 8, transform=EVAL, ranks=Ranks(r, 3))) for r in range(3)]
    for step in zip(*ranks, strict=True):
        assert len({images.shape for images, _ in step}) == 1
    labels = torch.cat([labels for rank in ranks for _, labels in rank])
    assert (labels == -100).sum() == 2
    assert torch.bincount(labels[labels >= 0]).tolist() == [11, 11, 10, 10, 10]
    padded = [
        images[i]
        for rank in ranks
        for images, labels in rank
        for i in range(len(labels))
        if labels[i] == -100
    ]
    assert all(not image.any() for image in padded)
    loss = torch.nn.functional.cross_entropy(torch.zeros(len(labels), 5), labels, reduction="sum")
    assert torch.isclose(loss, 52 * torch.log(torch.tensor(5.0)))


def test_training_pads_with_real_samples(folder: Path) -> None:
    ranks = [
        all_batches(DataLoader(folder, 8, True, transform=CROP, ranks=Ranks(r, 3), seed=0)) for r in range(3)
    ]
    labels = torch.cat([labels for rank in ranks for _, labels in rank])
    assert len(labels) == 54
    assert (labels >= 0).all()


def test_user_sampler(folder: Path) -> None:
    loader = DataLoader(
        folder, 4, sampler=torch.utils.data.SubsetRandomSampler([3, 8, 13, 18, 23]), transform=EVAL
    )
    labels = torch.cat([labels for _, labels in loader])
    assert labels.tolist() == [3] * 5
    batches = DataLoader(folder, batch_sampler=[[0, 5], [1], [2, 7, 12]], transform=EVAL)
    assert [labels.tolist() for _, labels in batches] == [[0, 0], [1], [2, 2, 2]]
    assert len(batches) == 3


def test_repeated_draws_of_a_sample_are_augmented_differently(folder: Path) -> None:
    images, _ = next(iter(DataLoader(folder, 4, sampler=[9, 9, 9, 9], transform=CROP)))
    assert len({image.numpy().tobytes() for image in images}) == 4


def test_no_transform_needs_equal_sizes(tmp_path: Path) -> None:
    digits = [np.full((28, 28, 3), i, np.uint8).tobytes() for i in range(10)]
    dataset = plain_pack(tmp_path / "raw", digits, list(range(10)), raw_size=(28, 28))
    images, labels = next(iter(DataLoader(dataset, 10)))
    assert images.shape == (10, 3, 28, 28)
    assert torch.equal(images[:, 0, 5, 5].long(), labels)
    mixed = plain_pack(tmp_path / "mixed", jpegs(4), [0] * 4)
    with pytest.raises(errors.SampleError, match="add Resize, CenterCrop or RandomResizedCrop"):
        next(iter(DataLoader(mixed, 4)))
    with pytest.raises(ValueError, match="Add CenterCrop"):
        next(iter(DataLoader(mixed, 4, transform=T.Resize(20))))


def test_a_python_callable_runs_after_the_native_part(folder: Path) -> None:
    def brightest(image: torch.Tensor) -> torch.Tensor:
        assert image.dtype == torch.uint8
        return image.amax(dim=0, keepdim=True).float()

    native = all_batches(DataLoader(folder, 8, True, transform=CROP, seed=0))
    transform = T.Compose([CROP, T.ToDtype("uint8"), brightest])
    python = all_batches(DataLoader(folder, 8, True, transform=transform, seed=0))
    assert same([(images.amax(dim=1, keepdim=True).float(), labels) for images, labels in native], python)


def test_a_python_callable_may_do_all_of_the_geometry(folder: Path) -> None:
    def corner(image: torch.Tensor) -> torch.Tensor:
        return image[:, :20, :20].clone()

    transform = T.Compose([T.ToDtype("uint8"), corner])
    batches = all_batches(DataLoader(folder, 8, transform=transform))
    assert [images.shape[1:] for images, _ in batches] == [(3, 20, 20)] * 7
    assert torch.cat([labels for _, labels in batches]).tolist() == [i % 5 for i in range(52)]
    ranks = [
        all_batches(DataLoader(folder, 8, transform=transform, ranks=Ranks(r, 3), seed=0)) for r in range(3)
    ]
    assert sum(int((labels == -100).sum()) for rank in ranks for _, labels in rank) == 2


def test_a_callables_generator_depends_on_the_sample_only(folder: Path) -> None:
    def noise(image: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        return torch.rand(2, generator=generator)

    def values(threads: int) -> list[Any]:
        return all_batches(
            DataLoader(folder, 4, True, num_workers=threads, transform=T.Compose([CROP, noise]), seed=0)
        )

    assert same(values(1), values(4))
    flat = torch.cat([images for images, _ in values(1)])
    assert len(flat.unique()) == flat.numel()


def test_collate_fn_gets_the_samples(folder: Path) -> None:
    def collate(samples: list[Any]) -> dict[str, Any]:
        return {"pixels": torch.stack([image for image, _ in samples]), "y": [label for _, label in samples]}

    batch = next(iter(DataLoader(folder, 6, transform=EVAL, collate_fn=collate)))
    images, labels = next(iter(DataLoader(folder, 6, transform=EVAL)))
    assert torch.equal(batch["pixels"], images)
    assert batch["y"] == labels.tolist()


def test_an_error_in_a_callable_names_the_sample(folder: Path) -> None:
    def fails(image: torch.Tensor) -> torch.Tensor:
        raise KeyError("nothing")

    with pytest.raises(errors.SampleError, match=r"Sample 0 \(key '0.img' .*raised KeyError"):
        next(iter(DataLoader(folder, 4, transform=T.Compose([EVAL, fails]))))


@pytest.mark.parametrize("copied", [lambda one: pickle.loads(pickle.dumps(one)), copy.copy, copy.deepcopy])
def test_a_copy_begins_where_a_new_iteration_would(folder: Path, copied: Any) -> None:
    """Somebody has looked at a batch before mp.spawn gets the loader: the copy's first epoch is whole."""
    loader = DataLoader(PackedDataset(folder), 8, shuffle=True, transform=CROP)
    next(iter(loader))
    other = copied(loader)
    assert sum(len(labels) for _, labels in other) == 52
    other = copied(loader)
    assert same(all_batches(other), all_batches(loader))


def test_a_copy_of_a_resumed_loader_goes_on_with_it(folder: Path) -> None:
    loader = DataLoader(folder, 8, shuffle=True, transform=CROP, seed=1)
    iterator = iter(loader)
    next(iterator)
    resumed = DataLoader(folder, 8, shuffle=True, transform=CROP, seed=1)
    resumed.load_state_dict(loader.state_dict())
    assert same(all_batches(pickle.loads(pickle.dumps(resumed))), all_batches(iterator))


def test_memory_plan(folder: Path) -> None:
    plan = DataLoader(
        folder, 8, transform=T.Compose([CROP, T.Normalize((0.5,) * 3, (0.2,) * 3)])
    ).memory_plan()
    assert plan["slot_bytes"] == 8 * 3 * 24 * 24 * 4 + 2 * 64  # labels, and which positions are samples
    assert plan["total"] == plan["slots"] * plan["slot_bytes"] + plan["read_ahead_bytes"]


@pytest.mark.parametrize(
    ("threads", "batch_size", "ahead"),
    [(1, 64, 2), (2, 128, 2), (8, 128, 4), (8, 16, 8), (3, 64, 3), (2, 1, 8)],
)
def test_prefetch_by_threads_and_batch_size(folder: Path, threads: int, batch_size: int, ahead: int) -> None:
    def slots(**options: Any) -> int:
        loader = DataLoader(folder, batch_size, num_workers=threads, transform=CROP, **options)
        return loader.memory_plan()["slots"]

    assert slots() == slots(prefetch_factor=ahead) == slots(prefetch_factor=1) + ahead - 1


def test_stats_count_samples_stages_and_waiting(folder: Path) -> None:
    loader = DataLoader(folder, 8, num_workers=2, transform=CROP)
    all_batches(loader)
    stats = loader.stats()
    assert stats["threads"] == 2
    assert stats["data_wait"]["count"] == 7
    assert stats["samples"] == 52
    assert 0 < stats["data_wait"]["share"] <= 1
    assert stats["decoded"]["jpeg"] >= 52
    assert all(stats["stages"][stage]["seconds"] > 0 for stage in ("shard", "decode", "transform"))
    assert stats["first_batch_seconds"] > 0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"batch_size": 0}, "batch_size must be >= 1. Found: 0"),
        ({"num_workers": -1}, "num_workers must be >= 0. Found: -1"),
        ({"prefetch_factor": 0}, "prefetch_factor must be >= 1. Found: 0"),
        ({"seed": -1}, r"seed must be in \[0, 2\*\*64\). Found: -1"),
        ({"on_error": "ignore"}, "on_error must be one of raise, skip, replace. Found: 'ignore'"),
        ({"padding": "x"}, "padding must be one of mark, repeat, end, drop. Found: 'x'"),
        ({"shuffle": 3}, "shuffle must be True, False, 'block' or fastload.Block"),
        ({"batch_sampler": [[0]], "shuffle": True}, "batch_sampler excludes"),
        ({"sampler": [0], "shuffle": True}, "exclude each other"),
    ],
)
def test_options_out_of_range(folder: Path, given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DataLoader(folder, **given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"num_workers": "4"}, "num_workers must be an integer. Found: '4'"),
        ({"num_workers": 2.5}, "num_workers must be an integer. Found: 2.5"),
        ({"batch_size": 1.5}, "batch_size must be an integer. Found: 1.5"),
        ({"drop_last": "yes"}, "drop_last must be True or False. Found: 'yes'"),
        ({"sampler": 5}, "sampler must be an iterable of sample ids. Found: 5"),
        ({"batch_sampler": 5}, "batch_sampler must be an iterable of lists of sample ids. Found: 5"),
        ({"generator": 5}, "generator must be a torch.Generator. Found: 5"),
        ({"collate_fn": 5}, "collate_fn must be callable. Found: 5"),
        ({"dataset": 5}, "dataset must be a folder made by 'fastload pack'.*Found: 5"),
        ({"dataset": None}, "dataset must be a folder made by 'fastload pack'.*Found: None"),
    ],
)
def test_arguments_of_the_wrong_type(folder: Path, given: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        DataLoader(**{"dataset": folder, **given})


def test_epochs_are_integers(folder: Path) -> None:
    loader = DataLoader(folder, transform=CROP, seed=0)
    for wrong in ("a", 1.5):
        with pytest.raises(TypeError, match="epoch must be an integer"):
            loader.set_epoch(wrong)  # type: ignore[arg-type]
    loader.set_epoch(np.int64(3))  # type: ignore[arg-type]
    assert loader.sampler.epoch == 3


def test_ignored_options_warn_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "_warned", set())
    with pytest.warns(UserWarning, match="ignores worker_init_fn"):
        DataLoader(folder, worker_init_fn=print)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        DataLoader(folder, worker_init_fn=print)


def test_a_folder_that_is_not_packed(tmp_path: Path) -> None:
    with pytest.raises(errors.FormatError, match="fastload pack"):
        DataLoader(tmp_path)


def test_formats_of_all_kinds_in_one_batch(tmp_path: Path) -> None:
    image = picture(1, 40, 30)
    blobs = [encoded(image, fmt) for fmt in ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF")]
    loader = DataLoader(plain_pack(tmp_path, blobs, range(6)), 6, transform=T.CenterCrop(30))
    images, labels = next(iter(loader))
    assert labels.tolist() == list(range(6))
    exact = torch.from_numpy(np.asarray(image)[:, 5:35].copy()).permute(2, 0, 1)
    for i in (1, 3, 5):
        assert torch.equal(images[i], exact)
    for i in (0, 2, 4):
        assert (images[i].float() - exact.float()).abs().mean() < 12

    def counts() -> list[int]:
        decoded = loader.stats()["decoded"]
        return [decoded[path] for path in ("jpeg", "png", "webp", "pil")]

    def are_even() -> bool:
        first, *others = counts()
        return first > 0 and others == [first, first, 3 * first]

    assert settled(are_even, True), counts()  # the next epochs' batches are in work
