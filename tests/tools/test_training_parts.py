"""The training script's parts: models, schedules, evaluation, accumulation, checkpoints, the baseline."""

from __future__ import annotations

import argparse
import itertools
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from training import checkpoint, models, schedule, torch_baseline
from training.loop import IGNORED, Run, evaluate, train_epoch
from training.progress import Progress
from training.world import World

CPU = World(0, 1, 1, torch.device("cpu"))


def make_run(model: torch.nn.Module, accumulate: int = 1, smoothing: float = 0.0) -> Run:
    return Run(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=1.0),
        scaler=torch.amp.GradScaler("cpu", enabled=False),
        world=CPU,
        amp=None,
        layout=torch.channels_last,
        accumulate=accumulate,
        smoothing=smoothing,
        rate=lambda updates: 0.1,
    )


def linear(classes: int = 7) -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 4 * 4, classes))


def batches(count: int, size: int = 6, classes: int = 7) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(3)
    return [
        (
            torch.randn(size, 3, 4, 4, generator=generator),
            torch.randint(0, classes, (size,), generator=generator),
        )
        for _ in range(count)
    ]


def quiet(steps: int) -> Progress:
    return Progress("", steps, 0, show=False)


# The papers' and torchvision's numbers of parameters, at 1000 classes.
@pytest.mark.parametrize(("name", "parameters"), [("resnet18", 11_689_512), ("resnet50", 25_557_032)])
def test_own_models_have_the_known_size(name: str, parameters: int) -> None:
    block, counts, width = models.MODELS[name]
    model = models.ResNet(block, counts, 1000, width)
    assert sum(p.numel() for p in model.parameters()) == parameters


@pytest.mark.parametrize("name", list(models.MODELS))
def test_models_give_logits_and_train_every_weight(name: str) -> None:
    model = models.build_model(name, 5)
    logits = model(torch.randn(2, 3, 64, 64))
    assert logits.shape == (2, 5)
    logits.square().sum().backward()
    assert all(p.grad is not None for p in model.parameters())


@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
def test_own_models_have_torchvisions_parameter_names(name: str) -> None:
    torchvision = pytest.importorskip("torchvision")
    block, counts, width = models.MODELS[name]
    own = models.ResNet(block, counts, 1000, width)
    theirs = getattr(torchvision.models, name)().state_dict()
    assert list(own.state_dict()) == list(theirs)
    own.load_state_dict(theirs)


def test_cosine_warms_up_and_ends_at_zero() -> None:
    assert schedule.cosine(0.0, 0.1) == 0.0
    assert schedule.cosine(0.05, 0.1) == pytest.approx(0.5)
    assert schedule.cosine(0.1, 0.1) == 1.0
    assert schedule.cosine(0.55, 0.1) == pytest.approx(0.5)
    assert schedule.cosine(1.0, 0.1) == pytest.approx(0.0)
    assert schedule.cosine(0.0, 0.0) == 1.0


def test_one_cycle_equals_torchs() -> None:
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    total = 101
    torchs = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1.0, total_steps=total, pct_start=0.3)
    # torch places the peak at update 0.3 * total - 1 of total - 1.
    warmup = (0.3 * total - 1) / (total - 1)
    assert schedule.one_cycle(0.0, warmup) < schedule.one_cycle(warmup, warmup) == 1.0
    for step in range(total):
        assert schedule.one_cycle(step / (total - 1), warmup) == pytest.approx(
            torchs.get_last_lr()[0], abs=1e-9
        )
        if step + 1 < total:
            optimizer.step()
            torchs.step()


def test_evaluation_ignores_marked_rows() -> None:
    """Batches with padding give what the unpadded samples give, computed directly."""
    model, data = linear(), batches(3)
    images, labels = (torch.cat(parts) for parts in zip(*data, strict=True))
    padded = [
        (torch.cat([x, torch.full((2, 3, 4, 4), 9.0)]), torch.cat([y, torch.full((2,), IGNORED)]))
        for x, y in data
    ]
    found = evaluate(make_run(model, smoothing=0.5), padded)
    with torch.no_grad():
        logits = model(images)
    order = logits.argsort(dim=1, descending=True)
    assert found.images == 18
    assert found.loss == pytest.approx(torch.nn.functional.cross_entropy(logits, labels).item())
    assert found.top1 == pytest.approx((order[:, 0] == labels).double().mean().item())
    assert found.top5 == pytest.approx((order[:, :5] == labels[:, None]).any(1).double().mean().item())


def test_evaluation_of_nothing_is_not_a_number() -> None:
    data = [(torch.zeros(2, 3, 4, 4), torch.full((2,), IGNORED))]
    found = evaluate(make_run(linear()), data)
    assert found.images == 0
    assert math.isnan(found.loss)
    assert math.isnan(found.top1)


def test_top5_of_few_classes_is_not_a_number() -> None:
    assert math.isnan(evaluate(make_run(linear(5)), batches(1, classes=5)).top5)


def check_same_weights(one: torch.nn.Module, other: torch.nn.Module) -> None:
    """Both were trained, and alike."""
    untrained = next(linear().parameters())
    assert not torch.equal(next(one.parameters()), untrained)
    for a, b in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(a, b)


def test_accumulation_equals_one_large_batch() -> None:
    data = batches(4)
    small, large = linear(), linear()
    train_epoch(make_run(small, accumulate=2), data, range(4), quiet(4), lambda step: False)
    joined = [tuple(torch.cat(parts) for parts in zip(*data[i : i + 2], strict=True)) for i in (0, 2)]
    train_epoch(make_run(large), joined, range(2), quiet(2), lambda step: False)  # type: ignore[arg-type]
    check_same_weights(small, large)


def test_the_last_group_of_an_epoch_may_be_smaller() -> None:
    run = make_run(linear(), accumulate=3)
    done: list[int] = []
    train_epoch(run, batches(7), range(7), quiet(7), lambda step: bool(done.append(step)))
    assert done == [3, 6, 7]
    assert run.updates == 3


def test_marked_rows_do_not_train() -> None:
    ((images, labels),) = batches(1)
    marked = (
        torch.cat([images, torch.full_like(images, 5.0)]),
        torch.cat([labels, torch.full_like(labels, IGNORED)]),
    )
    with_marked, without = linear(), linear()
    train_epoch(make_run(with_marked), [marked], range(1), quiet(1), lambda step: False)
    train_epoch(make_run(without), [(images, labels)], range(1), quiet(1), lambda step: False)
    check_same_weights(with_marked, without)


def test_a_batch_of_marked_rows_changes_nothing() -> None:
    model, before = linear(), linear()
    data = [(torch.randn(2, 3, 4, 4), torch.full((2,), IGNORED))]
    result = train_epoch(make_run(model), data, range(1), quiet(1), lambda step: False)
    assert result.images == 0
    for a, b in zip(model.parameters(), before.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("count", [2, 4])
def test_a_loader_of_another_length_is_noticed(count: int) -> None:
    with pytest.raises(ValueError, match="zip"):
        train_epoch(make_run(linear()), batches(count), range(3), quiet(3), lambda step: False)


def test_stopping_keeps_whole_updates() -> None:
    run = make_run(linear(), accumulate=2)
    result = train_epoch(run, batches(6), range(6), quiet(6), lambda step: step == 4)
    assert not result.finished
    assert result.images == 4 * 6
    assert run.updates == 2


def test_checkpoints_are_replaced_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert checkpoint.read_checkpoint(tmp_path) is None
    checkpoint.write_checkpoint(tmp_path, {"x": torch.arange(3), "y": {"a": [1, "b"]}})

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(torch, "save", fail)
    with pytest.raises(OSError, match="disk full"):
        checkpoint.write_checkpoint(tmp_path, {"x": 0})
    monkeypatch.undo()
    body = checkpoint.read_checkpoint(tmp_path)
    assert body is not None
    assert body["x"].tolist() == [0, 1, 2]
    assert body["y"] == {"a": [1, "b"]}


def test_baseline_crops_lie_inside_and_have_torchvisions_range() -> None:
    torch.manual_seed(0)
    for width, height in [(500, 300), (90, 400), (7, 7), (1, 1), (1000, 10)]:
        for _ in range(100):
            left, top, w, h = torch_baseline.draw_crop(width, height)
            assert 0 <= left <= left + w <= width
            assert 0 <= top <= top + h <= height
            assert w > 0
            assert h > 0
    boxes = [torch_baseline.draw_crop(500, 400) for _ in range(2000)]
    areas = np.array([w * h / (500 * 400) for _, _, w, h in boxes])
    assert areas.min() >= 0.079
    # The area is uniform in [0.08, 1] before crops that do not fit are drawn again, which favours small ones.
    assert 0.40 < areas.mean() < 0.54
    ratios = np.array([w / h for _, _, w, h in boxes])
    assert ratios.min() > 0.74
    assert ratios.max() < 1.35


def test_baseline_evaluation_is_resize_centre_crop_normalise() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (60, 91, 3), dtype=np.uint8)
    found = torch_baseline.eval_transform(40, 32, (0.5, 0.4, 0.3), (0.2, 0.3, 0.4))(Image.fromarray(pixels))
    resized = Image.fromarray(pixels).resize((60, 40), Image.Resampling.BILINEAR)  # int(40 * 91 / 60) = 60
    wanted = np.asarray(resized, dtype=np.float64)[4:36, 14:46] / 255
    wanted = (wanted - (0.5, 0.4, 0.3)) / (0.2, 0.3, 0.4)
    assert found.shape == (3, 32, 32)
    np.testing.assert_allclose(found.permute(1, 2, 0).numpy(), wanted, atol=1e-5)


def test_baseline_folder_sorts_classes_and_files(tmp_path: Path) -> None:
    for name in ("b/2.jpg", "b/1.PNG", "a/sub/x.webp", "b/note.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    folder = torch_baseline.ImageFolder(tmp_path, lambda image: torch.zeros(1))
    assert folder.classes == ["a", "b"]
    assert [(Path(p).relative_to(tmp_path).as_posix(), label) for p, label in folder.samples] == [
        ("a/sub/x.webp", 0),
        ("b/1.PNG", 1),
        ("b/2.jpg", 1),
    ]
    with pytest.raises(FileNotFoundError, match="no class folders"):
        torch_baseline.ImageFolder(tmp_path / "a" / "sub", lambda image: torch.zeros(1))


@pytest.mark.parametrize(("count", "size", "world"), list(itertools.product([24, 25, 31], [4, 5], [1, 2, 3])))
def test_baseline_batches_are_shared_out(count: int, size: int, world: int) -> None:
    def of(rank: int, shuffle: bool) -> list[list[int]]:
        place = World(rank, world, world, torch.device("cpu"))
        return list(torch_baseline.EpochBatches(count, size, shuffle, 0, place))

    training = [of(rank, True) for rank in range(world)]
    assert len({len(part) for part in training}) == 1
    seen = [i for part in training for batch in part for i in batch]
    assert len(seen) == len(set(seen)) == count // (size * world) * size * world
    exact = sorted(i for rank in range(world) for batch in of(rank, False) for i in batch)
    assert exact == list(range(count))


def test_baseline_resumes_in_the_middle(sample: Path) -> None:
    def loader() -> torch_baseline.TorchLoader:
        transform = torch_baseline.eval_transform(36, 32, (0.0,) * 3, (1.0,) * 3)
        dataset = torch_baseline.ImageFolder(sample / "train", transform)
        return torch_baseline.TorchLoader(dataset, torch_baseline.EpochBatches(48, 5, True, 1, CPU), 0)

    first = loader()
    first.set_epoch(3)
    wanted = [labels.tolist() for _, labels in first]
    assert len(wanted) > 2
    for stop in range(1, len(wanted)):
        interrupted = loader()
        interrupted.set_epoch(3)
        iterator = iter(interrupted)
        for _ in range(stop):
            next(iterator)
        resumed = loader()
        resumed.load_state_dict(interrupted.state_dict())
        assert [labels.tolist() for _, labels in resumed] == wanted[stop:]
        assert len(list(resumed)) == len(wanted)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--epochs", "0"], "--epochs must be at least 1. Found: 0"),
        (["--warmup", "1"], r"--warmup must be in \[0, 1\). Found: 1.0"),
        (["--resume"], "need --checkpoint"),
        (["--save-every", "0", "--checkpoint", "x"], "--save-every must be at least 1. Found: 0"),
    ],
)
def test_options_are_checked(arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    import re

    import train

    parser: argparse.ArgumentParser = train.parser()
    with pytest.raises(SystemExit):
        train.check(parser, parser.parse_args(["data", *arguments]))
    assert re.search(text, capsys.readouterr().err)


def test_a_global_batch_is_shared_out() -> None:
    import train

    def share(*arguments: str, ranks: int) -> tuple[int, int]:
        options = train.parser().parse_args(["data", *arguments])
        train.share_batch(options, World(0, ranks, ranks, torch.device("cpu")))
        return options.batch_size, options.global_batch

    assert share("--batch-size", "8", ranks=3) == (8, 24)
    assert share("--global-batch", "24", ranks=3) == (8, 24)
    with pytest.raises(ValueError, match="--global-batch 25 cannot be divided among 2 ranks"):
        share("--global-batch", "25", ranks=2)
