"""Foreign frameworks' tests run in environments of their own (``run.sh NAME``), not in the project's."""

from __future__ import annotations

import os
from pathlib import Path

_FOLDERS = [path.parent.name for path in Path(__file__).parent.glob("*/requirements.txt")]
collect_ignore = [name for name in _FOLDERS if name != os.environ.get("FASTLOAD_FOREIGN")]
