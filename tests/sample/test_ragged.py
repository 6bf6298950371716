"""Ragged against lists of lists."""

from __future__ import annotations

import copy
import io
import pickle
import random

import pytest
import torch
from torch.utils.data import default_collate
from torch.utils.data._utils.collate import default_convert
from torch.utils.data._utils.pin_memory import pin_memory

from fastload import Ragged

Rows = list[list[float]]


def made(counts: list[int], width: int = 3, dtype: torch.dtype = torch.float32) -> tuple[Ragged, list[Rows]]:
    """A Ragged and the same rows as lists."""
    numbers = iter(range(10_000))
    samples = [[[float(next(numbers)) for _ in range(width)] for _ in range(count)] for count in counts]
    flat = [row for rows in samples for row in rows]
    values = torch.tensor(flat, dtype=dtype).reshape(len(flat), width)
    ends = [sum(counts[:i]) for i in range(len(counts) + 1)]
    return Ragged(values, torch.tensor(ends)), samples


CASES = [[2, 0, 3, 1], [0], [0, 0, 0], [5], [], [1] * 9]


@pytest.mark.parametrize("counts", CASES)
def test_it_has_its_samples_rows(counts: list[int]) -> None:
    ragged, samples = made(counts)
    assert len(ragged) == len(samples)
    assert ragged.lengths.tolist() == counts
    assert [part.tolist() for part in ragged] == samples
    assert [part.tolist() for part in ragged.to_list()] == samples
    assert [ragged[i].tolist() for i in range(-len(samples), len(samples))] == samples * 2
    assert (ragged.dtype, ragged.device) == (torch.float32, torch.device("cpu"))


def test_rows_are_views_and_not_copies() -> None:
    ragged, _ = made([2, 3])
    ragged[1][0, 0] = -1.0
    ragged.to_list()[0][1, 2] = -2.0
    assert ragged.values[2, 0] == -1.0
    assert ragged.values[1, 2] == -2.0
    assert ragged[1:].values.data_ptr() == ragged[1].data_ptr()


@pytest.mark.parametrize("index", [2, -3])
def test_an_index_out_of_range(index: int) -> None:
    ragged, _ = made([2, 3])
    with pytest.raises(IndexError, match="out of range for 2 samples"):
        ragged[index]


def test_slices_and_chosen_samples_are_lists_slices() -> None:
    counts = [2, 0, 3, 1, 4, 0]
    ragged, samples = made(counts)
    draw = random.Random(3)
    bounds = [None, *range(-8, 9)]
    for _ in range(300):
        part = slice(draw.choice(bounds), draw.choice(bounds), draw.choice([None, 1, 2, -1, -2, 5]))
        found = ragged[part]
        assert [rows.tolist() for rows in found] == samples[part], part
        Ragged(found.values, found.offsets)  # its parts fit, too
    for _ in range(100):
        chosen = [draw.randrange(-6, 6) for _ in range(draw.randrange(9))]
        for index in (chosen, torch.tensor(chosen, dtype=torch.int64)):
            assert [rows.tolist() for rows in ragged[index]] == [samples[i] for i in chosen]
    kept = torch.tensor([True, False, True, True, False, True])
    assert [rows.tolist() for rows in ragged[kept]] == [s for s, k in zip(samples, kept, strict=True) if k]
    with pytest.raises(IndexError, match="2 bools for 6 samples"):
        ragged[torch.tensor([True, False])]


@pytest.mark.parametrize("counts", CASES)
@pytest.mark.parametrize("more", [None, 0, 2])
def test_padded(counts: list[int], more: int | None) -> None:
    ragged, samples = made(counts)
    longest = max(counts, default=0)
    rows = longest + (more or 0)
    padded = ragged.to_padded(-7.0, None if more is None else rows)
    wanted = [part + [[-7.0] * 3] * (rows - len(part)) for part in samples]
    assert padded.shape == (len(counts), rows, 3)
    assert padded.tolist() == wanted


def test_padded_cuts_nothing_off() -> None:
    ragged, _ = made([2, 4])
    with pytest.raises(ValueError, match="has 4 rows, and max_rows is 3"):
        ragged.to_padded(0, max_rows=3)


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64, torch.bool, torch.float16])
def test_any_dtype(dtype: torch.dtype) -> None:
    """torch has not all operations for all of them."""
    ragged = Ragged(torch.tensor([[1], [0], [1]]).to(dtype), torch.tensor([0, 2, 2, 3]))
    assert ragged.to_padded(1).tolist() == [[[1], [0]], [[1], [1]], [[1], [1]]]
    assert [rows.tolist() for rows in ragged[[2, 0]]] == [[[1]], [[1], [0]]]
    assert default_collate([ragged, ragged]) == Ragged.from_list([*ragged, *ragged])


def test_padded_keeps_integers() -> None:
    values = torch.tensor([2**53 + 1, -1])
    padded = Ragged(values, torch.tensor([0, 1, 1, 2])).to_padded(-100)
    assert padded.tolist() == [[2**53 + 1], [-100], [-1]]


@pytest.mark.parametrize("counts", [[2, 0, 3, 1], [1]])
def test_nested(counts: list[int]) -> None:
    ragged, samples = made(counts)
    nested = ragged.to_nested()
    assert nested.is_nested
    assert nested.layout == torch.jagged
    assert [part.tolist() for part in nested.unbind()] == samples


def test_equality() -> None:
    ragged, _ = made([2, 0, 3])
    assert ragged == made([2, 0, 3])[0]
    assert ragged != made([2, 3, 0])[0]
    assert ragged != made([2, 0, 3], dtype=torch.float64)[0]
    assert ragged != Ragged(ragged.values + 1, ragged.offsets)
    assert ragged != [1, 2]
    assert repr(ragged) == "Ragged(3 samples, values (5, 3) torch.float32)"
    with pytest.raises(TypeError, match="unhashable"):
        hash(ragged)


def test_pickled_copied_and_saved() -> None:
    ragged, _ = made([2, 0, 3])
    assert pickle.loads(pickle.dumps(ragged)) == ragged
    assert copy.deepcopy(ragged) == ragged
    file = io.BytesIO()
    torch.save({"boxes": ragged}, file)
    file.seek(0)
    assert torch.load(file, weights_only=False)["boxes"] == ragged


def test_moved() -> None:
    ragged, _ = made([2, 0, 3])
    assert ragged.to("cpu") is ragged
    assert ragged.to(device="cpu", non_blocking=True) is ragged
    half = ragged.to(torch.float16)
    assert (half.dtype, half.offsets.dtype) == (torch.float16, torch.int64)
    assert half.to(torch.float32) == ragged
    meta = ragged.to(torch.device("meta"), non_blocking=True)  # as Accelerate's send_to_device calls it
    assert meta.device.type == meta.offsets.device.type == "meta"
    assert repr(meta) == "Ragged(3 samples, values (5, 3) torch.float32, device='meta')"


def test_what_torch_does_with_a_batch() -> None:
    """default_convert and pin_memory leave it what it is; default_collate joins."""
    (first, one), (second, two) = made([2, 0]), made([1, 3])
    assert default_convert({"boxes": first})["boxes"] is first
    joined = default_collate([{"boxes": first}, {"boxes": second}])["boxes"]
    assert [rows.tolist() for rows in joined] == one + two
    Ragged(joined.values, joined.offsets)


@pytest.mark.parametrize("device", [None, "cuda"])
def test_pinned(monkeypatch: pytest.MonkeyPatch, device: str | None) -> None:
    """Both of its tensors are; torch's loader asks it to."""
    asked: list[tuple[torch.Tensor, tuple[object, ...]]] = []

    def pinned(tensor: torch.Tensor, *arguments: object) -> torch.Tensor:
        asked.append((tensor, arguments))
        return tensor.clone()

    monkeypatch.setattr(torch.Tensor, "pin_memory", pinned)
    ragged, _ = made([2, 0, 3])
    found = ragged.pin_memory(device) if device else pin_memory({"boxes": ragged})["boxes"]
    assert found == ragged
    given = () if device is None else (device,)
    assert [
        (tensor is part, arguments)
        for (tensor, arguments), part in zip(asked, (ragged.values, ragged.offsets), strict=True)
    ] == [(True, given)] * 2
    assert not ragged.is_pinned()


def test_from_list() -> None:
    ragged, samples = made([2, 0, 3])
    assert Ragged.from_list([torch.tensor(rows).reshape(-1, 3) for rows in samples]) == ragged
    with pytest.raises(ValueError, match="at least one sample"):
        Ragged.from_list([])
    with pytest.raises(ValueError, match=r"\(2, 4\) torch.float32 for sample 1, \(1, 3\)"):
        Ragged.from_list([torch.zeros(1, 3), torch.zeros(2, 4)])
    with pytest.raises(ValueError, match="torch.float64 for sample 1"):
        Ragged.from_list([torch.zeros(1, 3), torch.zeros(2, 3, dtype=torch.float64)])


@pytest.mark.parametrize(
    ("values", "offsets", "message"),
    [
        (torch.zeros(3), torch.tensor([0, 2]), "end with 3"),
        (torch.zeros(3), torch.tensor([1, 3]), "1 first"),
        (torch.zeros(3), torch.tensor([0, 2, 1, 3]), "and a fall"),
        (torch.zeros(3), torch.tensor([0, 3], dtype=torch.int32), "int64"),
        (torch.zeros(3), torch.tensor([], dtype=torch.int64), "also for no samples"),
        (torch.zeros(3), torch.tensor([[0, 3]]), "int64 of shape"),
        (torch.tensor(3.0), torch.tensor([0, 3]), "first dimension"),
        (torch.zeros(3), torch.tensor([0, 3], device="meta"), "on one device"),
    ],
)
def test_parts_that_do_not_fit(values: torch.Tensor, offsets: torch.Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Ragged(values, offsets)


def test_parts_that_are_no_tensors() -> None:
    with pytest.raises(TypeError, match="takes two tensors. Found: list and Tensor"):
        Ragged([1, 2], torch.tensor([0, 2]))  # type: ignore[arg-type]
