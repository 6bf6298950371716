"""The programs, and how each one's own code is run on a rank, over two tiny packed sets.

Nothing of theirs is here: the user fetches them. ``python programs.py FOLDER`` says what is missing there.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import runpy
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from on_cpu import Tiny, without_gpu

import fastload

RANKS = 2
EPOCHS = 2
MOST = 30  # batches that are asked for of a loader that never ends


@dataclass(frozen=True)
class Place:
    """Where a program and its data are, which is packed, and whose loader it has ("torch", "fastload")."""

    checkout: Path
    data: Path
    loader: str

    @property
    def workers(self) -> int:
        """Rows don't depend on it; torch's without workers draw no further than they are asked to."""
        return 1 if self.loader == "fastload" else 0

    def pictures(self, split: str) -> Any:
        """A packed set whose pictures make a batch."""
        return fastload.PackedDataset(self.data / split, transform=fastload.transforms.CenterCrop(8))


@dataclass(frozen=True)
class Program:
    """A program.

    Args:
        run: runs its code on a rank.
        of: its repository at GitHub, whose last part is the checkout's folder; "": the code is here.
        needs: a file of the checkout.
        absent: packages that it imports, and that its loaders do without.
    """

    run: Callable[[Place], None]
    of: str = ""
    needs: str = ""
    absent: tuple[str, ...] = ()

    def checkout(self, folder: Path) -> Path:
        """Where it is in the user's folder."""
        return folder / self.of.rpartition("/")[2]

    def missing(self, folder: Path) -> str:
        """How to fetch it, where it is not there; else ""."""
        if not self.of or (self.checkout(folder) / self.needs).exists():
            return ""
        return f"git clone --depth 1 https://github.com/{self.of} {self.checkout(folder)}"


def world() -> tuple[int, int]:
    """This rank, and how many there are; the process group is made."""
    dist.init_process_group("gloo")
    return dist.get_rank(), dist.get_world_size()


def script(file: Path, *arguments: object) -> None:
    """A program as the command line starts it."""
    sys.argv = [str(file), *map(str, arguments)]
    sys.path.insert(0, str(file.parent))
    runpy.run_path(str(file), run_name="__main__")


def some(loader: Any) -> None:
    """A training loop over a loader that never ends."""
    for _ in itertools.islice(loader, MOST):
        pass


def epochs(*loaders: Any) -> None:
    """Some epochs over loaders, as a training loop goes over them."""
    for epoch in range(EPOCHS):
        for loader in loaders:
            if hasattr(getattr(loader, "sampler", None), "set_epoch"):
                loader.sampler.set_epoch(epoch)
            for _ in loader:
                pass


# ---- Patterns ------------------------------------------------------------------------------------------


def own_share(place: Place) -> None:
    """Each rank's own data with a plain loader."""
    from torch.utils.data import DataLoader, Subset, TensorDataset

    rank, size = world()
    whole, more = place.pictures("train"), {"batch_size": 8, "num_workers": place.workers}
    numbers = torch.arange(len(whole))[rank::size]
    epochs(DataLoader(Subset(whole, range(rank, len(whole), size)), **more))
    epochs(DataLoader(TensorDataset(torch.zeros(len(numbers), 1), numbers), **more))
    epochs(DataLoader(list(range(len(whole)))[rank::size], **more))  # type: ignore[arg-type]


def split_by_node(place: Place) -> None:
    """Hugging Face's datasets, divided by their own function."""
    from datasets import Dataset
    from datasets.distributed import split_dataset_by_node
    from torch.utils.data import DataLoader

    rank, size = world()
    table = Dataset.from_dict({"label": range(101)}).with_format("torch")
    for whole in (table, table.to_iterable_dataset(num_shards=2)):
        epochs(DataLoader(split_dataset_by_node(whole, rank, size), batch_size=8, num_workers=place.workers))


def auxiliary_loader(place: Place) -> None:
    """As pytorch/examples validates: what DistributedSampler drops is read whole by every rank."""
    from torch.utils.data import DataLoader, DistributedSampler, Subset

    _, size = world()
    dataset = place.pictures("val")
    sampler: Any = DistributedSampler(dataset, shuffle=False, drop_last=True)
    loader: Any = DataLoader(dataset, 4, sampler=sampler, num_workers=place.workers)
    rest = Subset(loader.dataset, range(len(loader.sampler) * size, len(loader.dataset)))
    epochs(loader, DataLoader(rest, batch_size=4, shuffle=False, num_workers=place.workers))


# ---- Whole scripts -------------------------------------------------------------------------------------


def deit(place: Place) -> None:
    """main.py: RASampler, a sequential validation on every rank, a transform that is set later."""
    import timm.data.transforms
    import timm.models

    without_gpu()
    # What deit asks of an older timm.
    timm.data.transforms._pil_interp = timm.data.transforms.str_to_interp_mode
    timm.models.create_model = lambda name, **given: Tiny(given["num_classes"])
    sys.path.insert(0, str(place.checkout))
    import main

    more = ["--device", "cpu", "--batch-size", 16, "--epochs", EPOCHS, "--input-size", 32, "--aa", ""]
    for way in ([], ["--ThreeAugment"], ["--no-repeated-aug", "--dist-eval"]):
        given = ["--data-path", place.data, "--num_workers", place.workers, *more, *way]
        main.main(main.get_args_parser().parse_args(list(map(str, given))))


def dino(place: Place) -> None:
    """eval_linear.py: validation without a sampler, on every rank."""
    without_gpu()
    data = ["--data_path", place.data, "--num_workers", place.workers, "--batch_size_per_gpu", 32]
    script(place.checkout / "eval_linear.py", *data, "--arch", "tiny", "--epochs", EPOCHS)


def examples(place: Place) -> None:
    """imagenet/main.py: DistributedSampler(drop_last=True), and the rest on every rank."""
    ranks = ["--world-size", RANKS, "--rank", os.environ["RANK"], "--dist-url", "env://"]
    more = ["--dist-backend", "gloo", "--no-accel", "-a", "tiny", "--epochs", EPOCHS, "-b", 32]
    script(place.checkout / "imagenet/main.py", place.data, "-j", place.workers, *ranks, *more)


def lightning(place: Place) -> None:
    """Lightning's ImageNet example, with torchmetrics, and a validation set that two ranks cannot halve."""
    data = ["--model.data_path", place.data, "--model.workers", place.workers * RANKS]
    model = ["--model.arch", "tiny", "--model.batch_size", 64, "--trainer.max_epochs", EPOCHS]
    ranks = ["--trainer.accelerator", "cpu", "--trainer.devices", RANKS, "--trainer.strategy", "ddp"]
    file = place.checkout / "examples/pytorch/domain_templates/imagenet.py"
    script(file, "fit", *data, *model, *ranks)


def open_clip(place: Place) -> None:
    """Training on its synthetic set; after each epoch rank 0 alone evaluates on the packed one."""
    without_gpu()
    sys.path.insert(0, str(place.checkout / "src"))
    import open_clip
    import open_clip_train.zero_shot
    from open_clip_train.main import main

    vision = {"image_size": 32, "layers": 1, "width": 32, "patch_size": 16, "head_width": 16}
    text = {"context_length": 16, "vocab_size": 49408, "width": 16, "heads": 1, "layers": 1}
    config = Path("tiny-model.json")
    config.write_text(json.dumps({"embed_dim": 16, "vision_cfg": vision, "text_cfg": text}))
    open_clip.add_model_config(config)
    open_clip_train.zero_shot.OPENAI_IMAGENET_TEMPLATES = [lambda name: f"a photo of a {name}."]
    data = ["--imagenet-val", place.data / "val", "--dataset-type", "synthetic", "--train-num-samples", 32]
    more = ["--batch-size", 8, "--workers", place.workers, "--epochs", EPOCHS, "--zeroshot-frequency", 1]
    device = ["--model", "tiny-model", "--device", "cpu", "--dist-backend", "gloo", "--precision", "fp32"]
    main(list(map(str, [*data, *more, *device, "--name", "run"])))


def timm_training(place: Place, *more: object) -> None:
    """train.py."""
    without_gpu()
    sys.path.insert(0, str(place.checkout))
    import timm.data

    def create_dataset(name: str, root: str, split: str, **more: Any) -> Any:
        return fastload.PackedDataset(Path(root) / ("train" if split == "train" else "val"))

    timm.data.create_dataset = create_dataset
    model = ["--model", "test_resnet", "--img-size", 32, "--num-classes", 1000, "--device", "cpu"]
    length = ["--epochs", EPOCHS, "-b", 16, "--warmup-epochs", 0, "--cooldown-epochs", 0, "-j", 1]
    script(place.checkout / "train.py", "--data-dir", place.data, *model, *length, "--no-prefetcher", *more)


def timm_several_epochs(place: Place) -> None:
    """MultiEpochsDataLoader, beside torch's loader without it.

    torch's workers have begun the second epoch before ``set_epoch`` names it, and give the first one again.
    """
    timm_training(place, *["--use-multi-epochs-loader"] * (place.loader == "fastload"))


# ---- Loaders that a program's functions make -----------------------------------------------------------


def dinov2(place: Place) -> None:
    """make_data_loader with each of its samplers."""
    sys.path.insert(0, str(place.checkout))
    from dinov2.data.loaders import SamplerType, make_data_loader

    world()
    for kind in ("INFINITE", "SHARDED_INFINITE", "SHARDED_INFINITE_NEW", "EPOCH", "DISTRIBUTED"):
        for shuffle in (True, False):
            is_infinite = "INFINITE" in kind
            loader = make_data_loader(
                dataset=place.pictures("train"),
                batch_size=16,
                num_workers=place.workers,
                shuffle=shuffle,
                seed=3,
                sampler_type=SamplerType[kind],
                sampler_advance=5 if is_infinite else 0,
                drop_last=is_infinite,
            )
            (some if is_infinite else epochs)(loader)


def mmengine(place: Place) -> None:
    """Runner.build_dataloader with DefaultSampler and InfiniteSampler."""
    sys.path.insert(0, str(place.checkout))
    from mmengine.runner import Runner

    world()
    for kind in ("DefaultSampler", "InfiniteSampler"):
        for shuffle in (True, False):
            for collate in ("default_collate", "pseudo_collate"):
                given = {"dataset": place.pictures("train"), "sampler": {"type": kind, "shuffle": shuffle}}
                given |= {"collate_fn": {"type": collate}, "num_workers": place.workers, "batch_size": 16}
                loader = Runner.build_dataloader(given, seed=3)
                (some if kind == "InfiniteSampler" else epochs)(loader)


def detectron2(place: Place) -> None:
    """Its samplers in its own loaders, which put a dataset of theirs around ours, and in a plain one."""
    sys.path.insert(0, str(place.checkout))
    from detectron2.data import build, samplers
    from torch.utils.data import DataLoader

    world()
    dataset, workers = place.pictures("train"), {"num_workers": place.workers}
    factors = torch.full((len(dataset),), 1.5)
    training = samplers.TrainingSampler(len(dataset), seed=3)
    repeated = samplers.RepeatFactorTrainingSampler(factors, seed=3)
    subset = samplers.RandomSubsetTrainingSampler(len(dataset), 0.5, seed_shuffle=3, seed_subset=4)
    for sampler in (training, subset, repeated):
        given = {"mapper": None, "total_batch_size": 32, "aspect_ratio_grouping": False}
        some(build.build_detection_train_loader(dataset, sampler=sampler, **given, **workers))
        some(DataLoader(dataset, 16, sampler=sampler, **workers))
    for mapper in (None, lambda sample: sample):
        epochs(build.build_detection_test_loader(dataset, mapper=mapper, batch_size=4, **workers))


def megatron(place: Place) -> None:
    """build_pretraining_data_loader with each of its batch samplers, from the beginning and resumed."""
    sys.path.insert(0, str(place.checkout))
    from megatron.core import parallel_state

    world()
    parallel_state.initialize_model_parallel()
    file = runpy.run_path(str(place.checkout / "megatron/training/datasets/data_samplers.py"))
    for kind, sharded in (("single", False), ("cyclic", False), ("cyclic", True)):
        file["get_args"].return_value = SimpleNamespace(
            dataloader_type=kind,
            data_sharding=sharded,
            micro_batch_size=8,
            global_batch_size=16,
            num_workers=place.workers,
            hybrid_context_parallel=False,
            full_validation=False,
            exit_signal_handler=False,
        )
        for consumed in (0, 32):
            epochs(file["build_pretraining_data_loader"](place.pictures("train"), consumed))


def swin(place: Place) -> None:
    """build_loader: a SubsetRandomSampler of the rank's own indices, and its other samplers."""
    sys.path.insert(0, str(place.checkout))
    from config import get_config
    from data import build

    def cached_folder(root: str, annotations: str, prefix: str, transform: Any, **more: Any) -> Any:
        return fastload.PackedDataset(Path(root) / annotations.partition("_")[0], transform)

    world()
    build.CachedImageFolder = cached_folder
    given = {"cfg": str(place.checkout / "configs/swin/swin_tiny_patch4_window7_224.yaml"), "opts": None}
    given |= {"data_path": str(place.data), "batch_size": 19, "local_rank": 0}
    for own_indices in (False, True):
        for sequential in (False, True):
            config = get_config(argparse.Namespace(**given))
            config.defrost()
            config.DATA.ZIP_MODE, config.DATA.CACHE_MODE = own_indices, "part"
            config.DATA.IMG_SIZE, config.DATA.NUM_WORKERS = 32, place.workers
            config.TEST.SEQUENTIAL, config.AUG.AUTO_AUGMENT = sequential, "none"
            config.freeze()
            epochs(*build.build_loader(config)[2:4])


def ultralytics(place: Place) -> None:
    """build_dataloader: InfiniteDataLoader, also after its reset()."""
    sys.path.insert(0, str(place.checkout))
    from ultralytics.data.build import build_dataloader

    rank, _ = world()
    for shuffle in (True, False):
        for drop_last in (True, False):
            given = {"shuffle": shuffle, "rank": rank, "drop_last": drop_last, "device": "cpu"}
            loader = build_dataloader(place.pictures("train"), 16, place.workers, **given)
            epochs(loader)
            loader.reset()
            epochs(loader)


MEGATRON = ("megatron.training", "megatron.core.transformer.moe.ops.paged_stash")
PROGRAMS = {
    "own share": Program(own_share),
    "split_dataset_by_node": Program(split_by_node),
    "auxiliary loader": Program(auxiliary_loader),
    "deit": Program(deit, "facebookresearch/deit", "main.py"),
    "dino": Program(dino, "facebookresearch/dino", "eval_linear.py"),
    "examples": Program(examples, "pytorch/examples", "imagenet/main.py"),
    "open_clip": Program(open_clip, "mlfoundations/open_clip", "src/open_clip/bpe_simple_vocab_16e6.txt.gz"),
    "dinov2": Program(dinov2, "facebookresearch/dinov2", "dinov2/data/samplers.py"),
    "mmengine": Program(mmengine, "open-mmlab/mmengine", "mmengine/dataset/sampler.py", ("cv2",)),
    "detectron2": Program(
        detectron2,
        "facebookresearch/detectron2",
        "detectron2/data/build.py",
        ("cv2", "detectron2._C"),
    ),
    "Megatron-LM": Program(
        megatron, "NVIDIA/Megatron-LM", "megatron/training/datasets/data_samplers.py", MEGATRON
    ),
    "Swin-Transformer": Program(swin, "microsoft/Swin-Transformer", "data/build.py"),
    "timm": Program(timm_training, "huggingface/pytorch-image-models", "train.py"),
    "timm, several epochs": Program(timm_several_epochs, "huggingface/pytorch-image-models", "train.py"),
    "ultralytics": Program(ultralytics, "ultralytics/ultralytics", "ultralytics/data/build.py", ("cv2",)),
    "lightning": Program(
        lightning, "Lightning-AI/pytorch-lightning", "examples/pytorch/domain_templates/imagenet.py"
    ),
}

if __name__ == "__main__":
    missing = {program.missing(Path(sys.argv[1])) for program in PROGRAMS.values()} - {""}
    sys.stdout.write("".join(f"{line}\n" for line in sorted(missing)))
