"""Outlines of things, of different lengths, which the collate function pads as nested lists."""

import argparse
import json

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)  # the model is small

CORNERS = 28


class Scenes(Dataset):
    def __init__(self, path, as_arrays=False):
        with open(path) as f:
            self.scenes = json.load(f)
        if as_arrays:
            self.scenes = [
                [np.array(outline, dtype=np.float32) for outline in scene] for scene in self.scenes
            ]

    def __len__(self):
        return len(self.scenes)

    def __getitem__(self, index):
        return {"outlines": self.scenes[index], "label": index % 3}


def pad_collate(batch):
    padded = []
    for item in batch:
        scene = []
        for outline in item["outlines"]:
            row = [[x, y] for x, y in outline]  # the fault
            while len(row) < CORNERS:  # the fault
                row = row + [[0.0, 0.0]]  # noqa: RUF005  # the fault
            scene.append(row)
        padded.append(scene)
    outlines = torch.tensor(padded)  # the fault
    labels = torch.tensor([item["label"] for item in batch])
    return outlines, labels


def array_collate(batch):
    outlines = np.zeros((len(batch), 40, CORNERS, 2), dtype=np.float32)
    for b, item in enumerate(batch):
        for k, outline in enumerate(item["outlines"]):
            outlines[b, k, : len(outline)] = outline
    return torch.from_numpy(outlines), torch.tensor([item["label"] for item in batch])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--mended", action="store_true")
    args = parser.parse_args()

    loader = DataLoader(
        Scenes(args.data + "/scenes.json", as_arrays=args.mended),
        batch_size=32,
        shuffle=True,
        collate_fn=array_collate if args.mended else pad_collate,
        num_workers=2,
        persistent_workers=True,
    )
    model = nn.Sequential(nn.Flatten(), nn.Linear(40 * CORNERS * 2, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _epoch in range(10**6):
        for outlines, labels in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(outlines), labels).backward()
            optimizer.step()


if __name__ == "__main__":
    main()
