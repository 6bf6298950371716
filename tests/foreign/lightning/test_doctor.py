"""``fastload doctor`` on a program that trains with Lightning's Trainer."""

from __future__ import annotations

from pathlib import Path

import pytest
from doctor_runs import check_slow_data, diagnosed

PROGRAM = """
import lightning


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def training_step(self, batch, index):
        return loss_of(self.layer, batch["inputs"], batch["labels"])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 1e-9)


if __name__ == "__main__":
    options = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = lightning.Trainer(max_epochs=100, accelerator="cpu", **options)
    trainer.fit(Model(), DataLoader(Slow(), 8, shuffle=True))
"""


@pytest.mark.timeout(600)
def test_a_program_with_slow_data(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, PROGRAM)
    check_slow_data(found)
    assert found.files == set()
