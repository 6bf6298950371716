"""Puts defects back that were in the product once, one by one, and looks whether an instrument finds each.

Run as ``planted.py JSON`` with a "folder" in memory, a "seed" and, maybe, "only": numbers of defects. Each is
a change of the package's text in a copy of it, or of the core (:mod:`planted_core`); an instrument that does
not find it is bad. Prints one JSON object.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import failing_calls
from driven import driven
from planted_core import CORE_DEFECTS, missed_in_core

import fastload

PACKAGE = Path(fastload.__file__).parent


@dataclass(frozen=True)
class Edit:
    """Text of a file that is replaced; it must be there once."""

    file: str
    old: str
    new: str


@dataclass(frozen=True)
class Defect:
    """One defect, and who must find it."""

    what: str
    edits: tuple[Edit, ...]
    program: str
    given: Mapping[str, Any] = field(default_factory=dict)
    shim: bool = False


def calls(verb: str, *kinds: str, points: int = 0) -> dict[str, Any]:
    """What call_faults.py is asked."""
    return {"verbs": [verb], "kinds": kinds, "points": points}


DEFECTS = {
    "1": Defect(
        "an index that was killed between index.fli and dataset.json is called foreign",
        (
            Edit(
                "packing/output.py",
                "        if self.work.exists():\n",
                "        if self.work.exists() and not (self.path / INDEX_NAME).exists():\n",
            ),
            Edit("packing/output.py", "            *_WRITTEN,\n", ""),
        ),
        "call_faults.py",
        calls("index arrow", "killed before"),
        shim=True,
    ),
    "2": Defect(
        "HDF5's library writes to the shard itself, and dies of what fails when it closes it",
        (Edit("shard/hdf5.py", 'h5py.File(self._under, "w"', 'h5py.File(path, "w"'),),
        "call_faults.py",
        calls("pack hdf5", "EIO from then on"),
        shim=True,
    ),
    "4": Defect(
        "a child of fork() waits for the parent's threads",
        (
            Edit("backends/callables.py", "            raise StateError(FORKED)\n", "            pass\n"),
            Edit("backends/torch_workers.py", "            raise StateError(FORKED)\n", "            pass\n"),
        ),
        "epoch_steps.py",
        {"kinds": ["workers", "torch_dataset"], "events": ["fork"], "each": 14, "patience": 20},
    ),
    "5": Defect(
        "verify keeps an object for each problem",
        (Edit("packing/verify.py", "LISTED = 100 ", "LISTED = 10**9 "),),
        "hostile_inputs.py",
        {"only": "overlapping"},
    ),
    "6": Defect(
        "folders of a check that was killed stay for ever",
        (
            Edit("packing/packer.py", "    remove_scans(output)\n", ""),
            Edit("packing/output.py", "output / _SCAN\n", "output / f'{_SCAN}-{os.getpid()}'\n"),
        ),
        "call_faults.py",
        calls("pack over a complete one", "killed before"),
        shim=True,
    ),
    "7a": Defect(
        "a source file that is newer than the pack refuses every rerun",
        (
            Edit(
                "packing/output.py",
                "                if not _same(before, now):\n",
                "                if before is not now:\n",
            ),
        ),
        "call_faults.py",
        calls("pack of touched files", "killed before", points=3),
        shim=True,
    ),
    "7b": Defect(
        "LMDB's failing calls are a traceback",
        (Edit("shard/lmdb.py", "        raise OSError(str(error)) from error\n", "        raise\n"),),
        "call_faults.py",
        calls("pack lmdb", "EIO"),
        shim=True,
    ),
    "7c": Defect(
        "what cannot be opened for lack of descriptors is called damaged",
        (Edit("packing/work.py", "_DAMAGE = (ValueError,", "_DAMAGE = (OSError, ValueError,"),),
        "call_faults.py",
        calls("pack arrow", "EMFILE", "EMFILE from then on"),
        shim=True,
    ),
    "8": Defect(
        "a cache file that was cut is not replaced",
        (
            Edit(
                "cache/opening.py",
                "    except (FileNotFoundError, CacheError):\n        return None\n\n\ndef _attached",
                "    except FileNotFoundError:\n        return None\n\n\ndef _attached",
            ),
        ),
        "call_faults.py",
        calls("train over a cut cache", "EINTR", points=3),
        shim=True,
    ),
    "9": Defect(
        "threads of the core take the GIL while the interpreter exits",
        (
            Edit(
                "_native.py",
                "\n_C.set_error_classes(",
                "\nimport atexit\n\natexit.unregister(_C.close_gil_gate)\n_C.set_error_classes(",
            ),
        ),
        "epoch_steps.py",
        {"kinds": ["plain", "cached"], "events": ["daemon_thread"], "each": 30, "patience": 20},
    ),
}


def missed(defect: Defect, folder: Path, seed: int) -> str:
    """Why the instrument has not found the defect in a copy of the package, or nothing."""
    shutil.copytree(PACKAGE, folder / "fastload")
    for edit in defect.edits:
        path = folder / "fastload" / edit.file
        text = path.read_text(encoding="utf-8")
        assert text.count(edit.old) == 1, f"{edit.file} has no longer once: {edit.old}"
        path.write_text(text.replace(edit.old, edit.new), encoding="utf-8")
    (folder / "work").mkdir()
    given = {**defect.given, "seed": seed, "folder": str(folder / "work")}
    variables = {"LD_PRELOAD": str(failing_calls.build(folder.parent))} if defect.shim else {}
    try:
        told = driven(defect.program, given, 3600, first=folder, **variables)
    except (AssertionError, subprocess.TimeoutExpired) as error:
        return f"{defect.program} gave no result: {str(error)[-500:]}"
    if not told["points"] and not told["bad"]:
        return f"{defect.program} has nothing that could find it"
    return "" if told["bad"] else f"{defect.program} does not find it"


def main(given: dict[str, Any]) -> None:
    """Plant them all, or those that were named."""
    wanted = given.get("only") or [*DEFECTS, *CORE_DEFECTS]
    points, bad = {}, []
    folder = Path(given["folder"])
    for number, defect in DEFECTS.items():
        if number not in wanted:
            continue
        (folder / number).mkdir(parents=True)
        points[f"{number}: {defect.what}: {defect.program}"] = 1
        if why := missed(defect, folder / number, given["seed"]):
            bad.append([number, f"{defect.what}: {why}"])
        shutil.rmtree(folder / number, ignore_errors=True)
    in_core = [number for number in CORE_DEFECTS if number in wanted]
    for number, why in missed_in_core(in_core, folder / "core") if in_core else ():
        points[f"{number}: {CORE_DEFECTS[number].what}: {CORE_DEFECTS[number].test}"] = 1
        if why:
            bad.append([number, f"{CORE_DEFECTS[number].what}: {why}"])
    shutil.rmtree(folder / "core", ignore_errors=True)
    sys.stdout.write(
        json.dumps({"instrument": "planted", "seed": given["seed"], "points": points, "bad": bad}) + "\n"
    )
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
