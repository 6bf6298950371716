"""CONTRIBUTING.md's recipes are true: each is followed in a copy of the house, and touches the files that it
names and no others; what was added works there.

The extension is not built again, which takes minutes: the core's side is compiled by itself, as far as the
recipe changes it, and the Python side runs with the extension as it is.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
import recipe_texts as texts
from house_copy import ROOT, HouseCopy, steps_of
from PIL import Image

from fastload._native import _C

DECODER, PRODUCER = "csrc/core/decode/decoder.cpp", "csrc/core/engine/producer.cpp"


@pytest.fixture
def house(tmp_path: Path) -> HouseCopy:
    """A copy of the house."""
    return HouseCopy(tmp_path)


@pytest.mark.timeout(900)
def test_an_operation_on_pixels(house: HouseCopy) -> None:
    operations = "fastload/transforms/operations"
    house.add("csrc/core/transform/pixels/dim.cpp", texts.DIM_CPP)
    house.insert("csrc/core/transform/pixels/registry.h", "row(kSolarize)", "row(kDim) ")
    house.insert(f"{operations}/colours.py", "# ---- Inversion", texts.DIM_PY)
    house.insert(f"{operations}/registry.py", '    "ToDtype": (', '    "RandomDim": ("colours",),\n')
    house.insert("fastload/transforms/__init__.py", "        RandomEqualize,\n", "        RandomDim,\n")
    house.insert("fastload/transforms/__init__.py", '    "RandomResizedCrop",\n', '    "RandomDim",\n')
    row = '    "dim": [((4.0,), lambda picture: picture.point(lambda value: value >> 4))],\n'
    house.insert("tests/transform/test_pixels.py", '    "solarize": [', row)
    assert house.touched == steps_of("An operation on pixels", "dim")

    # The registry and the new operation alone, with what draws and applies it.
    core = house.folder / "csrc/core/transform/pixels"
    others = set(re.findall(r"row\((k\w+)\)", (core / "registry.h").read_text(encoding="utf-8"))) - {"kDim"}
    assert len(others) == len(_C.PIXEL_OPERATIONS)
    main = texts.DIM_MAIN.replace("OTHERS", "\n".join(f"STUB({name})" for name in sorted(others)))
    program = house.compile(
        main, [str(core / f"{name}.cpp") for name in ("dim", "registry", "spec", "number", "mix")]
    )
    pixels = np.random.default_rng(0).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    done = subprocess.run([str(program)], input=pixels.tobytes(), capture_output=True, check=True)
    wanted = np.asarray(Image.fromarray(pixels).point(lambda value: value >> 4))
    assert np.array_equal(np.frombuffer(done.stdout, np.uint8).reshape(8, 8, 3), wanted)
    assert sorted(done.stderr.decode().split()) == sorted([*others, "dim"])
    assert json.loads(house.python(texts.DIM_USED)) == [["dim", 0.5, [4.0]]] * 2


@pytest.mark.timeout(900)
def test_a_kind_of_field(house: HouseCopy) -> None:
    kinds = "csrc/core/sample/kinds.h"
    house.insert(kinds, "};\n\n// How the values", "  kCloud = 16,\n")
    house.replace(kinds, "std::array<KindRow, 16>", "std::array<KindRow, 17>")
    house.insert(kinds, "}};\n", '    {"cloud", FieldKind::kCloud, Storage::kRagged},\n')
    fields = "fastload/sample/fields.py"
    house.insert(fields, "#: The kinds by name", texts.CLOUD_PY)
    house.replace(fields, "        Images,\n    )\n}", "        Images,\n        Cloud,\n    )\n}")
    house.insert("fastload/sample/values.py", '    "label": _NUMBERS', '    "cloud": _NUMBERS,\n')
    top = "fastload/__init__.py"
    house.insert(top, "        Image,\n", "        Cloud,\n")
    house.insert(top, '    "DataLoader",\n', '    "Cloud",\n')
    house.insert(top, '    "DataLoader": ', '    "Cloud": "fastload.sample.fields",\n')
    house.insert("FORMAT.md", "\n`dtype` is `bool`", "| 16 | `cloud` | | ragged: rows of x, y and z, f32 |\n")
    assert house.touched == steps_of("A kind of field", "cloud")

    program = house.compile(texts.KINDS_MAIN, [])
    table = subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout
    assert "cloud 16 ragged\n" in table
    found = json.loads(house.python(texts.CLOUD_USED, table, str(house.folder / "set")))
    assert found["rows"] == [[], [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]], [[7.0, 8.0, 9.0]]]
    assert found["schema"] == "cloud=cloud"
    assert found["arrow"] == "list<item: list<item: float>>"
    assert found["public"]


@pytest.mark.timeout(900)
def test_a_codec(house: HouseCopy) -> None:
    codecs = "csrc/core/decode/codecs"
    house.add(f"{codecs}/ppm.cpp", texts.PPM_CPP)
    house.replace(f"{codecs}/registry.h", "row(Coefficients, 8)", "row(Coefficients, 8) row(Ppm, 9)")
    house.insert("FORMAT.md", " It is found from the record's", " 9 PPM.")
    assert house.touched == steps_of("A codec", "ppm")

    # The registry and the new codec alone: in the place of the others stand rows without functions.
    program = house.compile(
        texts.PPM_MAIN, [f"{codecs}/registry.cpp", f"{codecs}/ppm.cpp"], (DECODER, PRODUCER)
    )
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    file = b"P6\n7 5\n255\n" + pixels.tobytes()
    done = subprocess.run([str(program)], input=file, capture_output=True, check=True)
    assert done.stderr.decode().split() == ["ppm", "7", "5", "9", "ppm"]
    assert np.array_equal(np.frombuffer(done.stdout, np.uint8).reshape(3, 4, 3), pixels[1:4, 2:6])


@pytest.mark.timeout(900)
def test_a_shard_format(house: HouseCopy) -> None:
    house.add("fastload/shard/flat.py", texts.FLAT_PY)
    house.insert("fastload/shard/formats.py", '    "lmdb": Facts(', '    "flat": Facts(".flat", "numpy"),\n')
    house.insert("FORMAT.md", "### HDF5: `NAME", "### Flat: `NAME-00000-of-00008.flat`\n\n" + texts.FLAT_SAID)
    assert house.touched == steps_of("A shard format", "flat")

    tree = house.folder / "tree" / "class"
    tree.mkdir(parents=True)
    for i in range(5):
        pixels = np.random.default_rng(i).integers(0, 256, (20, 30, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tree / f"{i}.png")
    found = json.loads(house.python(texts.FLAT_USED, str(tree.parent), str(house.folder / "set")))
    wanted = [int(np.asarray(Image.open(tree / f"{i}.png"), np.int64).sum()) for i in range(5)]
    assert found == {"format": "flat", "sums": wanted, "help": True, "verified": 0}


@pytest.mark.timeout(900)
def test_a_new_source(house: HouseCopy) -> None:
    house.add("fastload/packing/scan_rows.py", texts.SCAN_PY)
    opened = "fastload/packing/opened.py"
    house.insert(
        opened, "from fastload.packing.table_samples", "from fastload.packing.scan_rows import open_scans\n"
    )
    house.insert(opened, "    annotated_sources,\n", "    open_scans,\n")
    assert house.touched == steps_of("A new source", "scan")

    scans = house.folder / "scans"
    scans.mkdir()
    arrays = [np.random.default_rng(i).integers(0, 256, (20, 30, 3), dtype=np.uint8) for i in range(9)]
    for i, pixels in enumerate(arrays):
        np.save(scans / f"{i}.npy", pixels)
    found = json.loads(house.python(texts.SCAN_USED, str(scans), str(house.folder / "packs")))
    assert found == {
        "names": [f"{i}.npy" for i in range(9)],
        "means": [round(float(np.float32(pixels.mean())), 3) for pixels in arrays],
        "shards": 5,
        "same": [True] * 3,
        "skipped": 1,
    }


def test_what_contributing_names_is_there() -> None:
    """Every path of it that is no pattern."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    paths = {path for path in re.findall(r"`([\w./]+)`", text) if "/" in path and "NAME" not in path}
    named = {path for path in paths if path.split("/")[0] in ("csrc", "docs", "fastload", "tests", "tools")}
    assert len(named) > 30
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []
