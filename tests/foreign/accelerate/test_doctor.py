"""``fastload doctor`` on a program that trains with Accelerate."""

from __future__ import annotations

from pathlib import Path

import pytest
from doctor_runs import check_slow_data, diagnosed

PROGRAM = """
from accelerate import Accelerator

accelerator = Accelerator(cpu=True)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), 1e-9)
model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(Slow(), 8, shuffle=True))
for epoch in range(100):
    for batch in loader:
        accelerator.backward(loss_of(model, batch["inputs"], batch["labels"]))
        optimizer.step()
        optimizer.zero_grad()
"""


@pytest.mark.timeout(600)
def test_a_program_with_slow_data(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, PROGRAM)
    check_slow_data(found)
    assert found.files == set()
