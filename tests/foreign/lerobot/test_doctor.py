"""``fastload doctor`` on a program with a LeRobotDataset: it says what to pack, and what to type."""

from __future__ import annotations

from pathlib import Path

import bare_torchvision
import pytest
from doctor_runs import diagnosed
from lerobot_sets import TOP, Made, make_set

PROGRAM = f"""
import sys

sys.path.insert(0, {str(Path(bare_torchvision.__file__).parent)!r})
import bare_torchvision
from lerobot.datasets.lerobot_dataset import LeRobotDataset

windows = {{{TOP!r}: [-0.2, -0.1, 0.0], "action": [0.0, 0.1]}}
dataset = LeRobotDataset("me/made", root="../set", delta_timestamps=windows)
layer = torch.nn.Linear(3, 1)
for _ in range(1000):
    for batch in DataLoader(dataset, 8, shuffle=True, num_workers=1, persistent_workers=True):
        loss_of(layer, batch["action"][:, 0], torch.zeros(len(batch["index"]), 1)).backward()
"""


@pytest.mark.timeout(600)
def test_a_lerobot_dataset_is_named_with_what_to_type(tmp_path: Path) -> None:
    sizes = {TOP: (640, 480)}
    make_set(tmp_path / "set", Made(lengths=(200, 200), sizes=sizes, gop=20))
    said = diagnosed(tmp_path, PROGRAM).said
    assert "Decoding of video is the bottleneck: lerobot's LeRobotDataset.__getitem__ takes " in said
    assert (
        '`fastload pack ../set OUT --as lerobot` and `fastload.DataLoader("OUT", batch_size=8, shuffle=True, '
        "fields=fastload.Fields(windows=dataset.delta_timestamps))` in place of lerobot's "
        "LeRobotDataset.__getitem__"
    ) in said.replace("\n", " ")
