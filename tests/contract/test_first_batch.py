"""What the first batch of an image-and-label set brings into the process: nothing that only other jobs need.

A module costs a millisecond or two before the first batch, and there are hundreds of them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import fastload
from fastload import transforms as T
from fastload.transforms.operations.registry import (
    ROWS,
    operation_named,
    operation_of,
    operation_of_torchvision,
)

PLAIN_JOB = """
import json, sys
from fastload import DataLoader
from fastload import transforms as T
chain = T.Compose([T.RandomResizedCrop(16), T.RandomHorizontalFlip()])
with DataLoader(sys.argv[1], batch_size=8, shuffle=True, transform=chain, num_workers=1) as loader:
    images, labels = next(iter(loader))
assert images.shape == (8, 3, 16, 16) and labels.shape == (8,)
print(json.dumps([name for name in sys.modules if name.startswith("fastload.")]))
"""
USED = {"crops", "motions"}
# What other jobs need: other fields, other back ends, devices, Python callables, augmentation, explanations.
# A name ends where a module or a room does.
OTHERS = [
    "backends.callable_samples",
    "backends.callable_threads",
    "backends.callables",
    "backends.dali",
    "backends.device",
    "backends.fields",
    "backends.tail",
    "backends.tail_parts",
    "backends.text_stage",
    "backends.torch_workers",
    "backends.upcoming",
    "backends.worker_processes",
    "cache.disk_files",
    "cache.disk",
    "cache.disk",
    "cache.record_format",
    "cli",
    "collate",
    "dataset.detection",
    "dataset.samples",
    "diagnose",
    "integrations",
    "loader.collation",
    "loader.explain",
    "loader.fitting_fields",
    "loader.migration",
    "packing",
    "prefetch.autotune",
    "remote",
    "sample.fields",
    "sample.plain",
    "sample.planned",
    "sample.ragged",
    "sample.schema",
    "sample.values",
    "sampler.buckets",
    "sampler.packs",
    "sampler.schedule",
    "sampler.scheduled_order",
    "sampler.upcoming",
    "shard.columns",
    "shard.node_sets",
    "transfer.augment",
    "transfer.convert",
    "transfer.mixing",
    "transfer.pipeline",
    "transfer.streams",
    "transforms.batch",
    "vlm",
]


@pytest.fixture(scope="module")
def imported(packed: fastload.PackedDataset) -> set[str]:
    """The modules of a process that took one batch."""
    run = subprocess.run(
        [sys.executable, "-c", PLAIN_JOB, str(packed.folder)],
        check=True,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parent,
    )
    return {name.removeprefix("fastload.") for name in json.loads(run.stdout)}


def test_the_plain_job_imports_the_operations_that_it_names(imported: set[str]) -> None:
    operations = {name.rpartition(".")[2] for name in imported if name.startswith("transforms.operations.")}
    assert operations == {*USED, "operation", "registry"}


@pytest.mark.parametrize("other", OTHERS)
def test_the_plain_job_imports_nothing_of_other_jobs(imported: set[str], other: str) -> None:
    assert find_spec(f"fastload.{other}") is not None, "there is no such module any more"
    assert [name for name in sorted(imported) if f"{name}.".startswith(f"{other}.")] == []


@pytest.mark.parametrize("spec", ROWS)
def test_an_operations_row_has_its_names(spec: str) -> None:
    """What is written in the file and what it is found by are the same."""
    operation = operation_named(spec)
    names = (spec, *ROWS[spec][1:])
    assert names[0] == operation.spec.__name__
    assert set(names) >= {names[0], *operation.torchvision}
    assert {name.rpartition(".")[2] for name in names} >= set(operation.advice)
    recognised = {names[0], *operation.torchvision, *operation.advice}
    assert all({name, name.rpartition(".")[2]} & recognised for name in names)
    assert all(operation_of_torchvision(name) is operation for name in names)
    assert getattr(T, names[0]) is operation.spec
    assert names[0] in T.__all__
    assert names[0] in dir(T)


def test_only_specs_themselves_are_found() -> None:
    namesake = type("RandomCrop", (), {})
    assert operation_of(T.RandomCrop(3)) is operation_named("RandomCrop")
    assert operation_of(namesake()) is None
    assert operation_of(T.RandomCrop) is None
    assert operation_of_torchvision("NoSuchClass") is None
    with pytest.raises(AttributeError, match=r"'fastload.transforms' has no attribute 'NoSuchSpec'"):
        T.NoSuchSpec  # type: ignore[attr-defined]  # noqa: B018
