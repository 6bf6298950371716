"""Classification: a small ResNet on a packed folder, judged on ``val`` after each epoch, and resumable.

    fastload pack photos packed          # photos/train/CLASS/*.jpg and photos/val/CLASS/*.jpg
    python examples/classification.py packed --epochs 10 --checkpoint run.pt

Killed and started again, it goes on with the epoch that it was in. On several GPUs: cluster.py. With every
option that one may want: tools/train.py.
"""

from __future__ import annotations

import argparse
import os
from itertools import pairwise
from pathlib import Path

import torch
from torch import nn

import fastload
from fastload import transforms as T

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class Block(nn.Module):
    """Two convolutions and a way around them (He et al. 2015), which averages (He et al. 2019, ResNet-D)."""

    def __init__(self, inside: int, outside: int) -> None:
        super().__init__()
        self.way = nn.Sequential(
            *(nn.Conv2d(inside, outside, 3, 2, 1, bias=False), nn.BatchNorm2d(outside), nn.ReLU()),
            *(nn.Conv2d(outside, outside, 3, 1, 1, bias=False), nn.BatchNorm2d(outside)),
        )
        self.around = nn.Sequential(nn.AvgPool2d(2, ceil_mode=True), nn.Conv2d(inside, outside, 1))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """(n, inside, h, w) to (n, outside, h / 2, w / 2)."""
        return (self.way(images) + self.around(images)).relu()


def small_resnet(classes: int) -> nn.Module:
    """Four blocks."""
    widths = (3, 32, 64, 128, 256)
    blocks = [Block(inside, outside) for inside, outside in pairwise(widths)]
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], classes))


def loaders(folder: Path, batch_size: int, side: int) -> tuple[fastload.DataLoader, fastload.DataLoader]:
    """Of ``train`` and of ``val``."""
    ending = T.Normalize(MEAN, STD)
    varied = T.Compose([T.RandomResizedCrop(side), T.RandomHorizontalFlip(), ending])
    plain = T.Compose([T.Resize(side * 8 // 7), T.CenterCrop(side), ending])
    training = {"shuffle": True, "drop_last": True, "seed": 0}
    train = fastload.DataLoader(folder / "train", batch_size, transform=varied, **training)
    return train, fastload.DataLoader(folder / "val", batch_size, transform=plain)


@torch.no_grad()
def accuracy(network: nn.Module, loader: fastload.DataLoader, device: torch.device) -> float:
    """The share of pictures whose class is found."""
    network.eval()
    right = 0
    for images, labels in loader:
        right += int((network(images.to(device)).argmax(1).cpu() == labels).sum())
    network.train()
    return right / len(loader.dataset)


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="made by 'fastload pack', with train and val in it")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--side", type=int, default=128, help="of the pictures, in pixels")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--checkpoint", type=Path, help="file to save after each epoch, and to resume from")
    given = parser.parse_args()
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train, val = loaders(given.folder, given.batch_size, given.side)
    print(train.explain())
    network = small_resnet(len(train.dataset.classes)).to(device)
    optimizer = torch.optim.AdamW(network.parameters(), 1e-3)
    done = 0
    if given.checkpoint and given.checkpoint.exists():
        saved = torch.load(given.checkpoint, map_location=device)
        network.load_state_dict(saved["network"])
        optimizer.load_state_dict(saved["optimizer"])
        train.load_state_dict(saved["loader"])
        done = saved["epochs"]
    for epoch in range(done, given.epochs):
        for images, labels in train:
            loss = nn.functional.cross_entropy(network(images.to(device)), labels.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch + 1}: loss {loss.item():.4f}, accuracy {accuracy(network, val, device):.3f}")
        if given.checkpoint:
            states = {"network": network.state_dict(), "optimizer": optimizer.state_dict()}
            states |= {"loader": train.state_dict(), "epochs": epoch + 1}
            written = given.checkpoint.with_suffix(".part")
            torch.save(states, written)
            os.replace(written, given.checkpoint)  # whole, or not at all


if __name__ == "__main__":
    main()
