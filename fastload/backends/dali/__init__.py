"""``backend="dali"``: NVIDIA DALI decodes and resizes; order, windows and error policy are fastload's."""
