"""A stub of the library of that name: one processor, in a slow and a fast form."""

from .image_processing_patches import PatchImageProcessor
from .image_processing_patches_fast import PatchImageProcessorFast


class AutoProcessor:
    @staticmethod
    def from_pretrained(name, use_fast=False):
        """The image processor; no name needs a download."""
        return PatchImageProcessorFast() if use_fast else PatchImageProcessor()


__all__ = ["AutoProcessor", "PatchImageProcessor", "PatchImageProcessorFast"]
