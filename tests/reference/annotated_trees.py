"""Small sets of annotated pictures, written by each format's own rules."""

from __future__ import annotations

from pathlib import Path
from xml.sax.saxutils import escape

import numpy as np
import numpy.typing as npt
from PIL import Image

__all__ = [
    "ids_of", "voc_objects", "voc_xml", "write_lines", "write_mask", "write_photo", "write_voc", "write_yolo",
    "yolo_lines",
]  # fmt: skip


def write_photo(path: Path, number: int, size: tuple[int, int] = (40, 30), orientation: int = 1) -> None:
    """A small JPEG (or PNG) of its own, which EXIF says is turned."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(number)
    pixels = np.broadcast_to(rng.integers(0, 255, 3, np.uint8), (size[1], size[0], 3))
    exif = Image.Exif()
    if orientation != 1:
        exif[0x0112] = orientation
    Image.fromarray(np.ascontiguousarray(pixels)).save(path, exif=exif.tobytes() if orientation != 1 else b"")


def ids_of(number: int, size: tuple[int, int] = (40, 30), most: int = 20) -> npt.NDArray[np.uint16]:
    """The ids of a mask."""
    return np.random.default_rng(number + 1000).integers(0, most, (size[1], size[0]), np.uint16)


def write_mask(path: Path, ids: npt.NDArray[np.uint16]) -> None:
    """A mask as a PNG of 8 bits, or of 16 where it needs them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(ids if ids.max() > 255 else ids.astype(np.uint8)).save(path)


def yolo_lines(number: int, kind: str = "boxes", classes: int = 3, points: int = 4) -> list[list[float]]:
    """The lines of a picture's label file, as numbers: 0 to 4 objects."""
    rng = np.random.default_rng(number + 2000)
    lines = []
    for _ in range(number % 5):
        centre, size = rng.uniform(0.3, 0.7, 2), rng.uniform(0.05, 0.5, 2)
        line = [float(rng.integers(classes))]
        if kind == "outlines":
            line += rng.uniform(0, 1, 2 * int(rng.integers(3, 9))).round(6).tolist()
        else:
            line += [*centre.round(6).tolist(), *size.round(6).tolist()]
        if kind == "points":
            for _ in range(points):
                line += [*rng.uniform(0, 1, 2).round(6).tolist(), float(rng.integers(3))]
        lines.append(line)
    return lines


def write_lines(path: Path, lines: list[list[float]]) -> None:
    """A label file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(f"{int(line[0])} {' '.join(f'{n:g}' for n in line[1:])}\n" for line in lines)
    path.write_text(text)


def write_yolo(
    root: Path, count: int, kind: str = "boxes", splits: tuple[str, ...] = ("train", "val")
) -> Path:
    """A set as Ultralytics has them; of pictures without objects every second has no label file."""
    for at, split in enumerate(splits):
        for i in range(count):
            number = 100 * at + i
            write_photo(root / "images" / split / f"{i:03}.jpg", number, (40 + i, 30))
            lines = yolo_lines(number, kind)
            if lines or i % 2:
                write_lines(root / "labels" / split / f"{i:03}.txt", lines)
    text = [
        "path: .",
        *(f"{split}: images/{split}" for split in splits),
        "names:",
        "  0: cat",
        "  1: big dog",
    ]
    text += [
        "  2: 'no: name'",
        *(("kpt_shape: [4, 3]", "flip_idx: [1, 0, 2, 3]") if kind == "points" else ()),
    ]
    (root / "data.yaml").write_text("\n".join(text) + "\n")
    return root / "data.yaml"


VOC_NAMES = ("dog", "person", "train")


def voc_objects(number: int) -> list[dict[str, str]]:
    """The objects of a picture, 0 to 3, as VOC's XML has them: all texts."""
    rng = np.random.default_rng(number + 3000)
    found = []
    for at in range(number % 4):
        left, top = rng.integers(1, 20, 2)
        right, bottom = left + rng.integers(1, 20), top + rng.integers(1, 10)
        numbers = {"xmin": left, "ymin": top, "xmax": right, "ymax": bottom}
        one = {name: str(int(number)) for name, number in numbers.items()}
        one |= {"name": VOC_NAMES[at], "pose": "Left & <up>"}
        one |= {"truncated": str(at % 2), "difficult": str(at // 2)}
        found.append(one)
    return found


def voc_xml(name: str, objects: list[dict[str, str]], size: tuple[int, int] = (40, 30)) -> str:
    """An XML file in the order of VOC2012's own: name, pose, truncated, difficult, bndbox, parts."""
    lines = ["<annotation>", "\t<folder>VOC2012</folder>", f"\t<filename>{name}.jpg</filename>", "\t<source>"]
    lines += ["\t\t<database>The VOC2007 Database</database>", "\t</source>", "\t<size>"]
    lines += [f"\t\t<width>{size[0]}</width>", f"\t\t<height>{size[1]}</height>", "\t\t<depth>3</depth>"]
    lines += ["\t</size>", "\t<segmented>0</segmented>"]
    for one in objects:
        lines.append("\t<object>")
        lines += [
            f"\t\t<{tag}>{escape(one[tag])}</{tag}>" for tag in ("name", "pose", "truncated", "difficult")
        ]
        corners = "".join(f"\t\t\t<{tag}>{one[tag]}</{tag}>\n" for tag in ("xmin", "ymin", "xmax", "ymax"))
        lines += [f"\t\t<bndbox>\n{corners}\t\t</bndbox>"]
        if one["name"] == "person":
            lines.append("\t\t<part><name>head</name><bndbox><xmin>1.5</xmin></bndbox></part>")
        lines.append("\t</object>")
    return "\n".join([*lines, "</annotation>", ""])


def write_voc(root: Path, count: int, masks: int = 0) -> Path:
    """A set as VOC's devkit has them; the first ``masks`` pictures have masks."""
    for folder in ("Annotations", "ImageSets/Main", "ImageSets/Segmentation"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    names = [f"2007_{i:06}" for i in range(count)]
    for i, name in enumerate(names):
        write_photo(root / "JPEGImages" / f"{name}.jpg", i)
        (root / "Annotations" / f"{name}.xml").write_text(voc_xml(name, voc_objects(i)))
        if i < masks:
            write_mask(root / "SegmentationClass" / f"{name}.png", ids_of(i))
            write_mask(root / "SegmentationObject" / f"{name}.png", ids_of(i + 50))
    half = count // 2
    for split, some in {"train": names[:half], "val": names[half:], "trainval": names}.items():
        (root / "ImageSets" / "Main" / f"{split}.txt").write_text("".join(f"{name}\n" for name in some))
    (root / "ImageSets" / "Main" / "dog_train.txt").write_text(
        "".join(f"{name} -1\n" for name in names[:half])
    )
    (root / "ImageSets" / "Segmentation" / "train.txt").write_text("\n".join(names[:masks]))
    return root
