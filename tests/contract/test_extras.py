"""What needs a library that is not a dependency says how to get it, in the words of one place."""

from __future__ import annotations

import ast
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from house_sources import PACKAGE, ROOT, cpp_files, is_type_checking, python_files

from fastload.errors import DecodeError, LibraryMissing, StateError
from fastload.extras import LIBRARIES, pip_line
from fastload.packing.options import PackOptions
from fastload.sample.schema import Schema

DEPENDENCIES = {"torch", "numpy", "lmdb", "pyarrow", "h5py", "rich"}
#: What a library is called on PyPI, where not as it is imported.
DISTRIBUTIONS = {
    "PIL": "pillow",
    "composer": "mosaicml",
    "dlio_benchmark": "dlio-benchmark",
    "ignite": "pytorch-ignite",
    "nvidia": "nvidia-dali-cuda120",
    "open_clip_train": "open_clip_torch",
    "prometheus_client": "prometheus-client",
    "yaml": "pyyaml",
}
#: Imports of a library that another one brings, or that whoever started the process has asked for.
BROUGHT = {
    ("integrations/timm.py", "torchvision"),
    ("diagnose/comparison_child.py", "PIL"),
    ("diagnose/comparison_child.py", "torchvision"),  # where it is installed
}


def module(name: str) -> Any:
    return import_module(f"fastload.{name}")


def load_anew(name: str) -> None:
    """Import a module of ours as for the first time."""
    sys.modules.pop(f"fastload.{name}", None)
    module(name)


def data_yaml(folder: Path) -> None:
    path = folder / "data.yaml"
    path.write_text("names: [a]\n")
    module("packing.annotations.yolo").read_data_yaml(path)


#: Each place that imports such a library, and what gets there. They are given a folder.
FEATURES: dict[tuple[str, str], Callable[[Path], object]] = {
    ("backends/dali/graph.py", "nvidia"): lambda _: module("backends.dali.graph").load_dali(),
    ("backends/state.py", "torchdata"): lambda _: module("backends.state").check_kept(0, {"a": 1}),
    ("backends/callable_samples.py", "torchvision"): lambda _: module(
        "backends.callable_samples"
    ).tv_tensors(),
    ("cli/completion.py", "shtab"): lambda _: module("cli.completion").run(Namespace(shell="bash")),
    ("collate/detection.py", "torchvision"): lambda _: module("collate.detection")._wrap({}, (1, 1)),
    ("dataset/detection.py", "pycocotools"): lambda _: module("dataset.detection").DetectionDataset.coco.func(
        None
    ),
    ("dataset/packed.py", "PIL"): lambda _: module("dataset.packed")._as_pil(None),
    ("dataset/decoding.py", "PIL"): lambda _: module("dataset.decoding").decode_with_pil(b""),
    ("diagnose/comparison.py", "PIL"): lambda folder: module("diagnose.comparison").draw_sample("", folder),
    ("diagnose/pages/page.py", "matplotlib"): lambda _: module("diagnose.pages.page").drawing(),
    ("extras.py", "torchvision"): lambda _: module("extras").tv_tensors(),
    ("integrations/composer.py", "composer"): lambda _: load_anew("integrations.composer"),
    ("integrations/dlio.py", "dlio_benchmark"): lambda _: load_anew("integrations.dlio"),
    ("integrations/ignite.py", "ignite"): lambda _: module("integrations.ignite").auto_dataloader(""),
    ("integrations/open_clip.py", "open_clip_train"): lambda _: module("integrations.open_clip").data_info(0),
    ("integrations/prometheus.py", "prometheus_client"): lambda _: load_anew("integrations.prometheus"),
    ("integrations/ray.py", "ray"): lambda _: module("integrations.ray").prepare_data_loader(0),
    ("integrations/timm.py", "timm"): lambda _: module("integrations.timm")._timm(),
    ("packing/annotations/yolo.py", "yaml"): data_yaml,
    ("packing/annotations/panoptic.py", "PIL"): lambda _: module("packing.annotations.panoptic").Segments(
        0, 0
    ),
    ("packing/annotations/coco_unpack.py", "PIL"): lambda _: module("packing.annotations.coco_unpack").png_of(
        0, 0
    ),
    ("packing/ray.py", "ray"): lambda _: module("packing.ray").RayCluster("local"),
    ("packing/recoding.py", "PIL"): lambda _: module("packing.recoding").Transcoder(
        Schema.plain(), PackOptions(max_side=9)
    ),
    ("packing/videos.py", "av"): lambda folder: (
        module("packing.videos").Decoder("PyAV", "").opened(folder, 1)
    ),
    ("packing/videos.py", "torchcodec"): lambda folder: (
        module("packing.videos").Decoder("torchcodec", "").opened(folder, 1)
    ),
    ("diagnose/fixes/processors.py", "PIL"): lambda _: module("diagnose.fixes.processors").picture_seconds(
        None, 8, 8
    ),
    ("remote/clouds.py", "obstore"): lambda _: load_anew("remote.clouds"),
    ("remote/hub.py", "huggingface_hub"): lambda _: load_anew("remote.hub"),
    ("remote/s3.py", "botocore"): lambda _: load_anew("remote.s3"),
    ("transforms/compiler.py", "PIL"): lambda _: module("transforms.compiler").as_picture(None),
}
#: Where the error is one of the feature's own, with the same words.
OTHER_ERRORS = {
    "backends/state.py": StateError,
    "dataset/decoding.py": DecodeError,
}


@pytest.fixture
def hidden(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Hides a library from imports; our own modules are as before when the test is over."""
    for name in [name for name in sys.modules if name.startswith("fastload.")]:
        monkeypatch.setitem(sys.modules, name, sys.modules[name])

    def hide(library: str) -> None:
        inside = [name for name in sys.modules if name.startswith(f"{library}.")]
        for name in [library, *inside]:
            monkeypatch.setitem(sys.modules, name, None)

    return hide


def imported(tree: ast.AST) -> Iterator[str]:
    """What is imported when the program runs, by a statement or by a name that is written out."""
    for node in ast.iter_child_nodes(tree):
        if is_type_checking(node):
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
        elif isinstance(node, ast.Call) and node.args:
            first, function = node.args[0], ast.unparse(node.func).rpartition(".")[2]
            if function in ("import_module", "find_spec", "need") and isinstance(first, ast.Constant):
                yield str(first.value)
        yield from imported(node)


def places(package: Path) -> set[tuple[str, str]]:
    """(file, library) of each import of what neither Python nor the dependencies have."""
    found = set()
    for path in package.rglob("*.py"):
        tops = {name.partition(".")[0] for name in imported(ast.parse(path.read_text(encoding="utf-8")))}
        others = tops - sys.stdlib_module_names - DEPENDENCIES - {"fastload", "_xxsubinterpreters"}
        found |= {(path.relative_to(package).as_posix(), top) for top in others}
    return found


def test_each_place_that_imports_such_a_library_is_in_the_table() -> None:
    assert places(PACKAGE) == set(FEATURES) | BROUGHT
    assert {library for _, library in FEATURES} == set(LIBRARIES)


@pytest.mark.parametrize(
    "line",
    ["import cv2", "def f():\n    from cv2.x import y", "need('cv2.aruco', 'this')", "find_spec('cv2')"],
)
def test_a_new_one_is_found(tmp_path: Path, line: str) -> None:
    (tmp_path / "new.py").write_text(f"import os, torch\nif TYPE_CHECKING:\n    import timm\n{line}\n")
    assert places(tmp_path) == {("new.py", "cv2")}


@pytest.mark.parametrize("place", FEATURES, ids=lambda place: f"{place[0]}-{place[1]}")
def test_its_absence_names_the_pip_line(
    place: tuple[str, str], hidden: Callable[[str], None], tmp_path: Path
) -> None:
    file, library = place
    hidden(library)
    with pytest.raises(OTHER_ERRORS.get(file, LibraryMissing)) as caught:
        FEATURES[place](tmp_path)
    called, extra = LIBRARIES[library]
    assert f'pip install "fastload[{extra}]"' in str(caught.value)
    assert f" needs {called}, which " in str(caught.value)
    assert issubclass(LibraryMissing, ImportError)


@pytest.mark.parametrize("name", ["arrow", "lmdb", "hdf5"])
def test_a_dependency_that_is_gone_has_a_pip_line_too(name: str, hidden: Callable[[str], None]) -> None:
    formats = module("shard.formats")
    library = formats.FORMATS[name].library
    hidden(library)
    sys.modules.pop(f"fastload.shard.{name}", None)
    with pytest.raises(
        LibraryMissing, match=rf"the {name} format needs {library}, .*: pip install {library}\."
    ):
        formats.format_of(name)


def test_pip_lines_are_written_in_one_place() -> None:
    """Beside those of whoever has no complete fastload."""
    files = [*python_files("fastload"), *cpp_files("csrc")]
    assert len(files) > 500
    found = {path.name for path in files if "pip install" in path.read_text(encoding="utf-8")}
    assert found == {"extras.py", "unbuilt.py"}


def test_extras_bring_what_they_are_named_for() -> None:
    tomllib = pytest.importorskip("tomllib")  # from Python 3.11 on
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {line.partition(">")[0] for line in project["dependencies"]} == DEPENDENCIES
    for library, (_, extra) in LIBRARIES.items():
        lines = project["optional-dependencies"][extra]
        assert any(line.startswith(f"{DISTRIBUTIONS.get(library, library)}>=") for line in lines), extra
    assert pip_line("PIL.Image") == 'pip install "fastload[pil]"'
