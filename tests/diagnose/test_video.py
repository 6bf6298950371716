"""The doctor on datasets that decode video for each sample: seen, named, and what to type in their place."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import av
import pytest
from doctor_runs import SLOW, diagnosed
from torch.utils.data import DataLoader, Dataset, Subset

from fastload.diagnose.attribution import Attribution, Place
from fastload.diagnose.causes import Evidence
from fastload.diagnose.fixes import torch as fixes
from fastload.diagnose.spots import Frame, Spot, called, frames_of, spot_of
from fastload.diagnose.torch_loader import TorchLoaderUnderTest
from fastload.diagnose.trial import Budget, Stage, Trial

# ---- Stacks -----------------------------------------------------------------------------------------

_CALLS = "def {}(first, *others):\n    first(*others)\n"
_DATASET = """
class LeRobotDataset:
    def __init__(self, *functions):
        self.functions = functions

    def __len__(self):
        return 2

    def __getitem__(self, index):
        first, *others = self.functions
        first(*others)
        return 0
"""
#: Libraries that are the real ones in the names of their files and functions alone; each calls what it gets.
LIBRARIES = {
    "torchcodec/decoders/stub.py": _CALLS.format("get_frames_at"),
    "torchcodec/decoders/_audio_decoder.py": _CALLS.format("get_all_samples"),
    "fsspec/stub.py": _CALLS.format("read"),
    "lerobot/datasets/video_utils.py": _CALLS.format("decode_video_frames"),
    "lerobot/datasets/lerobot_dataset.py": _DATASET,
}


@pytest.fixture
def libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Returns the module of a name of :data:`LIBRARIES`, installed where packages lie."""
    root = tmp_path / "site-packages"
    for name, text in LIBRARIES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)

    def module(name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(f"stub_{len(name)}", root / name)
        assert spec is not None
        assert spec.loader is not None
        made = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(made)
        return made

    return module


class Seen(list[Spot]):
    """Spots of the stacks that call it; its own frame is left out."""

    def __call__(self) -> None:
        self.append(spot_of(frames_of(sys._getframe().f_back), False))

    def of(self, dataset: Any) -> Spot:
        self.clear()
        list(DataLoader(dataset, 2))
        assert self, "nothing was called"
        return self[0]


def test_a_dataset_of_lerobot_is_named_by_its_own_function(libraries: Any) -> None:
    seen = Seen()
    decode = libraries("lerobot/datasets/video_utils.py").decode_video_frames
    frames = libraries("torchcodec/decoders/stub.py").get_frames_at
    read = libraries("fsspec/stub.py").read
    kind = libraries("lerobot/datasets/lerobot_dataset.py").LeRobotDataset
    name = "LeRobotDataset.__getitem__" if sys.version_info >= (3, 11) else "__getitem__"
    for made in (kind(decode, seen), kind(decode, frames, seen), kind(decode, frames, read, seen)):
        for dataset in (made, Subset(made, [1, 0])):
            spot = seen.of(dataset)
            assert (spot.part, spot.kind, spot.line) == ("sample", "video", 0)
            assert Place("video", spot, 0.9).where == f"lerobot's {name}"
    assert seen.of(kind(read, seen)).kind == "reading"


def test_the_users_line_is_named_where_there_is_one(libraries: Any) -> None:
    class Users(Dataset[int]):
        def __init__(self, *functions: Any) -> None:
            self.functions = functions

        def __len__(self) -> int:
            return 1

        def __getitem__(self, index: int) -> int:
            first, *others = self.functions
            first(*others)
            return 0

    seen = Seen()
    frames = libraries("torchcodec/decoders/stub.py").get_frames_at
    spot = seen.of(Users(frames, seen))
    assert (spot.kind, spot.library, spot.file) == ("video", "torchcodec", __file__)
    sound = libraries("torchcodec/decoders/_audio_decoder.py").get_all_samples
    assert seen.of(Users(sound, seen)).kind != "video"


@pytest.fixture(name="video")
def _video(tmp_path: Path) -> Any:
    """An open video of PyAV."""
    path = tmp_path / "made.mp4"
    with av.open(str(path), "w") as out:
        stream: Any = out.add_stream("mpeg4", rate=10)
        stream.width, stream.height = 32, 32
        out.mux(stream.encode(av.VideoFrame(32, 32, "yuv420p")))
        out.mux(stream.encode(None))
    with av.open(str(path)) as opened:
        yield opened


@pytest.mark.parametrize(
    ("text", "is_video"),
    [("video.decode(video=0)", True), ("video.close()", True), ("numbers.index(3)", False)],
)
def test_calls_of_pyav(text: str, is_video: bool, video: Any) -> None:
    def work(video: Any, numbers: list[int]) -> str:  # without an assert: pytest's call locals()
        return called(Frame(sys._getframe()), text)

    name = work(video, [3])
    assert name.startswith("av.") == is_video, name


def test_ticks_that_come_late_in_a_loop_over_frames_are_the_loops(video: Any) -> None:
    seen = Seen()

    class Frames(Dataset[int]):
        def __len__(self) -> int:
            return 1

        def __getitem__(self, index: int) -> int:
            opened = video
            for _ in opened.decode(video=0):
                seen()
            return 0

    class Numbers(Frames):
        def __getitem__(self, index: int) -> int:
            for _ in range(1):
                seen()
            return 0

    spot = seen.of(Frames())
    assert (spot.kind, spot.text, spot.library) == ("video", "opened.decode(video=0)", "av")
    code = Frames.__getitem__.__code__
    assert spot.line == code.co_firstlineno + 2
    assert seen.of(Numbers()).kind == "python"


# ---- What to type in its place ----------------------------------------------------------------------


class Robot(Dataset[int]):
    """What the doctor looks for in a LeRobotDataset."""

    root = Path("/data/pusht")

    def __init__(self, version: str | None = "v3.0", windows: Any = None) -> None:
        self.meta = SimpleNamespace(info={"codebase_version": version} if version else {})
        self.delta_timestamps = windows

    def __len__(self) -> int:
        return 8


def case(dataset: Any, share: float = 0.7) -> fixes.TorchExamination:
    """Two workers that make 200 samples a second, 10 ms of CPU time each, mostly decoding video."""
    place = Place(
        "video", Spot("sample", "video", function="LeRobotDataset.__getitem__", library="lerobot"), share
    )
    makers = {"video": share, "reading": 0.2, "sleep": 1 - share - 0.2}
    return fixes.TorchExamination(
        *(Budget(60), Path(), 2.0, 2, 2.0, Trial(200.0, 0.01, threads=2), None, Stage("step", 1e6)),
        TorchLoaderUnderTest(DataLoader(dataset, 8)),
        Evidence(wait=0.8, makers=makers, place={"video": place}),
        Attribution(),
    )


def test_packing_is_proposed_for_a_lerobot_set() -> None:
    (found,) = fixes.by_windows(case(Subset(Robot(windows={"action": [0.0, 0.1]}), [3, 4])))
    assert found.words == (
        '`fastload pack /data/pusht OUT --as lerobot` and `fastload.DataLoader("OUT", batch_size=8, '
        "shuffle=True, fields=fastload.Fields(windows=dataset.delta_timestamps))` in place of lerobot's "
        "LeRobotDataset.__getitem__"
    )
    assert 0 < found.low < found.gain < found.high
    (plain,) = fixes.by_windows(case(Robot()))
    assert 'fastload.DataLoader("OUT", batch_size=8, shuffle=True)`' in plain.words


def test_it_is_not_proposed_without_a_reason() -> None:
    for given in (case(Robot(version=None)), case(Robot(), share=0.1), case([1, 2])):
        assert list(fixes.by_windows(given)) == []


# ---- A whole run ------------------------------------------------------------------------------------

PROGRAM = """
import av
import numpy


class LeRobotDataset(Dataset):
    def __init__(self, root, delta_timestamps):
        self.root, self.delta_timestamps = root, delta_timestamps
        self.meta = type("Meta", (), {"info": {"codebase_version": "v3.0"}})

    def __len__(self):
        return 4000

    def __getitem__(self, index):
        frames = []
        with av.open("made.mp4") as container:
            for frame in container.decode(video=0):  # decoded
                frames.append(frame)
                if len(frames) > index % 24:
                    break
        picture = torch.from_numpy(frames[-1].to_ndarray(format="rgb24")[::16, ::16].copy())
        return {"inputs": picture.flatten()[:8].float(), "labels": torch.zeros(1)}


with av.open("made.mp4", "w") as out:
    stream = out.add_stream("mpeg4", rate=10)
    stream.width, stream.height, stream.gop_size = 320, 240, 24
    for number in range(24):
        pixels = numpy.random.default_rng(number).integers(0, 255, (240, 320, 3), numpy.uint8)
        out.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
    out.mux(stream.encode(None))

layer = torch.nn.Linear(8, 1)
for _ in range(100):
    for batch in DataLoader(LeRobotDataset("made", {"action": [0.0]}), 8, shuffle=True, num_workers=1):
        loss_of(layer, batch["inputs"], batch["labels"]).backward()
"""


@pytest.mark.skipif(sys.version_info < (3, 11), reason="expressions are known from Python 3.11 on")
@pytest.mark.timeout(600)
def test_a_whole_program(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, PROGRAM)
    lines = (SLOW + PROGRAM).splitlines()
    line = next(number for number, text in enumerate(lines, 1) if text.endswith("# decoded"))
    assert (
        f"Decoding of video is the bottleneck: train.py line {line} (`container.decode(video=0)`)"
        in found.said
    )
    assert "What helps: frames decoded once, into records that are read one by one" in found.said
    assert "`fastload pack made OUT --as lerobot`" in found.said
    assert found.files == {"made.mp4"}
