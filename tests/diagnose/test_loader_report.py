"""A loader's own report: what is measured is right, and the loader goes on as if nothing had been."""

from __future__ import annotations

import itertools
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from chromium import found_in, screenshot
from page_checks import CHARTS
from pictures import encoded, picture
from plain_pack import plain_pack
from verdicts import full_verdict

import fastload
from fastload import transforms as T
from fastload.cli import main
from fastload.diagnose.pages import History
from fastload.diagnose.pages.measured import Timeline, measure_costs, own_verdict, run_alone
from fastload.diagnose.pages.parts import measure_mixing
from fastload.loader.view import viewed

CHAIN = T.Compose([T.RandomResizedCrop(32), T.RandomHorizontalFlip()])


@pytest.fixture(scope="module")
def mixed_sizes(tmp_path_factory: pytest.TempPathFactory) -> fastload.PackedDataset:
    """48 small JPEGs, one of them of 625 times the pixels, one progressive (libjpeg's, so a small one)."""
    blobs = [encoded(picture(i, 64, 48)) for i in range(48)]
    blobs[17] = encoded(picture(17, 1600, 1200))
    blobs[30] = encoded(picture(30, 64, 48), progressive=True)
    return plain_pack(tmp_path_factory.mktemp("sizes"), blobs, [i // 12 for i in range(48)], list("abcd"))


def loader_of(dataset: Any, **more: Any) -> fastload.DataLoader:
    """A shuffled loader."""
    return fastload.DataLoader(
        dataset, **{"batch_size": 8, "shuffle": True, "transform": CHAIN, "num_workers": 2, "seed": 5} | more
    )


def test_a_loaders_report_has_its_parts(mixed_sizes: fastload.PackedDataset, tmp_path: Path) -> None:
    with loader_of(mixed_sizes) as loader:
        for _ in range(2):
            for _ in loader:
                time.sleep(0.01)
        report = fastload.diagnose.report(loader, seconds=0.4)
    page = report.html
    for heading in (
        "Threads and queue",
        "Where a sample&#x27;s time goes",
        "What single samples cost",
        "How well the order mixes",
        "What was read",
        "The machine, and the rates reached",
    ):
        assert f"<h2>{heading}</h2>" in page
    assert page.count("<svg") == 4
    assert "By the loader&#x27;s own clocks" in page
    assert "The loop got " in page
    slowest = re.search(r"<th>The slowest</th>.*?<td>([^<]*)<", page, flags=re.DOTALL)
    assert slowest is not None
    assert slowest[1] == "17.img"
    assert "1600×1200" in page
    assert "JPEG, progressive" in page
    path = report.save(tmp_path / "l.html")
    assert found_in(path, CHARTS) == []
    screenshot(path, tmp_path / "l.png")
    assert (tmp_path / "l.png").stat().st_size > 20_000


def test_a_verdict_stands_on_top_of_a_loaders_parts(packed: fastload.PackedDataset) -> None:
    verdict = full_verdict()
    with loader_of(packed) as loader:
        page = fastload.diagnose.report(loader, verdict, seconds=0.1).html
    limit = page.index("Decoding is the bottleneck")
    assert limit < page.index("What would help") < page.index("Threads and queue")
    assert "By the loader" not in page


def test_nothing_is_no_report() -> None:
    with pytest.raises(ValueError, match="needs a verdict or a loader. Found: neither"):
        fastload.diagnose.report()


def test_the_loader_goes_on_as_if_nothing_had_been(packed: fastload.PackedDataset) -> None:
    expected = [images.clone() for images, _ in itertools.chain(*[loader_of(packed)] * 2)]
    with loader_of(packed) as loader:
        torch.manual_seed(3)
        before, state = torch.get_rng_state(), None
        iterator, got = iter(loader), []
        for step in range(3):
            got.append(next(iterator)[0].clone())
            if step == 1:
                state = loader.state_dict()
                fastload.diagnose.report(loader, seconds=0.1)
                assert loader.state_dict() == state
        got += [images.clone() for images, _ in iterator]
        got += [images.clone() for images, _ in loader]
        assert torch.equal(torch.get_rng_state(), before)
    assert len(got) == len(expected) == 14
    assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))


def test_an_unused_loader_with_a_sampler_is_not_asked_for_its_order(packed: fastload.PackedDataset) -> None:
    asked = []

    class Order:
        def __iter__(self) -> Any:
            asked.append(1)
            return iter(range(20))

        def __len__(self) -> int:
            return 20

    with loader_of(packed, sampler=Order(), shuffle=None) as loader:
        page = fastload.diagnose.report(loader, seconds=0.1).html
        assert asked == []
        assert measure_mixing(viewed(loader, "a test")) is None
        assert "The loader has not been used yet: these are the clocks of a second one" in page
        assert "How well the order mixes" not in page
        assert sum(len(labels) for _, labels in loader) == 20


def test_a_torch_datasets_code_is_not_run_for_a_report() -> None:
    class Counting(torch.utils.data.Dataset[Any]):
        reads = 0

        def __len__(self) -> int:
            return 40

        def __getitem__(self, index: int) -> torch.Tensor:
            Counting.reads += 1
            return torch.zeros(3)

    with fastload.DataLoader(Counting(), batch_size=2, num_workers=0) as loader:
        for _ in loader:
            pass
        assert Counting.reads == 40
        page = fastload.diagnose.report(loader).html
    assert Counting.reads == 40
    assert "and waited for data" in page
    assert "<svg" not in page


def test_the_loader_alone_is_faster_than_with_a_step(packed: fastload.PackedDataset) -> None:
    """By counts: in the time that steps leave nothing for, a loader without a step gives far more batches."""
    with loader_of(packed, batch_size=4) as loader:
        alone = run_alone(viewed(loader, "a test"), 0.5)
        assert loader.stats()["samples"] == 0
    assert alone.batches > 10
    samples = alone.stats["samples"]
    assert 4 * alone.batches - 16 * 4 <= samples <= 4 * alone.batches
    assert 0 < alone.rate <= samples / 0.5
    assert len(alone.moments) >= 5


def test_moments_of_made_up_clocks() -> None:
    """Two threads: one always decodes, the other transforms half of the time."""
    rows = [
        (10.0 + t, 4.0 * t + 6, 3.0 * t, 2.0, 0.1 * t, 1.0 * t, 0.5 * t)
        for t in np.arange(0, 5.01, 0.25).tolist()
    ]
    moments = Timeline(rows, batch_size=2)
    np.testing.assert_allclose(moments.times, np.arange(0, 5.01, 0.25))
    np.testing.assert_allclose(moments.ahead, (moments.times + 6) / 2)
    assert moments.threads == 2
    edges, busy = moments.busy(7)
    assert busy.shape == (3, 7)
    assert (edges[0], edges[-1]) == (0, 5)
    np.testing.assert_allclose(busy, np.repeat([[0.1], [1.0], [0.5]], 7, axis=1))


def test_history_follows_a_loader_and_keeps_a_bound(packed: fastload.PackedDataset) -> None:
    with loader_of(packed) as loader:
        with History(loader, every=0.001, most=16) as history:
            for _ in range(6):
                for _ in loader:
                    time.sleep(0.003)
        moments = history.moments
    assert 3 <= len(moments) <= 17
    assert moments.times[-1] >= 6 * 7 * 0.003
    assert moments.ahead.max() > 0
    _, busy = moments.busy(1)
    assert 0 < busy.sum() <= 2.5
    with pytest.raises(ValueError, match=r"every must be > 0 seconds and most >= 16\. Found: every=0"):
        History(loader, every=0)


def test_costs_are_of_each_sample(mixed_sizes: fastload.PackedDataset) -> None:
    costs = measure_costs(mixed_sizes, seconds=60)
    assert sorted(sample.sample for sample in costs.samples) == list(range(48))
    assert costs.bad == ()
    assert costs.of == 48
    by_id = {sample.sample: sample for sample in costs.samples}
    for sample, cost in by_id.items():
        record = mixed_sizes.record(sample)
        assert (cost.key, cost.length) == (f"{sample}.img", record["length"])
        assert (cost.width, cost.height) == (record["width"], record["height"])
        assert cost.codec == ("JPEG, progressive" if sample == 30 else "JPEG")
        assert cost.shard.endswith("data.bin")
    runs = [costs, measure_costs(mixed_sizes, seconds=60), measure_costs(mixed_sizes, seconds=60)]
    least: dict[int, float] = {}  # a machine's hiccup makes one run's sample slow, not all runs'
    for sample in (one for run in runs for one in run.samples):
        least[sample.sample] = min(least.get(sample.sample, sample.decode), sample.decode)
    assert max(least, key=lambda sample: least[sample]) == 17  # 625 times the pixels of the others
    assert len(measure_costs(mixed_sizes, count=5).samples) == 5
    assert len(measure_costs(mixed_sizes, seconds=0).samples) == 1


def test_bad_samples_are_named_not_raised(tmp_path: Path) -> None:
    blobs = [encoded(picture(i, 64, 48)) for i in range(6)]
    blobs[2] = blobs[2][:200]
    dataset = plain_pack(tmp_path / "bad", blobs)
    costs = measure_costs(dataset)
    assert len(costs.samples) == 5
    assert [key for key, _ in costs.bad] == ["2.img"]
    with loader_of(dataset, batch_size=2, on_error="skip") as loader:
        page = fastload.diagnose.report(loader, seconds=0.1).html
    assert "Could not be decoded: 1." in page
    assert "2.img" in page


def test_the_order_is_measured_beside_others(mixed_sizes: fastload.PackedDataset) -> None:
    with loader_of(mixed_sizes, shuffle=False) as loader:
        found = measure_mixing(viewed(loader, "a test"))
    assert found is not None
    assert found["this loader"] == found["no shuffle"]
    assert found["this loader"].classes < 2 < found["a uniform shuffle"].classes
    assert found["this loader"].distance == 0


STATS = {
    "stages": {
        "shard": {"seconds": 1.0, "count": 1000},
        "decode": {"seconds": 8.0, "count": 1000},
        "transform": {"seconds": 1.0, "count": 1000},
    },
    "data_wait": {"seconds": 2.0, "share": 0.4, "count": 100},
    "samples": 1000,
    "threads": 2,
    "images_per_second": 180.0,
}


def test_what_the_clocks_say_in_words() -> None:
    verdict = own_verdict(STATS, None)
    assert str(verdict) == (
        "The loop got 180/s and waited for data 40% of its time. Of a thread's 10.0 ms for a sample, decode "
        "takes 80%."
    )
    assert verdict.limit == "unknown"
    assert [(stage.name, stage.rate) for stage in verdict.stages] == [
        ("read", 2000), ("decode", 250), ("transform", 2000),
    ]  # fmt: skip
    keeps_up = own_verdict({**STATS, "data_wait": {"seconds": 0.1, "share": 0.01, "count": 100}}, None)
    assert keeps_up.limit == "step"
    assert str(keeps_up) == (
        "The data pipeline is not the bottleneck: the loop waited for data 1.0% of its time, at 180/s."
    )
    unused = {**STATS, "data_wait": {"seconds": 0.0, "share": 0.0, "count": 0}}
    unused["stages"] = {name: {"seconds": 0.0, "count": 0} for name in STATS["stages"]}
    assert str(own_verdict(unused, None)) == "The loader has not been used yet."


def test_the_command_writes_the_report_and_looks_for_its_folder_first(
    packed: fastload.PackedDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def examine(loader: Any, **more: Any) -> Any:
        asked.append(loader)
        return full_verdict()

    monkeypatch.setattr("fastload.diagnose.doctor.examine", examine)
    command = ["doctor", str(packed.folder), "--batch-size", "8", "--num-workers", "1", "--html"]
    assert main([*command, str(tmp_path / "no" / "r.html")]) == 2
    assert asked == []
    assert main([*command, str(tmp_path / "r.html")]) == 0
    assert len(asked) == 1
    page = (tmp_path / "r.html").read_text()
    assert page.index("Decoding is the bottleneck") < page.index("What single samples cost")
