"""Vision-language: Qwen's models of transformers learn answers to questions about pictures, in packs.

    pip install transformers
    fastload pack finevision packed      # Parquet with a list of pictures and a list of turns in each row
    python examples/vision_language.py packed --model Qwen/Qwen2.5-VL-3B-Instruct

Several conversations share a sequence of ``--tokens``, and see nothing of each other. Pictures are those of
the processor, bit for bit. docs/guide/vlm-recipes.md has Trainer and others, docs/guide/chat.md other models.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch

import fastload

# What the model is called with; a batch also says which samples are in it, and where documents begin.
INPUTS = ("input_ids", "labels", "position_ids", "pixel_values", "image_grid_thw")


def train(given: argparse.Namespace, processor: Any, network: Any) -> None:
    """Train ``given.steps`` steps of ``given.batch_size`` packs each, and print the loss of each."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    chat, vision = fastload.Chat(processor, turns=given.turns), fastload.Vision(processor)
    lengths = chat.lengths(given.folder, vision)  # texts are tokenised once; no picture is opened
    packs = fastload.PackingSampler(lengths.tokens, given.tokens, costs=lengths.images, long="skip")
    print(packs)
    network.to(device).train()
    optimizer = torch.optim.AdamW(network.parameters(), given.rate)
    options: dict[str, Any] = {"sampler": packs, "drop_last": True, "seed": 0}
    with fastload.DataLoader(
        given.folder, given.batch_size, transform=vision, text=chat, **options
    ) as loader:
        batches = endless(loader)
        for step in range(given.steps):
            batch = next(batches)
            inputs = {name: batch[name] for name in INPUTS}
            moved = {name: None if value is None else value.to(device) for name, value in inputs.items()}
            # Without use_cache=False, transformers lets the conversations of a pack see each other.
            loss = network(**moved, use_cache=False).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(f"step {step + 1}: loss {float(loss.detach()):.3f}", flush=True)


def endless(loader: Any) -> Any:
    """Batches of one epoch after the other."""
    if not len(loader):
        raise SystemExit("The folder has fewer packs than a batch: pass a smaller --batch-size or --tokens.")
    while True:
        yield from loader


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", help="made by 'fastload pack'")
    parser.add_argument("--model", default="Qwen/Qwen2.5-VL-3B-Instruct", help="its name, or a folder")
    parser.add_argument("--turns", default="texts", help="the field of the conversations")
    parser.add_argument("--tokens", type=int, default=4096, help="tokens of a pack")
    parser.add_argument("--batch-size", type=int, default=1, help="packs of a step")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--rate", type=float, default=1e-5, help="the learning rate")
    return parser


if __name__ == "__main__":
    from transformers import AutoModelForImageTextToText, AutoProcessor

    chosen = arguments().parse_args()
    train(
        chosen,
        AutoProcessor.from_pretrained(chosen.model),
        AutoModelForImageTextToText.from_pretrained(chosen.model),
    )
