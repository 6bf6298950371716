"""``fastload doctor`` on programs of transformers: with a Trainer, and with a processor that is slow."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
from doctor_runs import SLOW, check_slow_data, diagnosed

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


#: The PIL class, and the one that torchvision's resize makes faster.
CLASSES = {
    "transformers.models.qwen2_vl.image_processing_pil_qwen2_vl": "Qwen2VLImageProcessorPil",
    "transformers.models.qwen2_vl.image_processing_qwen2_vl": "Qwen2VLImageProcessor",
}
CHATS = """
import numpy
from PIL import Image
from {module} import {name}

processor = {name}(max_pixels=400_000)
pictures = [Image.fromarray(numpy.full((700, 900, 3), value, numpy.uint8)) for value in range(8)]


def collate(numbers):
    return processor(images=[pictures[number % 8] for number in numbers], return_tensors="pt")  # slow


model = torch.nn.Linear(1176, 4)
for _ in range(100):
    for batch in DataLoader(range(4000), 2, collate_fn=collate, num_workers=1):
        model(batch["pixel_values"]).sum().backward()
"""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("module", CLASSES)
def test_a_processor_in_the_collate_function(module: str, tmp_path: Path) -> None:
    """Its line is named, and what to type in its place."""
    if "_pil_" not in module and find_spec("torchvision") is None:
        pytest.skip("needs torchvision")
    program = CHATS.format(module=module, name=CLASSES[module])
    said = diagnosed(tmp_path, program).said
    lines = (SLOW + program).splitlines()
    line = next(number for number, text in enumerate(lines, 1) if text.endswith("# slow"))
    assert f"The model's processor is the bottleneck: train.py line {line} (" in said
    assert '`fastload.DataLoader("SET", batch_size=2, transform=fastload.Vision(processor))`' in said
