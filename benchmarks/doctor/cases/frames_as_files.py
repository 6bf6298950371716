"""Clips whose frames are files of 192 bytes each, 128 a clip."""

import argparse
import os

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)  # the model is small


class ClipDataset(Dataset):
    def __init__(self, root):
        self.root = root
        self.clips = sorted(os.listdir(root))

    def __len__(self):
        return len(self.clips)

    def load(self, name):
        folder = os.path.join(self.root, name)
        frames = []
        for frame in sorted(os.listdir(folder)):
            with open(os.path.join(folder, frame), "rb") as f:  # the fault
                frames.append(np.frombuffer(f.read(), dtype=np.float32))  # the fault
        return np.stack(frames)

    def __getitem__(self, index):
        return torch.from_numpy(self.load(self.clips[index])), index % 5


class OneFileClips(ClipDataset):
    def load(self, name):
        return np.fromfile(os.path.join(self.root, name), dtype=np.float32).reshape(128, 48)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(48, 16, 9, stride=4)
        self.fc = nn.Linear(16, 5)

    def forward(self, x):
        return self.fc(self.conv(x.transpose(1, 2)).relu().mean(-1))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--mended", action="store_true")
    args = parser.parse_args()
    if args.mended:
        dataset = OneFileClips(os.path.join(args.data, "clips"))
    else:
        dataset = ClipDataset(os.path.join(args.data, "frames"))
    loader = DataLoader(dataset, batch_size=10, shuffle=True, num_workers=2, persistent_workers=True)
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _epoch in range(10**6):
        for clips, labels in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(clips), labels).backward()
            optimizer.step()


if __name__ == "__main__":
    main()
