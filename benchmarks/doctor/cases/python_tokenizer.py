"""Reviews as a stream: each worker reads its share of the lines and splits words with Python."""

import argparse
import gzip
import json
import random
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

torch.set_num_threads(1)  # the model is small

LENGTH = 128


class Tokenizer:
    def __init__(self, vocabulary):
        self.vocabulary = vocabulary

    def words(self, text):
        word = ""
        for letter in text.lower():  # the fault
            if letter.isalnum():  # the fault
                word += letter  # the fault
            elif word:  # the fault
                yield word
                word = ""
        if word:
            yield word

    def __call__(self, text):
        ids = [self.vocabulary.get(word, 1) for word in self.words(text)]
        return (ids + [0] * LENGTH)[:LENGTH]


class Reviews(IterableDataset):
    def __init__(self, folder):
        with gzip.open(folder / "reviews.jsonl.gz", "rt") as file:
            self.rows = [json.loads(line) for line in file]
        self.tokenizer = Tokenizer(json.loads((folder / "vocabulary.json").read_text()))

    def share(self):
        info = get_worker_info()
        numbers = list(range(len(self.rows)))[info.id :: info.num_workers]
        random.shuffle(numbers)
        return numbers

    def __iter__(self):
        for number in self.share():
            row = self.rows[number]
            yield torch.tensor(self.tokenizer(row["text"])), row["label"]


class TokenizedReviews(Reviews):
    def __init__(self, folder):
        super().__init__(folder)
        self.tokens = torch.from_numpy(np.load(folder / "tokens.npy"))

    def __iter__(self):
        for number in self.share():
            yield self.tokens[number], self.rows[number]["label"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--mended", action="store_true")
    args = parser.parse_args()
    dataset = TokenizedReviews(args.data) if args.mended else Reviews(args.data)
    loader = DataLoader(dataset, batch_size=64, num_workers=2, persistent_workers=True)
    model = nn.Sequential(nn.EmbeddingBag(2002, 16), nn.Linear(16, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _epoch in range(10**6):
        for tokens, labels in loader:
            loss = nn.functional.cross_entropy(model(tokens), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
