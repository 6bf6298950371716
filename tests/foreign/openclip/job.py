"""Training by open_clip_train's train_one_epoch, started by torchrun."""

from __future__ import annotations

import json
import os
import sys
from argparse import Namespace
from typing import Any

import bare_torchvision  # noqa: F401
import torch
import torch.distributed as dist
from foreign_runs import BATCH, COUNT, EPOCHS, EngineBatches, digest, our_loader, run_scenarios, torch_loader
from open_clip.loss import ClipLoss
from open_clip.model import CLIP
from open_clip_train.data import DataInfo
from open_clip_train.train import evaluate, train_one_epoch

from fastload import Ranks
from fastload.integrations.open_clip import CaptionTokens, data_info

ENGINE = EngineBatches()
# The caption of label i says i, between CLIP's first and last token.
TOKENS = torch.tensor([[50, label, 51, 0] for label in range(COUNT)])


class Captioned:
    """torch's loader with the captions of its labels."""

    def __init__(self, loader: Any) -> None:
        self.loader, self.num_batches, self.num_samples = loader, len(loader), COUNT

    def __iter__(self) -> Any:
        return (CaptionTokens(TOKENS)(*batch) for batch in self.loader)


def tiny_clip() -> CLIP:
    """The smallest CLIP that has both towers."""
    torch.manual_seed(0)
    vision = {"image_size": 32, "layers": 1, "width": 32, "patch_size": 16, "head_width": 16}
    text = {"context_length": 4, "vocab_size": 64, "width": 32, "heads": 2, "layers": 1}
    return CLIP(embed_dim=16, vision_cfg=vision, text_cfg=text, output_dict=True)


def arguments_of(given: dict[str, Any]) -> Namespace:
    """What the loop reads of the command line."""
    switches = dict.fromkeys(("distill", "horovod", "skip_scheduler", "wandb", "save_logs"), False)
    place = {"rank": given["rank"], "local_rank": given["rank"], "world_size": given["world"]}
    return Namespace(
        **{
            **switches,
            **place,
            "skip_scheduler": True,
            "device": "cpu",
            "precision": "fp32",
            "accum_freq": 1,
        },
        **{"grad_clip_norm": None, "batch_size": BATCH, "log_every_n_steps": 1, "log_local": False},
        **{"distributed": given["world"] > 1, "val_frequency": 1, "epochs": EPOCHS, "zeroshot_frequency": 0},
    )


def make_data(given: dict[str, Any]) -> DataInfo:
    """By the argument ``loader``."""
    if given["loader"] == "torch":
        loader = torch_loader(given["set"], given["rank"], given["world"])
        return DataInfo(Captioned(loader), sampler=loader.sampler)
    return data_info(our_loader(given["set"], batch_transform=CaptionTokens(TOKENS)))


def train(given: dict[str, Any]) -> dict[str, Any]:
    """One scenario on one rank; this loop knows whole epochs only."""
    data, labels, steps = {"train": make_data(given)}, [], [0]
    before, plain = ENGINE.count, tiny_clip()
    model: Any = torch.nn.parallel.DistributedDataParallel(plain) if given["world"] > 1 else plain
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1, momentum=0.9)
    optimizer.register_step_post_hook(lambda *_: steps.__setitem__(0, steps[0] + 1))
    plain.register_forward_pre_hook(lambda _, inputs: labels.append(inputs[1][:, 1].tolist()))
    loss = ClipLoss(rank=given["rank"], world_size=given["world"])
    state, first, last = given["folder"] / f"state{given['rank']}.pt", 0, EPOCHS
    if "stop" in given:
        last = given["stop"]
    if "resume" in given:
        kept = torch.load(state)
        plain.load_state_dict(kept["model"])
        optimizer.load_state_dict(kept["optimizer"])
        first = kept["epoch"]
    for epoch in range(first, last):
        train_one_epoch(model, data, loss, epoch, optimizer, None, None, None, arguments_of(given))
    if "stop" in given:
        kept = {"model": plain.state_dict(), "optimizer": optimizer.state_dict(), "epoch": last}
        torch.save(kept, state)
    found = {"engine": ENGINE.count - before, "labels": labels, "steps": steps[0], "weights": digest(plain)}
    if given.get("evaluate"):
        whole = {"ranks": Ranks(0, 1, handshake="off"), "shuffle": False}
        data["val"] = data_info(our_loader(given["set"], batch_transform=CaptionTokens(TOKENS), **whole))
        alone = Namespace(**{**vars(arguments_of(given)), "distributed": False})
        found["val"] = evaluate(plain, data, EPOCHS, alone).get("num_samples")
    return found


if __name__ == "__main__":
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    run_scenarios(train, json.loads(sys.argv[1]), int(os.environ.get("RANK", "0")))
    if dist.is_initialized():
        dist.destroy_process_group()
