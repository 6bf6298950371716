"""Fine-tune a vision-language model's projector: the processor is called in the collate function."""

import argparse
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from transformers import AutoProcessor

torch.set_num_threads(1)  # the model is small


class Captions(Dataset):
    def __init__(self, path):
        self.pixels = np.load(path, mmap_mode="r")

    def __len__(self):
        return len(self.pixels)

    def __getitem__(self, index):
        return {
            "image": self.pixels[index, :168, :],
            "text": f"A photograph of a {['cat', 'dog'][index % 2]}.",
        }


def collate_fn(examples, processor):
    images = [example["image"] for example in examples]
    batch = processor(images)  # the fault
    batch = {key: torch.from_numpy(value) for key, value in batch.items()}
    batch["labels"] = torch.tensor([int("dog" in example["text"]) for example in examples])
    return batch


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--mended", action="store_true", help="the library's fast processor")
    args = parser.parse_args()

    processor = AutoProcessor.from_pretrained("some/patches-224", use_fast=args.mended)
    loader = DataLoader(
        Captions(args.data / "pixels.npy"),
        batch_size=4,
        shuffle=True,
        num_workers=2,
        collate_fn=partial(collate_fn, processor=processor),
        persistent_workers=True,
    )
    projector = nn.Linear(14 * 14 * 3, 8)
    head = nn.Linear(8, 2)
    optimizer = torch.optim.AdamW([*projector.parameters(), *head.parameters()], lr=1e-3)
    for _epoch in range(10**6):
        for batch in loader:
            hidden = projector(batch["pixel_values"]).mean(1)
            loss = nn.functional.cross_entropy(head(hidden), batch["labels"])
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()


if __name__ == "__main__":
    main()
