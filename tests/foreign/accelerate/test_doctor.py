"""``fastload doctor`` on a program that trains with Accelerate."""

from __future__ import annotations

from pathlib import Path

import pytest
from doctor_runs import SLOW, check_slow_data, diagnosed, under_torchrun

PROGRAM = """
from accelerate import Accelerator

accelerator = Accelerator(cpu=True)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), 1e-9)
model, optimizer, loader = accelerator.prepare(model, optimizer, LOADER)
for epoch in range(100):
    for batch in loader:
        accelerator.backward(loss_of(model, batch["inputs"], batch["labels"]))
        optimizer.step()
        optimizer.zero_grad()
"""


SHUFFLED = "DataLoader(Slow(), 8, shuffle=True)"
DIVIDED = "DataLoader(Slow(), 8, sampler=torch.utils.data.DistributedSampler(Slow()))"


@pytest.mark.timeout(600)
def test_a_program_with_slow_data(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, PROGRAM.replace("LOADER", SHUFFLED))
    check_slow_data(found)
    assert found.files == set()


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("loader", "dividers"),
    [(SHUFFLED, ["BatchSamplerShard"]), (DIVIDED, ["BatchSamplerShard", "DistributedSampler"])],
)
def test_two_ranks_and_who_divides(tmp_path: Path, loader: str, dividers: list[str]) -> None:
    _, ranks, limit, text = under_torchrun(tmp_path, SLOW + PROGRAM.replace("LOADER", loader))
    assert [each["dividers"] for each in ranks] == [dividers, dividers]
    assert [each["replicas"] for each in ranks] == [2 ** len(dividers)] * 2
    assert ranks[0]["replica"] != ranks[1]["replica"]
    assert (limit == "divided-twice") == (len(dividers) > 1), text
