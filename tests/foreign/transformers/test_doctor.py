"""``fastload doctor`` on a program that trains with Hugging Face's Trainer."""

from __future__ import annotations

from pathlib import Path

import pytest
from doctor_runs import check_slow_data, diagnosed

PROGRAM = """
from transformers import Trainer, TrainingArguments


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def forward(self, inputs, labels):
        return {"loss": loss_of(self.layer, inputs, labels)}


options = {"use_cpu": True, "report_to": "none", "save_strategy": "no", "disable_tqdm": True}
arguments = TrainingArguments("out", num_train_epochs=100, per_device_train_batch_size=8, **options)
Trainer(Model(), arguments, train_dataset=Slow()).train()
"""


@pytest.mark.timeout(600)
def test_a_program_with_slow_data(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, PROGRAM)
    check_slow_data(found)
    assert found.files <= {"out"}  # the Trainer's own folder
