"""Batches of pictures as each family's image processor makes them, of rows that lie one behind the other.

A row is a patch (Qwen2-VL, SigLIP 2) or a tile (the others). Rows are copied at most once, and not at all
where nothing is padded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from fastload._native import _C
from fastload.collate.planned import Device
from fastload.vlm import counted
from fastload.vlm.rules import Gemma3, Idefics3, InternVL, LlavaOneVision, PaliGemma, Qwen2VL, Rule, SigLIP2

#: Integer dtypes by size, as which NumPy copies dtypes that it does not know.
_SAME_SIZE: Mapping[int, Any] = {1: np.uint8, 2: np.int16, 4: np.int32}


def batch_of(
    rule: Rule,
    rows: torch.Tensor,
    grids: torch.Tensor,
    counts: torch.Tensor,
    sizes: torch.Tensor | None = None,
    placed: bool = False,
) -> dict[str, torch.Tensor]:
    """Return the image processor's part of a batch, by its names.

    Args:
        rule: what made the rows.
        rows: (n, row) or (n, ...), the rows of all pictures of the batch, in the pictures' order.
        grids: (pictures, 2) int64 on the host: rows and columns of each picture, as ``Rule.sizes`` has them.
        counts: (samples,) int64 on the host: the pictures of each sample.
        sizes: (pictures, 2) int64 on the host: height and width of each picture before anything was done to
            it, which only LLaVA-OneVision's batches say.
        placed: the rows lie already where :func:`places_of` says, with zeros between: nothing is copied.

    Returns:
        ``pixel_values`` and, by the rule:

        - Qwen2VL: ``image_grid_thw`` (pictures, 3) int64.
        - SigLIP2: ``pixel_attention_mask`` (pictures, max_patches) int32, ``spatial_shapes`` (pictures, 2)
          int64.
        - Idefics3: ``pixel_attention_mask`` (samples, tiles, tile, tile) int64: one number for each tile,
          expanded, so it is not to be written to.
        - LlavaOneVision: ``image_sizes`` (pictures, 2) and ``batch_num_images`` int64, of samples with a
          picture.
        - InternVL: ``num_patches`` (pictures,) int64. Gemma3: ``num_crops`` (pictures,) int64. PaliGemma:
          nothing.

        What is padded has zeros behind; as uint8, a table is to be applied before. A batch without a picture
        has empty tensors, where transformers raises.

    Raises:
        ValueError: the numbers do not fit together.
    """
    cells, per_sample = _checked(grids, counts)
    wanted = _rows_of(rule, cells)
    runs, length = _runs(rule, per_sample, wanted)
    expected = len(runs) * length if placed and length else int(wanted.sum())
    if expected != len(rows):
        raise ValueError(
            f"rows must have a row for each patch or tile that grids says{', and for padding' * placed}, "
            f"{expected}. Found: {len(rows)}."
        )
    if length is not None:
        shape = (len(runs), length, *rows.shape[1:])
        rows = rows.view(shape) if placed else _padded(rows, runs, length)
    more = _LAYOUTS[type(rule)](rule, cells, per_sample, wanted, sizes)
    return {"pixel_values": _shaped(rule, rows), **more}


def places_of(rule: Rule, grids: torch.Tensor, counts: torch.Tensor) -> tuple[torch.Tensor, int]:
    """Return where the first row of each picture lies in ``pixel_values``, and how many rows that has.

    What fills a batch's memory there, over zeros, spares :func:`batch_of` its copy (``placed=True``).

    Args:
        rule, grids, counts: as in :func:`batch_of`.

    Returns:
        (pictures,) int64, and the number of rows with those that are padding.

    Raises:
        ValueError: the numbers do not fit together.
    """
    cells, per_sample = _checked(grids, counts)
    wanted = _rows_of(rule, cells)
    before = _sums(wanted)
    runs, length = _runs(rule, per_sample, wanted)
    if length is None:
        return torch.from_numpy(before[:-1]), int(before[-1])
    each = np.repeat(np.arange(len(runs)), per_sample if isinstance(rule, Idefics3) else 1)
    return torch.from_numpy(before[:-1] + each * length - _sums(runs)[each]), len(runs) * length


def _checked(grids: torch.Tensor, counts: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
    cells, per_sample = grids.numpy(), counts.numpy()
    if cells.ndim != 2 or cells.shape[1] != 2 or int(per_sample.sum()) != len(cells):
        raise ValueError(
            f"grids must be (pictures, 2), with as many pictures as counts says, {int(per_sample.sum())}. "
            f"Found: {cells.shape}."
        )
    return cells, per_sample


def _rows_of(rule: Rule, cells: np.ndarray) -> np.ndarray:
    """The rows of each picture."""
    patches = isinstance(rule, Qwen2VL | SigLIP2)
    wanted: np.ndarray = cells[:, 0] * cells[:, 1] if patches else rule.tiles(cells[:, 0], cells[:, 1])
    if isinstance(rule, SigLIP2) and len(wanted) and int(wanted.max()) > rule.max_patches:
        raise ValueError(
            f"{rule!r} gives at most {rule.max_patches} patches a picture. Found: {int(wanted.max())} in "
            f"grids. Pass the rule that made the rows."
        )
    return wanted


def _runs(rule: Rule, counts: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, int | None]:
    """How many rows stand together, and to how many they are padded; None: they are not."""
    if isinstance(rule, SigLIP2):
        return wanted, rule.max_patches
    if isinstance(rule, Idefics3):
        wanted = np.diff(_sums(wanted)[_sums(counts)])  # of each sample
    if isinstance(rule, Idefics3 | LlavaOneVision):
        return wanted, int(wanted.max(initial=0))
    return wanted, None


def _sums(numbers: np.ndarray) -> np.ndarray:
    """The sum of those before each, and of all."""
    return np.concatenate([[0], np.cumsum(numbers)])


def _shaped(rule: Rule, rows: torch.Tensor) -> torch.Tensor:
    """Tiles as pictures; ``rows`` has one dimension for them, or two where they are padded."""
    if isinstance(rule, Qwen2VL | SigLIP2):
        return rows
    padded = isinstance(rule, Idefics3 | LlavaOneVision)
    height, width = rule.size if isinstance(rule, Gemma3 | PaliGemma) else (rule.tile, rule.tile)  # type: ignore[attr-defined]
    return rows.view(*rows.shape[: 1 + padded], 3, height, width)


# ---- Families ---------------------------------------------------------------------------------------


def _qwen2_vl(
    rule: Qwen2VL, cells: np.ndarray, counts: np.ndarray, wanted: np.ndarray, sizes: Any
) -> dict[str, torch.Tensor]:
    frames = np.ones((len(cells), 1), np.int64)
    return {"image_grid_thw": torch.from_numpy(np.hstack([frames, cells]))}


def _siglip2(
    rule: SigLIP2, cells: np.ndarray, counts: np.ndarray, wanted: np.ndarray, sizes: Any
) -> dict[str, torch.Tensor]:
    seen = np.arange(rule.max_patches) < wanted[:, None]
    return {
        "pixel_attention_mask": torch.from_numpy(seen.astype(np.int32)),
        "spatial_shapes": torch.from_numpy(cells.astype(np.int64)),
    }


def _idefics3(
    rule: Idefics3, cells: np.ndarray, counts: np.ndarray, wanted: np.ndarray, sizes: Any
) -> dict[str, torch.Tensor]:
    tiles, most = _runs(rule, counts, wanted)
    seen = torch.from_numpy((np.arange(most or 0) < tiles[:, None]).astype(np.int64))
    return {"pixel_attention_mask": seen[:, :, None, None].expand(-1, -1, rule.tile, rule.tile)}


def _llava_onevision(
    rule: LlavaOneVision, cells: np.ndarray, counts: np.ndarray, wanted: np.ndarray, sizes: Any
) -> dict[str, torch.Tensor]:
    if sizes is None or tuple(sizes.shape) != cells.shape:
        found = None if sizes is None else tuple(sizes.shape)
        raise ValueError(
            f"LlavaOneVision's batches need sizes, {cells.shape}: height and width of each picture before "
            f"the resize. Found: {found}."
        )
    height, width = sizes.numpy().T
    if rule.first_max_pixels is not None:  # the processor gets what the first resize made
        height, width = counted.first(height, width, rule.first_max_pixels)
    return {
        "image_sizes": torch.from_numpy(np.stack([height, width], axis=1).astype(np.int64)),
        # transformers leaves out samples of text alone.
        "batch_num_images": torch.from_numpy(counts[counts > 0].astype(np.int64)),
    }


def _internvl(
    rule: InternVL, cells: np.ndarray, counts: np.ndarray, wanted: np.ndarray, sizes: Any
) -> dict[str, torch.Tensor]:
    return {"num_patches": torch.from_numpy(wanted.astype(np.int64))}


def _gemma3(
    rule: Gemma3, cells: np.ndarray, counts: np.ndarray, wanted: np.ndarray, sizes: Any
) -> dict[str, torch.Tensor]:
    return {"num_crops": torch.from_numpy(wanted.astype(np.int64) - 1)}


def _paligemma(
    rule: PaliGemma, cells: np.ndarray, counts: np.ndarray, wanted: np.ndarray, sizes: Any
) -> dict[str, torch.Tensor]:
    return {}


_LAYOUTS: Mapping[type[Rule], Callable[..., dict[str, torch.Tensor]]] = {
    Qwen2VL: _qwen2_vl,
    SigLIP2: _siglip2,
    Idefics3: _idefics3,
    LlavaOneVision: _llava_onevision,
    InternVL: _internvl,
    Gemma3: _gemma3,
    PaliGemma: _paligemma,
}

# ---- Rows -------------------------------------------------------------------------------------------


def values_of(rule: Rule, rows: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    """Return rows of pixels as rows of the rule's values: what the core makes where rows stay on the host.

    Args:
        rule: of the values' dtype.
        rows: (n, row) or (n, 3, ...) uint8, as the rule ``in_bytes`` makes them.
        table: ``Rule.table`` in that dtype, on the rows' device.
    """
    count, length = len(rows), math.prod(rows.shape[1:]) // 3
    interleaved = isinstance(rule, SigLIP2)
    planes = rows.view(count, length, 3).permute(2, 0, 1) if interleaved else rows.view(count, 3, length)
    copies = rule.temporal if isinstance(rule, Qwen2VL) else 1
    shape = (count, length, 3) if interleaved else (count, 3, copies, length)
    made = torch.empty(shape, dtype=table.dtype, device=rows.device)
    for channel, values in enumerate(table):
        plane = planes[channel] if interleaved else planes[:, channel]
        found = values.index_select(0, plane.reshape(-1).int()).view(count, length)
        if interleaved:
            made[:, :, channel] = found
        else:
            made[:, channel] = found[:, None]
    return made.view(rows.shape) if copies == 1 else made.view(count, 3 * copies * length)


def values_on(rule: Rule, device: Device) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return what makes values of rows of pixels on a device, and by the core's kernels on the host."""
    dtype = getattr(torch, rule.dtype)
    if not device.is_host:
        table = device.move(torch.from_numpy(rule.table).to(dtype))
        return lambda rows: values_of(rule, rows, table)
    family, numbers = rule.core()
    core = _C.VisionRule(family, **numbers)

    def made(rows: torch.Tensor) -> torch.Tensor:
        values = torch.from_numpy(_C.vision_values(core, rows.reshape(-1).numpy(), rule.dtype))
        return values.view(dtype).view(rows.shape)

    return made


def _padded(rows: torch.Tensor, counts: np.ndarray, length: int) -> torch.Tensor:
    """Return (len(counts), length, ...): runs of so many rows, each with zeros behind."""
    shape = (len(counts), length, *rows.shape[1:])
    if len(rows) == len(counts) * length:  # nothing is missing
        return rows.view(shape)
    starts = np.arange(len(counts)) * length - np.concatenate([[0], np.cumsum(counts)[:-1]])
    places = np.repeat(starts, counts) + np.arange(len(rows))
    same = _SAME_SIZE.get(rows.dtype.itemsize)
    if rows.device.type != "cpu" or same is None:
        made = rows.new_zeros((len(counts) * length, *rows.shape[1:]))
        made[torch.from_numpy(places).to(rows.device)] = rows
        return made.view(shape)
    # NumPy copies with this thread alone (torch would wake all of its own, which take cores that decode), and
    # gets zeros from the system, which cost nothing where they stay.
    plain = np.zeros((len(counts) * length, *rows.shape[1:]), same)
    plain[places] = rows.contiguous().view(torch.from_numpy(plain).dtype).numpy()
    return torch.from_numpy(plain).view(rows.dtype).view(shape)
