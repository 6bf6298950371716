"""loader.stats() as a stream: scalars every so many steps, and metrics for Prometheus."""

from __future__ import annotations

import gc
import socket
import threading
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import fastload
from fastload import transforms as T
from fastload.integrations.stats_stream import Every, scalars
from fastload.integrations.tensorboard import Scalars

pytest.importorskip("prometheus_client")
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from fastload.integrations import prometheus
from fastload.integrations.prometheus import LoaderCollector, metrics, serve

CHAIN = T.Compose([T.RandomResizedCrop(32), T.RandomHorizontalFlip()])


@pytest.fixture
def loader(packed: fastload.PackedDataset) -> Iterator[fastload.DataLoader]:
    """7 batches an epoch, 4 samples in the last one."""
    with fastload.DataLoader(packed, batch_size=8, shuffle=True, transform=CHAIN, num_workers=2) as made:
        yield made


def test_every_few_steps_there_are_numbers_of_these_steps(loader: fastload.DataLoader) -> None:
    seen: list[tuple[int, dict[str, float]]] = []
    stream = Every(3, loader, lambda step, values: seen.append((step, values)))
    for _ in range(2):
        for _ in loader:
            stream.step()
    assert [step for step, _ in seen] == [3, 6, 9, 12]
    for _, values in seen:
        assert all(name.startswith("fastload/") for name in values)
        assert all(type(value) is float for value in values.values())
        assert values["fastload/images_per_second"] > 0
        assert 0 <= values["fastload/data_wait_percent"] <= 101
        assert values["fastload/threads"] == 2
        assert values["fastload/faults"] == 0
    assert any("fastload/decode_ms" in values for _, values in seen)


def stats_at(t: float) -> dict[str, Any]:
    """Clocks that grow evenly: 100 samples and 10 batches a second, 0.3 s of waiting in each."""
    return {
        "stages": {
            "shard": {"seconds": 0.1 * t, "count": int(120 * t)},
            "decode": {"seconds": 1.2 * t, "count": int(120 * t)},
            "transform": {"seconds": 0.6 * t, "count": int(120 * t)},
            "prefetch": {"seconds": 0.1 * t, "count": int(10 * t)},
            "transfer": {"seconds": 0.02 * t, "blocked_seconds": 0.05 * t, "bytes": 10**6 * t},
        },
        "data_wait": {"seconds": 0.3 * t, "share": 0.3, "count": int(10 * t)},
        "decoded": {"jpeg": int(120 * t), "warnings": 0},
        "samples": int(100 * t),
        "bytes": 2_000_000 * t,
        "faults": int(t),
        "threads": 2,
        "first_batch_seconds": 0.2,
        "read_ahead": {"bytes": 500_000 * t, "late": int(t), "resident": 3, "ahead": 4, "requests": 5},
        "cache": {"hits": 30 * t, "misses": 10 * t, "bytes": 77},
    }


MIXTURE = [
    {"where": "a/train", "samples": 30, "share": 0.3, "wish": 0.25, "pass": 2.5},
    {"where": "b/train", "samples": 60, "share": 0.6, "wish": 0.65, "pass": 0.1},
    {"where": "a/train", "samples": 10, "share": 0.1, "wish": 0.1, "pass": 0.2},
]
SOURCES = ["a/train", "b/train", "a/train (2)"]
PLACES = {"world": {"rank": 3, "size": 8, "changes": 2}, "generation": 5, "mixture": MIXTURE}


def test_numbers_of_the_world_and_of_a_mixture() -> None:
    plain = scalars(stats_at(10), stats_at(15), 5.0)
    assert scalars(stats_at(10), stats_at(15) | PLACES, 5.0) == plain | {
        "world_size": 8,
        "world_changes": 2,
        "generation": 5,
        "share/a/train": 0.3,
        "wish/a/train": 0.25,
        "share/b/train": 0.6,
        "wish/b/train": 0.65,
        "share/a/train (2)": 0.1,
        "wish/a/train (2)": 0.1,
    }


def test_a_world_that_changed(packed: fastload.PackedDataset) -> None:
    """The numbers of a loader's own, by both ways."""
    options: dict[str, Any] = {"batch_size": 8, "transform": CHAIN, "num_workers": 1, "seed": 0}
    with fastload.DataLoader(packed, ranks=fastload.Ranks(1, 2), **options) as loader:
        before = loader.stats()
        assert "world" not in before  # not known yet
        next(iter(loader))
        loader.reshard(0, 3)
        found = scalars(before, loader.stats(), 1.0)
        assert (found["world_size"], found["world_changes"]) == (3, 1)
        text = metrics({"train": loader})
    assert 'fastload_world_size{loader="train",rank="0"} 3.0\n' in text
    assert 'fastload_world_changes_total{loader="train",rank="0"} 1.0\n' in text
    assert "fastload_source" not in text  # no mixture


def test_a_mixture(packed: fastload.PackedDataset) -> None:
    """The numbers of a loader's own, by both ways."""
    mix = fastload.mix([packed, packed], weights=[1, 3], num_samples=40)
    with fastload.DataLoader(mix, batch_size=8, transform=CHAIN, num_workers=1, shuffle=True) as loader:
        before = loader.stats()
        for _ in loader:  # a whole epoch, whose shares are exact
            pass
        stats, where = loader.stats(), str(packed.where)
        found = scalars(before, stats, 1.0)
        assert [found[f"share/{where}"], found[f"share/{where} (1)"]] == pytest.approx([0.25, 0.75])
        assert [found[f"wish/{where}"], found[f"wish/{where} (1)"]] == pytest.approx([0.25, 0.75])
        text = parsed(metrics({"train": loader}))
    assert {s.labels["source"]: s.value for s in text["fastload_source_samples"].samples} == {
        where: stats["mixture"][0]["samples"],
        f"{where} (1)": stats["mixture"][1]["samples"],
    }
    assert [source["samples"] for source in stats["mixture"]] == [10, 30]


def test_numbers_of_an_interval() -> None:
    found = scalars(stats_at(10), stats_at(15), 5.0)
    expected = {
        "images_per_second": 100,
        "data_wait_percent": 30,
        "data_wait_ms": 30,
        "faults": 5,
        "threads": 2,
        "busy_threads": 1.9,
        "samples_ahead": 300,
        "encoded_mb_per_second": 2,
        "read_ms": 0.1 / 0.12,
        "decode_ms": 10,
        "transform_ms": 5,
        "storage_mb_per_second": 0.5,
        "late_records": 5,
        "cache_hit_percent": 75,
        "transfer_ms": 2,
        "device_blocked_percent": 5,
    }
    assert found == pytest.approx(expected)
    idle = scalars(stats_at(10), stats_at(10), 1.0)
    assert idle["images_per_second"] == 0
    assert not {"data_wait_ms", "decode_ms", "cache_hit_percent", "transfer_ms"} & set(idle)


def test_a_torch_dataset_has_the_consumers_clock() -> None:
    data = torch.utils.data.TensorDataset(torch.zeros(12, 2))
    seen: list[dict[str, float]] = []
    with fastload.DataLoader(data, batch_size=4, num_workers=0) as loader:
        stream = Every(3, loader, lambda step, values: seen.append(values), prefix="")
        for _ in loader:
            stream.step()
    assert set(seen[0]) == {"images_per_second", "data_wait_percent", "data_wait_ms", "faults"}


def test_a_callback_is_told_the_users_own_steps_and_its_errors_come_out(loader: fastload.DataLoader) -> None:
    told: list[int] = []
    stream = Every(2, loader, lambda step, values: told.append(step))
    for number in (10, 11, 12, 13):
        stream.step(number)
    assert told == [11, 13]

    def fail(step: int, values: dict[str, float]) -> None:
        raise KeyError(step)

    with pytest.raises(KeyError, match="1"):
        Every(1, loader, fail).step()
    with pytest.raises(ValueError, match=r"steps between two calls, must be >= 1\. Found: 0"):
        Every(0, loader, fail)


class Written:
    """A writer that keeps what it gets."""

    def __init__(self) -> None:
        self.points: list[tuple[str, float, int | None]] = []

    def add_scalar(self, tag: str, scalar_value: float, global_step: int | None = None) -> None:
        self.points.append((tag, scalar_value, global_step))


def test_scalars_for_tensorboard(loader: fastload.DataLoader) -> None:
    writer = Written()
    stream = Scalars(loader, writer, every=7, tag="data/train")
    for _ in range(2):
        for _ in loader:
            stream.step()
    rates = [(value, step) for tag, value, step in writer.points if tag == "data/train/images_per_second"]
    assert [step for _, step in rates] == [7, 14]
    assert all(value > 0 for value, _ in rates)


def parsed(text: str) -> dict[str, Any]:
    """Families by name, by prometheus_client's own parser."""
    return {family.name: family for family in text_string_to_metric_families(text)}


def fetch(port: int, path: str = "/metrics") -> tuple[str, str]:
    """Body and content type."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
        return answer.read().decode(), answer.headers["Content-Type"]


def test_prometheus_reads_what_is_served(loader: fastload.DataLoader) -> None:
    for _ in loader:
        pass
    with serve({"train": loader, 'odd "name"\\\n': loader}, port=0) as server:
        text, kind = fetch(server.port)
        for _ in loader:
            pass
        later, _ = fetch(server.port, "/metrics?x=1")
    assert kind.startswith("text/plain; version=")
    families, after = parsed(text), parsed(later)
    stats = loader.stats()
    assert families["fastload_samples"].type == "counter"
    first = families["fastload_samples"].samples[0]
    assert (first.name, first.labels, first.value) == (
        "fastload_samples_total", {"loader": "train", "rank": "0"}, 52,
    )  # fmt: skip
    assert {s.labels["loader"] for s in families["fastload_samples"].samples} == {"train", 'odd "name"\\\n'}
    assert after["fastload_samples"].samples[0].value == 104
    assert after["fastload_batches"].samples[0].value == 14
    waited = after["fastload_data_wait_seconds"].samples[0].value
    assert waited == pytest.approx(stats["data_wait"]["seconds"])
    assert families["fastload_threads"].type == "gauge"
    assert families["fastload_threads"].samples[0].value == 2
    stages = {s.labels["stage"] for s in families["fastload_stage_seconds"].samples}
    assert stages == {"shard", "decode", "transform", "idle"}
    paths = {s.labels["path"]: s.value for s in after["fastload_decoded_samples"].samples}
    assert sum(paths.values()) >= 104
    assert set(paths) == set(stats["decoded"]) - {"warnings"}
    assert sum(s.value for s in after["fastload_records"].samples) > 0
    assert all(family.documentation for family in families.values())
    assert len(families) >= 14


def test_made_up_clocks_reach_prometheus() -> None:
    class Known:
        rank = 3

    class Fake:
        @staticmethod
        def place_of_rank() -> tuple[Any, int]:
            return Known(), 0

        @staticmethod
        def stats() -> dict[str, Any]:
            return stats_at(10) | PLACES

        def __fastload_view__(self) -> Any:
            return self

        @property
        def loader(self) -> Any:
            return self

    fake = Fake()  # which a collector does not keep
    families = parsed(metrics({"a": fake}))
    values = {name: family.samples[0].value for name, family in families.items()}
    assert values["fastload_transfer_bytes"] == 10**7
    assert values["fastload_cache_hits"] == 300
    assert values["fastload_samples_ahead"] == 200
    assert values["fastload_storage_read_bytes"] == 5_000_000
    assert all(family.samples[0].labels["rank"] == "3" for family in families.values())
    assert {s.labels["where"]: s.value for s in families["fastload_records"].samples} == {
        "resident": 3, "ahead": 4, "late": 10,
    }  # fmt: skip
    assert values["fastload_world_size"] == 8
    assert values["fastload_world_changes"] == 2
    assert values["fastload_generation"] == 5
    for name in ("samples", "share", "wish", "pass"):
        family = families["fastload_source_passes" if name == "pass" else f"fastload_source_{name}"]
        assert {s.labels["source"]: s.value for s in family.samples} == {
            title: source[name] for title, source in zip(SOURCES, MIXTURE, strict=True)
        }


@pytest.mark.usefixtures("no_leaks")
def test_the_server_listens_here_only_and_leaves_nothing(packed: fastload.PackedDataset) -> None:
    loader = fastload.DataLoader(packed, batch_size=8, num_workers=1)
    server = serve(loader, port=0)
    assert server._server.server_address[0] == "127.0.0.1"
    assert "fastload-stats" in [thread.name for thread in threading.enumerate()]
    with pytest.raises(
        OSError, match=rf"cannot listen on 127\.0\.0\.1:{server.port} \(Address already in use"
    ):
        serve(loader, port=server.port)
    del loader
    gc.collect()
    assert fetch(server.port)[0] == "", "a loader that is gone is not kept alive"
    server.close()
    server.close()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", server.port), timeout=60)


def test_a_closed_loader_still_has_its_counts(packed: fastload.PackedDataset) -> None:
    with fastload.DataLoader(packed, batch_size=8, transform=CHAIN, num_workers=1) as loader:
        next(iter(loader))
    assert 'fastload_samples_total{loader="train",rank="0"} 8.0\n' in metrics({"train": loader})


def test_a_registry_of_ones_own_takes_one_collector(packed: fastload.PackedDataset) -> None:
    registry = CollectorRegistry()
    with fastload.DataLoader(packed, batch_size=8, transform=CHAIN, num_workers=1) as loader:
        next(iter(loader))
        registry.register(LoaderCollector({"a": loader, "b": loader}))
        with pytest.raises(ValueError, match="Duplicated timeseries"):
            registry.register(LoaderCollector({"val": loader}))
    for name in ("a", "b"):
        labels = {"loader": name, "rank": "0"}
        assert registry.get_sample_value("fastload_samples_total", labels) == 8
        assert (
            registry.get_sample_value("fastload_stage_seconds_total", {**labels, "stage": "decode"}) or 0
        ) > 0
    only = registry.restricted_registry(["fastload_threads"])
    assert [family.name for family in only.collect()] == ["fastload_threads"]


def test_a_client_that_says_nothing_is_left(
    packed: fastload.PackedDataset, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(prometheus, "_PATIENCE", 0.1)
    with (
        fastload.DataLoader(packed, batch_size=8, num_workers=1) as loader,
        serve(loader, port=0) as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=60) as silent,
    ):
        assert silent.recv(1) == b"", "the server closes the connection"
    assert capfd.readouterr().err == ""
