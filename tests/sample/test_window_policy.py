"""A policy as robots have them trains on windows of a LeRobot set: cameras and state in, actions out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from lerobot_sets import TOP, WRIST, Made, make_set
from torch import nn

import fastload
from fastload.transforms import Compose, Resize, ToDtype

STEPS = 4  # of actions
WINDOWS = {TOP: [-0.1, 0.0], WRIST: [-0.1, 0.0], "action": [step / 10 for step in range(STEPS)]}
EPOCHS = 12


class Policy(nn.Module):
    """Two frames of two cameras and the state, as a chunk of actions."""

    def __init__(self) -> None:
        super().__init__()
        self.eye = nn.Sequential(nn.Conv2d(3, 8, 4, 4), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())
        self.hand = nn.Sequential(nn.Linear(2 * 2 * 32 + 2, 64), nn.ReLU(), nn.Linear(64, 3 * STEPS))

    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        seen = [
            self.eye(batch[camera].flatten(0, 1)).unflatten(0, (-1, 2)).flatten(1) for camera in (TOP, WRIST)
        ]
        state = batch["observation.state"].float() / 10
        return self.hand(torch.cat([*seen, state], 1)).unflatten(1, (STEPS, 3))


def loss_of(policy: Policy, batch: dict[str, Any]) -> torch.Tensor:
    """ACT's: L1, without steps beyond the episode's end."""
    far = (policy(batch) - batch["action"] / 10).abs()
    return (far * ~batch["action_is_pad"][..., None]).mean()


def loader_of(packed: Path) -> fastload.DataLoader:
    chain = Compose([Resize((32, 48)), ToDtype("float32", scale=True)])
    fields = fastload.Fields(windows=WINDOWS)
    return fastload.DataLoader(packed, 8, shuffle=True, seed=1, transform=chain, fields=fields, num_workers=2)


@pytest.fixture(scope="module", params=["jpeg", "coefficients"])
def packed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("policy")
    source = make_set(folder / "set", Made())
    way = "small" if request.param == "coefficients" else None
    fastload.pack(source, folder / "packed", as_="lerobot", num_proc=1, coefficients=way)
    return folder / "packed"


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """For a network as small as this one more threads cost more than they do."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def trained(packed: Path, stop_at: int = -1) -> tuple[list[float], Policy]:
    """Losses of each step; with ``stop_at`` the loader is made anew there, from its state."""
    torch.manual_seed(0)
    policy = Policy()
    optimizer = torch.optim.Adam(policy.parameters(), 3e-3)
    loader = loader_of(packed)
    losses: list[float] = []
    iterator = iter(loader)
    while len(losses) < EPOCHS * len(loader):
        if len(losses) == stop_at:
            state = loader.state_dict()
            loader.close()
            loader = loader_of(packed)
            loader.load_state_dict(state)
            iterator = iter(loader)
        batch = next(iterator, None)
        if batch is None:
            iterator = iter(loader)
            continue
        loss = loss_of(policy, batch)
        optimizer.zero_grad()
        loss.backward()
        assert all(
            weights.grad is not None and weights.grad.abs().sum() > 0 for weights in policy.parameters()
        )
        optimizer.step()
        losses.append(loss.item())
    loader.close()
    return losses, policy


def test_a_policy_learns_and_goes_on_from_a_state(packed: Path) -> None:
    losses, policy = trained(packed)
    epoch = len(losses) // EPOCHS
    assert epoch == 3  # of 24 rows
    assert sum(losses[-epoch:]) < 0.5 * sum(losses[:epoch])
    again, resumed = trained(packed, stop_at=4)
    assert again == losses
    for one, other in zip(policy.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(one, other)


def test_steps_beyond_the_end_teach_nothing(packed: Path) -> None:
    """Other actions there change neither loss nor gradients; elsewhere they do."""
    torch.manual_seed(0)
    policy = Policy()
    with loader_of(packed) as loader:
        batch = next(one for one in loader if one["action_is_pad"].any())
    before = loss_of(policy, batch)
    batch["action"][batch["action_is_pad"]] += 100
    assert torch.equal(loss_of(policy, batch), before)
    batch["action"][~batch["action_is_pad"]] += 1
    assert not torch.equal(loss_of(policy, batch), before)
