"""Run a module of these folders as a program: ``python benchmarks/child.py runs.entries crops FOLDER``.

A script's own folder is on its path, so that "harness", "loaders" and the others are found from everywhere.
"""

from __future__ import annotations

import atexit
import gc
import runpy
import sys

if __name__ == "__main__":
    # As a process ends, Python would look through all of torch's objects once more: a third of a small run.
    atexit.register(gc.freeze)
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
