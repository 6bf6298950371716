"""Sets whose pictures are turned as EXIF says and put on white give, in every way, what a set gives of the
pictures that Pillow made so beforehand."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cache_folder import cache_of
from epochs import all_batches, same
from PIL import Image, ImageOps
from tar_reference import write_tar

import fastload
from fastload import Boxes, DataLoader, Images, Keypoints, Mask, PackedDataset, Qwen2VL, SigLIP2
from fastload import transforms as T
from fastload.cli import main
from fastload.errors import FormatError, PackError
from fastload.packing.coefficients import to_record
from fastload.packing.foreign import index_files
from fastload.packing.pictures import Picture
from fastload.packing.recode import recode
from fastload.sample.fields import STORED_KINDS
from fastload.shard.manifest import Manifest

SHOWN = {"exif": "turn", "alpha": "white"}
FORMS = {"jpg": "JPEG", "png": "PNG", "webp": "WEBP"}
CHAINS = {
    "random crop": T.Compose([T.RandomResizedCrop(24), T.RandomHorizontalFlip()]),
    "resize": T.Compose(
        [T.Resize((20, 28)), T.ToDtype("float32", scale=True), T.Normalize([0.5] * 3, [0.2] * 3)]
    ),
    "both flips": T.Compose([T.RandomVerticalFlip(), T.Resize(30), T.CenterCrop(22)]),
    "operations": T.Compose([T.RandomResizedCrop(21, interpolation="bicubic"), T.RandAugment()]),
}


def shown(data: bytes) -> Image.Image:
    """The slow reference."""
    picture: Any = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
    if picture.mode in ("LA", "RGBA") or "transparency" in picture.info:
        over = picture.convert("RGBA")
        picture = Image.alpha_composite(Image.new("RGBA", over.size, (255, 255, 255, 255)), over)
    return picture.convert("RGB")


def file_of(draw: np.random.Generator, suffix: str, orientation: int, channels: int) -> bytes:
    height, width = draw.integers(9, 60, 2)
    exif = Image.Exif()
    exif[0x0112] = orientation
    out = io.BytesIO()
    picture = Image.fromarray(draw.integers(0, 256, (height, width, channels), np.uint8).squeeze())
    picture.save(out, FORMS[suffix], exif=exif.tobytes())
    return out.getvalue()


def files() -> dict[str, bytes]:
    draw = np.random.default_rng(5)
    return {
        f"{'ab'[orientation % 2]}/{orientation}{channels}.{suffix}": file_of(
            draw, suffix, orientation, channels
        )
        for orientation in range(1, 9)
        for suffix, channels in (("jpg", 3), ("jpg", 1), ("png", 4), ("png", 2), ("webp", 4))
    }


FILES = files()


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``in``: class folders; ``wanted``: a set of Pillow's pictures, by the same names in the same order."""
    root = tmp_path_factory.mktemp("shown")
    for name, data in FILES.items():
        for folder, stored in (("in", data), ("made", b"")):
            path = root / folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if stored:
                path.write_bytes(stored)
            else:
                shown(data).save(path, "PNG")  # whatever its name says
    fastload.pack(root / "made", root / "wanted")
    for form in ("arrow", "lmdb", "hdf5"):
        fastload.pack(root / "in", root / form, format=form, **SHOWN)
    return root


def batches(folder: Path, chain: Any, **options: Any) -> list[Any]:
    given = {"batch_size": 7, "shuffle": True, "seed": 3, "num_workers": 2, "transform": chain, **options}
    with DataLoader(folder, **given) as loader:
        return all_batches(loader)


@pytest.mark.parametrize("form", ["arrow", "lmdb", "hdf5"])
def test_samples_and_files(root: Path, form: str) -> None:
    dataset, wanted = PackedDataset(root / form), PackedDataset(root / "wanted")
    assert dataset.manifest.version == (1, 6)
    assert len(dataset) == len(FILES)
    for sample in range(len(dataset)):
        data = FILES[dataset.key(sample)]
        picture, label = dataset[sample]
        assert np.array_equal(picture, shown(data))
        assert label == wanted[sample][1]
        assert (*dataset.record(sample)[["width", "height"]],) == picture.size
        assert dataset.read(sample) == data  # as it came
    assert main(["verify", str(root / form), "--decode"]) == 0


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("threads", [1, 3])
def test_batches(root: Path, chain: str, threads: int) -> None:
    wanted = batches(root / "wanted", CHAINS[chain])
    for form in ("arrow", "lmdb", "hdf5"):
        assert same(batches(root / form, CHAINS[chain], num_workers=threads), wanted)


def as_tensor(picture: Image.Image) -> torch.Tensor:
    """Python's own step."""
    return torch.from_numpy(np.array(picture.resize((9, 9))))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_callable_gets_them_so(root: Path, workers: int) -> None:
    chain = T.Compose([T.RandomResizedCrop(24), as_tensor])
    found, wanted = (batches(root / name, chain, num_workers=workers) for name in ("arrow", "wanted"))
    assert same(found, wanted)


def test_mosaics(root: Path) -> None:
    chain = T.Compose([T.Mosaic(64), T.RandomHorizontalFlip()])
    for name in ("lmdb", "arrow"):
        assert same(batches(root / name, chain), batches(root / "wanted", chain))


def test_sample_by_sample(root: Path) -> None:
    """As torch's own loader asks for them."""
    sets = [PackedDataset(root / name, as_tensor) for name in ("arrow", "hdf5", "wanted")]
    assert [len(one) for one in sets] == [len(FILES)] * 3
    for found, other, wanted in zip(*sets, strict=True):
        assert torch.equal(found[0], wanted[0])
        assert torch.equal(other[0], wanted[0])


@pytest.mark.parametrize("settings", [{"decoded": "full"}, {"decoded": 16}, {"format": "coefficients"}])
def test_caches(root: Path, tmp_path: Path, settings: dict[str, Any]) -> None:
    chain, side = CHAINS["random crop"], {"decoded": 16}
    uncached = cache_of("off", **side) if settings == side else "off"
    wanted = batches(root / "wanted", chain, cache=uncached)
    for _ in range(2):
        with DataLoader(
            root / "arrow", 7, True, seed=3, num_workers=2, transform=chain,
            cache=cache_of(tmp_path, **settings),
        ) as loader:  # fmt: skip
            assert same(all_batches(loader), wanted)
            first = loader.stats()["cache"]
    assert first["hits"] > 0


def test_warmed_caches(root: Path, tmp_path: Path) -> None:
    for words, settings in (
        (["--decoded", "full"], {"decoded": "full"}),
        (["--coefficients"], {"format": "coefficients"}),
    ):
        assert main(["warm", str(root / "arrow"), "--to", str(tmp_path), *words]) == 0
        found = batches(root / "arrow", CHAINS["resize"], cache=cache_of(tmp_path, **settings))
        assert same(found, batches(root / "wanted", CHAINS["resize"]))


def test_a_mixture_of_both_ways(root: Path, tmp_path: Path) -> None:
    """Each set's pictures are shown as that set says."""
    fastload.pack(root / "in", tmp_path / "stored")
    mixed = fastload.mix([root / "arrow", tmp_path / "stored"])
    wanted = fastload.mix([root / "wanted", tmp_path / "stored"])
    assert same(batches(mixed, CHAINS["resize"]), batches(wanted, CHAINS["resize"]))
    assert not same(
        batches(mixed, CHAINS["resize"]), batches(fastload.mix([tmp_path / "stored"] * 2), CHAINS["resize"])
    )


# ---- What packing changes ---------------------------------------------------------------------------


def test_raw_and_recoded(root: Path, tmp_path: Path) -> None:
    """Pixels are stored turned; JPEGs that EXIF turns become no coefficient records, also in place."""
    fastload.pack(root / "in", tmp_path / "raw", raw=True, **SHOWN)
    fastload.pack(root / "in", tmp_path / "coefficients", coefficients="fast", **SHOWN)
    fastload.pack(root / "in", tmp_path / "recoded", **SHOWN)
    recode(tmp_path / "recoded", "small")
    for name in ("raw", "coefficients", "recoded"):
        assert same(batches(tmp_path / name, CHAINS["resize"]), batches(root / "wanted", CHAINS["resize"])), (
            name
        )
    for name in ("coefficients", "recoded"):
        manifest = Manifest.read(tmp_path / name)
        assert manifest.codecs["coefficients"] == 2
        assert manifest.codecs["jpeg"] == 14
        [kept] = manifest.options["coefficient_records"]["kept"]
        assert (kept["reason"], kept["count"]) == ("EXIF turns it", 14)
    dataset = PackedDataset(tmp_path / "coefficients")
    assert all(dataset.read(sample) == FILES[dataset.key(sample)] for sample in range(len(dataset)))


def test_verify_finds_coefficients_that_should_be_turned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def all_of_them(_: Any, picture: Picture, form: str) -> Picture:
        return Picture(to_record(picture.data, form)[0])

    monkeypatch.setattr("fastload.packing.recoding._coefficients", all_of_them)
    rows = [{"photo": FILES[name]} for name in ("b/13.jpg", "a/63.jpg")]
    fastload.pack(rows, tmp_path / "set", {"photo": "image"}, coefficients="fast", exif="turn")
    assert main(["verify", str(tmp_path / "set"), "--decode"]) == 1
    found = capsys.readouterr()
    assert "is a coefficient record of a JPEG that EXIF turns" in found.out + found.err


def test_smaller_ones_are_turned_once(root: Path, tmp_path: Path) -> None:
    fastload.pack(root / "in", tmp_path / "small", max_side=20, **SHOWN)
    fastload.pack(root / "in", tmp_path / "raw", max_side=20, raw=True, **SHOWN)
    fastload.pack(root / "made", tmp_path / "wanted", max_side=20, raw=True)
    assert same(batches(tmp_path / "raw", CHAINS["resize"]), batches(tmp_path / "wanted", CHAINS["resize"]))
    small, wanted = PackedDataset(tmp_path / "small"), PackedDataset(tmp_path / "wanted")
    for sample in range(len(small)):
        assert small[sample][0].size == wanted[sample][0].size
        assert max(small[sample][0].size) <= 20
        assert (
            0x0112 not in Image.open(io.BytesIO(small.read(sample))).getexif()
            or max(Image.open(io.BytesIO(FILES[small.key(sample)])).size) <= 20
        )


def test_a_packed_set_is_shown_anew(root: Path, tmp_path: Path) -> None:
    fastload.pack(root / "in", tmp_path / "stored", coefficients="fast")
    fastload.pack(tmp_path / "stored", tmp_path / "shown", **SHOWN)
    fastload.pack(root / "arrow", tmp_path / "again")
    for name in ("shown", "again"):
        assert same(batches(tmp_path / name, CHAINS["resize"]), batches(root / "wanted", CHAINS["resize"])), (
            name
        )


def large(orientation: int) -> bytes:
    """A JPEG whose entry points have parts, unless it is turned."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    out = io.BytesIO()
    picture = Image.fromarray(np.random.default_rng(orientation).integers(0, 256, (600, 700, 3), np.uint8))
    picture.save(out, "JPEG", quality=97, exif=exif.tobytes())
    assert len(out.getvalue()) > 512 << 10
    return out.getvalue()


def test_shares_make_the_same_set(tmp_path: Path) -> None:
    """Also its entry points: what is turned is read whole, and has none of its parts."""
    sizes = {}
    for orientation in (1, 6):
        folder = tmp_path / str(orientation)
        (folder / "in" / "a").mkdir(parents=True)
        for number in range(2):
            (folder / "in" / "a" / f"{number}.jpg").write_bytes(large(orientation))
        options: dict[str, Any] = {**SHOWN, "shard_size": 4096}
        whole, shared = folder / "whole" / "set", folder / "shared" / "set"
        fastload.pack(folder / "in", whole, **options)
        fastload.pack(folder / "in", shared, plan_only=True, **options)
        fastload.pack(folder / "in", shared, shards="0-1", **options)
        fastload.pack(folder / "in", shared, publish=True, **options)
        for path in whole.iterdir():
            assert path.read_bytes() == (shared / path.name).read_bytes(), path.name
        sizes[orientation] = (whole / "entries.fli").stat().st_size
    assert sizes[6] < sizes[1]


@pytest.mark.parametrize("where", ["", "file://"])
def test_tables(root: Path, tmp_path: Path, where: str) -> None:
    """Also of a store, where rows are opened in a copy, and by several processes."""
    rows = [{"photo": f"in/{name}", "title": name} for name in FILES]
    table = root / "table.jsonl"
    table.write_text("".join(json.dumps(row) + "\n" for row in rows))
    fastload.pack(f"{where}{table}", tmp_path / "set", num_proc=2, **SHOWN)
    dataset = PackedDataset(tmp_path / "set")
    assert str(dataset.schema) == "photo=image(exif=turn, alpha=white), title=text"
    assert len(dataset) == len(rows)
    for sample, data in enumerate(FILES.values()):
        found = dataset.sample(sample)["photo"].permute(1, 2, 0)
        assert np.array_equal(found, shown(data))
        assert (*dataset.record(sample)[["width", "height"]],) == shown(data).size


def test_an_index_of_other_files(root: Path, tmp_path: Path) -> None:
    members = [(f"{at:03}.jpg", data) for at, data in enumerate(FILES.values())]
    write_tar(tmp_path / "a.tar", members)
    out = str(tmp_path / "index")
    assert (
        main(["index", str(tmp_path / "a.tar"), "--output", out, "--exif", "turn", "--alpha", "white"]) == 0
    )
    dataset = PackedDataset(out)
    assert dataset.is_plain
    assert len(dataset) == len(FILES)
    for sample, (_, data) in enumerate(members):
        assert np.array_equal(dataset[sample][0], shown(data))
    with pytest.raises(PackError, match="has other options"):
        index_files([tmp_path / "a.tar"], out)


# ---- Samples of fields ------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", [Qwen2VL(4, min_pixels=64, max_pixels=2000), SigLIP2(8, 20)])
def test_lists_of_pictures(tmp_path: Path, rule: Any) -> None:
    """As vision-language models take them, in a list and one by one."""
    names = list(FILES)
    lists = [names[at : at + at % 4] for at in range(0, len(names), 3)]
    made = {name: np.asarray(shown(data)) for name, data in FILES.items()}
    kind = Images(exif="turn", alpha="white")
    fastload.pack(
        [{"images": [FILES[n] for n in some]} for some in lists], tmp_path / "found", {"images": kind}
    )
    fastload.pack(
        [{"images": [made[n] for n in some]} for some in lists], tmp_path / "wanted", {"images": "images"}
    )
    sets = [tmp_path / "found", tmp_path / "wanted"]
    assert Manifest.read(sets[0]).version == (1, 6)
    loaders = [DataLoader(folder, 4, transform=rule, num_workers=2) for folder in sets]
    count = 0
    for found, wanted in zip(*loaders, strict=True):
        count += 1
        assert found.keys() == wanted.keys()
        assert all(
            torch.equal(found[key], wanted[key]) for key in found if isinstance(found[key], torch.Tensor)
        )
    assert count == len(loaders[0]) > 0
    pictures = [PackedDataset(folder).sample(3)["images"] for folder in sets]
    assert len(pictures[0]) == len(lists[3]) > 0
    assert all(torch.equal(a, b) for a, b in zip(*pictures, strict=True))


def test_boxes_and_points_are_of_the_turned_picture(tmp_path: Path) -> None:
    rows, made = [], []
    draw = np.random.default_rng(9)
    for data in FILES.values():
        picture = shown(data)
        corner = draw.integers(0, 4, 2)
        box = [[*corner, *(corner + 4)]]
        row = {"boxes": box, "points": [[[float(corner[0]), float(corner[1])]]]}
        rows.append({"image": data, **row})
        made.append({"image": np.asarray(picture), **row})
    fields = {"boxes": Boxes(), "points": Keypoints(1, visibility=False)}
    fastload.pack(rows, tmp_path / "found", {"image": fastload.Image(**SHOWN), **fields})
    fastload.pack(made, tmp_path / "wanted", {"image": "image", **fields})
    chain = T.Compose([T.RandomHorizontalFlip(), T.Resize((24, 30))])
    loaders = [
        DataLoader(tmp_path / name, 6, transform=chain, seed=1, num_workers=2) for name in ("found", "wanted")
    ]
    for found, wanted in zip(*loaders, strict=True):
        for key in ("image", "boxes", "points"):
            pairs = zip(found[key], wanted[key], strict=True)
            assert all(torch.equal(torch.as_tensor(a), torch.as_tensor(b)) for a, b in pairs), key


def test_what_is_refused(root: Path, tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"'image' is turned as EXIF says, and a mask is never turned, so 'mask'"
    ):
        fastload.Schema.of({"image": fastload.Image(exif="turn"), "mask": Mask()})
    with pytest.raises(PackError, match="a mask is never turned"):
        fastload.pack([{"image": FILES["a/23.jpg"], "mask": np.zeros((3, 3), np.uint8)}], tmp_path / "x",
                      {"image": "image", "mask": "mask"}, exif="turn")  # fmt: skip
    with pytest.raises(
        ValueError, match=r"alpha='white' is for 1 or 3 channels of 8 bits. Found: 4 channels"
    ):
        fastload.Image(4, alpha="white")
    with pytest.raises(ValueError, match=r"exif must be 'ignore' or 'turn'. Found: 'refuse'"):
        fastload.Image(exif="refuse")
    with pytest.raises(PackError, match=r"alpha is 'black', must be drop or white"):
        fastload.pack(root / "in", tmp_path / "x", alpha="black")
    with pytest.raises(ValueError, match=r"backend='dali' decodes pictures as they are stored"):
        DataLoader(root / "arrow", 2, transform=CHAINS["resize"], backend="dali")


def test_annotations_are_of_the_turned_pictures(tmp_path: Path) -> None:
    """YOLO's outlines are relative, and stored in pixels of the size that is shown."""
    for part in ("images", "labels"):
        (tmp_path / "in" / part).mkdir(parents=True)
    (tmp_path / "in" / "images" / "a.jpg").write_bytes(FILES["a/63.jpg"])
    (tmp_path / "in" / "labels" / "a.txt").write_text("0 0.5 0 1 0.5 1 1\n")
    with pytest.raises(PackError, match=r"EXIF turns this picture \(orientation 6\).*--exif turn --restart"):
        fastload.pack(tmp_path / "in", tmp_path / "set")
    fastload.pack(tmp_path / "in", tmp_path / "set", exif="turn", restart=True)
    sample = PackedDataset(tmp_path / "set").sample(0)
    width, height = shown(FILES["a/63.jpg"]).size
    assert sample["image"].shape[1:] == (height, width)
    assert width != height
    [[outline]] = sample["masks"]
    assert np.allclose(np.ravel(outline), [width / 2, 0, width, height / 2, width, height])


def test_who_does_not_know_the_kind_refuses_the_set(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(STORED_KINDS, "picture")
    with pytest.raises(FormatError, match="'kind' must be one of image, mask, .* Found: 'picture'"):
        PackedDataset(root / "arrow")


def test_other_names_of_the_kinds() -> None:
    """A reader that could not show them so refuses the name; the older kinds keep their bytes."""
    kind = fastload.Image(alpha="white")
    assert kind.to_json() == {"kind": "picture", "channels": 3, "bits": 8, "alpha": "white"}
    assert fastload.Image().to_json() == {"kind": "image", "channels": 3, "bits": 8}
    assert Images(exif="turn").to_json() == {"kind": "pictures", "channels": 3, "exif": "turn"}
    for one in (kind, fastload.Image(), Images(exif="turn"), Images(1, exif="turn", alpha="white")):
        assert type(one).from_json(one.to_json()) == one
        assert fastload.Schema.of({"a": str(fastload.Field("a", one)).removeprefix("a=")})["a"].kind == one
