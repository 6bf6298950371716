"""What a type checker tells a user about the datasets."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from house_sources import ROOT

PROGRAM = """
import torch
from PIL import Image
from typing_extensions import reveal_type
from fastload import DataLoader, MixedDataset, PackedDataset, mix

dataset = PackedDataset("packed", transform=None)
image, label = dataset[0]
print(image.size, label + 1)
reveal_type(dataset[0])
reveal_type(dataset[0:3])
reveal_type(dataset + dataset)
reveal_type(dataset.targets)
reveal_type(dataset.samples[0])
mixed: MixedDataset = mix([dataset, "other"])
reveal_type(mixed[3])
train, _ = torch.utils.data.random_split(dataset, [0.5, 0.5])
as_dataset: torch.utils.data.Dataset[tuple[Image.Image, int]] = dataset
torch.utils.data.DataLoader(mixed, 3)
DataLoader(train, 3)
"""

SAMPLE = "tuple[PIL.Image.Image, int]"


def test_samples_subsets_and_sums_have_their_types(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--follow-imports=silent",
        str(tmp_path / "program.py"),
    ]
    run = subprocess.run(command, cwd=ROOT / "tests", capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    assert re.findall(r'Revealed type is "(.*)"', run.stdout) == [
        SAMPLE,
        f"torch.utils.data.dataset.Subset[{SAMPLE}]",
        f"torch.utils.data.dataset.ConcatDataset[{SAMPLE}]",
        "list[int]",
        "tuple[str, int]",
        SAMPLE,
    ]
