"""Pictures with salt and pepper, which a transform in pure Python strews."""

import argparse
import random

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)  # the model is small


class SaltAndPepper:
    def __init__(self, share=0.3):
        self.share = share

    def __call__(self, pixels):
        height, width, _ = pixels.shape
        for y in range(height):  # the fault
            for x in range(width):  # the fault
                if random.random() < self.share:  # the fault
                    pixels[y, x] = random.choice((0, 255))  # the fault
        return pixels


class FastSaltAndPepper(SaltAndPepper):
    def __call__(self, pixels):
        chosen = np.random.rand(*pixels.shape[:2]) < self.share
        pixels[chosen] = np.random.choice((0, 255), (int(chosen.sum()), 1))
        return pixels


class NoisyPictures(Dataset):
    def __init__(self, pixels, transform):
        self.pixels = pixels
        self.transform = transform

    def __len__(self):
        return len(self.pixels)

    def __getitem__(self, index):
        pixels = self.pixels[index, ::2, ::2].copy()
        noisy = self.transform(pixels.copy())
        to_tensor = lambda a: torch.from_numpy(a).permute(2, 0, 1).float() / 255  # noqa: E731
        return to_tensor(noisy), to_tensor(pixels)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--mended", action="store_true")
    args = parser.parse_args()

    transform = FastSaltAndPepper() if args.mended else SaltAndPepper()
    dataset = NoisyPictures(np.load(args.data + "/pixels.npy", mmap_mode="r"), transform)
    loader = DataLoader(dataset, batch_size=16, shuffle=True, num_workers=2, persistent_workers=True)
    denoiser = nn.Conv2d(3, 3, 3, padding=1)
    optimizer = torch.optim.SGD(denoiser.parameters(), lr=0.1)
    for _epoch in range(10**6):
        for noisy, clean in loader:
            loss = nn.functional.mse_loss(denoiser(noisy), clean)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
