"""The made set of bench_detection.py, in the forms that the rivals read."""

from __future__ import annotations

import io
import sys
import tarfile
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "tests" / "reference"))

from made_detection import MadeSet, made_set, write_yolo

__all__ = ["make_forms"]

TARS = 8


def make_forms(work: Path, photos: Path, count: int) -> None:
    """``work/made`` (COCO's JSON, YOLO's texts, masks) and ``work/tars`` (pictures and captions), once.

    No picture is without objects: torchvision's references leave these out.
    """
    done = work / "tars" / f"made-{count}"
    if done.exists():
        return
    made = made_set(work / "made", count, photos=photos, empty=0.0)
    write_yolo(made)
    write_tars(made, work / "tars")
    done.touch()


def write_tars(made: MadeSet, folder: Path) -> None:
    """WebDataset's form: number.jpg beside number.txt, the first caption."""
    folder.mkdir(parents=True, exist_ok=True)
    told = {one["image_id"]: one["caption"] for one in reversed(made.captions["annotations"])}
    share = -(-len(made.names) // TARS)
    for number in range(TARS):
        with tarfile.open(folder / f"{number:03}.tar", "w", format=tarfile.USTAR_FORMAT) as tar:
            for image in made.instances["images"][number * share : (number + 1) * share]:
                name = image["file_name"]
                members = {name: (made.images / name).read_bytes()}
                members[f"{Path(name).stem}.txt"] = told[image["id"]].encode()
                for member, data in members.items():
                    info = tarfile.TarInfo(member)
                    info.size = len(data)
                    tar.addfile(info, io.BytesIO(data))
