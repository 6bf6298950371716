"""Fine-tuning on 32 photographs: an epoch is two batches, and each has new workers."""

import argparse
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)  # the model is small


class FewShots(Dataset):
    def __init__(self, root: Path):
        self.paths = sorted(root.glob("*/*.jpg"))[::15][:32]

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        image = Image.open(self.paths[index])
        image.draft("RGB", (250, 188))
        array = np.asarray(image.convert("RGB").resize((64, 64)), dtype=np.float32)
        return torch.from_numpy(array / 255).permute(2, 0, 1), index % 2


def run(data: Path, mended: bool) -> None:
    loader = DataLoader(
        FewShots(data),
        batch_size=16,
        shuffle=True,
        num_workers=2,
        persistent_workers=mended,  # the fault
    )
    backbone = torch.nn.Conv2d(3, 16, 16, stride=16)
    head = torch.nn.Linear(16, 2)
    optimizer = torch.optim.AdamW(head.parameters(), lr=1e-3)
    for _epoch in range(10**6):
        for images, labels in loader:
            with torch.no_grad():
                features = backbone(images).mean(dim=(2, 3))
            loss = F.cross_entropy(head(features), labels)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--mended", action="store_true")
    given = parser.parse_args()
    run(given.data, given.mended)
