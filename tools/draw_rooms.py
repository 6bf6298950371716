"""Draw the rooms of the house, with their counts, in ARCHITECTURE.md: ``python tools/draw_rooms.py``.

A room is a folder of ``fastload/`` or ``csrc/core/``, or a module alone there. An arrow leads from a room to
another that one of its files imports or includes, anywhere in the file. A room's floor is one above the
highest that it leads to. A test compares the drawing with the files.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT = ROOT / "ARCHITECTURE.md"
BEFORE = "8b7e070"  # thirty modules stood loose in fastload/, and csrc/core had seven rooms
BLOCK = re.compile(r"(?<=```rooms\n).*?(?=```)", re.DOTALL)
# Doors, not rooms: what everybody may import, and what only leads in.
DOORS = {"__init__", "__main__", "errors", "extras", "_native", "_version", "unbuilt"}
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"/]+)/', re.MULTILINE)

Arrows = dict[str, set[str]]  # where each room leads to


def room_of(path: Path, top: Path) -> str:
    """The room that a file below ``top`` is in."""
    return path.relative_to(top).parts[0].split(".")[0]


def imported(path: Path) -> set[str]:
    """The rooms of fastload/ that a Python file imports."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name.split(".")[1] for name in names if name.startswith("fastload.")}


def python_rooms(package: Path) -> Arrows:
    """The rooms of ``package``, a folder named fastload."""
    arrows: Arrows = {}
    for path in sorted(package.rglob("*.py")):
        room = room_of(path, package)
        if room not in DOORS:
            arrows.setdefault(room, set()).update(imported(path) - DOORS)
    return without_loops(arrows)


def core_rooms(core: Path) -> Arrows:
    """The rooms of ``core``, the folder csrc/core."""
    arrows: Arrows = {}
    for path in sorted(path for path in core.rglob("*") if path.suffix in {".h", ".cpp"}):
        found = INCLUDE.findall(path.read_text(encoding="utf-8"))
        arrows.setdefault(room_of(path, core), set()).update(found)
    return without_loops(arrows)


def without_loops(arrows: Arrows) -> Arrows:
    """Only arrows from one room to another."""
    return {room: (to & set(arrows)) - {room} for room, to in arrows.items()}


def floors(arrows: Arrows) -> list[list[str]]:
    """The rooms of each floor, the lowest first.

    Raises:
        ValueError: rooms lead to each other in a circle.
    """
    found: list[list[str]] = []
    placed: set[str] = set()
    while placed != set(arrows):
        floor = sorted(room for room in set(arrows) - placed if arrows[room] <= placed)
        if not floor:
            raise ValueError(f"Rooms in a circle: {', '.join(sorted(set(arrows) - placed))}.")
        found.append(floor)
        placed |= set(floor)
    return found


def counts(arrows: Arrows) -> str:
    """``16 rooms on 9 floors, 60 arrows``."""
    return f"{len(arrows)} rooms on {len(floors(arrows))} floors, {sum(map(len, arrows.values()))} arrows"


def drawing(arrows: Arrows) -> str:
    """A line for each floor, the highest first."""
    numbered = list(enumerate(floors(arrows), 1))
    return "".join(f"{number:4}  {'  '.join(floor)}\n" for number, floor in reversed(numbered))


def now() -> str:
    """The drawing of the files that there are."""
    python, core = python_rooms(ROOT / "fastload"), core_rooms(ROOT / "csrc" / "core")
    return f"fastload/: {counts(python)}\n{drawing(python)}csrc/core/: {counts(core)}\n{drawing(core)}"


def before() -> str:
    """The counts of commit ``BEFORE``."""
    tar = subprocess.run(
        ["git", "archive", BEFORE, "fastload", "csrc/core"], cwd=ROOT, check=True, capture_output=True
    ).stdout
    with tempfile.TemporaryDirectory() as folder, tarfile.open(fileobj=io.BytesIO(tar)) as archive:
        archive.extractall(folder, filter="data")
        top = Path(folder)
        python, core = python_rooms(top / "fastload"), core_rooms(top / "csrc" / "core")
        return f"before ({BEFORE}): fastload/ {counts(python)}; csrc/core/ {counts(core)}\n"


def main() -> None:
    """Write the drawing."""
    text = DOCUMENT.read_text(encoding="utf-8")
    block = now() + before()
    DOCUMENT.write_text(BLOCK.sub(lambda _: block, text, count=1), encoding="utf-8")


if __name__ == "__main__":
    main()
