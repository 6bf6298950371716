"""Packs of annotated sets that are killed or interrupted: no dataset is there, and the same call goes on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from annotated_trees import ids_of, write_mask, write_photo, write_voc, write_yolo
from pack_trees import environment
from test_coco import BOX, small, write_set

DRIVER = Path(__file__).with_name("annotated_kill_driver.py")


def test_stopped_packs_go_on(tmp_path: Path) -> None:
    sets = tmp_path / "sets"
    annotations = [BOX | {"id": number, "image_id": 1 + number % 8} for number in range(20)]
    write_set(sets / "coco", small(annotations, images=8), "instances_val.json")
    captions = [{"id": n, "image_id": 1 + n % 8, "caption": "one"} for n in range(9)]
    write_set(sets / "coco", small(captions, images=8), "captions_val.json")
    write_yolo(sets / "yolo", 8, "outlines", splits=("train",))
    write_voc(sets / "voc", 8)
    for number in range(8):
        write_photo(sets / "pairs" / "images" / f"{number}.jpg", number)
        write_mask(sets / "pairs" / "masks" / f"{number}.png", ids_of(number))
    done = subprocess.run(
        [sys.executable, DRIVER, tmp_path], capture_output=True, text=True, timeout=300, env=environment(),
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert sorted(found) == ["coco", "pairs", "voc", "yolo"]
    assert [one["wrong"] for one in found.values()] == [[]] * 4
    assert min(one["stops"] for one in found.values()) == 8, found
