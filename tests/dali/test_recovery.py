"""DALI fails: our own decoder's verdict, a new pipeline, the batches behind it unharmed, and an end to it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from epochs import all_batches, same
from pictures import encoded, picture
from plain_pack import plain_pack
from two_backends import same_but_for_rounding, with_dali

from fastload import DataLoader, PackedDataset, errors
from fastload import transforms as T
from fastload.backends.dali.graph import Graph

pytestmark = pytest.mark.dali

WHOLE = T.Resize((48, 48))


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> PackedDataset:
    """60 JPEGs; 15 have no quantisation tables, 15 end in the middle, with an end marker that hides it."""
    blobs = [encoded(picture(i, 120, 100), subsampling=0) for i in range(60)]
    for i in range(1, 60, 4):
        blobs[i] = blobs[i].replace(b"\xff\xdb", b"\xff\xfe")
        blobs[i + 2] = blobs[i + 2][: len(blobs[i + 2]) // 2] + b"\xff\xd9"
    return plain_pack(tmp_path_factory.mktemp("damaged"), blobs, range(60))


@pytest.mark.parametrize("policy", ["skip", "replace"])
def test_many_bad_samples_cost_few_pipelines(damaged: PackedDataset, policy: str) -> None:
    options = {"seed": 0, "batch_size": 4, "transform": WHOLE, "on_error": policy, "shuffle": True}
    options |= {"prefetch_factor": 2}
    with DataLoader(damaged, **options) as native, with_dali(damaged, **options) as dali:
        for _ in range(2):
            assert same_but_for_rounding(all_batches(dali), all_batches(native))
        first = dali.stats()["decoders"]
        assert [report.sample for report in dali.errors] == [report.sample for report in native.errors]
        assert len(native.errors) == 2 * 30
        # Each failure costs a pipeline; after eight, and the batches that are in work then, DALI gets only
        # samples that were decoded before.
        assert 8 <= first["failures"] <= 8 + 3 < 15
        assert first["built"] <= first["failures"] + 1
        all_batches(dali)
        assert dali.stats()["decoders"]["failures"] == first["failures"]
        assert dali.stats()["decoders"]["samples"]["dali"] > first["samples"]["dali"]


def test_damage_that_a_window_may_not_show(damaged: PackedDataset) -> None:
    """libjpeg goes on where such files end, with a warning, in both decoders."""
    options = {
        "seed": 0,
        "batch_size": 6,
        "transform": T.RandomResizedCrop(32, scale=(0.05, 0.2)),
        "on_error": "skip",
    }
    with DataLoader(damaged, **options) as native, with_dali(damaged, **options) as dali:
        for _ in range(3):
            assert same_but_for_rounding(all_batches(dali), all_batches(native))


def test_raise_and_go_on(damaged: PackedDataset) -> None:
    loader = with_dali(damaged, batch_size=4, transform=WHOLE, sampler=[0, 2, 4, 6, 5, 8, 10, 12])
    with pytest.raises(errors.SampleError, match=r"Sample 5 \(key '5.img'"):
        all_batches(loader)
    assert next(iter(loader))[1].tolist() == [0, 2, 4, 6]
    loader.close()


class Failing:
    """Lets ``Graph.outputs`` raise instead of its first calls."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *raised: BaseException | None) -> None:
        self.raised = list(raised)
        outputs = Graph.outputs

        def call(graph: Graph) -> torch.Tensor:
            error = self.raised.pop(0) if self.raised else None
            if error is not None:
                raise error
            return outputs(graph)

        monkeypatch.setattr(Graph, "outputs", call)


BROKEN = "Current pipeline object is no longer valid."


def test_failures_without_a_bad_sample_are_bounded(
    photos: PackedDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader = with_dali(photos)
    Failing(monkeypatch, RuntimeError(BROKEN), None, RuntimeError(BROKEN), None, RuntimeError(BROKEN))
    text = r"3 times within 10000 batches.*backend=\"native\".*no longer"
    with pytest.raises(errors.BackendError, match=text):
        all_batches(loader)
    assert loader.stats()["decoders"]["failures"] == 3
    loader.close()


@pytest.mark.parametrize("policy", ["skip", "replace"])
def test_with_a_policy_they_end_no_epoch(
    photos: PackedDataset, monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    """Pictures that DALI alone refuses: as those of codecs and profiles that it does not know."""
    options = {"shuffle": True, "seed": 4, "on_error": policy, "prefetch_factor": 1}
    with DataLoader(photos, 8, transform=WHOLE, **options) as native:
        wanted, behind = all_batches(native), all_batches(native)
    with with_dali(photos, batch_size=8, transform=WHOLE, **options) as loader:
        refusals = [RuntimeError(f"Failed to decode sample #{i} : {BROKEN}") for i in range(3)]
        Failing(monkeypatch, *refusals)
        with pytest.warns(
            errors.SlowPathWarning, match=r"3 times within 10000 .* all samples from here"
        ) as said:
            found = all_batches(loader)
        assert len([one for one in said if "from here on" in str(one.message)]) == 1
        assert same_but_for_rounding(found, wanted)
        assert not loader.errors
        by_dali = loader.stats()["decoders"]["samples"]["dali"]
        assert same_but_for_rounding(all_batches(loader), behind)
        assert loader.stats()["decoders"]["samples"]["dali"] == by_dali


def test_batches_behind_a_failure_are_whole(photos: PackedDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"shuffle": True, "seed": 4}
    with with_dali(photos, **options) as loader:
        wanted = all_batches(loader)
    with with_dali(photos, **options) as loader:
        message = f"Failed to decode sample #2 : {BROKEN}"
        Failing(monkeypatch, None, RuntimeError(message))
        found = all_batches(loader)
        stats = loader.stats()["decoders"]
    assert same(found[:1] + found[2:], wanted[:1] + wanted[2:])
    assert same_but_for_rounding(found, wanted)
    assert (stats["failures"], stats["refused"], stats["built"]) == (1, 1, 2)
    assert stats["samples"] == {"native": 8, "dali": 32}


def test_a_lost_device_is_not_tried_again(photos: PackedDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    Failing(monkeypatch, RuntimeError("CUDA runtime API error cudaErrorLaunchFailure (719)"))
    with with_dali(photos) as loader, pytest.raises(errors.DeviceError, match="while DALI decoded.*719"):
        all_batches(loader)


def test_after_an_interrupt_batches_and_labels_belong_together(
    photos: PackedDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    with with_dali(photos, shuffle=True) as loader:
        wanted = all_batches(loader)
    with with_dali(photos, shuffle=True) as loader:
        Failing(monkeypatch, None, KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            all_batches(loader)
        loader.set_epoch(0)
        assert same(all_batches(loader), wanted)


def test_dropped_batches_that_fail_harm_nobody(damaged: PackedDataset) -> None:
    options: dict[str, Any] = {
        "seed": 0,
        "batch_size": 4,
        "transform": WHOLE,
        "on_error": "skip",
        "prefetch_factor": 3,
    }
    with DataLoader(damaged, **options) as native:
        wanted = all_batches(native)
    with with_dali(damaged, **options) as dali:
        for _ in range(3):
            next(iter(dali))  # the batches behind it, with bad samples, are in work
        dali.set_epoch(0)
        assert same_but_for_rounding(all_batches(dali), wanted)
