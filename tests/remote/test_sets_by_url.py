"""Sets in a store, read as folders are: datasets, loaders, mixes, other processes."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fault_server import FaultServer
from field_sets import RICH, rich_samples, write_field_set
from growing_sets import Grown
from object_server import ObjectServer

import fastload
from fastload import DataLoader, PackedDataset, transforms
from fastload.errors import FormatError
from fastload.shard.dataset import PackedFiles

BUCKET = "sets-by-url"
URL = f"s3://{BUCKET}/set"
SMALL = transforms.Resize((32, 32))


@pytest.fixture(scope="module")
def server(object_server: ObjectServer, packed: PackedDataset) -> ObjectServer:
    """With a set in the bucket."""
    object_server.make_bucket(BUCKET)
    put(object_server, packed.folder, "set")
    return object_server


def put(server: ObjectServer, folder: Path, name: str) -> None:
    """Upload a set."""
    client = server.client()
    for path in (path for path in folder.rglob("*") if path.is_file()):
        key = f"{name}/{path.relative_to(folder).as_posix()}"
        client.put_object(Bucket=BUCKET, Key=key, Body=path.read_bytes())


@pytest.fixture
def front(server: ObjectServer) -> Iterator[FaultServer]:
    """A server before the store that counts."""
    with FaultServer(upstream=server.endpoint.removeprefix("http://")) as front:
        yield front


@pytest.fixture(autouse=True)
def sets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the node keeps sets."""
    monkeypatch.setenv("FASTLOAD_SETS_DIR", str(tmp_path / "sets"))
    return tmp_path / "sets"


@pytest.fixture
def options(server: ObjectServer) -> dict[str, str]:
    """How the store is reached."""
    return server.storage_options


def as_tensor(image: Any) -> torch.Tensor:
    """A callable that is none of ours."""
    return torch.from_numpy(np.array(image.resize((16, 16))))


def batches(loader: DataLoader[Any]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    with loader:
        return [(images.clone(), labels.clone()) for images, labels in loader]


def assert_same(found: list[Any], wanted: list[Any]) -> None:
    assert len(found) == len(wanted) > 0
    for (images, labels), (images_, labels_) in zip(found, wanted, strict=True):
        assert torch.equal(images, images_)
        assert torch.equal(labels, labels_)


def test_records_and_facts_are_the_folders(packed: PackedDataset, options: dict[str, str]) -> None:
    for given in (URL, f"{URL}/", f"{URL}/dataset.json"):
        dataset = PackedFiles(given, storage_options=options)
        assert (dataset.id, len(dataset), dataset.classes) == (packed.id, len(packed), packed.classes)
    assert [dataset.read(i) for i in range(len(packed))] == [packed.read(i) for i in range(len(packed))]
    assert [dataset.key(i) for i in range(9)] == [packed.key(i) for i in range(9)]
    assert np.array_equal(dataset.labels, packed.labels)
    assert dataset.where == URL
    assert repr(dataset).startswith(f"PackedFiles('{URL}', 52 records")
    assert options["secret"] not in repr(vars(dataset))


def test_a_sample_is_a_picture(packed: PackedDataset, options: dict[str, str]) -> None:
    dataset = PackedDataset(URL, storage_options=options)
    for sample in (0, 17, -1):
        (image, label), (wanted, label_) = dataset[sample], packed[sample]
        assert (image.tobytes(), label) == (wanted.tobytes(), label_)
    assert dataset.root == URL


@pytest.mark.parametrize("shuffle", [False, True, "block"])
def test_batches_are_the_folders(packed: PackedDataset, options: dict[str, str], shuffle: Any) -> None:
    chain = transforms.Compose([transforms.RandomResizedCrop(32), transforms.RandomHorizontalFlip()])
    given: dict[str, Any] = {"batch_size": 8, "shuffle": shuffle, "seed": 3, "transform": chain}
    assert_same(
        batches(DataLoader(URL, storage_options=options, **given)),
        batches(DataLoader(packed.folder, **given)),
    )


def test_a_mix_of_a_store_and_a_folder(
    packed: PackedDataset, options: dict[str, str], tmp_path: Path
) -> None:
    given: dict[str, Any] = {
        "batch_size": 8,
        "shuffle": True,
        "seed": 1,
        "transform": transforms.Resize((32, 32)),
    }
    mixed = fastload.mix([URL, packed.folder], weights=[2, 1], storage_options=options)
    assert_same(
        batches(DataLoader(mixed, **given)),
        batches(DataLoader(fastload.mix([packed.folder, packed.folder], weights=[2, 1]), **given)),
    )


def test_other_fields_are_the_folders(server: ObjectServer, options: dict[str, str], tmp_path: Path) -> None:
    folder = write_field_set(tmp_path / "fields", RICH, rich_samples(9))
    put(server, folder, "fields")
    local = PackedFiles(folder)
    dataset = PackedFiles(f"s3://{BUCKET}/fields", storage_options=options)
    assert dataset.schema == local.schema
    for name in local.schema.names:
        for sample in range(9):
            assert dataset.value_bytes(name, sample) == local.value_bytes(name, sample)


def test_pickled_it_opens_again(packed: PackedDataset, options: dict[str, str]) -> None:
    dataset = PackedFiles(URL, storage_options=options)
    again = pickle.loads(pickle.dumps(dataset))
    assert again.read(3) == packed.read(3)


def test_pickled_it_notices_another_set(
    server: ObjectServer, packed: PackedDataset, options: dict[str, str], tmp_path: Path
) -> None:
    put(server, packed.folder, "changing")
    text = pickle.dumps(PackedFiles(f"s3://{BUCKET}/changing", storage_options=options))
    put(server, write_field_set(tmp_path / "other", RICH, rich_samples(9)), "changing")
    with pytest.raises(FormatError, match=rf"s3://{BUCKET}/changing has dataset id .* packed again"):
        pickle.loads(text)


@pytest.mark.parametrize("context", ["spawn", "fork"])
def test_torch_workers_read_it(packed: PackedDataset, options: dict[str, str], context: str) -> None:
    dataset = PackedDataset(URL, transform=np.array, storage_options=options)
    subset = torch.utils.data.Subset(dataset, range(6))
    loader = torch.utils.data.DataLoader(
        subset, batch_size=None, num_workers=2, multiprocessing_context=context
    )
    found = [pixels for pixels, _ in loader]
    assert len(found) == 6
    for sample, pixels in enumerate(found):
        assert np.array_equal(pixels, np.asarray(packed[sample][0]))


def test_python_callables_run_in_workers(packed: PackedDataset, options: dict[str, str]) -> None:
    given: dict[str, Any] = {"batch_size": 8, "transform": as_tensor, "num_workers": 2}
    assert_same(
        batches(DataLoader(URL, storage_options=options, **given)),
        batches(DataLoader(packed.folder, **given)),
    )


def test_credentials_of_the_environment(
    server: ObjectServer, packed: PackedDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    assert PackedFiles(URL).read(1) == packed.read(1)


def test_file_urls_are_folders(packed: PackedDataset) -> None:
    dataset = PackedFiles(f"file://{packed.folder}")
    assert (dataset.folder, dataset.location) == (packed.folder, None)
    assert dataset.read(2) == packed.read(2)


def test_a_first_batch_takes_few_requests(
    server: ObjectServer, front: FaultServer, packed: PackedDataset, options: dict[str, str]
) -> None:
    given = {**options, "endpoint_url": front.url}
    with DataLoader(
        URL, batch_size=8, storage_options=given, transform=transforms.Resize((32, 32))
    ) as loader:
        next(iter(loader))
    found = [(request.method, request.path.rpartition("/")[2]) for request in front.requests]
    assert found.count(("GET", "dataset.json")) == 1
    assert found.count(("GET", "index.fli")) == 1
    shards = {name for _, name in found if "fli" not in name and "json" not in name}
    assert not [name for method, name in found if method == "HEAD" and name in shards]
    others = [request for request in found if request[1] not in shards]
    assert set(others) <= {("GET", "dataset.json"), ("GET", "index.fli"), ("HEAD", "entries.fli")}


@pytest.mark.parametrize(
    ("open_it", "words"),
    [
        (
            lambda options: PackedFiles("/data/set", storage_options=options),
            "for URLs of stores.*'/data/set'",
        ),
        (lambda options: DataLoader([1], storage_options=options), "for a URL as the dataset.*list"),
        (lambda options: fastload.mix(["/data/set"], storage_options=options), "none among the datasets"),
        (lambda options: PackedFiles(Path(URL), storage_options=options), "pathlib.Path removes one"),
        (lambda options: PackedFiles("ftp://host/set"), "must begin with one of s3://"),
    ],
)
def test_options_and_urls_of_no_meaning_are_refused(
    open_it: Any, words: str, options: dict[str, str]
) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        open_it(options)
    assert options["secret"] not in str(caught.value)


def test_a_set_that_has_grown(server: ObjectServer, options: dict[str, str], tmp_path: Path) -> None:
    """Its generations and dropped samples come with it; what changed is fetched when it is opened again."""
    grown = Grown.begun(tmp_path / "set", 8)
    grown.append(4)
    put(server, grown.folder, "grown")
    first = PackedDataset(f"s3://{BUCKET}/grown", storage_options=options)
    assert len(first) == 12
    grown.drop([1, 9])
    put(server, grown.folder, "grown")
    now = PackedDataset(f"s3://{BUCKET}/grown", storage_options=options)
    assert now.ids_at(np.arange(10)).tolist() == grown.generations[-1]
    assert (now.id, now.at(2).id) == (PackedDataset(grown.folder).id, first.id)
    with DataLoader(now, 4, fields=["number"]) as loader:
        assert [one for batch in loader for one in batch["number"].tolist()][:10] == grown.generations[-1]
    with pytest.raises(ValueError, match="pack it anew"):
        fastload.mix([now, now.at(1)])
