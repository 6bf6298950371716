"""Trainer on packs of conversations: vlm_trainer_program.py SET OUT. Each rank writes OUT/rank<r>.json.

The class is that of docs/guide/vlm-recipes.md.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from local_conversations import small_model
from local_processors import made_processor
from numbered_set import write_result
from transformers import Trainer, TrainingArguments

import fastload

FOLDER, OUT = sys.argv[1], Path(sys.argv[2])
RANKS = int(os.environ.get("WORLD_SIZE", "1"))
PACKS = 2  # of a step, over all ranks
processor = made_processor("Qwen2VL", "merging")
chat, vision = fastload.Chat(processor), fastload.Vision(processor)
lengths = chat.lengths(FOLDER, vision)


class PackTrainer(Trainer):
    """Trainer that reads packs."""

    made: Any = None
    seen: list[Any]

    def get_train_dataloader(self) -> Any:
        packs = fastload.PackingSampler(lengths.tokens, 200, costs=lengths.images)
        self.made = fastload.DataLoader(
            FOLDER,
            self.args.train_batch_size,
            sampler=packs,
            seed=self.args.seed,
            transform=vision,
            text=chat,
        )
        return self.accelerator.prepare(self.made)

    def compute_loss(self, model: Any, inputs: Any, *args: Any, **options: Any) -> Any:
        names = ["input_ids", "labels", "position_ids", "pixel_values", "image_grid_thw"]
        self.seen.append([pack.tolist() for pack in inputs["documents"].to_list()])
        inputs = {name: inputs[name] for name in names}
        return super().compute_loss(model, {**inputs, "use_cache": False}, *args, **options)


def trainer_of(name: str, checkpoint: Path | None = None) -> PackTrainer:
    """A Trainer of a small random Qwen2-VL, or of that in a checkpoint.

    Trainer of transformers 5.23 does not load it: it saves weights under older names, which it does not know.
    """
    model = small_model("Qwen2VL")
    if checkpoint is not None:
        model = type(model).from_pretrained(checkpoint)
    model.config.image_token_id = model.model.config.image_token_id = processor.image_token_id
    args = TrainingArguments(
        output_dir=str(OUT / name),
        use_cpu=True,
        per_device_train_batch_size=PACKS // RANKS,
        num_train_epochs=2,
        learning_rate=1e-2,
        logging_steps=1,
        save_steps=3,
        report_to=[],
        disable_tqdm=True,
        ddp_find_unused_parameters=True,
    )
    made = PackTrainer(model, args)
    made.seen = []
    return made


def losses_of(trainer: PackTrainer) -> list[float]:
    """The loss of each step."""
    return [row["loss"] for row in trainer.state.log_history if "loss" in row]


def run() -> dict[str, Any]:
    """A training, and one that goes on from its third step."""
    whole, checkpoint = trainer_of("whole"), OUT / "whole" / "checkpoint-3"
    whole.train()
    resumed = trainer_of("resumed", checkpoint)
    resumed.train(resume_from_checkpoint=str(checkpoint))
    return {
        "seen": whole.seen,
        "resumed": resumed.seen,
        "steps": whole.state.global_step,
        "losses": losses_of(whole),
        "resumed losses": losses_of(resumed),
        "batches": whole.made.stats()["data_wait"]["count"],
    }


if __name__ == "__main__":
    faulthandler.dump_traceback_later(250)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    found = run()
    rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
    write_result(OUT, rank, found)
