"""Scenes of many things, each an object with its corners: a batch goes through the queue as those objects."""

import argparse
import json
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)  # the model is small


@dataclass
class Corner:
    x: float
    y: float


@dataclass
class Thing:
    number: int
    corners: list


class Scenes(Dataset):
    def __init__(self, path):
        with open(path) as file:
            scenes = json.load(file)[:150]
        self.scenes = [
            [Thing(k, [Corner(x, y) for x, y in outline]) for k, outline in enumerate(scene)]
            for scene in scenes
        ]
        self.largest = np.array(
            [[np.max(outline) for outline in scene] for scene in scenes], dtype=np.float32
        )

    def __len__(self):
        return len(self.scenes)

    def __getitem__(self, index):
        return self.scenes[index], self.largest[index]


class OnlyNumbers(Scenes):
    def __getitem__(self, index):
        return index, self.largest[index]


def collate(samples):
    things, largest = zip(*samples, strict=True)
    return torch.from_numpy(np.stack(largest)), things  # the fault


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument(
        "--mended", action="store_true", help="the objects stay where they are; their numbers go"
    )
    args = parser.parse_args()
    dataset = (OnlyNumbers if args.mended else Scenes)(f"{args.data}/scenes.json")
    loader = DataLoader(
        dataset, batch_size=16, shuffle=True, num_workers=2, collate_fn=collate, persistent_workers=True
    )
    model = nn.Linear(40, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _epoch in range(10**6):
        for largest, _things in loader:
            loss = model(largest).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
