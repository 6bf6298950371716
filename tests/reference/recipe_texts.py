"""What is added to the house where CONTRIBUTING.md's recipes are tried: an operation, a kind of field, a
codec, a shard format and a source, each as small as it can be."""

from __future__ import annotations

DIM_CPP = """// A picture with its values shifted to the right.
#include "transform/pixels/registry.h"

namespace fastload {
namespace {

constexpr const char* kParameters[] = {"bits"};

void apply(std::span<const double> numbers, const PixelDraws&, Canvas& canvas) {
  const Picture& picture = canvas.picture();
  const auto bits = static_cast<int>(numbers[0]);
  for (size_t i = 0; i < picture.bytes(); ++i) picture.pixels[i] >>= bits;
}

}  // namespace

constinit const PixelOperation kDim{"dim", 100, kParameters, apply};

}  // namespace fastload
"""
DIM_PY = '''# ---- Dimming ----


@dataclass(frozen=True)
class RandomDim:
    """With probability ``p`` shift each value to the right by ``bits``."""

    bits: int
    p: float = 0.5

    def __post_init__(self) -> None:
        set_field(self, "p", arguments.probability("RandomDim.p", self.p))


def _add_random_dim(draft: Draft, spec: RandomDim, strict: bool) -> Draft:
    return pixels(draft, spec, "dim", spec.p, float(spec.bits))


RANDOM_DIM = Operation(
    RandomDim, _add_random_dim, {"RandomDim": lambda item: (RandomDim(item.bits, item.p),)}
)


'''
DIM_MAIN = """#include <cstdio>

#include "transform/pixels/registry.h"
#include "transform/pixels/spec.h"

namespace fastload {
// In place of the other operations, which take a minute to compile.
#define STUB(name) constinit const PixelOperation name{#name, 0, {}, nullptr};
OTHERS
}  // namespace fastload

int main() {
  for (const auto* operation : fastload::pixel_operations()) {
    std::fprintf(stderr, "%s\\n", operation->name);
  }
  fastload::Canvas canvas;
  canvas.begin(8, 8);
  if (std::fread(canvas.picture().pixels, 1, 192, stdin) != 192) return 1;
  const fastload::PixelSpec spec({{"dim", 1.0, {4.0}, {}}});
  fastload::DrawnPixels drawn;
  spec.draw({}, drawn);
  drawn.apply(canvas);
  return std::fwrite(canvas.picture().pixels, 1, 192, stdout) == 192 ? 0 : 1;
}
"""
DIM_USED = """
import json
from dataclasses import astuple
from torchvision_likes import from_torchvision
from fastload import transforms as T
given = T.RandomDim(4), from_torchvision("RandomDim", bits=4, p=0.5)
print(json.dumps([astuple(use)[:3] for item in given for use in T.compile_plan(item).pixels]))
"""
CLOUD_PY = '''@dataclass(frozen=True)
class Cloud(Kind):
    """Points in space: (n, 3) float32."""

    name: ClassVar[str] = "cloud"

    @property
    def item_dtype(self) -> np.dtype[Any]:
        return np.dtype("<f4")

    @property
    def item_shape(self) -> tuple[int, ...]:
        return (3,)

    @property
    def has_rows(self) -> bool:
        return True


'''
KINDS_MAIN = """#include <cstdio>

#include "sample/kinds.h"

int main() {
  for (const auto& row : fastload::kFieldKinds) {
    std::printf("%s %d %s\\n", row.name, static_cast<int>(row.kind),
                fastload::kStorageNames[static_cast<size_t>(row.storage)]);
  }
}
"""
# The table that the program above printed stands for the extension's, which is not built again.
CLOUD_USED = """
import json, sys
from fastload._native import _C
for line in sys.argv[1].splitlines():
    name, number, storage = line.split()
    _C.FIELD_KINDS[name] = (int(number), storage)
import fastload
from fastload.sample.fields import kind_of
from fastload.sample.schema import Field, Schema
from fastload.shard.arrow import type_of
field = Field("cloud", kind_of("cloud"))
given = [None, [[0, 1, 2], [3, 4, 5]], [[7, 8, 9]]]
rows = [field.decode(field.encode(value)).tolist() for value in given]
schema = Schema([Field("image", fastload.Image()), field])
again = Schema.from_json(json.loads(json.dumps(schema.to_json())))
assert again == schema
print(json.dumps({"rows": rows, "schema": str(field), "arrow": str(type_of(field)),
                  "public": "Cloud" in fastload.__all__ and fastload.Cloud() == field.kind}))
"""
PPM_CPP = """// PPM: "P6", width, height and 255 as text, then the pixels.
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "base/error.h"
#include "decode/codecs/codec.h"
#include "decode/codecs/header_bytes.h"

namespace fastload {
namespace {

bool begins(Bytes bytes) { return starts_with(bytes, "P6\\n"); }

ImageInfo probe_ppm(Bytes bytes) {
  const std::string head(bytes.begin(), bytes.end());
  ImageInfo info;
  if (std::sscanf(head.c_str(), "P6 %u %u 255", &info.width, &info.height) != 2) {
    throw Error(ErrorKind::kDecode, "PPM: the header is damaged");
  }
  info.codec = Codec::kPpm;
  info.channels = 3;
  return info;
}

class PpmDecoder final : public PictureDecoder {
 public:
  Outcome decode(const OpenPicture& picture, Rect roi, RowSink& sink) override {
    const size_t stride = size_t{3} * picture.info.width;
    const size_t size = stride * picture.info.height;
    if (picture.bytes.size() < size) throw Error(ErrorKind::kDecode, "PPM: the file ends early");
    const uint8_t* const pixels = picture.bytes.data() + picture.bytes.size() - size;
    std::vector<uint8_t> row(size_t{3} * static_cast<size_t>(roi.width) + RowSink::kSlack);
    for (int y = 0; y < roi.height; ++y) {
      const uint8_t* from = pixels + stride * static_cast<size_t>(roi.y + y);
      from += size_t{3} * static_cast<size_t>(roi.x);
      std::copy_n(from, size_t{3} * static_cast<size_t>(roi.width), row.data());
      sink.rows(row.data(), row.size(), y, 1);
    }
    return {};
  }
};

}  // namespace

constinit const CodecRow kPpmCodec{Codec::kPpm, "ppm",  "PPM",     "PPM",
                                   ".ppm",      begins, probe_ppm, make_decoder<PpmDecoder>};

}  // namespace fastload
"""
PPM_MAIN = """#include <cstdio>
#include <string>
#include <vector>

#include "decode/codecs/codec.h"

namespace fastload {
// In place of the codecs that need libraries.
constexpr CodecRow kNone{Codec::kUnknown, "", "", "", "", nullptr, nullptr, nullptr};
constinit const CodecRow kJpegCodec = kNone, kPngCodec = kNone, kWebpCodec = kNone,
                   kCoefficientsCodec = kNone;
constinit const CodecRow kGifCodec = kNone, kBmpCodec = kNone, kTiffCodec = kNone, kRawCodec = kNone;
}  // namespace fastload

struct Printed final : fastload::RowSink {
  void rows(const uint8_t* pixels, size_t, int, int) override { std::fwrite(pixels, 1, 12, stdout); }
  void restart() override {}
};

int main() {
  std::vector<uint8_t> file(4096);
  file.resize(std::fread(file.data(), 1, file.size(), stdin));
  const fastload::ImageInfo info = fastload::probe(file);
  const fastload::CodecRow& row = fastload::codec_row(info.codec);
  const std::string path(fastload::path_name(static_cast<size_t>(info.codec)));
  std::fprintf(stderr, "%s %u %u %d %s\\n", row.name, info.width, info.height,
               static_cast<int>(info.codec), path.c_str());
  Printed sink;
  row.make()->decode({file, info, {}, {}, {}}, {2, 1, 4, 3}, sink);
}
"""
FLAT_SAID = """The records one after another, then their lengths as u64, then the number of records as u64.

"""
FLAT_PY = '''"""Flat shards: records one after another, then their lengths, then how many there are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fastload.errors import FormatError
from fastload.shard.columns import Chunk
from fastload.shard.formats import Foreign, Kinds, Located, ShardSpec

__all__ = ["LISTS_HAVE_HEADS", "Writer", "data_file", "locate", "read_foreign", "shard_bytes"]

LISTS_HAVE_HEADS = False


class Writer:
    """Writes records as they come."""

    def __init__(self, path: Path, spec: ShardSpec) -> None:
        self._file = open(path, "wb")
        self._lengths: list[npt.NDArray[np.uint64]] = []

    def append(
        self,
        data: npt.NDArray[np.uint8],
        records: npt.NDArray[np.void],
        keys: list[bytes],
        further: Sequence[Chunk] = (),
    ) -> None:
        self._file.write(data.tobytes())
        self._lengths.append(records["length"].astype(np.uint64))

    def close(self) -> None:
        lengths = np.concatenate(self._lengths)
        self._file.write(lengths.tobytes() + np.uint64(len(lengths)).tobytes())
        self._file.close()

    def abort(self) -> None:
        self._file.close()


def data_file(path: Path) -> Path:
    return path


def shard_bytes(lengths: npt.NDArray[np.uint64]) -> int:
    return int(lengths.sum()) + 8 * len(lengths) + 8


def locate(path: Path, names: Sequence[str] = ("image",)) -> list[Located]:
    body = path.read_bytes()
    count = int(np.frombuffer(body[-8:], np.uint64)[0])
    lengths = np.frombuffer(body[-8 - 8 * count : -8], np.uint64)
    return [Located(np.cumsum(lengths, dtype=np.uint64) - lengths, lengths)]


def read_foreign(path: Path, column: str | None, kinds: Kinds) -> Foreign:
    raise FormatError(f"{path}: flat files of others are not read.")
'''
FLAT_USED = """
import contextlib, io, json, sys
from fastload import DataLoader
from fastload.cli import main
tree, output = sys.argv[1:]
with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
    assert main(["pack", tree, output, "--format", "flat", "--num-proc", "1"]) == 0
    verified = main(["verify", output])
said = io.StringIO()
with contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
    main(["pack", "--help"])
loader = DataLoader(output, 5, cache="off")
((images, labels),) = list(loader)
print(json.dumps({"format": loader.dataset.manifest.format, "sums": images.long().sum((1, 2, 3)).tolist(),
                  "help": "flat" in said.getvalue(), "verified": verified}))
"""
SCAN_PY = '''"""Folders of scans, which are arrays in .npy files, as rows."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fastload.packing.listing import Row
from fastload.packing.options import PackOptions
from fastload.packing.rows import FailedSample, Notes, Sample
from fastload.packing.sample_rows import SampleRows, row_of
from fastload.remote.location import is_url
from fastload.sample.schema import Schema


class ScanRows(SampleRows):
    """The arrays of a folder, by their names."""

    def __init__(self, folder: Path, names: Sequence[bytes]) -> None:
        schema = Schema.of({"image": "image", "name": "text", "mean": "scalar(float32)"})
        super().__init__(os.fsencode(folder.absolute()), schema)
        self._names = names

    def __len__(self) -> int:
        return len(self._names)

    def listed(self, notes: Notes) -> Iterator[Row]:
        return (row_of(self.root, [name]) for name in self._names)

    def samples(self, start: int, stop: int | None) -> Iterator[Sample | FailedSample]:
        for name in self._names[start:stop]:
            try:
                pixels = np.load(os.path.join(self.root, name))
                yield {"image": pixels, "name": name.decode(), "mean": pixels.mean()}
            except (OSError, ValueError) as error:
                yield FailedSample(error, name)

    def settings(self) -> dict[str, Any]:
        return {"scans": len(self._names)}


def open_scans(source: str | os.PathLike[str], options: PackOptions) -> list[tuple[str, SampleRows]]:
    """Open a folder that has scans."""
    names = [] if is_url(source) else sorted(os.fsencode(path.name) for path in Path(source).glob("*.npy"))
    return [("", ScanRows(Path(source), names))] if names else []
'''
SCAN_USED = """
import json, sys
from pathlib import Path
import fastload
from pack_trees import snapshot
scans, packs = Path(sys.argv[1]), Path(sys.argv[2])

def pack(output, **options):
    return fastload.pack(scans, output, shard_size=5000, **options)

pack(packs / "one/set")
pack(packs / "processes/set", num_proc=2)
pack(packs / "shares/set", plan_only=True)
for share in ("1/2", "0/2"):
    pack(packs / "shares/set", shards=share)
pack(packs / "shares/set", publish=True)
pack(f"file://{packs}/store/set")
(scans / "1.npy").write_bytes(b"?")
(skipping,) = pack(packs / "skipped/set", on_error="skip")
dataset = fastload.PackedDataset(packs / "one/set")
samples = [dataset.sample(i) for i in range(len(dataset))]
print(json.dumps({
    "names": [sample["name"] for sample in samples],
    "means": [round(float(sample["mean"]), 3) for sample in samples],
    "shards": len(dataset.manifest.shards),
    "same": [snapshot(packs / name) == snapshot(packs / "one") for name in ("processes", "shares", "store")],
    "skipped": skipping.manifest.skipped,
}))
"""
