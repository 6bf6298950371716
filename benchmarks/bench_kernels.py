"""Each kernel's CPU time by SIMD level, beside the same kernel of another build of fastload.

    python benchmarks/bench_kernels.py BEFORE [--images FOLDER] [--levels avx2,avx512] [--only box,noise]

BEFORE is a checkout of an older commit with its extension built into fastload/ (tools/build_inplace.sh).
The package that is imported here is compared with it. Each build runs in a process of its own, with this
checkout's benchmarks as the cases; the two take turns. A cell has the median of new / before (below 1:
faster now), in brackets the tenth and ninetieth of a hundred, and the time now. A level that the older
build does not have is compared with its scalar code. A second table has the lines of each family of
kernels in both checkouts, and the test that all its levels give the same bits.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
SECONDS = 0.02  # of one repeat of one case
Case = Callable[[int], object]  # runs n times over
# What kernels do: their files in csrc/core, now and before, and the test of their bits.
FAMILIES = {
    "box blur": ("transform/pixels/box_blur*", "tests/cpp/test_blur.cpp"),
    "Gaussian blur": ("transform/pixels/gaussian_blur*", "tests/cpp/test_blur.cpp"),
    "noise": ("transform/pixels/*noise*", "tests/cpp/test_noise.cpp"),
    "operations pixel by pixel": ("transform/pixels/pointwise*", "tests/cpp/test_pointwise.cpp"),
    "warps, flips": ("transform/pixels/warp*", "tests/cpp/test_warp.cpp"),
    "resize": ("transform/resample[._]* transform/axis* transform/kernels.h", "tests/cpp/test_transform.cpp"),
    "store": ("transform/store*", "tests/cpp/test_transform.cpp"),
    "numbers of patches and tiles": ("vision/values*", "tests/cpp/test_vision.cpp"),
    "RGB to gray": ("decode/gray*", "tests/cpp/test_cut.cpp"),
    "JPEG: bytes and Huffman codes": (
        "decode/jpeg/bits* decode/jpeg/huffman* decode/jpeg/entropy*",
        "tests/cpp/test_entropy.cpp",
    ),
    "JPEG: inverse DCT": ("decode/jpeg/idct*", "tests/cpp/test_jpeg_kernels.cpp"),
    "JPEG: colour": ("decode/jpeg/color*", "tests/cpp/test_jpeg_kernels.cpp"),
    "coefficient records, read": (
        "decode/coefficients/[flst]*",
        "tests/cpp/test_coefficients.cpp",
    ),
    "coefficient records, written": (
        "transcode/block_lists* transcode/segment_* transcode/coding_kernels* transcode/chosen.h",
        "tests/cpp/test_coefficients.cpp, tests/cpp/test_coding_choice.cpp",
    ),
    "JPEG: blocks coded": ("transcode/block_coder*", "tests/cpp/test_jpeg_parts.cpp"),
    "what they share": ("base/highway.h base/kernels.h base/vectors.h", "tests/cpp/test_fused.cpp"),
}


def coded(images: Path | None) -> list[np.ndarray]:
    """Some JPEG files: a folder's, or made ones."""
    if images is not None:
        found = sorted(path for path in images.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg"))[:16]
        return [np.fromfile(path, np.uint8) for path in found]
    from bench_operations import photograph
    from PIL import Image

    files = []
    for quality in (75, 90, 95):
        file = io.BytesIO()
        Image.fromarray(photograph(448)).save(file, "JPEG", quality=quality)
        files.append(np.frombuffer(file.getvalue(), np.uint8))
    return files


def again(file: np.ndarray, **options: bool) -> np.ndarray:
    """A JPEG file, coded once more."""
    from PIL import Image

    coded_again = io.BytesIO()
    Image.open(io.BytesIO(file.tobytes())).convert("RGB").save(coded_again, "JPEG", quality=90, **options)
    return np.frombuffer(coded_again.getvalue(), np.uint8)


def each(call: Callable[[np.ndarray], object], items: list[np.ndarray], n: int) -> None:
    for _ in range(n):
        for item in items:
            call(item)


def coding_cases(images: Path | None) -> dict[str, Case]:
    """Decoding and coding of JPEG and of coefficient records."""
    from fastload._native import _C

    files = coded(images)
    cases: dict[str, Case] = {"decode JPEG": partial(each, _C.decode_rgb, files)}
    for form in ("fast", "small"):
        records = [np.frombuffer(_C.to_coefficients(file, form), np.uint8) for file in files]
        cases[f"decode coefficients, {form}"] = partial(each, _C.decode_rgb, records)
        cases[f"code coefficients, {form}"] = partial(
            each, lambda f, to=form: _C.to_coefficients(f, to), files
        )
        if form == "fast":
            cases["coefficients to JPEG"] = partial(each, _C.coefficients_to_jpeg, records)
    progressive = [again(file, progressive=True) for file in files]
    cases["JPEG to baseline"] = partial(each, _C.jpeg_to_baseline, progressive)
    pixels = np.random.default_rng(0).integers(0, 256, 224 * 224 * 3, np.uint8)
    decoder = _C.Decoder()
    cases["RGB to gray"] = partial(
        each, lambda raw: decoder.decode(raw, (1, 8, False), (224, 224, 3, 8)), [pixels]
    )
    return cases


def vision_cases() -> dict[str, Case]:
    """Rows of a picture that need no resize, from an uncompressed file."""
    from bench_operations import photograph
    from PIL import Image

    from fastload._native import _C

    file = io.BytesIO()
    Image.fromarray(photograph(448)).save(file, "PNG", compress_level=0)
    data = np.frombuffer(file.getvalue(), np.uint8)
    cases: dict[str, Case] = {}
    for family in ("qwen2_vl", "siglip2"):
        rule = _C.VisionRule(family)
        for dtype in ("float32", "bfloat16"):

            def ours(n: int, rule: object = rule, dtype: str = dtype) -> object:
                return _C.vision_rows(rule, data, dtype=dtype, repeat=n)

            cases[f"vision {family} {dtype}"] = ours
    return cases


def all_cases(images: Path | None) -> dict[str, Case]:
    import bench_operations
    import bench_transform

    cases: dict[str, Case] = {}
    for title, (ours, _) in bench_operations.tasks(224, set()).items():
        cases[f"op {title}"] = ours
    for name in ("bilinear", "bicubic"):
        for title, (ours, _) in bench_transform.resize_tasks((267, 263), 224, name).items():
            cases[f"{name} {title}"] = ours
    cases |= {title: ours for title, (ours, _) in bench_transform.store_tasks(224).items()}
    cases |= vision_cases()
    cases |= coding_cases(images)
    return cases


def own_levels() -> list[str]:
    """The levels of this build on this machine."""
    from fastload._native import _C

    found: list[str] = []
    for level in ("scalar", "neon", "sse4", "avx2", "avx512"):
        with suppress(ValueError):  # an older build does not know its name
            _C.set_simd_level(level)
            if _C.simd_level() == level:
                found.append(level)
    return found


def work(images: Path | None) -> None:
    """The child: answers with the CPU microseconds of a case at a level."""
    from fastload._native import _C

    cases = all_cases(images)
    loops: dict[str, int] = {}
    print(json.dumps((list(cases), own_levels())), flush=True)
    for line in sys.stdin:
        title, level = json.loads(line)
        _C.set_simd_level(level)
        if title not in loops:
            begin = time.thread_time()
            cases[title](1)
            loops[title] = max(1, int(SECONDS / max(time.thread_time() - begin, 1e-6)))
        begin = time.thread_time()
        cases[title](loops[title])
        print((time.thread_time() - begin) / loops[title] * 1e6, flush=True)


class Build:
    """One build of fastload in a process of its own.

    Args:
        folder: what holds its ``fastload`` package.

    Attributes:
        titles: its cases.
        levels: those it has; others are measured as "scalar".
    """

    def __init__(self, folder: Path, images: Path | None) -> None:
        paths = os.pathsep.join((str(folder), str(HERE)))
        command = [sys.executable, __file__, "--work", *(["--images", str(images)] if images else [])]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
        )
        self.titles, self.levels = json.loads(self._read())

    def _read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"a build ended: {self._process.args}")
        return line

    def microseconds(self, title: str, level: str) -> float:
        assert self._process.stdin is not None
        level = level if level in self.levels else "scalar"
        self._process.stdin.write(json.dumps((title, level)) + "\n")
        self._process.stdin.flush()
        return float(self._read())

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


def lines(checkout: Path, patterns: str) -> int:
    """Lines of the files of csrc/core that the patterns name."""
    core = checkout / "csrc" / "core"
    files = {path for pattern in patterns.split() for path in core.glob(pattern)}
    return sum(len(path.read_text().splitlines()) for path in files)


def print_lines(before: Path, after: Path) -> None:
    print("\n| kernels | lines now | lines before | exact |\n|---|---|---|---|")
    rows = {name: (lines(after, files), lines(before, files)) for name, (files, _) in FAMILIES.items()}
    for name, (now, then) in rows.items():
        print(f"| {name} | {now} | {then} | `{FAMILIES[name][1].replace(', ', '`, `')}` |")
    now, then = (sum(row[i] for row in rows.values()) for i in (0, 1))
    print(f"| all | {now:,} | {then:,} | |", flush=True)


def shown(microseconds: float) -> str:
    if microseconds >= 1000:
        return f"{microseconds / 1000:.1f} ms"
    return f"{microseconds:.0f} us" if microseconds >= 10 else f"{microseconds:.1f} us"


def compared(before: Build, after: Build, title: str, level: str, repeats: int) -> str:
    """A cell of the table."""
    ratios, times = [], []
    for build in (before, after):
        build.microseconds(title, level)
    for turn in range(repeats):
        builds = (before, after) if turn % 2 else (after, before)
        spent = {build: build.microseconds(title, level) for build in builds}
        ratios.append(spent[after] / spent[before])
        times.append(spent[after])
    tenths = statistics.quantiles(ratios, n=10)
    ratio = f"{statistics.median(ratios):.2f} [{tenths[0]:.2f}-{tenths[-1]:.2f}]"
    return f"{ratio}, {shown(statistics.median(times))}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before", type=Path, nargs="?", help="an older checkout, with its extension built")
    parser.add_argument("--images", type=Path, help="a folder of JPEG files")
    parser.add_argument("--levels", default="scalar,sse4,avx2,avx512", help="separated by commas")
    parser.add_argument("--only", default="", help="parts of cases' names, separated by commas")
    parser.add_argument("--repeats", type=int, default=15, help="at least 5")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(options.images)
        return
    if options.before is None or options.repeats < 5:
        parser.error("give an older checkout, and 5 repeats or more")
    import fastload

    folders = options.before.resolve(), Path(fastload.__file__).resolve().parent.parent
    before, after = (Build(folder, options.images and options.images.resolve()) for folder in folders)
    levels = [level for level in options.levels.split(",") if level in after.levels]
    only = [part for part in options.only.split(",") if part]
    print(f"| kernel | {' | '.join(levels)} |\n|---{'|---' * len(levels)}|")
    for title in after.titles:
        if title in before.titles and (not only or any(part in title for part in only)):
            cells = [compared(before, after, title, level, options.repeats) for level in levels]
            print(f"| {title.removeprefix('op ')} | {' | '.join(cells)} |", flush=True)
    before.close()
    after.close()
    if (options.before / "csrc").is_dir():
        print_lines(options.before, HERE.parent)


if __name__ == "__main__":
    main()
