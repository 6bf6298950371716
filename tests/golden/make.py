"""Write the golden sets of this version: ``python tests/golden/make.py``. Once, when it is released.

Each set becomes ``tests/golden/VERSION/NAME.json``: its files, and what a reader found in them.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "reference"))

from golden_sets import GOLDEN, SETS, as_text, facts_of, files_of, libraries, make

import fastload


def main() -> None:
    """Write them; refuses a version that has its sets already."""
    folder = GOLDEN / fastload.__version__
    folder.mkdir()
    for name in SETS:
        with tempfile.TemporaryDirectory() as work:
            made = make(name, Path(work))
            files = {file: as_text(data) for file, data in files_of(made).items()}
            body = {"libraries": libraries(), "facts": facts_of(made), "files": files}
            (folder / f"{name}.json").write_text(json.dumps(body, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
