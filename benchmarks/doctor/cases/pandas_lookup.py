"""Predict an outcome from a patient's visits, which are looked up in a table."""

import argparse
import os

import pandas as pd
import torch
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)  # the model is small

parser = argparse.ArgumentParser()
parser.add_argument("--data")
parser.add_argument("--mended", action="store_true")
parser.add_argument("--batch-size", type=int, default=16)
args = parser.parse_args()


class VisitDataset(Dataset):
    def __init__(self, root):
        self.root = root
        self.labels = pd.read_csv(os.path.join(root, "labels.csv"))
        self.grouped = None
        if args.mended:
            df = pd.read_csv(os.path.join(root, "visits.csv"))
            columns = [c for c in df.columns if c.startswith("lab")]
            self.grouped = {key: group[columns].to_numpy("float32") for key, group in df.groupby("patient")}
            self.targets = self.labels.label.to_numpy()

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        if self.grouped is not None:
            return torch.from_numpy(self.grouped[i]).mean(0), torch.tensor(self.targets[i])
        df = pd.read_csv(os.path.join(self.root, "visits.csv"))  # the fault
        visits = df[df.patient == i].drop(columns=["patient", "day"])  # the fault
        label = self.labels[self.labels.patient == i].label.iloc[0]
        return torch.tensor(visits.values, dtype=torch.float32).mean(0), torch.tensor(label)


def train():
    ds = VisitDataset(args.data)
    dl = DataLoader(ds, batch_size=args.batch_size, shuffle=True, num_workers=2, persistent_workers=True)
    model = torch.nn.Linear(8, 2)
    optim = torch.optim.Adam(model.parameters())
    criterion = torch.nn.CrossEntropyLoss()
    for _epoch in range(10**6):
        for features, target in dl:
            optim.zero_grad()
            loss = criterion(model(features), target)
            loss.backward()
            optim.step()


if __name__ == "__main__":
    train()
