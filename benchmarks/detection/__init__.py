"""Detection loaders for ``bench_detection.py``: a package, as ``examples`` has a module of this name."""
