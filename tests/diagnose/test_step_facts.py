"""What a step does, seen by hooks for one step, and nothing left behind."""

from __future__ import annotations

import warnings
from typing import Any, cast

import pytest
import torch
from torch import nn
from torch.nn.modules import module as torch_module
from torch.optim import optimizer as torch_optimizer
from torch.utils.data import DataLoader
from watched_loops import FakeClock, FakeMeter, Slow

from fastload.diagnose import step as device
from fastload.diagnose import step as step_facts
from fastload.diagnose.usage import Meter
from fastload.diagnose.watch import Diagnosis


def hooks() -> int:
    found: Any = torch_module._global_forward_pre_hooks
    steps: Any = torch_optimizer._global_optimizer_post_hooks
    return len(found) + len(steps)


class Training:
    """A loop of a small network on pictures of zeros."""

    def __init__(self, model: nn.Module, every: int = 1, autocast: bool = False) -> None:
        self.clock = FakeClock()
        self.model = model
        self.every = every
        self.autocast = autocast
        self.most_hooks: list[int] = []

    def watched(self) -> dict[str, Any]:
        loader: Any = DataLoader(Slow(36, self.clock), batch_size=4)
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        meter = cast(Meter, FakeMeter(self.clock))
        with Diagnosis(loader, meter=meter, clock=self.clock) as d:
            for number, (images, _) in enumerate(loader):
                with torch.autocast("cpu", enabled=self.autocast):
                    self.model(images).sum().backward()
                if number % self.every == self.every - 1:
                    optimizer.step()
                self.most_hooks.append(hooks())
                self.clock.sleep(1)
        return dict(d.loop.notes)


def network() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten())


def test_a_plain_step() -> None:
    before = hooks()
    training = Training(network())
    notes = training.watched()
    assert notes["module"] == "Sequential"
    assert (notes["device"], notes["parameter_dtype"]) == ("cpu", "float32")
    assert (notes["autocast"], notes["channels_last"], notes["training"]) == (False, False, True)
    assert "parallel" not in notes
    assert "synchronises" not in notes  # nobody can look without CUDA
    assert notes["optimizer_steps"] == 8  # of nine batches the first one is apart
    # Two in the second step, where modules are looked at; then the optimisers' alone; then none.
    assert training.most_hooks == [before + 1, before + 2] + [before + 1] * 7
    assert hooks() == before


def test_gradient_accumulation_autocast_and_channels_last() -> None:
    model = network().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    notes = Training(model, every=4, autocast=True).watched()
    assert notes["optimizer_steps"] == 2
    assert notes["autocast"] is True
    assert notes["channels_last"] is True


def test_data_parallel_is_seen() -> None:
    notes = Training(nn.DataParallel(network())).watched()
    assert notes["parallel"] == notes["module"] == "DataParallel"


def test_what_is_compiled_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_facts, "is_compiled", lambda: True)
    training = Training(network())
    notes = training.watched()
    assert notes["compiled"] is True
    assert "module" not in notes
    assert len(set(training.most_hooks)) == 1


def test_the_use_of_torch_compile_is_found() -> None:
    compiled = torch.compile(network(), backend="eager")
    compiled(torch.zeros(1, 3, 4, 4))
    assert step_facts.is_compiled()
    torch._dynamo.reset()
    assert not step_facts.is_compiled()


def test_lines_that_wait_for_the_device_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a CUDA that is not there: torch's debug mode warns, as its documentation says."""
    modes: list[Any] = [0]
    monkeypatch.setattr(device, "is_in_use", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", lambda: modes[-1])
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", modes.append)
    watch = device.SyncWatch()

    def switch(mode: Any) -> None:
        modes.append(mode)
        warnings.warn(f"{device._OF_THE_MODE} (Triggered at x.cpp.)", stacklevel=1)

    with warnings.catch_warnings():
        warnings.simplefilter("error")  # as with python -W error
        monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", switch)
        watch.begin()
        monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", modes.append)
        watch.end()
    modes[1:] = []
    with warnings.catch_warnings(record=True) as others:
        warnings.simplefilter("always")
        watch.begin()
        for _ in range(2):
            warnings.warn(f"{device._SYNCHRONISES} (Triggered internally at x.cpp:1.)", stacklevel=1)
        warnings.warn(f"{device._SYNCHRONISES} (Triggered internally at x.cpp:1.)", stacklevel=1)
        warnings.warn("the user's", stacklevel=1)
        found = watch.end()
    assert found is not None
    assert len(found) == 2
    assert all(line.startswith("test_step_facts.py:") for line in found)
    assert [str(one.message) for one in others] == ["the user's"]
    assert modes == [0, "warn", 0]
    assert watch.end() is None
