"""Sets on the Hub, by ``hf://``, from a small Hub of the tests' own."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from fake_hub import TOKEN, VALID, FakeHub

from fastload import DataLoader, PackedDataset, transforms
from fastload.errors import LocationError, ObjectMissing, RemoteError
from fastload.packing.verify import verify
from fastload.remote.location import Location
from fastload.remote.opening import open_store
from fastload.remote.store import Listed
from fastload.shard.dataset import PackedFiles

SET = "hf://datasets/me/birds/packed/train"


@pytest.fixture(autouse=True)
def quiet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of this machine's user is found."""
    monkeypatch.setenv("FASTLOAD_SETS_DIR", str(tmp_path / "sets"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def hub(packed: PackedDataset, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """A Hub that has the set of ``packed``."""
    with FakeHub() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        hub.push(files_of(packed))
        yield hub


def files_of(packed: PackedDataset) -> dict[str, bytes]:
    """As they lie in the repository."""
    files = {
        f"packed/train/{path.relative_to(packed.folder).as_posix()}": path.read_bytes()
        for path in packed.folder.rglob("*")
        if path.is_file()
    }
    return {"README.md": b"# Birds", **files}


def test_a_set_is_read(hub: FakeHub, packed: PackedDataset) -> None:
    dataset = PackedFiles(SET)
    assert [dataset.read(i) for i in range(52)] == [packed.read(i) for i in range(52)]
    assert dataset.where == SET
    assert verify(SET, decode=True) == ([], 52)
    assert any(name.endswith(packed.manifest.shards[0].file) for name in hub.fetched)  # by the CDN


def test_a_file_is_asked_for_once(hub: FakeHub, packed: PackedDataset) -> None:
    dataset = PackedFiles(SET)
    for _ in range(2):
        for sample in range(52):
            dataset.read(sample)
    assert hub.calls("/api/datasets/") == 1
    for shard in packed.manifest.shards:
        assert hub.calls(f"/{shard.file}") == 1


def test_batches_are_those_of_the_folder(hub: FakeHub, packed: PackedDataset) -> None:
    chain = transforms.Compose([transforms.RandomResizedCrop(32), transforms.RandomHorizontalFlip()])
    batches = []
    for place in (SET, packed.folder):
        with DataLoader(place, batch_size=8, shuffle=True, seed=3, transform=chain) as loader:
            batches.append([np.asarray(images) for images, _ in loader])
    assert len(batches[0]) == len(batches[1]) == 7
    for ours, theirs in zip(*batches, strict=True):
        assert np.array_equal(ours, theirs)


def test_an_address_that_has_expired_is_renewed(hub: FakeHub, packed: PackedDataset) -> None:
    dataset = PackedFiles(SET)
    dataset.read(0)
    assert hub.denied == 0
    hub.passed = 2 * VALID
    assert dataset.read(51) == packed.read(51)
    assert hub.denied > 0


def test_a_push_changes_nothing(hub: FakeHub, packed: PackedDataset) -> None:
    dataset = PackedFiles(SET)
    first = dataset.read(0)
    hub.push({name: b"x" * len(data) for name, data in files_of(packed).items()})
    assert [dataset.read(i) for i in range(52)] == [packed.read(i) for i in range(52)]
    assert pickle.loads(pickle.dumps(dataset)).read(0) == first  # a worker process reads the same commit


def test_a_revision(hub: FakeHub, packed: PackedDataset) -> None:
    old = hub.head
    hub.push({"README.md": b"# None"})
    url = f"hf://datasets/me/birds@{old}/packed/train"
    assert PackedFiles(url).read(3) == packed.read(3)
    assert hub.calls("/api/datasets/") == 0  # a commit need not be looked up
    with pytest.raises(RemoteError, match=r"It has no revision 'refs/pr/7'"):
        PackedFiles("hf://datasets/me/birds@refs/pr/7/packed/train")


def test_throttling_is_obeyed(hub: FakeHub, packed: PackedDataset) -> None:
    hub.throttled, hub.retry_after = 2, "1"
    began = time.monotonic()
    assert PackedFiles(SET).read(0) == packed.read(0)
    assert hub.throttled == 0
    assert time.monotonic() - began >= 2


def test_throttling_that_lasts_is_an_error(hub: FakeHub) -> None:
    hub.throttled, hub.retry_after = 100, "300"
    with pytest.raises(RemoteError, match=r"hf://datasets/me/birds cannot be opened: .*429"):
        PackedFiles(SET)


@pytest.mark.parametrize("access", ["private", "gated"])
def test_a_token_goes_to_the_hub_alone(hub: FakeHub, packed: PackedDataset, access: str) -> None:
    hub.access = access
    words = (
        "It is gated: accept its conditions" if access == "gated" else "or it is private, and needs a token"
    )
    with pytest.raises(RemoteError, match=words):
        PackedFiles(SET)
    hub.large = 200_000  # the shard's bytes come from the Hub itself, which wants the token
    store = open_store(SET, {"token": TOKEN})
    small, large = (
        store.get("README.md", 2, 5),
        store.get(f"packed/train/{packed.manifest.shards[0].file}", 5, 9),
    )
    assert small == b"Bir"
    assert large == (packed.folder / packed.manifest.shards[0].file).read_bytes()[5:9]
    hub.large = 1  # the CDN refuses requests with a token
    dataset = PackedFiles(SET, storage_options={"token": TOKEN})
    assert dataset.read(7) == packed.read(7)
    assert TOKEN not in repr(dataset) + repr(store)


def test_the_token_of_the_environment(
    hub: FakeHub, packed: PackedDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.access = "private"
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert PackedFiles(SET).read(1) == packed.read(1)
    with pytest.raises(RemoteError, match="or it is private"):
        PackedFiles(SET, storage_options={"anon": True})


def test_lists_and_looks(hub: FakeHub) -> None:
    hub.push({f"data/{i:03}.bin": bytes(i) for i in range(120)} | {"database": b"12"})
    store = open_store("hf://datasets/me/birds/data")
    assert list(store.list("data/")) == [Listed(f"data/{i:03}.bin", i) for i in range(120)]
    assert hub.calls("/tree/") == 3  # pages
    assert [each.path for each in store.list("data")][-1] == "database"
    assert list(store.list("nothing/")) == []
    assert store.head("nothing") is None
    facts = store.head("database")
    assert facts is not None
    assert facts.size == 2
    with pytest.raises(ObjectMissing, match="hf://datasets/me/birds/nothing does not exist"):
        store.get("nothing")


def test_it_is_read_only_and_options_are_checked(hub: FakeHub, tmp_path: Path) -> None:
    store = open_store(SET)
    for write in (
        lambda: store.put("x", b""),
        lambda: store.upload("x", tmp_path),
        lambda: store.delete("x"),
    ):
        with pytest.raises(RemoteError, match="the Hub is read only here"):
            write()
    with pytest.raises(LocationError, match="hf:// has no 'region'"):
        open_store(SET, {"region": "x"})
    with pytest.raises(LocationError, match="exclude each other"):
        open_store(SET, {"anon": True, "token": "x"})


def test_a_hub_that_is_not_there_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(RemoteError, match=r"hf://datasets/me/birds cannot be reached: .*Connection refused"):
        PackedFiles(SET)


def test_urls_of_revisions() -> None:
    url = "hf://datasets/me/birds@refs/convert/parquet/default/train/0000.parquet"
    location = Location.parse(url)
    assert (location.host, location.path) == (
        "datasets/me/birds@refs/convert/parquet", "default/train/0000.parquet",
    )  # fmt: skip
    assert str(location) == url


def test_without_its_library_the_pip_line_is_said() -> None:
    code = (
        "import sys; sys.modules['huggingface_hub'] = None\n"
        "from fastload.errors import LibraryMissing\n"
        "from fastload.shard.dataset import PackedFiles\n"
        "try: PackedFiles('hf://datasets/me/birds')\n"
        "except LibraryMissing as error: print(error)\n"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert 'pip install "fastload[hub]"' in said


def test_commands(hub: FakeHub, capsys: pytest.CaptureFixture[str]) -> None:
    from fastload.cli import main

    assert main(["info", SET, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["records"] == 52
