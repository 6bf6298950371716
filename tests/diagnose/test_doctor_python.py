"""The doctor on loaders with Python functions of the user's: the slow one is named."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
import torch

from fastload import DataLoader, PackedDataset
from fastload import transforms as T
from fastload.diagnose.callables import python_functions
from fastload.diagnose.doctor import examine
from fastload.diagnose.fixes.loader import without_functions
from fastload.diagnose.trial import LoaderUnderTest
from fastload.loader.view import viewed

START = (T.RandomResizedCrop(32), T.RandomHorizontalFlip())


def sleeps(image: Any) -> Any:
    time.sleep(0.005)
    return image


def counts(image: Any) -> Any:
    sum(range(200_000))
    return image


def tensor(image: Any) -> Any:
    return torch.from_numpy(np.array(image))


def at_once(image: Any) -> Any:
    return image


def slow_collate(samples: list[Any]) -> Any:
    time.sleep(0.004 * len(samples))
    return torch.utils.data.default_collate(samples)


def loader(dataset: object, *functions: Any, **options: Any) -> DataLoader:
    given = {
        "batch_size": 2,
        "shuffle": True,
        "num_workers": 0,
        "transform": T.Compose([*START, *functions, *[tensor] * bool(functions)]),
    }
    return DataLoader(dataset, **(given | options))  # type: ignore[arg-type]


@pytest.fixture
def functions_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all that could help only what concerns Python functions is tried."""
    monkeypatch.setattr("fastload.diagnose.doctor.REGISTRY", (without_functions,))


@pytest.mark.flaky(reruns=2)  # measures: others' work may fall on the quick one
@pytest.mark.usefixtures("functions_only")
@pytest.mark.parametrize("slow", [sleeps, counts])
@pytest.mark.filterwarnings("ignore")
def test_a_slow_callable_is_named(packed: PackedDataset, slow: Any, quick: float) -> None:
    with loader(packed, at_once, slow) as given:
        verdict = examine(given, seconds=quick)
    assert verdict.limit == "python"
    assert f"Python is the bottleneck: {slow.__name__} (test_doctor_python.py:" in str(verdict)
    found = next(fix for fix in verdict.fixes if fix.name == "callable")
    assert found.words.startswith(f"Without the callable {slow.__name__} (")
    assert found.rate > verdict.rate
    assert not any("at_once" in fix.words for fix in verdict.fixes)


@pytest.mark.flaky(reruns=2)  # as above
@pytest.mark.usefixtures("functions_only")
@pytest.mark.filterwarnings("ignore")
def test_a_slow_collate_function_is_named(packed: PackedDataset, quick: float) -> None:
    with loader(packed, collate_fn=slow_collate) as given:
        verdict = examine(given, seconds=quick)
    assert verdict.limit == "collate"
    assert "The collate function is the bottleneck: slow_collate (" in str(verdict)
    assert any(fix.name == "collate_fn" for fix in verdict.fixes)


@pytest.mark.flaky(reruns=2)  # measures for a tenth of a second
@pytest.mark.filterwarnings("ignore")
def test_who_keeps_the_lock_is_known(packed: PackedDataset) -> None:
    with loader(packed, counts, sleeps) as given:
        found = {one.given: one for one in python_functions(LoaderUnderTest(viewed(given, "a test")), 0.2)}
    assert set(found) == {sleeps, counts, tensor}
    assert found[sleeps].lock is not None
    assert found[counts].lock is not None
    assert found[sleeps].cpu < found[sleeps].seconds
    assert found[counts].lock > found[sleeps].lock


def test_the_core_alone_has_no_functions(packed: PackedDataset) -> None:
    with loader(packed) as given:
        assert python_functions(LoaderUnderTest(viewed(given, "a test")), 0.1) == ()
