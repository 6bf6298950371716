"""The DALI back end's beginning and end: options, a missing DALI, close, fork, memory."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from cache_folder import memory_folder
from epochs import all_batches
from process import threads
from two_backends import TRAIN, same_but_for_rounding, with_dali

from fastload import Dali, DataLoader, PackedDataset, errors
from fastload import transforms as T
from fastload._native import _C
from fastload.backends.dali.graph import BatchShape, DecodeShare, decoded_bytes, decoder_padding, find_dali
from fastload.backends.options import Options
from fastload.loader.arguments import Arguments
from fastload.loader.options import resolve


@pytest.mark.parametrize("name", ["nvidia", "nvidia.dali"])
def test_missing_dali_is_named_with_the_command(
    photos: PackedDataset, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    for module in [module for module in sys.modules if module.split(".")[0] == "nvidia"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r'pip install "fastload\[dali\]".*backend="native"'):
        with_dali(photos)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"backend": "cuda"}, "backend must be one of native, dali. Found: 'cuda'"),
        ({"autotune": True}, "DALI's number is fixed"),
        ({"collate_fn": list}, "without callables in transform and without a collate_fn"),
        ({"transform": T.Compose([TRAIN, torch.neg])}, "without callables"),
    ],
    ids=str,
)
def test_options_are_checked(photos: PackedDataset, options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        with_dali(photos, **options)


def test_torch_datasets_have_no_dali() -> None:
    with pytest.raises(ValueError, match="backend='dali' is for a packed dataset"):
        DataLoader(torch.utils.data.TensorDataset(torch.arange(8)), 2, backend="dali")


def test_share_moves_to_the_idle_decoder() -> None:
    share = DecodeShare("auto")
    start = share.value
    share.observe(native_late=False, dali_late=True)
    assert share.value == pytest.approx(start + 0.02)
    for _ in range(100):
        share.observe(native_late=True, dali_late=False)
    assert share.value == 0
    for _ in range(100):
        share.observe(native_late=False, dali_late=True)
    assert share.value == 1
    share.observe(native_late=True, dali_late=True)
    share.observe(native_late=False, dali_late=False)
    assert share.value == 1
    fixed = DecodeShare(0.3)
    fixed.observe(native_late=False, dali_late=True)
    assert fixed.value == 0.3


def limited(limit: int | None) -> Options:
    given = Arguments("nowhere", 128, num_workers=4, prefetch_factor=2, backend=Dali(memory_limit=limit))
    return resolve(given)[0]


def test_memory_limit_by_arithmetic() -> None:
    shape = BatchShape(128, 224, 224, torch.uint8)
    assert decoded_bytes(shape, limited(None), 4) == 1 << 62
    limit = 1 << 30
    decoded, padding = decoded_bytes(shape, limited(limit), 4), decoder_padding(limited(limit), 4)
    assert padding == 16 << 20
    assert 0 <= limit - (3 * decoded + 4 * shape.nbytes + 4 * padding) < 3
    assert decoder_padding(limited(1 << 28), 4) == 8 << 20
    with pytest.raises(ValueError, match="Dali.memory_limit.* must be more than .* bytes for batches of 128"):
        decoded_bytes(shape, limited(50 << 20), 4)


@pytest.mark.dali
def test_importing_fastload_and_other_loaders_import_no_dali(photos: PackedDataset) -> None:
    find_dali()
    loaded = "nvidia.dali" in sys.modules
    all_batches(DataLoader(photos, 8, transform=TRAIN, seed=0))
    assert ("nvidia.dali" in sys.modules) == loaded


@pytest.mark.dali
def test_one_pipeline_for_all_epochs_and_interrupted_ones(photos: PackedDataset) -> None:
    with (
        DataLoader(photos, 8, transform=TRAIN, shuffle=True, seed=0) as native,
        with_dali(photos, shuffle=True) as dali,
    ):
        for epoch in range(3):
            next(iter(dali))
            dali.set_epoch(epoch)
            native.set_epoch(epoch)
            assert same_but_for_rounding(all_batches(dali), all_batches(native))
        assert dali.stats()["decoders"]["built"] == 1


@pytest.mark.dali
def test_close_ends_threads_and_frees(photos: PackedDataset) -> None:
    all_batches(with_dali(photos))  # DALI's own, once a process
    gc.collect()
    before = threads(), len(os.listdir("/proc/self/fd"))
    for _ in range(2):
        loader = with_dali(photos, backend=Dali(decode_share=0.5))
        next(iter(loader))
        loader.close()
        loader.close()
        with pytest.raises(errors.StateError, match="closed"):
            next(iter(loader))
        assert (threads(), len(os.listdir("/proc/self/fd"))) == before
    with_dali(photos)  # never used
    abandoned = with_dali(photos)
    next(iter(abandoned))
    del abandoned, loader
    gc.collect()
    assert (threads(), len(os.listdir("/proc/self/fd"))) == before


@pytest.mark.dali
def test_both_decoders_read_through_the_loader_s_cache_and_let_go_of_it(
    photos: PackedDataset, tmp_path: Path
) -> None:
    with memory_folder(tmp_path) as memory:
        if not _C.file_system(str(memory.path))["in_memory"]:
            pytest.skip("no file system in memory has room")
        loader = with_dali(photos, backend=Dali(decode_share=0.5), cache=memory.path, shuffle=True)
        for _ in range(2):
            all_batches(loader)
        found = loader.stats()["cache"]
        assert found["stored"] == found["ready_records"] == len(photos)
        assert found["hits"] >= len(photos)
        assert str(memory.path) in Path("/proc/self/maps").read_text()
        loader.close()
        assert str(memory.path) not in Path("/proc/self/maps").read_text()
        assert loader.stats()["cache"]["stored"] == len(photos)


@pytest.mark.dali
def test_a_fork_is_told(photos: PackedDataset) -> None:
    loader = with_dali(photos)
    next(iter(loader))
    child = os.fork()
    if child == 0:
        code = 1
        try:
            next(iter(loader))
        except errors.StateError:
            loader.close()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(all_batches(loader)) == 5
    loader.close()


@pytest.mark.dali
def test_plan_and_stats(photos: PackedDataset) -> None:
    with (
        with_dali(photos, backend=Dali(decode_share=0.25)) as loader,
        DataLoader(photos, 8, transform=TRAIN, seed=0) as native,
    ):
        plan, other = loader.memory_plan(), native.memory_plan()
        assert plan["read_ahead_bytes"] == 2 * other["read_ahead_bytes"]
        all_batches(loader)
        all_batches(native)
        stats = loader.stats()
        assert "decoders" not in native.stats()
    assert stats["decoders"]["backend"] == "dali"
    assert stats["decoders"]["share"] == 0.25
    assert sum(stats["decoders"]["samples"].values()) == 40
    assert stats["samples"] == 40
    assert set(stats["decoders"]["wait_seconds"]) == {"native", "dali"}
