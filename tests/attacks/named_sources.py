"""Folders, lists and annotations that lie, given to ``fastload pack``."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from attack_rules import MIB, Rule, attack, honest
from PIL import Image
from uses import BLOBS, pack_and_read, read_all, unpacked

import fastload

KIND = "sources"
KEYS = Rule(
    "FORMAT.md",
    "Keys",
    "A path that is not UTF-8 is percent-encoded (every byte but printable ASCII, and `%`, as `%XX`) "
    "and its record has flag 128.",
)
WRITES = Rule(
    "FORMAT.md",
    "Keys",
    "a reader that writes files MUST refuse keys that are absolute or have empty, `.` or `..` parts "
    "or a NUL, and MUST NOT follow links",
)
LENGTH = Rule("FORMAT.md", "Records", "bytes, at least 1; writers MUST NOT exceed 2^30")
NAMES = Rule(
    "FORMAT.md",
    "Keys",
    "the path of its file below the source folder, with `/`. Keys are UTF-8 and SHOULD be unique",
)
CRC = Rule("FORMAT.md", "Records", "CRC-32C of those bytes")
ERROR = Rule(
    "SECURITY.md",
    "What is trusted",
    "may make a job fail with an error; it must not crash the process, corrupt memory, run code",
)
MEMORY = Rule("SECURITY.md", "What is trusted", "take memory without a bound")
CODE = Rule(
    "SECURITY.md", "What is checked", "Nothing in the package unpickles, evaluates or runs what a file says"
)
NUMBERS = Rule("FORMAT.md", "Kinds", "Numbers of boxes and keypoints MUST be finite")
REFUSED = "."


def tree(folder: Path, count: int = 5) -> Path:
    """A folder of two classes."""
    for number, blob in enumerate(BLOBS[:count]):
        path = folder / "source" / "ab"[number % 2] / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(blob)
    return folder / "source"


def beside(path: bytes, data: bytes = BLOBS[4]) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(data)


def back(source: Path, count: int) -> Callable[[], Any]:
    """Packed, read, and unpacked again: as many files as there were, none of them elsewhere."""

    def use() -> int:
        output = source.parent / "packed"
        fastload.pack(source, output, num_proc=1)
        assert len(read_all(output)()) == count
        unpacked(output)()
        found = [name for _, _, names in os.walk(os.fsencode(source.parent / "unpacked")) for name in names]
        assert len(found) == count
        return count

    return use


def yolo(folder: Path, label: bytes, yaml: str = "") -> Path:
    """A set in Ultralytics' format with these labels of one picture."""
    place = folder / "yolo"
    for name in ("images/train", "labels/train"):
        (place / name).mkdir(parents=True)
    Image.new("RGB", (30, 20)).save(place / "images/train/0.jpg")
    (place / "labels/train/0.txt").write_bytes(label)
    (place / "data.yaml").write_text(
        yaml or "path: .\ntrain: images/train\nval: images/train\nnames: [a, b]\n"
    )
    return place


def voc(folder: Path, xml: str) -> Path:
    place = folder / "voc"
    for name in ("Annotations", "JPEGImages", "ImageSets/Main"):
        (place / name).mkdir(parents=True)
    Image.new("RGB", (30, 20)).save(place / "JPEGImages/0.jpg")
    (place / "ImageSets/Main/train.txt").write_text("0\n")
    (place / "Annotations/0.xml").write_text(xml)
    return place


@honest(KIND)
def a_small_folder(folder: Path) -> Callable[[], Any]:
    return back(tree(folder), 5)


@honest(KIND)
def a_small_yolo_set(folder: Path) -> Callable[[], Any]:
    place = yolo(folder, b"0 0.5 0.5 0.1 0.1\n")
    return lambda: [r.manifest.num_records for r in fastload.pack(place, folder / "out", num_proc=1)]


@honest(KIND)
def a_small_list(folder: Path) -> Callable[[], Any]:
    path = tree(folder).parent / "list.csv"
    path.write_text("path,label\nsource/a/0.jpg,x\nsource/b/1.jpg,y\n")
    return pack_and_read(path)


@attack(KIND, KEYS, None)
def names_that_are_not_utf_8(folder: Path) -> Callable[[], Any]:
    source = tree(folder)
    beside(os.fsencode(source) + b"/a/\xff\xfe\x80.jpg")
    beside(os.fsencode(source) + b"/a/\xed\xa0\x80.jpg")
    return back(source, 7)


@attack(KIND, NAMES, None)
def names_with_newlines_quotes_and_escapes(folder: Path) -> Callable[[], Any]:
    source = tree(folder)
    for name in ("\n.jpg", "a\nb\r\t\x1b[2J.jpg", "'\"$(touch x)`.jpg", "%41%2f..%2f.jpg", "-rf.jpg"):
        beside(os.fsencode(source / "a" / name))
    return back(source, 10)


@attack(KIND, NAMES, None)
def names_of_255_bytes(folder: Path) -> Callable[[], Any]:
    source = tree(folder)
    beside(os.fsencode(source) + b"/a/" + b"x" * 251 + b".jpg")
    beside(os.fsencode(source) + b"/a" + (b"/" + b"y" * 255) * 10 + b"/z.jpg")
    beside(os.fsencode(source) + b"/a/" + b"\xff" * 251 + b".jpg")
    return lambda: len(pack_and_read(source)())


@attack(KIND, WRITES, None)
def folders_called_dots(folder: Path) -> Callable[[], Any]:
    source = tree(folder)
    for name in ("...", ".. ", "..\n", "a\\..\\.."):
        beside(os.fsencode(source / "a" / name / "x.jpg"))
    return back(source, 6)  # names that begin with a dot are hidden: left out, and pack says so


@attack(KIND, ERROR, REFUSED)
def links_that_lead_round(folder: Path) -> Callable[[], Any]:
    source = tree(folder)
    (source / "a" / "again").symlink_to(source)
    (source / "b" / "self.jpg").symlink_to("self.jpg")
    return pack_and_read(source)


@attack(KIND, ERROR, REFUSED)
def a_fifo_among_the_pictures(folder: Path) -> Callable[[], Any]:
    source = tree(folder)
    os.mkfifo(source / "a" / "9.jpg")
    return pack_and_read(source)


@attack(KIND, ERROR, REFUSED)
def a_device_without_end_among_the_pictures(folder: Path) -> Callable[[], Any]:
    source = tree(folder)
    (source / "a" / "9.jpg").symlink_to("/dev/zero")
    return pack_and_read(source)


@attack(KIND, LENGTH, REFUSED)
def a_picture_of_a_tebibyte_of_nothing(folder: Path) -> Callable[[], Any]:
    source = tree(folder)
    (source / "a" / "9.jpg").touch()
    os.truncate(source / "a" / "9.jpg", 1 << 40)
    return pack_and_read(source)


@attack(KIND, CRC, None)
def pictures_that_change_while_they_are_packed(folder: Path) -> Callable[[], Any]:
    source = tree(folder)
    for number in range(40):
        beside(os.fsencode(source / "a" / f"m{number}.jpg"), BLOBS[number % 5])

    def use() -> str:
        stop = threading.Event()

        def write() -> None:
            number = 0
            while not stop.is_set():
                path = source / "a" / f"m{number % 40}.jpg"
                path.write_bytes(BLOBS[number % 5][: 100 + number % 300] if number % 3 else BLOBS[number % 4])
                number += 1
                time.sleep(0.0005)

        other = threading.Thread(target=write)
        other.start()
        try:
            pack_and_read(source)()
        except fastload.errors.FastloadError as error:
            return f"refused: {error!s:.80}"
        finally:
            stop.set()
            other.join()
        return "packed"

    return use


@attack(KIND, MEMORY, REFUSED)
def a_picture_whose_header_asks_for_4_gib(folder: Path) -> Callable[[], Any]:
    source = tree(folder)
    data = BLOBS[0]
    at = data.index(b"\xff\xc0") + 5
    (source / "a" / "9.jpg").write_bytes(data[:at] + b"\xff\xdc\xff\xdc" + data[at + 4 :])
    return pack_and_read(source, raw=True)


@attack(KIND, CODE, REFUSED)
def a_data_yaml_that_runs_code(folder: Path) -> Callable[[], Any]:
    yaml = "path: .\ntrain: images/train\nval: images/train\n"
    yaml += "names: !!python/object/apply:os.system ['touch attacked']\n"
    return pack_and_read(yolo(folder, b"0 0.5 0.5 0.1 0.1\n", yaml))


@attack(KIND, MEMORY, REFUSED)
def a_data_yaml_of_a_billion_laughs(folder: Path) -> Callable[[], Any]:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)]
    return pack_and_read(
        yolo(folder, b"0 0.5 0.5 0.1 0.1\n", "\n".join([*lines, "train: images/train", "names: *a11"]))
    )


@attack(KIND, WRITES, REFUSED)
def a_data_yaml_that_leads_elsewhere(folder: Path) -> Callable[[], Any]:
    yaml = "path: /\ntrain: ../../../../etc\nval: /etc\nnames: [a]\n"
    return pack_and_read(yolo(folder, b"0 0.5 0.5 0.1 0.1\n", yaml))


LABELS: dict[str, bytes] = {
    "not_a_number": b"0 nan 0.5 0.1 0.1\n",
    "an_infinite_box": b"0 inf 0.5 0.1 0.1\n",
    "a_class_of_2_to_the_200": b"%d 0.5 0.5 0.1 0.1\n" % 2**200,
    "a_class_below_zero": b"-7 0.5 0.5 0.1 0.1\n",
    "a_number_of_a_million_digits": b"0 0." + b"1" * 10**6 + b" 0.5 0.1 0.1\n",
    "a_line_of_a_million_numbers": b"0" + b" 0.5" * 10**6 + b"\n",
    "no_text": bytes(range(256)) * 20,
    "more_columns_on_each_line": b"0 0.5 0.5 0.1 0.1\n0 0.1 0.1 0.2 0.2 0.3 0.3\n0 1\n",
}


def _labels(name: str, data: bytes) -> None:
    def make(folder: Path) -> Callable[[], Any]:
        return pack_and_read(yolo(folder, data))

    make.__name__ = f"a_yolo_label_of_{name}"
    attack(KIND, NUMBERS, REFUSED)(make)


for _name, _data in LABELS.items():
    _labels(_name, _data)


@attack(KIND, ERROR, REFUSED)
def a_yolo_label_that_is_a_fifo(folder: Path) -> Callable[[], Any]:
    place = yolo(folder, b"")
    (place / "labels/train/0.txt").unlink()
    os.mkfifo(place / "labels/train/0.txt")
    return pack_and_read(place)


@attack(KIND, MEMORY, REFUSED)
def a_yolo_label_that_is_a_device_without_end(folder: Path) -> Callable[[], Any]:
    place = yolo(folder, b"")
    (place / "labels/train/0.txt").unlink()
    (place / "labels/train/0.txt").symlink_to("/dev/zero")
    return pack_and_read(place)


BOX = "<bndbox><xmin>1</xmin><ymin>1</ymin><xmax>9</xmax><ymax>9</ymax></bndbox>"


@attack(KIND, MEMORY, REFUSED)
def a_voc_xml_of_a_billion_laughs(folder: Path) -> Callable[[], Any]:
    laughs = "".join(f'<!ENTITY l{i} "{f"&l{i - 1};" * 10}">' for i in range(1, 12))
    one = f"<annotation><object><name>&l11;</name>{BOX}</object></annotation>"
    xml = f'<!DOCTYPE x [<!ENTITY l0 "ha">{laughs}]>{one}'
    return pack_and_read(voc(folder, xml))


@attack(KIND, CODE, REFUSED)
def a_voc_xml_that_reads_etc_passwd(folder: Path) -> Callable[[], Any]:
    head = '<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]>'
    return pack_and_read(
        voc(folder, f"{head}<annotation><object><name>&e;</name>{BOX}</object></annotation>")
    )


@attack(KIND, MEMORY, REFUSED)
def a_voc_xml_nested_a_million_times(folder: Path) -> Callable[[], Any]:
    return pack_and_read(voc(folder, "<annotation>" + "<a>" * 10**6 + "</a>" * 10**6 + "</annotation>"))


@attack(KIND, ERROR, REFUSED)
def a_list_that_names_devices_and_fifos(folder: Path) -> Callable[[], Any]:
    path = tree(folder).parent / "list.csv"
    os.mkfifo(path.parent / "fifo.jpg")
    path.write_text("path,label\nfifo.jpg,x\n/dev/zero,y\n/dev/stdin,z\n")
    return pack_and_read(path)


@attack(KIND, ERROR, REFUSED)
def a_list_that_is_a_fifo(folder: Path) -> Callable[[], Any]:
    path = tree(folder).parent / "list.csv"
    os.mkfifo(path)
    return pack_and_read(path)


@attack(KIND, MEMORY, REFUSED)
def a_list_of_one_line_of_64_mib(folder: Path) -> Callable[[], Any]:
    path = tree(folder).parent / "list.csv"
    path.write_text('path,label\n"' + "x" * (64 * MIB))
    return pack_and_read(path)


@attack(KIND, ERROR, REFUSED)
def a_list_in_json_lines_of_everything(folder: Path) -> Callable[[], Any]:
    path = tree(folder).parent / "list.jsonl"
    rows = ["[" * 10**5, '{"path": {"a": 1}}', '{"path": "\\ud800.jpg", "label": 1e999}', "9" * 5000]
    path.write_text(json.dumps({"path": "source/a/0.jpg", "label": "x"}) + "\n" + "\n".join(rows))
    return pack_and_read(path)


@attack(KIND, MEMORY, REFUSED)
def a_list_with_a_label_of_2_to_the_62(folder: Path) -> Callable[[], Any]:
    path = tree(folder).parent / "list.csv"
    path.write_text(f"path,label\nsource/a/0.jpg,{2**62}\nsource/b/1.jpg,0\n")
    return pack_and_read(path)


@attack(KIND, NAMES, REFUSED)
def a_coco_file_that_is_a_fifo(folder: Path) -> Callable[[], Any]:
    source = tree(folder)
    (source / "annotations").mkdir()
    os.mkfifo(source / "annotations" / "instances.json")
    return pack_and_read(source, annotations=[source / "annotations" / "instances.json"])


@attack(KIND, MEMORY, REFUSED)
def a_data_yaml_of_10_to_the_15_classes(folder: Path) -> Callable[[], Any]:
    yaml = f"path: .\ntrain: images/train\nval: images/train\nnc: {10**15}\n"
    return pack_and_read(yolo(folder, b"0 0.5 0.5 0.1 0.1\n", yaml))


OTHERS = Rule(
    "SECURITY.md",
    "What is checked",
    "may open JPEG, PNG, WebP, GIF, BMP and TIFF only, none of its other formats",
)


@attack(KIND, OTHERS, "cannot be read")
def a_panoptic_png_that_is_postscript(folder: Path) -> Callable[[], Any]:
    place = folder / "coco"
    for name in ("annotations/panoptic_val", "val"):
        (place / name).mkdir(parents=True)
    Image.new("RGB", (30, 20)).save(place / "val/1.jpg")
    script = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 30 20\n%%EndComments\n%%EOF\n"
    (place / "annotations/panoptic_val/1.png").write_bytes(script)
    segment = {"id": 1, "category_id": 1, "bbox": [0, 0, 1, 1], "area": 1, "iscrowd": 0}
    body = {
        "images": [{"id": 1, "file_name": "1.jpg", "width": 30, "height": 20}],
        "annotations": [{"image_id": 1, "file_name": "1.png", "segments_info": [segment]}],
        "categories": [{"id": 1, "name": "a", "isthing": 1}],
    }
    (place / "annotations/panoptic_val.json").write_text(json.dumps(body))
    return pack_and_read(place)
