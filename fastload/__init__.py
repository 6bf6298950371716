"""fastload: image data loading for PyTorch training."""

from __future__ import annotations

__version__ = "0.1.0"
