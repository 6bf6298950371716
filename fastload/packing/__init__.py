"""From images to a packed dataset, and back."""

from __future__ import annotations

from fastload.packing.options import PackOptions
from fastload.packing.packer import DryRun, Observer, PackResult, dry_run, pack

__all__ = ["DryRun", "Observer", "PackOptions", "PackResult", "dry_run", "pack"]
