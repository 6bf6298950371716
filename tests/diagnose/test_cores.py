"""`fastload plan SET --gpu GPU --network NETWORK`: the cores that a GPU needs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pack_trees import class_tree

from fastload.cli import main
from fastload.diagnose import comparison
from fastload.diagnose.comparison import Comparison, PictureSample, Side


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Pictures of which torch's loader makes 100 in a CPU second, and fastload 1000, on a busy machine."""

    def measured(sample: PictureSample, seconds: float, workers: int, cores: int) -> Comparison:
        assert (workers, cores) == (1, 1)
        torchs = Side("torch", 1, rates=[30.0, 20.0, 10.0], cpu=[0.008, 0.01, 0.02])
        ours = Side("fastload", 1, rates=[30.0, 20.0, 10.0], cpu=[0.0008, 0.001, 0.002])
        return Comparison(sample, torchs, ours, {1: 100.0}, 1)

    monkeypatch.setattr(comparison, "compare", measured)
    return class_tree(tmp_path / "source", 2, 8)


def said(capsys: pytest.CaptureFixture[str], code: int, *words: object) -> str:
    assert main([*map(str, words)]) == code
    captured = capsys.readouterr()
    return captured.err if code else captured.out


def test_cores_and_clouds_of_a_network(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = said(capsys, 0, "plan", source, "--gpu", "H100", "--network", "resnet50")
    for words in (
        "16 pictures of 16, cropped to 224 pixels",
        "resnet50 on H100: 2790 images/s (github.com/lambdal/deeplearning-benchmark at",
        "100 images per CPU second [50-125]: 27.9 cores",
        "1000 images per CPU second [500-1250]: 2.8 cores",
        "AWS p5.4xlarge, 16 CPUs a GPU: torch's DataLoader feeds 57%, fastload keeps up",
        "a cloud's CPU is mostly one of a core's two threads",
    ):
        assert words in out
    assert "p4d" not in out


def test_a_rate_of_ones_own(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = said(capsys, 0, "plan", source, "--gpu", "RTX3090", "--rate", "5000", "--json")
    facts = json.loads(out)
    assert facts["cores"] == {"torch": 50.0, "fastload": 5.0}
    assert (facts["source"], facts["network"], facts["shapes"]) == ("as given by --rate", None, [])


def test_a_table_says_that_it_knows_no_shape(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = said(capsys, 0, "plan", source, "--gpu", "RTX3090", "--network", "vit_base")
    assert "no shape with RTX3090 is known here" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--network", "resnet50"), "Add --gpu, or leave it out"),
        (("--gpu", "H100"), "--gpu needs --network, or --rate"),
        (
            ("--gpu", "H100", "--network", "convnext_base"),
            "no rate of convnext_base on H100 is known. Known for it: resnet50, resnet50_mlperf, vit5_small, "
            "vit_base. Give --rate",
        ),
        (("--gpu", "H10", "--network", "resnet50"), "Did you mean H100?"),
    ],
)
def test_wrong_usage_is_said(
    source: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], message: str
) -> None:
    assert message in said(capsys, 2, "plan", source, *words)


def test_a_url_is_not_measured(capsys: pytest.CaptureFixture[str]) -> None:
    out = said(capsys, 2, "plan", "s3://bucket/set", "--gpu", "H100", "--network", "resnet50")
    assert "Found: s3://bucket/set, a URL" in out
