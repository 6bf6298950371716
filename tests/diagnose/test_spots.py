"""Where a stack is: the kind of work, the line and the call, for real stacks of real libraries.

A stack is taken when a library's function with a given name is called, so nothing depends on time.
"""

from __future__ import annotations

import gzip
import importlib
import io
import json
import os
import pickle
import signal
import sys
import tarfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import h5py
import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image, ImageFilter
from torch.utils.data import DataLoader, Dataset

from fastload.diagnose.spots import Frame, Spot, called, container_of, frames_of, picture_of, spot_of


class Taken:
    """Stacks at the calls of a function of C, while code runs."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.spots: list[Spot] = []
        self.others: list[Any] = []

    def of(self, run: Callable[[], Any], worker: bool = False) -> list[Spot]:
        """Run it, and return what was found at each call."""

        def look(frame: FrameType, event: str, argument: Any) -> None:
            is_library = event == "call" and frame.f_code.co_filename != __file__
            name = frame.f_code.co_name if is_library else getattr(argument, "__name__", "")
            if name != self.name or event not in ("c_call", "call"):
                return
            frames = frames_of(frame)
            self.spots.append(spot_of(frames, worker))
            self.others.append((picture_of(frames), container_of(frames)))

        sys.setprofile(look)
        try:
            run()
        finally:
            sys.setprofile(None)
        return self.spots


class Samples(Dataset[Any]):
    """A dataset that does one thing for a sample."""

    def __init__(self, act: Callable[[], Any], transform: Any = None) -> None:
        self.act, self.transform = act, transform

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> Any:
        found = self.act()
        if self.transform is not None:
            found = self.transform(found)
        return torch.zeros(1)


def at(name: str, act: Callable[[], Any], transform: Any = None, collate: Any = None) -> Spot:
    """Where a sample's work is found; the dataset runs in the loop's thread."""
    spots = Taken(name).of(lambda: list(DataLoader(Samples(act, transform), 2, collate_fn=collate)))
    assert spots, f"{name} was not called"
    return spots[0]


def jpeg(folder: Path, side: int = 64) -> Path:
    path = folder / "picture.jpg"
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (side, 48, 3), np.uint8)).save(path)
    return path


LOCK = threading.Lock()


def with_lock() -> None:
    with LOCK:
        time.monotonic()


def unpacked(path: Path) -> bytes:
    with gzip.open(path) as file:
        return file.read()


def listed(path: Path) -> list[str]:
    with tarfile.open(path, "r:") as tar:
        return tar.getnames()


def blurred(picture: Image.Image) -> Any:
    return picture.filter(ImageFilter.GaussianBlur(1))


def test_decoding_is_found_with_the_picture(tmp_path: Path) -> None:
    path = jpeg(tmp_path)
    taken = Taken("decode")
    spot = taken.of(lambda: list(DataLoader(Samples(lambda: Image.open(path).convert("RGB")), 1)))[0]
    assert (spot.part, spot.kind, spot.library) == ("sample", "decode", "PIL")
    assert spot.text == 'Image.open(path).convert("RGB")'
    assert os.path.basename(spot.file) == "test_spots.py"
    assert taken.others[0][0] == ("JPEG", 48, 64, str(path))


def test_opening_and_reading_files(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(b"x")
    assert at("open", lambda: path.open("rb").close()).kind == "reading"
    assert at("read", lambda: path.read_bytes()).kind == "reading"
    assert at("stat", lambda: os.stat(path)).kind == "reading"


def test_containers_and_sequential_formats_are_reading_by_their_library(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", data=np.zeros((100, 4)), chunks=(50, 4), compression="gzip")
    with h5py.File(tmp_path / "a.h5") as file:
        array = file["x"]
        taken = Taken("__getitem__")
        spots = taken.of(lambda: list(DataLoader(Samples(lambda: array[7]), 1)))
        assert (spots[0].kind, spots[0].library) == ("reading", "h5py")
        assert spots[0].text == "array[7]"
        assert any(found == "h5py, chunks of (50, 4), gzip" for _, found in taken.others)
    with gzip.open(tmp_path / "a.gz", "wb") as out:
        out.write(bytes(1000))
    spot = at("decompress", lambda: unpacked(tmp_path / "a.gz"))
    assert spot.kind == "reading"
    assert spot.library in ("gzip", "_compression", "compression")
    with tarfile.open(tmp_path / "a.tar", "w") as tar:  # not compressed
        tar.add(tmp_path / "a.gz", "a")
    assert at("seek", lambda: listed(tmp_path / "a.tar")).library == "tarfile"


def test_pandas_in_the_dataset_is_its_python() -> None:
    frame = pd.DataFrame({"id": [1, 2], "x": [3, 4]})
    spots = Taken("_getitem_bool_array").of(
        lambda: list(DataLoader(Samples(lambda: frame[frame.id == 1]), 1))
    )
    assert {each.kind for each in spots} == {"python"}
    assert {each.text for each in spots} <= {"frame[frame.id == 1]", "frame.id == 1", "frame.id"}
    assert at("monotonic", lambda: time.monotonic()).call == "time.monotonic"


def test_a_transform_is_found_by_who_calls_it(tmp_path: Path) -> None:
    picture = Image.open(jpeg(tmp_path))
    picture.load()
    taken = Taken("gaussian_blur")
    spots = taken.of(lambda: list(DataLoader(Samples(lambda: picture, transform=blurred), 1)))
    assert (spots[0].kind, spots[0].library, spots[0].function) == ("transform", "PIL", "blurred")
    assert spots[0].text == "picture.filter(ImageFilter.GaussianBlur(1))"


def test_locks_and_sleeps() -> None:
    spot = at("monotonic", with_lock)
    assert spot.kind == "python"
    assert at("sleep", lambda: time.sleep(0)).kind == "sleep"
    frame = Frame(sys._getframe())
    assert called(frame, "LOCK.acquire()") == "_thread.lock.acquire"


def test_collate_functions() -> None:
    def join(samples: list[Any]) -> Any:
        time.monotonic()
        return torch.stack(samples)

    spot = at("monotonic", lambda: 1, collate=join)
    assert (spot.part, spot.kind, spot.text) == ("collate", "collate", "time.monotonic()")
    assert at("stack", lambda: 1).kind == "collate"


def test_the_step(tmp_path: Path) -> None:
    loss = torch.ones(1, requires_grad=True)

    def step() -> None:
        loss.item()
        loss.detach().cpu()
        print("loss", file=io.StringIO())
        json.dumps([1])
        torch.save(loss.detach(), tmp_path / "x.pt")
        (loss * 2).sum()

    assert [spot.kind for spot in Taken("item").of(step)] == ["sync"]
    assert [spot.kind for spot in Taken("cpu").of(step)] == ["sync"]
    assert [spot.kind for spot in Taken("print").of(step)] == ["logging"]
    assert {spot.kind for spot in Taken("write_record").of(step)} == {"logging"}
    (spot,) = Taken("sum").of(step)
    assert (spot.part, spot.kind, spot.text) == ("loop", "step", "(loss * 2).sum()")


def test_starting_and_waiting_for_workers() -> None:
    loader = DataLoader(Samples(lambda: 1), 1, num_workers=1)
    spots = Taken("fork").of(lambda: list(loader))
    assert {(spot.part, spot.kind) for spot in spots} == {("starting", "starting")}
    spots = Taken("poll").of(lambda: list(loader))
    assert "waiting" in {spot.part for spot in spots}
    assert {spot.kind for spot in spots} <= {"waiting", "starting"}


def test_a_processor_of_transformers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "import time\n\n\ndef process():\n    time.monotonic()\n"
    (tmp_path / "image_processing_stub.py").write_text(text)
    package = ModuleType("transformers")
    package.__path__ = [str(tmp_path)]
    monkeypatch.setitem(sys.modules, "transformers", package)
    process = importlib.import_module("transformers.image_processing_stub").process
    del sys.modules["transformers.image_processing_stub"]

    spot = at("monotonic", lambda: process())
    assert (spot.kind, spot.library) == ("processor", "transformers")
    assert spot.text == "process()"


def test_attributes_are_looked_up_without_running_anything() -> None:
    class Careful:
        kept = "kept"

        @property
        def danger(self) -> Any:
            raise AssertionError("a property was run")

        def __getattr__(self, name: str) -> Any:
            raise AssertionError("__getattr__ was run")

    def work(careful: Careful) -> dict[str, str]:  # without an assert: pytest's call locals()
        frame = Frame(sys._getframe())
        return {
            text: called(frame, text) for text in ("careful.danger()", "careful.missing()", "pickle.dumps(1)")
        }

    found = work(Careful())
    assert found["careful.danger()"] != ""
    assert found["careful.missing()"] == "careful.missing"
    assert found["pickle.dumps(1)"] == "_pickle.dumps"
    assert Careful().kept == "kept"
    assert pickle.loads(pickle.dumps(1)) == 1


def test_a_variable_of_the_function_comes_before_one_of_the_module() -> None:
    def work(json: Any) -> str:
        return called(Frame(sys._getframe()), "json.dumps(1)")

    assert work(pickle) == "_pickle.dumps"
    assert called(Frame(sys._getframe()), "json.dumps(1)") == "json.dumps"


def test_locals_of_a_frame_are_not_kept_alive() -> None:
    import gc
    import weakref

    class Thing:
        pass

    def work() -> tuple[Any, FrameType, bool]:  # without an assert: pytest's call locals()
        thing = Thing()
        frame = sys._getframe()
        is_found = Frame(frame).local("thing") is thing
        reference = weakref.ref(thing)
        del thing
        gc.collect()
        return reference, frame, is_found

    reference, _, is_found = work()
    assert is_found
    assert reference() is None


def test_a_program_that_looks_at_its_locals_sees_them_as_without_the_doctor() -> None:
    """What ``locals()`` gave is neither emptied nor brought up to date, nor is a dict that others hold."""

    class Peer:
        def held(self) -> Any:
            return sys._getframe(1).f_locals

    def by_name() -> tuple[int, int]:
        number = 1
        before = locals()
        before["number"] = 5
        Frame(sys._getframe()).local("number")
        return number, before["number"]

    def by_exec() -> int:
        number = 1
        scope: dict[str, Any] = vars()
        exec("number = 2", {}, scope)
        Frame(sys._getframe()).local("number")
        return number * int(scope["number"])

    def by_frame(number: int) -> tuple[Any, Any, dict[str, Any]]:
        held = Peer().held()
        frame = Frame(sys._getframe())
        return frame.local("number"), frame.local("missing"), dict(held)

    assert by_name() == (1, 5)
    assert by_exec() == 2
    number, missing, held = by_frame(1)
    assert (number, missing, held["number"]) == (1, None, 1)


def test_a_clock_that_reads_locals_changes_nothing() -> None:
    """A signal comes between any two steps of a program: here, hundreds of them in half a second."""
    looked = Counter[str]()

    def look(_: int, frame: FrameType | None) -> None:
        while frame is not None and frame.f_code.co_filename == __file__:
            found = Frame(frame)
            for name in (*frame.f_code.co_varnames, *frame.f_code.co_freevars, *frame.f_code.co_cellvars):
                looked[name] += found.local(name) is not None
            frame = frame.f_back

    def named(first: int, second: str) -> str:
        return "{first}-{second}".format(**locals())

    def counted(first: int, second: str) -> int:
        third = first + 1
        return sum(value is not None for value in locals().values()) + third - first

    def borrowed(first: int, second: str) -> list[str]:
        return [key for key in sys._getframe().f_locals if key != "key"]

    def plain(first: int, second: str) -> tuple[int, str, int]:
        third = first * 2
        total = 0
        for step in range(3):
            total += step * third
        return first, second, total

    def repeated() -> tuple[int, set[tuple[Any, ...]]]:  # without an assert: pytest's call locals()
        wrong, rounds, end = set(), 0, time.monotonic() + 0.5
        while time.monotonic() < end or (rounds < 200 and time.monotonic() < end + 60):
            found = named(rounds, "b"), counted(rounds, "b"), borrowed(rounds, "b"), plain(rounds, "b")
            right = f"{rounds}-b", 4, ["first", "second"], (rounds, "b", 6 * rounds)
            wrong |= {(number, str(each)) for number, each in enumerate(found) if each != right[number]}
            rounds += 1
        return rounds, wrong

    was = signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    try:
        rounds, wrong = repeated()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, was)
    assert rounds >= 200
    assert wrong == set()
    assert looked["rounds"] > 0
