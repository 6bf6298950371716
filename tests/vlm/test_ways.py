"""Pictures of every kind of field by every way to their bytes: from a folder, a store, the node's cache, its
disk tier, mixtures. What a DataLoader makes of them is what the slow reference makes of the files that were
packed, decoded by Pillow. Kinds, rules, lists and ranks are drawn at random.
"""

from __future__ import annotations

import io
import random
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cache_folder import memory_folder
from fault_server import Fault, FaultServer, Rule
from field_samples import photo
from long_forms import SEED, as_drawn, how_many
from PIL import Image as Pillow
from vision_reference import all_rows

import fastload
from fastload import Cache, Gemma3, LlavaOneVision, Qwen2VL, Ranks, SigLIP2
from fastload.backends.upcoming import Upcoming
from fastload.cli import main
from fastload.errors import SampleError, StateError
from fastload.prefetch.feeder import BatchKey
from fastload.sampler import Partition
from fastload.sampler.sampler import Sampler, ShuffledOrder
from fastload.shard.dataset import PackedFiles
from fastload.vlm.layouts import batch_of

FORMATS = ("arrow", "lmdb", "hdf5")
WAYS = ("folder", "store", "cache", "warm", "disk", "mix", "subset")
KINDS = ("lists", "lists", "coefficients", "single", "second")
RULES: tuple[Any, ...] = (
    Qwen2VL(4, min_pixels=64, max_pixels=2000),
    SigLIP2(8, 20),
    LlavaOneVision(32, ((32, 64), (64, 32), (64, 64)), tile_tokens=4),
    Gemma3((24, 32), True, 8, 4, 1.2),
)
Pictures = list[bytes | None] | None


@dataclass
class Case:
    """A set, its files by the number that is each sample's text, and how it is read."""

    kind: str
    rule: Any
    files: dict[int, Pictures]
    source: Any
    options: dict[str, Any]

    def loaders(self, ranks: int) -> Iterator[fastload.DataLoader]:
        for rank in range(ranks):
            yield fastload.DataLoader(
                self.source, 5, shuffle=True, seed=1, transform=self.rule, num_workers=2,
                fields=["images", "text"], ranks=Ranks(rank, ranks), padding="mark", **self.options,
            )  # fmt: skip


def drawn_files(draws: random.Random, kind: str, count: int) -> list[Pictures]:
    """The files of each sample: any number of them, or one."""
    if kind in ("single", "second"):
        return [[photo(draws.randrange(200))] for _ in range(count)]
    found: list[Pictures] = [None, [], [photo(1), None], [photo(draws.randrange(200)) for _ in range(64)]]
    while len(found) < count:
        one = [draws.choice([None, *map(photo, draws.sample(range(200), 4))]) for _ in range(4)]
        found.append(one[: draws.randrange(5)])
    draws.shuffle(found)
    return found


def packed(folder: Path, form: str, kind: str, files: dict[int, Pictures]) -> Path:
    """The samples as a set, in several shards."""
    schema = {"images": "images", "text": "text"}
    rows: list[dict[str, Any]] = [{"images": list_, "text": str(n)} for n, list_ in files.items()]
    if kind in ("single", "second"):
        schema["images"] = "image"
        rows = [{**row, "images": row["images"][0]} for row in rows]
    if kind == "second":
        schema = {"first": "image", **schema}
        rows = [{"first": photo(300), **row} for row in rows]
    options: dict[str, Any] = {"coefficients": "fast"} if kind == "coefficients" else {}
    fastload.pack(rows, folder, schema=schema, format=form, shard_size=20_000, num_proc=1, **options)
    return folder


def pixels_of(files: Pictures) -> list[np.ndarray]:
    """The pictures of a sample, decoded by Pillow."""
    return [np.asarray(Pillow.open(io.BytesIO(one)).convert("RGB")) for one in files or () if one is not None]


def assert_epoch(case: Case, batches: list[dict[str, Any]]) -> None:
    """Each sample is there once, with its pictures."""
    seen = []
    for batch in batches:
        numbers = [int(text) for text in fastload.valid(batch)["text"]]
        samples = [pixels_of(case.files[number]) for number in numbers]
        seen += numbers
        if not any(samples):
            continue
        for name, value in batch_of(case.rule, *all_rows(case.rule, samples)).items():
            assert torch.equal(fastload.valid(batch)[name], value), (name, numbers)
    assert sorted(seen) == sorted(case.files)


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultServer]:
    """A store of what is packed, a node's cache in memory, and a place for indexes of sets in stores."""
    monkeypatch.setenv("FASTLOAD_SETS_DIR", str(tmp_path / "sets"))
    with memory_folder(tmp_path) as memory, FaultServer(folder=tmp_path) as running:
        monkeypatch.setenv("FASTLOAD_CACHE_DIR", str(memory.path))
        yield running


def drawn_case(form: str, way: str, seed: int, tmp_path: Path, url: str) -> tuple[Case, random.Random]:
    draws = random.Random(f"{seed} {form} {way}")
    kind = draws.choice(KINDS)
    files = dict(enumerate(drawn_files(draws, kind, 17)))
    half = draws.randrange(1, 16)
    source: Any = f"{url}/set"
    if way == "mix":
        parts = [dict(list(files.items())[:half]), dict(list(files.items())[half:])]
        folders = [packed(tmp_path / f"part{n}", form, kind, part) for n, part in enumerate(parts)]
        source = fastload.mix([folders[0], f"{url}/part1"])
    else:
        folder = packed(tmp_path / "set", form, kind, files)
        source = folder if way == "folder" else source
    if way == "subset":
        source = torch.utils.data.Subset(fastload.PackedDataset(source), range(half, 17))
        files = dict(list(files.items())[half:])
    cache: Any = "32MB" if way in ("cache", "warm") else "off"
    if way == "disk":
        cache = Cache("off", disk=f"{tmp_path / 'disk'}:64MB")
    return Case(kind, draws.choice(RULES), files, source, {"cache": cache}), draws


@pytest.mark.parametrize(("form", "way"), list(product(FORMATS, WAYS)))
@pytest.mark.parametrize("seed", range(SEED, SEED + how_many(1, 40)))
def test_pictures_are_those_of_the_files(
    form: str, way: str, seed: int, server: FaultServer, tmp_path: Path
) -> None:
    case, draws = drawn_case(form, way, seed, tmp_path, server.url)
    ranks = draws.choice([1, 1, 2, 3])
    what = as_drawn((case.kind, case.rule, ranks))
    if way == "warm":
        assert main(["warm", case.source, "--json"]) == 0, what
        server.requests.clear()
    batches = [batch for loader in case.loaders(ranks) for batch in loader]
    assert_epoch(case, batches)
    if way not in ("cache", "warm", "disk"):
        return
    for loader in case.loaders(ranks):
        list(loader)
        stats = loader.stats()["cache"]
        counts = stats["disk"] if way == "disk" else stats
        assert counts["misses"] == 0, what
        assert counts["hits"] > 0, what
    if way == "warm":
        assert not [each.path for each in server.requests if form in each.path or ".h5" in each.path], what


# ---- Reading ahead ----------------------------------------------------------------------------------


def test_a_store_s_pictures_are_read_ahead(server: FaultServer, tmp_path: Path) -> None:
    """Neighbours in few requests, over places without a picture, too; what comes late is asked for alone."""
    files: dict[int, Pictures] = {n: [[photo(n), None] * 32, [photo(n)] * 64][n % 2] for n in range(12)}
    files |= {12: None, 13: []}
    folder = packed(tmp_path / "set", "arrow", "lists", files)
    batches = []
    with fastload.DataLoader(
        f"{server.url}/set", 2, seed=0, transform=RULES[1], cache="off", num_workers=1
    ) as loader:
        for batch in loader:
            batches.append(batch)
        counts = loader.stats()["read_ahead"]
    assert_epoch(Case("lists", RULES[1], files, folder, {}), batches)
    assert counts["ahead"] + counts["late"] + counts["resident"] >= 12 * 48
    assert counts["ahead"] > 0
    assert counts["requests"] < counts["ahead"]


def test_a_loader_is_closed_while_reads_of_lists_hang(server: FaultServer, tmp_path: Path) -> None:
    packed(tmp_path / "set", "arrow", "lists", {n: [photo(n)] * 3 for n in range(6)})
    server.rules.append(Rule(Fault(hang=True), path=".arrow"))
    loader = fastload.DataLoader(
        f"{server.url}/set", 2, transform=RULES[1], cache="off", num_workers=1, seed=0
    )
    failed: list[BaseException] = []

    def read() -> None:
        try:
            list(loader)
        except StateError as error:
            failed.append(error)

    reading = threading.Thread(target=read)
    reading.start()
    while not any(".arrow" in each.path for each in server.requests):
        time.sleep(0.01)
    loader.close()
    reading.join(100)
    assert not reading.is_alive()
    assert failed


def test_a_damaged_table_is_the_sample_s_error(tmp_path: Path) -> None:
    """Announcing meets it first, and says nothing."""
    folder = packed(tmp_path / "set", "arrow", "lists", {n: [photo(n)] * 64 for n in range(40)})
    path = folder / "field-00.fli"
    data = bytearray(path.read_bytes())
    data[-100] ^= 1  # in the entries of the last sample
    path.write_bytes(data)
    loader = fastload.DataLoader(folder, 2, transform=RULES[1], on_error="skip", num_workers=1)
    valid = [batch["valid"].tolist() for batch in loader]
    assert not all(all(each) for each in valid)
    with pytest.raises(SampleError, match=r"field-00.fli"):
        list(fastload.DataLoader(folder, 2, transform=RULES[1], num_workers=1))


def test_blocks_are_of_the_bytes_of_lists(tmp_path: Path) -> None:
    """Of the index there are none: a block would be the whole set."""
    folder = packed(tmp_path / "set", "arrow", "lists", {n: [photo(n)] * 64 for n in range(60)})
    manifest = PackedFiles(folder).manifest
    assert manifest.read_bytes == sum(shard.size for shard in manifest.shards) > 60 * 64 * 300
    loader = fastload.DataLoader(folder, 4, shuffle="block", seed=0, transform=RULES[1])
    assert sorted(int(text) for batch in loader for text in batch["text"]) == [*range(60)]
    single = PackedFiles(packed(tmp_path / "one", "arrow", "single", {n: [photo(n)] for n in range(4)}))
    assert single.manifest.read_bytes == single.manifest.data_bytes


# ---- What caches are told of lists ------------------------------------------------------------------


@pytest.fixture
def many(tmp_path: Path) -> PackedFiles:
    """Many more pictures than samples."""
    files: dict[int, Pictures] = {n: [photo(n), None, *map(photo, range(100, 100 + 9 * n))] for n in range(6)}
    return PackedFiles(packed(tmp_path / "set", "arrow", "lists", {**files, 6: None, 7: []}))


def test_all_pictures_have_room_in_the_cache(many: PackedFiles, server: FaultServer) -> None:
    """A file has an entry for each picture, not for each sample."""
    pictures = int((many.field_records("images")["length"] > 0).sum())
    with fastload.DataLoader(many.folder, 4, transform=RULES[1], cache="32MB") as loader:
        planned = loader.memory_plan()["cache_bytes"]
        list(loader)
        cache = loader.stats()["cache"]
    assert cache["room_records"] == cache["ready_records"] == pictures == 141
    assert cache["bytes"] <= planned


def test_tiers_know_when_each_picture_is_needed(many: PackedFiles) -> None:
    """What is known of samples is told of their pictures."""
    assert many.record_count("images") == 6 * 2 + 9 * 15 + 1
    assert many.record_count(None) == 8
    numbers = np.arange(8, dtype=np.uint16)
    spread = many.spread("images", numbers)
    assert spread.dtype == np.uint16
    for sample in range(8):
        assert (spread[slice(*many.columns["images"].records_of(sample))] == sample).all()
    assert len(spread) == many.record_count("images")
    assert many.spread(None, numbers) is numbers


def test_a_node_s_share_is_told_to_its_tier(many: PackedFiles) -> None:
    """A node of two has half of each epoch: then the order decides which pictures stay."""
    told: list[tuple[np.ndarray, np.ndarray]] = []

    class Tier:
        def set_order(self, epoch: int, masks: np.ndarray, levels: np.ndarray) -> None:
            told.append((masks, levels))

        def move(self, *position: Any) -> None:
            pass

    class Use:
        def of(self, parts: Any) -> Any:
            return [{"images": Tier()} for _ in parts]

        def expect(self, share: float, sticky: bool = False) -> None:
            pass

        def warn_if_full(self) -> None:
            pass

    sampler = Sampler(ShuffledOrder(len(many), 1), Partition(2, 0, 2))
    upcoming = Upcoming(Use(), [many], sampler, (0, 1), 2)  # type: ignore[arg-type]
    upcoming.at(BatchKey(0, 0, 0))
    assert upcoming._thread is not None
    upcoming._thread.join()
    upcoming.close()
    assert len(told) > 1
    ids = [slice(*many.columns["images"].records_of(sample)) for sample in range(7)]  # the last has none
    for masks, levels in told:
        assert len(masks) == len(levels) == 148
        assert all(len(set(each[one].tolist())) == 1 for each in (masks, levels) for one in ids)
    assert len({int(told[-1][1][one.start]) for one in ids}) > 2


def test_values_of_pictures_are_no_rows_of_samples(tmp_path: Path) -> None:
    """There may be as many of both."""
    files: dict[int, Pictures] = {0: [photo(0), photo(1)], 1: None, 2: [photo(2)]}
    folder = packed(tmp_path / "set", "arrow", "lists", files)
    loader = fastload.DataLoader(folder, 4, transform=RULES[3], ranks=Ranks(0, 1), padding="mark", seed=0)
    (batch,) = loader
    padded = {
        name: torch.cat([value, value[:1]]) if name == "valid" else value for name, value in batch.items()
    }
    padded["valid"] = torch.tensor([True, False, True])
    found = fastload.valid(type(batch)(padded))
    assert found["num_crops"].tolist() == batch["num_crops"].tolist()
    assert len(batch["num_crops"]) == len(padded["valid"])
    assert torch.equal(found["pixel_values"], batch["pixel_values"])
    assert found["text"] == ["0", "2"]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"cache": Cache("32MB", decoded=64)}, r"Cache\(decoded=64\) and transform=SigLIP2"),
        ({"cache": Cache("32MB", format="coefficients")}, r'Cache\(format="coefficients"\) and transform='),
        ({"backend": "dali"}, r"backend='dali' and transform="),
    ],
)
@pytest.mark.parametrize("kind", ["lists", "single", "second"])
def test_caches_that_rules_do_not_read_are_refused(
    kind: str, options: dict[str, Any], named: str, tmp_path: Path
) -> None:
    folder = packed(tmp_path / "set", "arrow", kind, {0: [photo(1)], 1: [photo(2)]})
    with pytest.raises(ValueError, match=rf"{named}.*exclude each other.*Leave one out"):
        fastload.DataLoader(folder, 2, transform=RULES[1], fields=["images", "text"], **options)


def test_format_auto_keeps_records(server: FaultServer, tmp_path: Path) -> None:
    folder = packed(tmp_path / "set", "arrow", "single", {n: [photo(n)] for n in range(4)})
    cache = Cache("32MB", format="auto")
    with fastload.DataLoader(folder, 2, transform=RULES[1], fields=["images", "text"], cache=cache) as loader:
        list(loader)
        stats = loader.stats()["cache"]
    assert (stats["format"], stats["stored"]) == ("jpeg", 4)
    assert "SigLIP2" in stats["format_reason"]
