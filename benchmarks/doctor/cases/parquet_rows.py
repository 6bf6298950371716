"""Spectra from a Parquet file, of which a whole row group is read for each row."""

import argparse
import os

import numpy as np
import pyarrow.parquet as pq
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)  # the model is small


def to_arrays(table):
    values = table["values"].combine_chunks()
    flat = values.flatten().to_numpy(zero_copy_only=False)
    return flat.reshape(len(table), -1), table["target"].to_numpy()


class Spectra(Dataset):
    def __init__(self, path, in_memory=False):
        self.path = path
        self.meta = pq.read_metadata(path)
        self.group_rows = self.meta.row_group(0).num_rows
        self.arrays = to_arrays(pq.read_table(path)) if in_memory else None

    def __len__(self):
        return self.meta.num_rows

    def __getitem__(self, idx):
        if self.arrays is not None:
            x, y = self.arrays
            return torch.from_numpy(np.array(x[idx])), torch.tensor(y[idx])
        group, row = divmod(idx, self.group_rows)
        table = pq.ParquetFile(self.path).read_row_group(group, use_threads=False)  # the fault
        x, y = to_arrays(table)
        return torch.from_numpy(np.array(x[row])), torch.tensor(y[row])


if __name__ == "__main__":
    cli = argparse.ArgumentParser()
    cli.add_argument("--data", required=True)
    cli.add_argument("--mended", action="store_true")
    cfg = cli.parse_args()

    dataset = Spectra(os.path.join(cfg.data, "spectra.parquet"), in_memory=cfg.mended)
    loader = DataLoader(dataset, batch_size=16, shuffle=True, num_workers=2, persistent_workers=True)
    model = nn.Sequential(nn.Linear(512, 32), nn.GELU(), nn.Linear(32, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _epoch in range(10**6):
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x).squeeze(1), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
