"""One side of a comparison, in a process of its own: takes batches when it is told to, and says how many.

torch's side imports nothing of fastload but this file, so that its memory and its start are its own.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from PIL.Image import Image

SIDE = 224  # of a crop, pixels
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_WARM_SHARE = 0.25  # of a run, before anything is counted
_AHEAD = 2  # batches of each worker that are ready when a run begins, and are not counted

# ---- torch's side -----------------------------------------------------------------------------------

_AREA, _ASPECT = (0.08, 1.0), (3 / 4, 4 / 3)


class Steps:
    """torchvision's RandomResizedCrop(224), RandomHorizontalFlip(), ToTensor() and Normalize() without it:
    the same draws of torch's generator, and the same values.
    """

    def __init__(self) -> None:
        import torch

        self._mean, self._std = (torch.tensor(each).view(3, 1, 1) for each in (MEAN, STD))

    def __call__(self, image: Image) -> torch.Tensor:
        """Return a float32 (3, 224, 224) tensor of an RGB picture."""
        import numpy as np
        import torch
        from PIL import Image

        left, top, width, height = random_crop(*image.size)
        image = image.crop((left, top, left + width, top + height))
        image = image.resize((SIDE, SIDE), Image.Resampling.BILINEAR)
        if torch.rand(1) < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()
        return pixels.to(torch.float32).div(255).sub_(self._mean).div_(self._std)


def random_crop(width: int, height: int) -> tuple[int, int, int, int]:
    """Return left, top, width and height in pixels, drawn as torchvision's RandomResizedCrop does."""
    import torch

    logs = torch.log(torch.tensor(_ASPECT))
    for _ in range(10):
        target = width * height * torch.empty(1).uniform_(*_AREA).item()
        aspect = torch.exp(torch.empty(1).uniform_(logs[0], logs[1])).item()  # type: ignore[arg-type]
        w, h = round(math.sqrt(target * aspect)), round(math.sqrt(target / aspect))
        if 0 < w <= width and 0 < h <= height:
            top = int(torch.randint(0, height - h + 1, size=(1,)).item())
            return int(torch.randint(0, width - w + 1, size=(1,)).item()), top, w, h
    w, h = width, height
    if width / height < _ASPECT[0]:
        h = round(width / _ASPECT[0])
    elif width / height > _ASPECT[1]:
        w = round(height * _ASPECT[1])
    return (width - w) // 2, (height - h) // 2, w, h


class Pictures:
    """A map-style dataset over files, as torchvision's ImageFolder reads them: the tensor and a label."""

    def __init__(self, paths: Sequence[str], transform: Any) -> None:
        self._paths, self._transform = paths, transform

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, number: int) -> tuple[Any, int]:
        from PIL import Image

        with open(self._paths[number], "rb") as file:
            image = Image.open(file).convert("RGB")
        return self._transform(image), 0


class Endless:
    """A sampler that never ends, each pass in another order: no pass's end empties the workers' queues."""

    def __init__(self, ids: Sequence[int]) -> None:
        self._ids = ids

    def __iter__(self) -> Iterator[int]:
        import torch

        while True:
            yield from (self._ids[at] for at in torch.randperm(len(self._ids)).tolist())


def _torch_side(order: dict[str, Any]) -> tuple[Any, dict[str, str]]:
    import PIL
    import torch.utils.data

    versions = {"torch": torch.__version__, "Pillow": PIL.__version__}
    try:
        from torchvision import __version__ as torchvision
        from torchvision import transforms as t
    except (ImportError, RuntimeError):  # RuntimeError: a torchvision that was built for another torch
        transform: Any = Steps()
    else:
        versions["torchvision"] = torchvision
        transform = t.Compose([
            t.RandomResizedCrop(SIDE), t.RandomHorizontalFlip(), t.ToTensor(), t.Normalize(MEAN, STD)
        ])  # fmt: skip
    paths = sorted(str(path) for path in Path(order["files"]).rglob("*") if path.is_file())
    sampler: Any = Endless(range(len(paths)))
    loader: Any = torch.utils.data.DataLoader(
        Pictures(paths, transform),  # type: ignore[arg-type]
        batch_size=order["batch"],
        sampler=sampler,
        num_workers=order["workers"],
    )
    return loader, versions


# ---- fastload's side --------------------------------------------------------------------------------


def _fastload_side(order: dict[str, Any]) -> tuple[Any, dict[str, str]]:
    import torch

    import fastload
    from fastload import transforms as t
    from fastload.diagnose.trial import FixedOrder

    chain = t.Compose([t.RandomResizedCrop(SIDE), t.RandomHorizontalFlip(), t.Normalize(MEAN, STD)])
    loader = fastload.DataLoader(
        order["packed"],
        order["batch"],
        sampler=FixedOrder(order["ids"]),
        num_workers=order["workers"],
        transform=chain,
        ranks=fastload.Ranks(0, 1),
    )
    return loader, {"fastload": fastload.__version__, "torch": torch.__version__}


# ---- The process ------------------------------------------------------------------------------------


def _batches(loader: Any) -> Iterator[int]:
    while True:
        for images, _labels in loader:
            yield len(images)


def run(batches: Iterator[int], workers: int, seconds: float, begins: Any = lambda: None) -> dict[str, Any]:
    """Take batches for ``seconds``, and count those after a warm-up that takes what was ready.

    Whole rounds of a batch of each worker are counted: workers end theirs nearly together, and a run that
    ended within such a burst would count work whose time it did not see.

    Args:
        batches: the sizes of batches, as they are taken.
        workers: worker processes or threads.
        seconds: of the whole run; it lasts longer if so many rounds take longer.
        begins: called when the warm-up is over.
    """
    start, taken = time.monotonic(), 0
    while taken < _AHEAD * workers + 1 or time.monotonic() - start < _WARM_SHARE * seconds:
        next(batches)
        taken += 1
    begins()
    began = now = time.monotonic()
    images, rounds = 0, 0
    while rounds < 2 or now - start < seconds:
        images += sum(next(batches) for _ in range(workers))
        rounds, now = rounds + 1, time.monotonic()
    return {"images": images, "seconds": now - began}


def main() -> None:
    """Make the loader, say when its first batch was there, then run for each line of stdin.

    The only argument is the order as JSON: "side", the folders "files" and "packed", its samples' "ids",
    "batch", "workers", "cpus" to run on, the folder for "temporary" files, and when it was "started", by
    the monotonic clock.
    """
    order = json.loads(sys.argv[1])
    # Of torch's workers' sockets; they are killed with this process, and would leave theirs where it was.
    multiprocessing.current_process()._config["tempdir"] = order["temporary"]  # type: ignore[attr-defined]
    os.sched_setaffinity(0, order["cpus"])
    out, sys.stdout = sys.stdout, sys.stderr  # what libraries print must not come between

    def say(message: dict[str, Any]) -> None:
        out.write(json.dumps(message) + "\n")
        out.flush()

    loader, versions = (_torch_side if order["side"] == "torch" else _fastload_side)(order)
    batches = _batches(loader)
    next(batches)
    say({"first": time.monotonic() - order["started"], "versions": versions})
    for line in sys.stdin:
        said = run(batches, order["workers"], float(line), lambda: say({"begins": True}))
        say(said)
