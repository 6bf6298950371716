"""Every odd image: the same pixels, the same verdict and the same policy by either back end."""

from __future__ import annotations

import re
from dataclasses import asdict

import pytest
import torch
from epochs import all_batches
from odd_images import odd_images
from plain_pack import plain_pack
from two_backends import EDGE_APART, MEAN_APART, TRAIN, WITHIN_APART, apart, with_dali

from fastload import Dali, DataLoader, OnError, PackedDataset, errors
from fastload import transforms as T

pytestmark = pytest.mark.dali

NAMES = list(odd_images())


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> PackedDataset:
    blobs = list(odd_images().values())
    return plain_pack(tmp_path_factory.mktemp("odd"), blobs, range(len(blobs)), probe=False)


def reports(loader: DataLoader) -> list[dict[str, object]]:
    """The loader's reports, without the addresses of Python objects."""
    found = [asdict(report) for report in loader.errors]
    return [{**report, "message": re.sub("0x[0-9a-f]+", "", report["message"])} for report in found]


@pytest.mark.parametrize("share", [0.0, 0.5])
@pytest.mark.parametrize("policy", ["skip", "replace"])
def test_the_same_pixels_and_reports(odd: PackedDataset, policy: str, share: float) -> None:
    options = {
        "seed": 0,
        "batch_size": 8,
        "transform": T.Resize((48, 48)),
        "on_error": OnError(policy, max_pixels=10**7),
    }
    with (
        DataLoader(odd, **options) as native,
        with_dali(odd, backend=Dali(decode_share=share), **options) as dali,
    ):
        for _ in range(2):
            wanted, found = all_batches(native), all_batches(dali)
            for (images, labels), (pixels, same) in zip(found, wanted, strict=True):
                assert torch.equal(labels, same)
                for image, other, label in zip(images, pixels, labels.tolist(), strict=True):
                    inner, anywhere, mean = apart(image, other)
                    close = inner <= WITHIN_APART and anywhere <= EDGE_APART and mean <= MEAN_APART
                    assert close, (NAMES[label], inner, anywhere, mean)
        assert reports(dali) == reports(native)
        assert len(native.errors) > 10
        if share == 0:
            # DALI had all that the header does not give away: 3 + 3 kinds of sampling, 8 orientations, ...
            assert dali.stats()["decoders"]["samples"]["dali"] >= 2 * 20


@pytest.mark.parametrize("sample", [name for name in NAMES if name.startswith("bad")])
def test_raise_names_the_same_sample(odd: PackedDataset, sample: str) -> None:
    number = NAMES.index(sample)
    options = {
        "seed": 0,
        "batch_size": 4,
        "transform": TRAIN,
        "on_error": OnError(max_pixels=10**7),
        "sampler": [0, 1, number, 2],
    }
    messages = []
    for load in (DataLoader, with_dali):
        loader = load(odd, **options)
        try:
            next(iter(loader))
            messages.append("good")
        except errors.SampleError as error:
            messages.append(re.sub("0x[0-9a-f]+", "", str(error)))
        loader.close()
    assert messages[0] == messages[1]


def test_exif_is_ignored(odd: PackedDataset) -> None:
    turned = [NAMES.index(f"jpeg exif {turn}") for turn in range(1, 9)]
    with with_dali(odd, sampler=turned, transform=T.CenterCrop((100, 140))) as dali:
        images, _ = next(iter(dali))  # turned by 90 degrees they would be 100 pixels wide
        assert images.shape == (8, 3, 100, 140)
        assert images[5].float().std() > 5
        assert dali.stats()["decoders"]["samples"]["dali"] == 8
