"""Is a batch what it must be? Compared sample by sample with the slow way.

Pictures: decoded whole by Pillow, the crop drawn by the Philox of ``transform_reference``, cut, resized and
mirrored by Pillow, bit for bit in uint8; normalised float32 within 2e-6, for one rounding of scale and shift
in place of torch's three divisions (tests/contract/test_parity.py). Samples with fields: every field equal to
``field_reference``'s, bit for bit.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from field_reference import Reference, Sizes
from PIL import Image
from soak_sets import FIELDS, FIRST_ID, ID_STEP, Truth, field_schema
from transform_reference import Draws, center_window, flipped, random_crop, resized_shorter

from fastload import transforms as T

SIDE, SHORTER = 24, 30
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
FLOAT_BOUND = 2e-6
BLANK = -100
SCALE, RATIO = (0.08, 1.0), (3 / 4, 4 / 3)
BILINEAR = Image.Resampling.BILINEAR


def negative(image: Image.Image) -> torch.Tensor:
    """A user's own callable; what it gives is easily told from what it got."""
    return torch.from_numpy(255 - np.asarray(image)).permute(2, 0, 1)


CROP = [T.RandomResizedCrop(SIDE), T.RandomHorizontalFlip()]
FIXED = [T.Resize(SHORTER), T.CenterCrop(SIDE)]
TRANSFORMS = {
    "crop": T.Compose(CROP),
    "crop-float": T.Compose([*CROP, T.Normalize(MEAN, STD)]),
    "fixed": T.Compose(FIXED),
    "fixed-float": T.Compose([*FIXED, T.Normalize(MEAN, STD)]),
    "callable": T.Compose([*FIXED, negative]),
    "fields": T.Compose(CROP),
}


class Checker:
    """The reference of one loader.

    Args:
        truth: what the samples are.
        kind: a key of TRANSFORMS; "fields" for the set with fields.
        seed: the loader's.
    """

    def __init__(self, truth: Truth, kind: str, seed: int) -> None:
        self.truth, self.kind, self.seed = truth, kind, seed
        self.fields = (
            Reference(field_schema(), truth.fields, TRANSFORMS[kind], seed, Sizes())
            if kind == FIELDS
            else None
        )
        self._fixed = lru_cache(None)(self._fixed_view)

    def ids(self, batch: Any) -> list[int]:
        """Which samples the batch says it has; BLANK where it says none."""
        if self.fields is None:
            return [int(label) for label in batch[1]]
        valid = batch["valid"].tolist()
        numbers = [(int(one) - FIRST_ID) // ID_STEP for one in batch["image_id"]]
        return [number if there else BLANK for number, there in zip(numbers, valid, strict=True)]

    def wrong(self, batch: Any, epoch: int) -> str:
        """What is wrong with the batch, or nothing."""
        ids = self.ids(batch)
        outside = [one for one in ids if one != BLANK and not 0 <= one < len(self.truth.pictures)]
        if outside:
            return f"samples {outside}, which the set does not have"
        if self.fields is not None:
            return self._wrong_fields(batch, ids, epoch)
        images = batch[0]
        if len(images) != len(ids):
            return f"{len(images)} pictures and {len(ids)} labels"
        wanted_type = torch.float32 if self.kind.endswith("float") else torch.uint8
        if images.dtype != wanted_type or tuple(images.shape[1:]) != (3, SIDE, SIDE):
            return f"pictures are {images.dtype} of {tuple(images.shape)}"
        found = images.permute(0, 2, 3, 1).numpy()
        bad = [one for row, one in enumerate(ids) if not self._same(found[row], one, epoch)]
        return f"pixels of samples {bad} of {ids} in epoch {epoch}" if bad else ""

    def _same(self, found: npt.NDArray[Any], sample: int, epoch: int) -> bool:
        if sample == BLANK:
            return not np.any(found[1:] != found[:-1])  # one colour
        wanted = self._fixed(sample) if self.kind in ("fixed", "fixed-float", "callable") else None
        if wanted is None:
            wanted = self._cropped(sample, epoch)
        if self.kind == "callable":
            wanted = 255 - wanted
        if not self.kind.endswith("float"):
            return bool(np.array_equal(found, wanted))
        exact = (wanted / 255.0 - np.array(MEAN)) / np.array(STD)
        return bool(np.abs(found.astype(np.float64) - exact).max() < FLOAT_BOUND)

    def _fixed_view(self, sample: int) -> npt.NDArray[np.uint8]:
        image = self.truth.pictures[sample]
        small = image.resize(resized_shorter(*image.size, SHORTER, None), BILINEAR)
        left, top, width, height = center_window(*small.size, (SIDE, SIDE))
        return np.asarray(small.crop((left, top, left + width, top + height)))

    def _cropped(self, sample: int, epoch: int) -> npt.NDArray[np.uint8]:
        image, draws = self.truth.pictures[sample], Draws(self.seed, epoch, sample)
        x, y, width, height = random_crop(*image.size, SCALE, RATIO, draws)
        shown = image.crop((x, y, x + width, y + height)).resize((SIDE, SIDE), BILINEAR)
        pixels = np.asarray(shown)
        return pixels[:, ::-1] if flipped(0.5, draws) else pixels

    def _wrong_fields(self, batch: dict[str, Any], ids: list[int], epoch: int) -> str:
        assert self.fields is not None
        wanted = self.fields.batch([-1 if one == BLANK else one for one in ids], epoch)
        if list(batch) != list(wanted):
            return f"fields {list(batch)}, expected {list(wanted)}"
        bad = [name for name in wanted if not _equal(batch[name], wanted[name])]
        return f"fields {bad} of samples {ids} in epoch {epoch}" if bad else ""


def _equal(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, torch.Tensor):
        return found.dtype == wanted.dtype and torch.equal(found, wanted)
    if isinstance(wanted, np.ndarray):
        return bool(np.array_equal(found, wanted))
    if isinstance(wanted, (list, tuple)):
        return len(found) == len(wanted) and all(map(_equal, found, wanted))
    return bool(found == wanted)
