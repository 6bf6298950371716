"""A profile of a loop made by hand, with everything that one can have."""

from __future__ import annotations

from fastload.diagnose.attribution import Attribution, Place
from fastload.diagnose.pages.time import KINDS
from fastload.diagnose.spots import Spot

__all__ = ["full_attribution"]

_MADE = (
    ("decode", 0.55, "data.py", 31, "Image.open(path).convert('RGB')", "Photos.__getitem__", "PIL"),
    ("python", 0.2, "data.py", 44, "table[table.id == row]", "Photos.caption <script>", ""),
    ("transform", 0.15, "data.py", 33, "self.transform(picture)", "Photos.__getitem__", "torchvision"),
    ("reading", 0.06, "", 0, "", "_io.open", "PIL"),
    ("collate", 0.035, "data.py", 60, "torch.stack(rows)", "collate", "torch"),
    ("lock", 0.005, "data.py", 70, "lock", "Photos.locked", ""),
)
_STEPS = (
    ("step", 0.3, "train.py", 12, "loss.backward()", "main", "torch"),
    ("sync", 0.1, "train.py", 14, "loss.item()", "main", "torch"),
)


def _places(part: str, rows: tuple[tuple[str, float, str, int, str, str, str], ...]) -> tuple[Place, ...]:
    return tuple(
        Place(
            kind, Spot(part, kind, f"/home/me/{file}" if file else "", line, text, function, library), share
        )
        for kind, share, file, line, text, function, library in rows
    )


def full_attribution(workers: int = 2, bins: int = 20) -> Attribution:
    """Two workers decode for ten seconds, and the loop waits for half of its time.

    Args:
        workers: worker processes.
        bins: of half a second, of each process.
    """
    made = {"decode": 0.5, "python": 0.2, "transform": 0.15, "reading": 0.05, "waiting": 0.1}
    rows = [("main", at, {"waiting": 0.5, "step": 0.4, "sync": 0.1}) for at in range(bins)]
    rows[0] = ("main", 0, {kind: 1 / len(KINDS) for kind in KINDS})
    rows += [(str(4000 + worker), at, made) for worker in range(workers) for at in range(bins)]
    return Attribution(
        seconds=bins / 2,
        ticks=50 * bins,
        loop={"waiting": 0.5, "step": 0.4, "sync": 0.095, "logging": 0.005},
        makers={
            "decode": 0.55,
            "python": 0.2,
            "transform": 0.15,
            "reading": 0.06,
            "collate": 0.035,
            "lock": 0.005,
        },
        busy=0.97,
        waits={"read": 0.02, "open": 0.01},
        places=_places("sample", _MADE),
        steps=_places("loop", _STEPS),
        pictures={("JPEG", 4000, 3000, "a.jpg"): 12},
        containers=("h5py, chunks of (50, 64, 64), gzip",),
        bins=tuple((name, 1000 + at / 2, 1000.5 + at / 2, shares) for name, at, shares in rows),
        workers=workers,
    )
