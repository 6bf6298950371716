"""torch's DataLoader with pillow-simd: the baseline's code in an environment without Pillow."""

from __future__ import annotations

from loaders.candidates.torch_pil import VARIANTS, batches, prepare
from loaders.candidates.torch_pil import versions as _versions

__all__ = ["VARIANTS", "batches", "prepare", "versions"]


def versions() -> dict[str, str]:
    found = _versions()
    version = found.pop("pillow")
    if "post" not in version:
        raise SystemExit(f"Pillow {version} is not pillow-simd (its versions end in .postN).")
    return {"pillow-simd": version, **found}
