"""LeRobot's training script with its loader replaced: the same batches, losses as near as pictures are."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from foreign_jobs import torchrun
from framework_runs import environment
from lerobot_written import LENGTHS, write_set

import fastload

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::ResourceWarning"),
]
PROGRAM = Path(__file__).with_name("train_program.py")
SMALL = {
    "act": (
        *("--policy.chunk_size=4", "--policy.n_action_steps=4", "--policy.dim_model=32"),
        "--policy.n_heads=2",
        *("--policy.dim_feedforward=64", "--policy.n_encoder_layers=1", "--policy.use_vae=false"),
        *("--policy.dropout=0", "--policy.pretrained_backbone_weights=null"),
    ),
    "diffusion": (
        *("--policy.horizon=8", "--policy.n_action_steps=4", "--policy.drop_n_last_frames=1"),
        *("--policy.down_dims=[16,32]", "--policy.crop_shape=[40,56]"),
        *("--policy.spatial_softmax_num_keypoints=4", "--policy.diffusion_step_embed_dim=16"),
    ),
}  # fmt: skip
BATCH = 3
CLOSE = 0.005  # of a loss: what pictures that differ by JPEG change it by, measured 0.0012


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The set as LeRobot's writer makes it, and packed."""
    folder = tmp_path_factory.mktemp("sets")
    written = write_set(folder / "written")
    fastload.pack(written, folder / "packed", as_="lerobot", quality=100, num_proc=1)
    return written, folder / "packed"


def trained(
    folder: Path,
    sets: tuple[Path, Path],
    policy: str,
    *,
    ours: bool,
    shuffle: bool,
    steps: int,
    more: tuple[str, ...] = (),
    ranks: int = 1,
) -> list[list[dict[str, Any]]]:
    """What each rank of the script trained on: batches, rows, losses."""
    folder.mkdir(exist_ok=True)
    written, packed = sets
    arguments = more or (
        *(f"--dataset.root={written}", "--dataset.repo_id=me/made", f"--policy.type={policy}"),
        *("--policy.device=cpu", "--policy.push_to_hub=false", *SMALL[policy], f"--batch_size={BATCH}"),
        *("--num_workers=0", "--eval_freq=0", "--log_freq=1", "--seed=3", f"--save_freq={steps}"),
        *("--wandb.enable=false", f"--output_dir={folder / 'run'}"),
    )  # fmt: skip
    words = [str(folder / "rank.json"), str(packed) if ours else "-", "yes" if shuffle else "no"]
    launcher = torchrun(ranks) if ranks > 1 else [sys.executable]
    line = [*launcher, str(PROGRAM), *words, *arguments, f"--steps={steps}"]
    done = subprocess.run(
        line, capture_output=True, text=True, timeout=600, cwd=folder, env=environment(), check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert "End of training" in done.stderr + done.stdout
    return [json.loads((folder / f"rank.{rank}").read_text()) for rank in range(ranks)]


def test_act_trains_on_the_same_batches_to_the_same_losses(sets: tuple[Path, Path], tmp_path: Path) -> None:
    steps = 12  # more than an epoch
    (theirs,) = trained(tmp_path / "theirs", sets, "act", ours=False, shuffle=False, steps=steps)
    (ours,) = trained(tmp_path / "ours", sets, "act", ours=True, shuffle=False, steps=steps)
    assert len(ours) == len(theirs) == steps
    for one, other in zip(ours, theirs, strict=True):
        assert one["rows"] == other["rows"]
        of_own = {"valid": ["torch.bool", [len(one["rows"])]]}
        wanted = dict(other["kinds"])
        for name in ("count", "fine"):  # LeRobot makes int64 and float32 of these; policies do not see them
            assert one["kinds"][name][1] == wanted[name][1]
            wanted[name] = one["kinds"][name]
        assert one["kinds"] == wanted | of_own
        assert one["loss"] == pytest.approx(other["loss"], rel=CLOSE)
    assert ours[0]["loss"] != ours[-1]["loss"]


@pytest.mark.parametrize("policy", SMALL)
def test_a_shuffled_epoch_has_each_row_once_and_training_goes_on(
    policy: str, sets: tuple[Path, Path], tmp_path: Path
) -> None:
    """As the script does it: diffusion without each episode's last row; then again from a checkpoint."""
    starts = [sum(LENGTHS[:number]) for number in range(len(LENGTHS))]
    dropped = 1 if policy == "diffusion" else 0
    anchors = [
        start + row for start, length in zip(starts, LENGTHS, strict=True) for row in range(length - dropped)
    ]
    epoch = -(-len(anchors) // BATCH)
    (found,) = trained(tmp_path, sets, policy, ours=True, shuffle=True, steps=epoch)
    rows = [row for batch in found for row in batch["rows"]]
    assert sorted(rows) == anchors
    assert rows != anchors
    assert all(0 < batch["loss"] < 100 for batch in found)
    of = found[0]["kinds"]
    steps = 2 if policy == "diffusion" else None
    assert of["observation.images.top"] == ["torch.float32", [BATCH, *([steps] * bool(steps)), 3, 48, 64]]
    assert of["action"] == ["torch.float32", [BATCH, 8 if policy == "diffusion" else 4, 6]]
    assert of["action_is_pad"] == ["torch.bool", of["action"][1][:2]]
    config = tmp_path / "run" / "checkpoints" / "last" / "pretrained_model" / "train_config.json"
    (again,) = trained(
        tmp_path, sets, policy, ours=True, shuffle=True, steps=epoch + 2,
        more=(f"--config_path={config}", "--resume=true"),
    )  # fmt: skip
    assert len(again) == 2
    assert all(0 < batch["loss"] < 100 for batch in again)


def test_two_ranks_have_each_row_once(sets: tuple[Path, Path], tmp_path: Path) -> None:
    """Accelerate's way in LeRobot's script: ``prepare`` gives each rank its share."""
    steps = sum(LENGTHS) // (2 * BATCH)
    found = trained(tmp_path, sets, "act", ours=True, shuffle=True, steps=steps, ranks=2)
    rows = [row for rank in found for batch in rank for row in batch["rows"]]
    assert len(rows) == 2 * BATCH * steps
    assert len(set(rows)) == len(rows)
    assert all(0 < batch["loss"] < 100 for rank in found for batch in rank)
