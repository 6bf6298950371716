"""The picture of the rooms in ARCHITECTURE.md: drawn from the files as they are."""

from __future__ import annotations

from pathlib import Path

import draw_rooms
import pytest
from house_sources import CORE, PACKAGE, imports


def test_the_drawing_is_of_these_files() -> None:
    drawn = draw_rooms.BLOCK.search(draw_rooms.DOCUMENT.read_text(encoding="utf-8"))
    assert drawn is not None
    assert drawn[0].startswith(draw_rooms.now()), "run tools/draw_rooms.py"


def test_arrows_are_what_the_layer_test_sees() -> None:
    """By another reader of imports."""
    expected: dict[str, set[str]] = {}
    for path in PACKAGE.rglob("*.py"):
        room = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        named = {name.split(".")[1] for name, _ in imports(path) if name.startswith("fastload.")}
        expected.setdefault(room, set()).update(named - {room})
    rooms = set(expected) - draw_rooms.DOORS
    assert {"loader", "machine"} < rooms
    assert draw_rooms.python_rooms(PACKAGE) == {room: expected[room] & rooms for room in rooms}


def test_arrows_go_down() -> None:
    for arrows in (draw_rooms.python_rooms(PACKAGE), draw_rooms.core_rooms(CORE)):
        floor_of = {room: number for number, floor in enumerate(draw_rooms.floors(arrows)) for room in floor}
        assert sum(map(len, arrows.values())) > 20
        assert all(floor_of[to] < floor_of[room] for room, found in arrows.items() for to in found)


def test_a_circle_is_found(tmp_path: Path) -> None:
    for name, text in (("a", "from fastload.b import x"), ("b", "def f():\n    import fastload.a.one")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "one.py").write_text(text)
    arrows = draw_rooms.python_rooms(tmp_path)
    assert arrows == {"a": {"b"}, "b": {"a"}}
    with pytest.raises(ValueError, match=r"circle: a, b"):
        draw_rooms.floors(arrows)
