"""Batches of any fields on a simulated device that runs everything as late, and as early, as it may."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from field_sets import RICH, rich_samples, write_field_set
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pictures import encoded
from PIL import Image as PilImage
from plain_pack import plain_pack
from reused import EQUAL, FLOATS, NORMALIZED, REUSED, impossible, places, tensors, write_deep_set
from simulated_gpu import SimulatedGpu

import fastload
from fastload import DataLoader, Device, Fields, PackedDataset, PackingSampler, Patches, Ragged, Ranks
from fastload import transforms as T

COUNT, BATCH = 31, 4
Make = Callable[..., DataLoader]
MEASURED: dict[str, Any] = {
    "fields": ["caption", "image", "boxes", "mask", "track", "label", "notes"],
    "transform": T.Compose([T.Resize(14)]),
}
CASES: dict[str, dict[str, Any]] = {
    "equal": EQUAL,
    "uint8": {**EQUAL, "transform": T.Compose([T.RandomResizedCrop(16)])},
    "rows": {**MEASURED, "transform": FLOATS},
    "padded": {**MEASURED, "collate": "pad"},
    "padded floats": {**MEASURED, "collate": "pad", "transform": T.Compose([T.Resize(14), *NORMALIZED])},
    "listed": {**MEASURED, "collate": "ragged"},
    "listed floats": {**MEASURED, "collate": "ragged", "transform": T.Compose([*NORMALIZED])},
    # Not measured, or measured and yet of one size: through the ring.
    "scaled": {**EQUAL, "transform": T.Compose([T.RandomResizedCrop(16), NORMALIZED[0]])},
    "sized": REUSED["padded to a size"],
    "viewed": REUSED["views"],
    "no pictures": {"fields": ["label", "weight", "boxes", "caption"]},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_field_set(tmp_path_factory.mktemp("moved") / "set", RICH, rich_samples(COUNT))


def parts(value: Any) -> Iterator[Any]:
    """The tensors of a batch, and what is none."""
    if isinstance(value, Ragged):
        yield from (value.values, value.offsets)
    elif isinstance(value, list) and value and isinstance(value[0], torch.Tensor):
        yield from value
    else:
        yield value


def close(found: Any, wanted: Any) -> bool:
    pairs = list(zip(parts(found), parts(wanted), strict=True))
    assert pairs
    for one, other in pairs:
        if not isinstance(other, torch.Tensor):
            if one != other:
                return False
        elif (
            one.dtype != other.dtype
            or one.shape != other.shape
            or (one.numel() and float((one.double() - other.double()).abs().max()) > 2.0**-21)
        ):
            return False
    return True


def same(found: dict[str, Any], wanted: dict[str, Any]) -> bool:
    assert found.keys() == wanted.keys()
    return all(close(found[name], wanted[name]) for name in wanted)


def on_the_host(folder: Path, epochs: int = 2, **options: Any) -> list[list[dict[str, Any]]]:
    with DataLoader(folder, BATCH, seed=2, shuffle=True, num_workers=1, **options) as loader:
        return [list(loader) for _ in range(epochs)]


def run(gpu: SimulatedGpu, loader: DataLoader, wanted: list[list[dict[str, Any]]]) -> int:
    """How many batches were wrong, when they were used or when they were looked at again at the end."""
    wrong: list[int] = []
    kept: list[tuple[Any, Any]] = []

    def compare(found: Any, expected: Any) -> None:
        if not same(found, expected):
            wrong.append(1)

    for batches in wanted:
        iterator = iter(loader)
        for batch in batches:
            with gpu.using(gpu.random.choice(gpu.user_streams)):
                found = next(iterator)
                gpu.kernel(lambda found=found, batch=batch: compare(found, batch))  # type: ignore[misc]
            if gpu.random.random() < 0.4:
                kept.append((found, batch))
        assert next(iterator, None) is None
    gpu.synchronize()
    for found, batch in kept:
        compare(found, batch)
    loader.close()
    assert gpu.failures == []
    assert gpu.pinned == {}
    return len(wrong)


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.integers(0, 10**6),
    st.sampled_from([0.0, 0.1, 0.5, 0.9]),
    st.integers(1, 4),
    st.sampled_from(list(CASES)),
)
def test_every_batch_arrives_whole(
    folder: Path, on: Make, seed: int, eagerness: float, ahead: int, case: str
) -> None:
    wanted = on_the_host(folder, **CASES[case])
    gpu = SimulatedGpu(seed, eagerness)
    loader = on(gpu, folder, BATCH, shuffle=True, prefetch_factor=ahead, **{**CASES[case], "seed": 2})
    assert run(gpu, loader, wanted) == 0


@pytest.mark.parametrize(
    ("broken", "case"),
    # Memory from the pool is given out again when nobody holds it, whatever events say.
    [("early_reuse", "equal"), *product(["consumer_wait", "copy_wait"], ["equal", "rows", "listed"])],
)
def test_the_simulation_notices(folder: Path, on: Make, broken: str, case: str) -> None:
    """With a wait left out, or a slot reused before its copy is done, wrong bytes arrive."""
    wanted, wrong = on_the_host(folder, **CASES[case]), 0
    for seed in range(12):
        gpu = SimulatedGpu(seed, 0.3, broken)
        loader = on(gpu, folder, BATCH, shuffle=True, prefetch_factor=1, **{**CASES[case], "seed": 2})
        wrong += bool(run(gpu, loader, wanted))
    assert wrong >= 3


@pytest.mark.parametrize("case", ["equal", "rows"])
def test_copies_are_ahead_of_the_consumer(folder: Path, on: Make, case: str) -> None:
    gpu = SimulatedGpu(0, eagerness=1.0)
    loader = on(gpu, folder, BATCH, prefetch_factor=3, **CASES[case])
    iterator = iter(loader)
    for done in range(1, 9):
        next(iterator)
        while len(loader._epochs.backend._pipeline._flights) < 2:
            loader._epochs.backend._pipeline.look_ahead()  # as a later next() would, once decoding is done
        assert loader.stats()["stages"]["transfer"]["count"] == done + 2
    loader.close()


def test_pixels_of_8_bits_cross_as_bytes(folder: Path, on: Make) -> None:
    """Those of gray pictures, too; and a ring of exactly the planned bytes is pinned."""
    gpu = SimulatedGpu(0)
    loader = on(gpu, folder, BATCH, **EQUAL)
    plan = loader.memory_plan()
    assert gpu.most_pinned == 0
    batch = next(iter(loader))
    assert batch["image"].dtype == batch["second"].dtype == torch.float32
    stats = loader.stats()["stages"]["transfer"]
    assert gpu.most_pinned == plan["pinned_bytes"] == stats["pinned_bytes"]
    assert stats["host_copies"] == 0
    pixels = BATCH * 16 * 16 * (3 + 1 + 1)  # image, mask, gray picture
    assert stats["count"] * pixels < stats["bytes"] <= stats["count"] * (pixels + 6 * 64 + 8 * 64)
    assert plan["batch_bytes"] > BATCH * 16 * 16 * (4 * 3 + 1 + 4 * 1)
    loader.close()
    assert gpu.pinned == {}


def test_pictures_of_16_bits_cross_as_they_are_delivered(tmp_path: Path, on: Make) -> None:
    folder = write_deep_set(tmp_path / "set")
    wanted = on_the_host(folder, transform=FLOATS)
    gpu = SimulatedGpu(1)
    assert run(gpu, on(gpu, folder, BATCH, shuffle=True, transform=FLOATS, seed=2), wanted) == 0
    assert gpu.copied_bytes > 4 * 8 * 16 * 16 * 4
    crop = T.RandomResizedCrop(16)
    gpu = SimulatedGpu(1)
    with on(gpu, folder, BATCH, device=Device(memory="poison"), transform=crop) as loader:
        first, second = loader
        gpu.synchronize()
    assert {one.dtype.itemsize for one in tensors(first).values()} == {1, second["deep"].dtype.itemsize}
    assert all(map(impossible, tensors(first).values()))
    assert not any(map(impossible, tensors(second).values()))


def test_measured_batches_stay_within_the_plan(folder: Path, on: Make) -> None:
    gpu = SimulatedGpu(0)
    loader = on(gpu, folder, BATCH, **CASES["listed"])
    plan = loader.memory_plan()
    list(loader)
    slots = loader._epochs.backend._pipeline._slots
    assert 0 < sum(slot.bytes.nbytes for slot in slots) <= plan["device_bytes"]
    loader.close()


@pytest.mark.parametrize("case", ["equal", "rows"])
def test_breaking_and_jumping(folder: Path, on: Make, case: str) -> None:
    """Iterations that end anywhere, epochs that are set: what is under way is dropped, slots come back."""
    plain = DataLoader(folder, BATCH, shuffle=True, num_workers=1, seed=0, **CASES[case])
    for seed in range(4):
        gpu = SimulatedGpu(seed, 0.2)
        loader = on(gpu, folder, BATCH, shuffle=True, **CASES[case])
        for _ in range(8):
            epoch, length = gpu.random.randrange(5), gpu.random.randrange(7)
            plain.set_epoch(epoch)
            loader.set_epoch(epoch)
            for found, wanted, _ in zip(loader, plain, range(length), strict=False):
                gpu.synchronize()
                assert same(found, wanted)
        loader.close()
        assert gpu.pinned == {}


@pytest.mark.parametrize("case", CASES)
def test_bad_samples_are_replaced_or_skipped(folder: Path, tmp_path: Path, on: Make, case: str) -> None:
    samples = rich_samples(COUNT)
    samples[6] = {**samples[6], "mask": b"not a picture"}
    bad = write_field_set(tmp_path / "bad", RICH, samples)
    for policy in ("skip", "replace"):
        wanted = on_the_host(bad, on_error=policy, **CASES[case])
        gpu = SimulatedGpu(3, 0.4)
        loader = on(gpu, bad, BATCH, shuffle=True, on_error=policy, **{**CASES[case], "seed": 2})
        assert run(gpu, loader, wanted) == 0


def test_batches_of_a_batch_sampler_may_have_any_size(tiny: PackedDataset, folder: Path, on: Make) -> None:
    """The loader does not know the largest one before it comes."""
    order = [[5, 4, 3], [1], [7, 0, 2, 6, 8, 9], [10, 11], [12]] * 3
    for dataset, options in ((tiny, {"transform": NORMALIZED[1]}), (folder, EQUAL), (folder, CASES["rows"])):
        options = {"batch_sampler": order, "seed": 0, **options}
        wanted = list(DataLoader(dataset, **options))
        for seed in range(3):
            gpu = SimulatedGpu(seed, 0.5)
            loader = on(gpu, dataset, 1, prefetch_factor=4, **options)
            kept = list(loader)
            gpu.synchronize()
            for found, batch in zip(kept, wanted, strict=True):
                if isinstance(batch, dict):
                    assert same(found, batch)
                else:
                    assert all(close(one, other) for one, other in zip(found, batch, strict=True))
            loader.close()
            assert gpu.failures == []


def test_batches_of_packs(folder: Path, on: Make) -> None:
    """Where packs begin is on the device, too."""
    packing = PackingSampler([10 + 7 * (number % 5) for number in range(COUNT)], 60)
    for options in (EQUAL, CASES["rows"]):
        options = {"sampler": packing, "seed": 0, **options}
        wanted = list(DataLoader(folder, 2, **options))
        gpu = SimulatedGpu(1, 0.5)
        loader = on(gpu, folder, 2, prefetch_factor=4, **options)
        kept = list(loader)
        gpu.synchronize()
        assert len({len(batch["valid"]) for batch in kept}) > 1
        for found, batch in zip(kept, wanted, strict=True):
            assert same(found, batch)
        loader.close()
        assert gpu.failures == []


def test_texts_are_those_of_the_samples_that_replace_bad_ones(
    tmp_path: Path, on: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which they are is read on the host, where the slot may hold another batch by then."""
    samples = rich_samples(COUNT)
    for number in range(0, COUNT, 5):
        samples[number] = {**samples[number], "mask": b"not a picture"}
    for number, sample in enumerate(samples):
        sample.update(caption=str(number), attribute=number)
    bad = write_field_set(tmp_path / "bad", RICH, samples)
    gpu = SimulatedGpu(0, 0.9)
    monkeypatch.setattr("fastload.transfer.cuda.find_gpu", lambda device: gpu if device else None)
    options: dict[str, Any] = {"fields": ["mask", "attribute", "caption"], "transform": T.CenterCrop(8)}
    texts = {"caption": fastload.Captions(lambda texts: texts)}
    with on(gpu, bad, 2, text=texts, on_error="replace", prefetch_factor=1, **options) as loader:
        for batch in loader:
            for _ in range(20):  # the copies of the next batches are done, and their slots are filled again
                gpu.synchronize()
                loader._epochs.backend._inner._inner._pipeline.look_ahead()
                time.sleep(0.001)
            assert list(map(int, batch["caption"])) == batch["attribute"].tolist()


# ---- Memory that is used again ----------------------------------------------------------------------


def blocks(batch: dict[str, Any]) -> dict[int, int]:
    """The blocks of memory that a batch lies in, and how large they are."""
    storages = [value.untyped_storage() for value in tensors(batch).values()]
    return {storage.data_ptr(): storage.nbytes() for storage in storages}


@pytest.mark.parametrize("mode", ["reuse", "poison"])
@pytest.mark.parametrize("case", REUSED)
def test_reused_memory_is_right_until_the_next_batch(folder: Path, on: Make, case: str, mode: str) -> None:
    """On streams that change; full batches have the same addresses, and the last one lies in their memory."""
    wanted = on_the_host(folder, **REUSED[case])
    for seed in range(4):
        gpu, wrong = SimulatedGpu(seed, 0.3), []
        full: set[tuple[int, ...]] = set()
        held: dict[int, int] = {}
        loader = on(gpu, folder, BATCH, shuffle=True, device=Device(memory=mode), **REUSED[case], seed=2)

        def compare(found: Any, expected: Any, wrong: list[int] = wrong) -> None:
            wrong.extend([1] * (not same(found, expected)))

        for batches in wanted:
            iterator = iter(loader)
            for number, batch in enumerate(batches):
                with gpu.using(gpu.random.choice(gpu.user_streams)):
                    found = next(iterator)
                    gpu.kernel(lambda found=found, batch=batch: compare(found, batch))  # type: ignore[misc]
                if number < COUNT // BATCH:
                    full.add(places(found))
                    held |= blocks(found)
                assert blocks(found).items() <= held.items()
        gpu.synchronize()
        assert wrong == []
        assert len(full) == (1 if mode == "reuse" else 2)
        assert sum(held.values()) == loader.memory_plan()["batch_bytes"] * len(full)
        loader.close()


@pytest.mark.parametrize("case", REUSED)
def test_poison_shows_every_field_of_a_kept_batch(folder: Path, on: Make, case: str) -> None:
    gpu = SimulatedGpu(0)
    iterator = iter(on(gpu, folder, BATCH, device=Device(memory="poison"), **REUSED[case]))
    kept: list[dict[str, torch.Tensor]] = []
    for batch in iterator:
        gpu.synchronize()
        assert all(bool(value.any()) for value in tensors(batch).values())
        assert not any(impossible(value) for value in tensors(batch).values())
        if kept:
            shown = {name for name, value in kept[-1].items() if not impossible(value)}
            assert shown == set()
        kept.append(tensors(batch))
    assert len(kept) == 8  # the last one is shorter
    assert {value.dtype for value in kept[0].values()} >= {torch.bool, torch.float32}


@pytest.mark.parametrize("mode", ["fresh", "reuse", "poison"])
def test_positions_without_a_sample_are_those_of_the_host(
    folder: Path, tmp_path: Path, on: Make, mode: str
) -> None:
    """Padding of three ranks, and bad samples that are left out."""
    samples = rich_samples(COUNT)
    samples[4] = {**samples[4], "mask": b"not a picture"}
    bad = write_field_set(tmp_path / "bad", RICH, samples)
    options: dict[str, Any] = {"ranks": Ranks(1, 3), "padding": "mark", "on_error": "skip", **EQUAL}
    wanted = on_the_host(bad, **options)
    assert sum(not batch["valid"].all() for batch in wanted[0]) == 2
    gpu, found = SimulatedGpu(4, 0.2), []
    with on(gpu, bad, BATCH, shuffle=True, device=Device(memory=mode), **{**options, "seed": 2}) as loader:
        for batch in loader:
            gpu.synchronize()
            found.append({name: value.clone() for name, value in batch.items()})
    assert all(same(batch, other) for batch, other in zip(found, wanted[0], strict=True))


def test_reused_memory_is_taken_once(folder: Path, on: Make) -> None:
    gpu = SimulatedGpu(0, 0.9)
    loader = on(gpu, folder, BATCH, device=Device(memory="reuse"), **EQUAL)
    next(iter(loader))
    count = len(gpu.allocations)
    list(loader)
    assert len(gpu.allocations) == count
    fresh = on(gpu, folder, BATCH, **EQUAL).memory_plan()
    plan = loader.memory_plan()
    assert plan["device_bytes"] - fresh["device_bytes"] == plan["batch_bytes"] == fresh["batch_bytes"]
    loader.close()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"fields": ["image", "boxes", "track"]},
         r"batches of one size. Found: boxes \(any number of rows\), track \(any number of rows\). Leave"),
        ({"fields": ["second", "label"], "collate": "pad"},
         r"one size. Found: second \(pictures that differ in size\).*collate=Pad\(height, width\)"),
        ({"fields": ["mask", "label"], "collate": "ragged"}, r"Found: mask \(pictures that differ in size\)"),
        ({"fields": Fields(["image", "outlines"], masks="dense")}, r"Found: outlines \(any number of masks"),
        ({"fields": ["image", "caption"], "text": {"caption": len}}, r"and text=.* exclude each other"),
        ({"collate": Patches("naflex", 8, 36), "transform": T.ResizeToPatches(8, 36), "fields": ["image"]},
         r"and collate=Patches.* exclude each other: it makes its own"),
        ({"fields": ["image"], "batch_size": None}, "one size. Found: batch_size=None. Pass batch_size"),
        ({"fields": ["image"], "batch_sampler": [[0, 1], [2]], "batch_size": 1}, "Found: batch_sampler"),
    ],
)  # fmt: skip
def test_what_differs_in_size_cannot_be_reused(folder: Path, arguments: Any, message: str) -> None:
    side: Any = 14 if arguments.get("collate") in ("pad", "ragged") else (14, 14)
    options: dict[str, Any] = {"batch_size": 4, "transform": T.Resize(side), **arguments}
    with pytest.raises(ValueError, match=rf"Device\(memory='poison'\).* {message}"):
        DataLoader(folder, device=Device(memory="poison"), **options)


def test_pairs_whose_pictures_differ_in_size(
    on: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A callable collate gets them as a list, on the device."""
    blobs = [encoded(PilImage.new("RGB", (20 + i, 40 - i), (i, 3 * i, 255 - i)), "PNG") for i in range(COUNT)]
    folder = plain_pack(tmp_path, blobs, range(COUNT)).folder
    options: dict[str, Any] = {
        "transform": T.Compose([T.Resize(14), *NORMALIZED]),
        "collate": lambda batch: {"image": batch[0], "label": batch[1]},
    }
    wanted = on_the_host(folder, **options)
    for seed, eagerness in enumerate((0.0, 0.5, 1.0)):
        gpu = SimulatedGpu(seed, eagerness)
        monkeypatch.setattr("fastload.transfer.cuda.find_gpu", {None: None, "cuda": gpu}.get)
        assert run(gpu, on(gpu, folder, BATCH, shuffle=True, **{**options, "seed": 2}), wanted) == 0
