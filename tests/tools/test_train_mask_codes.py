"""Codes of masks that are trained: complete, of legal lengths, and the best for what they were trained on."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import train_mask_codes
from coefficient_reader import mask_code_lengths, read_header, read_record
from PIL import Image
from train_mask_codes import BYTE_BITS, COUNT_BITS, WEIGHT, Counts, code_lengths, train

from fastload import _C


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photographs")
    rng = np.random.default_rng(0)
    for number in range(4):
        pixels = rng.integers(0, 256, (9, 12, 3), dtype=np.uint8)
        image = Image.fromarray(pixels).resize((100, 70), Image.Resampling.BICUBIC)
        image.convert("L" if number == 3 else "RGB").save(folder / f"{number}.jpg", quality=70 + 8 * number)
    (folder / "broken.jpg").write_bytes(b"no JPEG")
    return folder


@pytest.fixture(scope="module")
def counts(folder: Path) -> Counts:
    return train_mask_codes.count(train_mask_codes.jpegs(folder, 10))


def test_counts_are_those_of_the_coefficients(folder: Path) -> None:
    """Another way: by each block's coefficients, and strings."""
    data = np.fromfile(folder / "0.jpg", np.uint8)
    wanted = Counts()
    record = read_record(bytes(_C.to_coefficients(data, "small")))
    for component, blocks in enumerate(record.coefficients):
        across = 64 // (8 * record.header.sampling[0]) * record.header.factors(component)[0]
        for row in blocks:
            for i, block in enumerate(row):
                mask = "".join("1" if value else "0" for value in block[1:]) + "0"
                found = [int(mask[at : at + 8][::-1], 2) for at in range(0, 64, 8)]
                while found and found[-1] == 0:
                    found.pop()
                if i % across == 0:
                    before = 4
                wanted.numbers[9 * (component > 0) + before, len(found)] += 1
                for j, byte in enumerate(found):
                    wanted.bytes[3 * min(j, 4) + min(len(found) - 1 - j, 2), byte] += 1
                before = len(found)
    counts = Counts()
    counts.add_record(read_header(bytes(_C.to_coefficients(data, "fast"))))
    assert counts.blocks > 100
    assert np.array_equal(counts.numbers, wanted.numbers)
    assert np.array_equal(counts.bytes, wanted.bytes)


def test_codes_are_complete_and_no_longer_than_the_present_ones(counts: Counts) -> None:
    assert counts.blocks > 500
    tables = zip(train(counts), mask_code_lengths(), (counts.numbers, counts.bytes), strict=True)
    for (new, present, weights), limit in zip(tables, (COUNT_BITS, BYTE_BITS), strict=True):
        assert len(new) == len(present) == len(weights)
        for mine, theirs, row in zip(new, present, weights, strict=True):
            assert [length > 0 for length in mine] == [length > 0 for length in theirs]
            assert max(mine) <= limit
            assert max(theirs) <= limit
            assert sum(2.0**-length for length in mine if length) == 1
            assert (WEIGHT * row + 1) @ np.array(mine) <= (WEIGHT * row + 1) @ np.array(theirs)


def test_lengths_are_the_best_of_all() -> None:
    """Against every set of lengths that is a complete code."""
    rng = np.random.default_rng(0)
    for values, limit in itertools.product((2, 3, 5), (3, 4)):
        every = [
            lengths
            for lengths in itertools.product(range(1, limit + 1), repeat=values)
            if sum(2.0**-length for length in lengths) == 1
        ]
        for _ in range(20):
            weights = (rng.random(values) ** 4 * 1000 + 1).astype(int).tolist()
            best = min(np.dot(weights, lengths) for lengths in every)
            assert np.dot(weights, code_lengths(weights, limit)) == best
    assert code_lengths([8, 0, 4, 2, 1, 1], 4) == [1, 0, 2, 3, 4, 4]
    assert code_lengths([8, 0, 4, 2, 1, 1], 3) == [1, 0, 3, 3, 3, 3]
    with pytest.raises(ValueError, match="2 to 4 values. Found: 5"):
        code_lengths([1] * 5, 2)


def test_what_it_prints(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train_mask_codes.main([str(folder)])
    said = capsys.readouterr()
    assert "broken.jpg" in said.err
    rows = [line for line in said.out.splitlines() if line.endswith("` |")]
    assert len(rows) == 18 + 15
    assert rows[0].startswith("| 0 | `")
    bits = [float(line.split("= ")[1]) for line in said.out.splitlines() if " codes" in line and "=" in line]
    assert len(bits) == 2
    assert bits[1] < bits[0]


def test_a_folder_without_jpegs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        train_mask_codes.main([str(tmp_path)])
    assert "There is no JPEG in" in capsys.readouterr().err
