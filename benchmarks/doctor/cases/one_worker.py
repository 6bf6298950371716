# %% A notebook that was saved as a script: cats and dogs, one worker.
import argparse
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)  # the model is small

parser = argparse.ArgumentParser()
parser.add_argument("--data", type=Path)
parser.add_argument("--mended", action="store_true")
args = parser.parse_args()

# %% data
files = sorted(args.data.glob("*/*.jpg"))


class DS(Dataset):
    def __len__(self):
        return len(files)

    def __getitem__(self, i):
        im = Image.open(files[i]).convert("RGB").resize((112, 112), Image.BICUBIC)
        return np.asarray(im).transpose(2, 0, 1).astype("float32") / 255.0, i % 2


num_workers = 2 if args.mended else 1  # the fault
dl = DataLoader(DS(), batch_size=12, shuffle=True, num_workers=num_workers, persistent_workers=True)

# %% model
model = torch.nn.Sequential(
    torch.nn.AvgPool2d(8),
    torch.nn.Flatten(),
    torch.nn.LazyLinear(2),
)
model(torch.zeros(1, 3, 112, 112))
opt = torch.optim.SGD(model.parameters(), lr=0.01)

# %% train
for _epoch in range(10**6):
    running = 0.0
    for xb, yb in dl:
        opt.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(xb), yb)
        loss.backward()
        opt.step()
        running += loss.item()
