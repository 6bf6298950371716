"""The sets that a soak's jobs read: the same pictures packed in every way, and how Pillow shows them."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from field_sets import write_field_set
from object_sets import object_samples, object_schema
from pictures import encoded, jpegs, picture
from PIL import Image

from fastload.cli import main as command_line
from fastload.sample.fields import Text

COUNT = 211  # a prime: no global batch divides it
FIELDS = "fields"
#: How each set is packed, by name. Sample i is the picture i, and its label is i.
PACKS = {
    "arrow": ["--format", "arrow", "--shard-size", "200KB"],
    "lmdb": ["--format", "lmdb"],
    "hdf5": ["--format", "hdf5", "--shard-size", "200KB"],
    "raw": ["--raw"],
    "coefficients": ["--coefficients"],
    "small": ["--coefficients", "small"],
}
FIRST_ID, ID_STEP = 1000, 7  # of object_sets: image_id = FIRST_ID + ID_STEP * sample


def blobs() -> list[bytes]:
    """JPEGs of all subsamplings, and some PNGs and progressive JPEGs between them."""
    found = jpegs(COUNT)
    for number in range(0, COUNT, 10):
        found[number] = encoded(picture(number, 50, 61), "PNG")
        found[number + 1 - (number == COUNT - 1)] = encoded(picture(number, 64, 47), progressive=True)
    return found


def field_samples() -> list[dict[str, Any]]:
    """Boxes, masks, keypoints and a text for each picture."""
    return [{**one, "caption": f"number {i} \u00fc" * (i % 3)} for i, one in enumerate(object_samples(COUNT))]


def field_schema() -> dict[str, Any]:
    return {**object_schema(), "caption": Text()}


@dataclass(frozen=True)
class Truth:
    """Each sample, decoded whole by Pillow; and the fields' samples."""

    pictures: list[Image.Image]
    fields: list[dict[str, Any]]

    @classmethod
    def make(cls) -> Truth:
        shown = [Image.open(io.BytesIO(blob)).convert("RGB") for blob in blobs()]
        return cls(shown, field_samples())


def forked(work: Callable[[], int | None], output: Path | None = None) -> int:
    """Start ``work`` in a child, which ends with the status that it returns; its process id.

    Args:
        output: where standard output and error go, appended.
    """
    pid = os.fork()
    if pid:
        return pid
    for number in (signal.SIGTERM, signal.SIGINT):  # not what the soak itself does
        signal.signal(number, signal.SIG_DFL)
    code = 1
    try:
        if output is not None:
            target = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.dup2(target, 1)
            os.dup2(target, 2)
            os.close(target)
        code = work() or 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            os._exit(code)
    os._exit(1)


def pack_all(folder: Path) -> int:
    """Pack all sets; in a process of its own, as packing starts processes and threads."""
    tree = folder / "tree"
    for number, blob in enumerate(blobs()):
        place = tree / f"{number:04d}"
        place.mkdir(parents=True)
        (place / f"x.{'png' if blob[:4] == bytes([137, 80, 78, 71]) else 'jpg'}").write_bytes(blob)
    for name, options in PACKS.items():
        code = command_line(
            ["pack", str(tree), str(folder / name), *options, "--num-proc", "1", "--quiet", "--json"]
        )
        if code:
            return code
    write_field_set(folder / FIELDS, field_schema(), field_samples())
    return 0


def make_sets(folder: Path, log: Path) -> dict[str, Path]:
    """Pack everything below ``folder``, in a process of its own; the sets' folders by name."""
    folder.mkdir(parents=True)
    command = [sys.executable, "-X", "faulthandler", __file__, str(folder)]
    path = os.pathsep.join(each for each in sys.path if each)
    with log.open("ab") as output:
        packing = subprocess.run(
            command, stdout=output, stderr=output, env={**os.environ, "PYTHONPATH": path}, check=False
        )
    if packing.returncode:
        raise RuntimeError(f"Packing ended with {packing.returncode}:\n{log.read_text(errors='replace')}")
    return {name: folder / name for name in (*PACKS, FIELDS)}


if __name__ == "__main__":
    sys.exit(pack_all(Path(sys.argv[1])))
