"""From images to a packed dataset, and back."""

from __future__ import annotations

from fastload.packing.options import PackOptions
from fastload.packing.packer import DryRun, dry_run, pack
from fastload.packing.progress import Observer
from fastload.packing.publish import PackResult

__all__ = ["DryRun", "Observer", "PackOptions", "PackResult", "dry_run", "pack"]
