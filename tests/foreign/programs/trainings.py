"""The training programs that are compared whole: what is fetched of each, and how it runs on a tiny set.

Nothing of theirs is here: ``sources.py`` fetches the files that ``files.txt`` names.
"""

from __future__ import annotations

import io
import os
import random
import runpy
import shutil
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import bare_torchvision  # noqa: F401
import numpy
import torch
import torch.distributed as dist
from on_cpu import Tiny
from pictures import encoded, picture

import fastload

CLASSES = 10
COUNTS = {"train": 42, "val": 23}  # no multiples of the ranks' batches
SIZES = {"photos": (48, 40), "cifar": (32, 32), "digits": (28, 28)}


@dataclass(frozen=True)
class Place:
    """Where a program, its data (files or packed), and an empty folder of its own are.

    ``fixed``: nothing of a picture's augmentation may be drawn.
    """

    checkout: Path
    data: Path
    own: Path
    fixed: bool

    @property
    def is_packed(self) -> bool:
        return self.data.name == "packed"


@dataclass(frozen=True)
class Training:
    """A program.

    Args:
        run: runs its code on a rank.
        of: its repository at GitHub, whose last part is the checkout's folder.
        file: the program in it.
        packs: whether its pictures can be packed without a change of its Dataset.
        ranks: whether it runs on several.
        draws: its pictures' augmentations are Python functions as a whole, whose draws can be repeated.
        most: batches that it gets, where it would go on.
        batch: the size of its batches, where it cannot be asked for.
        looks: it looks at one batch before it sets the epoch. That batch is not compared: torch's loader is
            in the epoch that was set last, fastload's in the one after it.
        changed: what is other than in the program, for the page.
        absent: packages that it imports, and that its loaders do without.
    """

    run: Callable[[Place], None]
    of: str
    file: str
    packs: bool = True
    ranks: bool = False
    draws: bool = False
    most: int = 600
    batch: int = 0
    looks: bool = False
    changed: str = ""
    absent: tuple[str, ...] = ()


# ---- Data ----------------------------------------------------------------------------------------------


def make_data(folder: Path) -> None:
    """``files/KIND/SPLIT/CLASS/*`` and ``packed/KIND/SPLIT``; no two pictures are alike."""
    for number, (kind, size) in enumerate(SIZES.items()):
        for split, count in COUNTS.items():
            for i in range(count):
                image = picture(1000 * number + 100 * (split == "val") + i, *size)
                place = folder / "files" / kind / split / f"class{i % CLASSES}"
                place.mkdir(parents=True, exist_ok=True)
                if kind == "photos":
                    (place / f"{i:03d}.jpg").write_bytes(encoded(image, "JPEG", quality=90))
                else:
                    image = image.convert("L") if kind == "digits" else image
                    (place / f"{i:03d}.png").write_bytes(encoded(image, "PNG"))
            fastload.pack(folder / "files" / kind / split, folder / "packed" / kind / split)


def show_pictures(place: Place) -> None:
    """Let torchvision's sets that are downloaded be folders of drawn pictures, and folders be packed ones."""
    from torchvision import datasets, transforms

    def packed(root: Any, transform: Any = None, target_transform: Any = None) -> Any:
        return fastload.PackedDataset(root, transform, target_transform)

    folder: Any = packed if place.is_packed else datasets.ImageFolder

    def downloaded(kind: str) -> Any:
        def opened(
            root: Any = "",
            train: bool = True,
            transform: Any = None,
            target_transform: Any = None,
            download: bool = False,
        ) -> Any:
            steps = [transforms.Grayscale()] if kind == "digits" else []
            chain = transforms.Compose([*steps, *([] if transform is None else [transform])])
            return folder(str(place.data / kind / ("train" if train else "val")), chain, target_transform)

        return opened

    datasets.CIFAR10 = datasets.CIFAR100 = downloaded("cifar")
    datasets.MNIST = downloaded("digits")
    if place.is_packed:
        datasets.ImageFolder = folder


# ---- Running -------------------------------------------------------------------------------------------


class Enough(BaseException):
    """A program that would go on has had its batches."""


def script(file: Path, *arguments: object) -> None:
    """A program as the command line starts it."""
    sys.argv = [str(file), *map(str, arguments)]
    sys.path.insert(0, str(file.parent))
    runpy.run_path(str(file), run_name="__main__")


def ranks() -> tuple[int, int]:
    """This rank, and how many there are."""
    return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def without_devices() -> None:
    """What ``without_gpu`` leaves: ``.to(0)``, groups at addresses, a host's GPUs, synchronised norms."""
    begin = dist.init_process_group

    def placed(move: Any) -> Any:
        def to(self: Any, *given: Any, **more: Any) -> Any:
            kept = [value for value in given if not _is_gpu(value)]
            more = {name: value for name, value in more.items() if not _is_gpu(value)}
            return move(self, *kept, **more) if kept or more else self

        return to

    def init_process_group(*given: Any, init_method: Any = None, **more: Any) -> None:
        begin(*given, **more)

    dist.init_process_group = init_process_group
    torch.Tensor.to = placed(torch.Tensor.to)  # type: ignore[method-assign]
    torch.nn.Module.to = placed(torch.nn.Module.to)  # type: ignore[method-assign]
    torch.nn.SyncBatchNorm.convert_sync_batchnorm = lambda module, group=None: module  # type: ignore
    torch.cuda.device_count = lambda: 1
    torch.multiprocessing.spawn = lambda job, args=(), nprocs=1, **more: job(0, *args)  # type: ignore


def _is_gpu(value: Any) -> bool:
    is_index = isinstance(value, int) and not isinstance(value, bool)
    return is_index or str(value).startswith("cuda")


def in_checkout(place: Place, folder: str = "") -> None:
    """Let the program's own modules be imported."""
    sys.path.insert(0, str(place.checkout / folder))


def small_models() -> None:
    """Give torchvision a model "tiny"."""
    from torchvision import models

    models.tiny = Tiny
    models.__dict__["tiny"] = Tiny


TRAININGS: dict[str, Training] = {}


def training(name: str, of: str, file: str, **more: Any) -> Callable[[Callable[[Place], None]], Any]:
    """Enter a program that this function runs."""

    def enter(run: Callable[[Place], None]) -> Callable[[Place], None]:
        TRAININGS[name] = Training(run, of, file, **more)
        return run

    return enter


def plain(name: str, of: str, file: str, *arguments: object, folders: str = "", **more: Any) -> None:
    """Enter a program that runs as it is, with these arguments.

    In one, "{photos}" is the folder of photographs; ``folders`` are made in the folder where it runs.
    """

    def run(place: Place) -> None:
        for folder in folders.split():
            (place.own / folder).mkdir(parents=True)
        words = [str(word).replace("{photos}", str(place.data / "photos")) for word in arguments]
        script(place.checkout / file, *words)

    TRAININGS[name] = Training(run, of, file, **more)


EXAMPLES = "pytorch/examples"
LIGHTNING = "Lightning-AI/pytorch-lightning"
GAN = "eriklindernoren/PyTorch-GAN"

# ---- Classification ------------------------------------------------------------------------------------

EIGHT = ("--batch-size", 8, "--epochs", 2)
plain("mnist", EXAMPLES, "mnist/main.py", *EIGHT, "--test-batch-size", 8)
plain("mnist rnn", EXAMPLES, "mnist_rnn/main.py", *EIGHT, "--test-batch-size", 8)
plain(
    "resnet cifar10",
    "akamaster/pytorch_resnet_cifar10",
    "trainer.py",
    *("--arch", "resnet20", *EIGHT, "--save-dir", "saved"),
)
plain(
    "wide resnet",
    "xternalz/WideResNet-pytorch",
    "train.py",
    *(*EIGHT, "--layers", 10, "--widen-factor", 1),
    absent=("tensorboard_logger",),
    changed="10 layers",
)


@training(
    "pytorch-cifar",
    "kuangliu/pytorch-cifar",
    "main.py",
    most=18,
    batch=8,
    changed="LeNet, batches of 8; packed: `images.contiguous()`, since LeNet calls `view()`",
)
def pytorch_cifar(place: Place) -> None:
    in_checkout(place)
    import models

    class Network(models.LeNet):  # type: ignore[misc]
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return super().forward(images.contiguous())  # type: ignore[no-any-return]

    models.SimpleDLA = Network
    os.popen = lambda *command: io.StringIO("24 80")  # type: ignore  # the size of a terminal
    script(place.checkout / "main.py")


@training("pytorch-cifar100", "weiaicunzai/pytorch-cifar100", "train.py", changed="2 epochs")
def pytorch_cifar100(place: Place) -> None:
    in_checkout(place)
    from conf import settings

    settings.EPOCH = 2
    script(place.checkout / "train.py", "-net", "squeezenet", "-b", 8)


@training("imagenet", EXAMPLES, "imagenet/main.py", ranks=True, changed="a small model")
def imagenet(place: Place) -> None:
    small_models()
    rank, size = ranks()
    several = ["--world-size", size, "--rank", rank, "--dist-url", "env://", "--dist-backend", "gloo"]
    more = ["--no-accel", "-a", "tiny", "--epochs", 2, "-b", 8]
    script(place.checkout / "imagenet/main.py", place.data / "photos", *several * (size > 1), *more)


def timm_script(place: Place, *given: object) -> None:
    """timm's training program."""
    import timm.data

    def packed(name: str, root: str, split: str, **more: Any) -> Any:
        return fastload.PackedDataset(Path(root) / ("train" if split == "train" else "val"))

    if place.is_packed:
        timm.data.create_dataset = packed
    model = ["--model", "test_resnet", "--img-size", 32, "--num-classes", 1000, "--device", "cpu", "-b", 8]
    length = ["--epochs", 2, "--warmup-epochs", 0, "--cooldown-epochs", 0, "--no-prefetcher"]
    length += ["--no-aug"] * place.fixed
    script(place.checkout / "train.py", "--data-dir", place.data / "photos", *model, *length, *given)


training(
    "timm",
    "huggingface/pytorch-image-models",
    "train.py",
    ranks=True,
    changed="a small model; packed: no augmentation",
)(timm_script)


@training(
    "deit",
    "facebookresearch/deit",
    "main.py",
    ranks=True,
    changed="a small model, no RandAugment; names of an older timm",
)
def deit(place: Place) -> None:
    import timm.data.transforms
    import timm.models

    timm.data.transforms._pil_interp = timm.data.transforms.str_to_interp_mode
    timm.models.create_model = lambda name, **given: Tiny(given["num_classes"])
    if place.fixed:
        timm.data.create_transform = partial(timm.data.create_transform, no_aug=True)
    in_checkout(place)
    import main

    given = ["--data-path", place.data / "photos", "--device", "cpu", "--batch-size", 8, "--epochs", 2]
    given += ["--input-size", 32, "--data-set", "IMNET", "--dist-eval", "--no-repeated-aug", "--aa", ""]
    main.main(main.get_args_parser().parse_args(list(map(str, given))))


# ---- Self-supervised -----------------------------------------------------------------------------------

NODES = ("--multiprocessing-distributed", "--dist-url", "env://", "-a", "tiny", "-b", 8, "--epochs", 1)


def siamese_script(place: Place, file: str, *given: object) -> None:
    """MoCo's and SimSiam's programs, each rank a host with one GPU."""
    small_models()
    rank, size = ranks()
    script(place.checkout / file, place.data / "photos", *NODES, "--world-size", size, "--rank", rank, *given)


OWN = {"ranks": True, "draws": True, "changed": "a small model"}


@training("simsiam", "facebookresearch/simsiam", "main_simsiam.py", **OWN)
def simsiam(place: Place) -> None:
    siamese_script(place, "main_simsiam.py", "--dim", 32, "--pred-dim", 16)


@training(
    "moco",
    "facebookresearch/moco",
    "main_moco.py",
    **{**OWN, "changed": "a small model; `reshape` for `view` in its accuracy"},
)
def moco(place: Place) -> None:
    view = torch.Tensor.view

    def viewed(self: torch.Tensor, *shape: Any) -> torch.Tensor:
        return self.reshape(-1) if shape == (-1,) else view(self, *shape)

    torch.Tensor.view = viewed  # type: ignore  # older torch had results of t() in another order
    siamese_script(place, "main_moco.py", "--aug-plus", "--moco-k", 32, "--moco-dim", 16)


@training("dino pretraining", "facebookresearch/dino", "main_dino.py", **OWN)
def dino(place: Place) -> None:
    small_models()
    torch.hub.list = lambda *given, **more: []
    data = ["--data_path", place.data / "photos/train", "--batch_size_per_gpu", 8, "--epochs", 1]
    model = ["--arch", "tiny", "--out_dim", 64, "--local_crops_number", 2, "--use_fp16", "false"]
    script(place.checkout / "main_dino.py", *data, *model, "--warmup_epochs", 0)


class _Wide(torch.nn.Module):
    """In place of a ResNet-50 without its last layer."""

    def __init__(self, **given: Any) -> None:
        super().__init__()
        self.pool = torch.nn.Sequential(
            torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten(), torch.nn.Linear(48, 2048)
        )
        self.fc = torch.nn.Identity()

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.fc(self.pool(images))  # type: ignore[no-any-return]


@training("barlow twins", "facebookresearch/barlowtwins", "main.py", **OWN)
def barlowtwins(place: Place) -> None:
    from torchvision import models

    rank, size = ranks()
    models.resnet50 = _Wide
    torch.cuda.device_count = lambda: size
    torch.multiprocessing.spawn = lambda job, args=(), nprocs=1, **more: job(rank, *args)  # type: ignore
    given = ["--batch-size", 8 * size, "--epochs", 1, "--projector", "32-32", "--print-freq", 1]
    script(place.checkout / "main.py", place.data / "photos", *given)


@training("vicreg", "facebookresearch/vicreg", "main_vicreg.py", **OWN)
def vicreg(place: Place) -> None:
    in_checkout(place)
    import resnet

    resnet.__dict__["resnet50"] = lambda **given: (_Wide(), 2048)
    given = ["--data-dir", place.data / "photos", "--exp-dir", place.own / "out", "--epochs", 1]
    script(place.checkout / "main_vicreg.py", *given, "--batch-size", 8 * ranks()[1], "--mlp", "32-32")


@training(
    "mae",
    "facebookresearch/mae",
    "main_pretrain.py",
    ranks=True,
    changed="a small model; names of an older timm and NumPy",
)
def mae(place: Place) -> None:
    import timm
    import timm.models.vision_transformer as vits
    import timm.optim.optim_factory as optim_factory

    block = vits.Block
    timm.__version__ = "0.3.2"
    numpy.float = float  # type: ignore  # as before NumPy 1.20
    sys.modules["torch._six"] = SimpleNamespace(inf=float("inf"))  # type: ignore[assignment]
    optim_factory.add_weight_decay = optim_factory.param_groups_weight_decay
    vits.Block = lambda *given, qk_scale=None, **more: block(*given, **more)
    in_checkout(place)
    import models_mae

    sizes = {"img_size": 32, "patch_size": 8, "embed_dim": 16, "depth": 1, "num_heads": 2}
    sizes |= {"decoder_embed_dim": 16, "decoder_depth": 1, "decoder_num_heads": 2}
    models_mae.tiny = lambda **more: models_mae.MaskedAutoencoderViT(**sizes, **more)
    given = ["--data_path", place.data / "photos", "--device", "cpu", "--batch_size", 8, "--epochs", 2]
    script(place.checkout / "main_pretrain.py", *given, "--model", "tiny", "--input_size", 32)


@training("SimCLR", "sthalles/SimCLR", "run.py", draws=True)
def simclr(place: Place) -> None:
    given = ["-dataset-name", "cifar10", "-b", 8, "--epochs", 2, "--out_dim", 16, "--disable-cuda"]
    torch.cuda.device = lambda *given: nullcontext()  # type: ignore
    script(place.checkout / "run.py", *given)


plain(
    "SupContrast",
    "HobbitLong/SupContrast",
    "main_supcon.py",
    *("--batch_size", 8, "--epochs", 1, "--model", "resnet18", "--method", "SimCLR"),
    draws=True,
    absent=("tensorboard_logger",),
)

# ---- Generation ----------------------------------------------------------------------------------------

plain("vae", EXAMPLES, "vae/main.py", *EIGHT, folders="results")
plain(
    "dcgan",
    EXAMPLES,
    "dcgan/main.py",
    *("--dataset", "folder", "--dataroot", "{photos}/train", "--batchSize", 8, "--niter", 2),
    *("--ngf", 4, "--ndf", 4, "--manualSeed", 1),
)
for kind in ("gan", "wgan_gp", "acgan"):
    file = f"implementations/{kind}/{kind}.py"
    plain(f"PyTorch-GAN {kind}", GAN, file, "--batch_size", 8, "--n_epochs", 2)


@training(
    "neural style",
    EXAMPLES,
    "fast_neural_style/neural_style/neural_style.py",
    changed="VGG-16 without its weights",
)
def neural_style(place: Place) -> None:
    from torchvision import models

    layers = models.vgg.make_layers(models.vgg.cfgs["D"])
    models.vgg16 = lambda **given: SimpleNamespace(features=layers)
    style = next((place.data.parent / "files/photos/val").rglob("*.jpg"))
    given = ["--dataset", place.data / "photos/train", "--style-image", style, "--save-model-dir", place.own]
    given += ["--image-size", 32, "--batch-size", 4, "--epochs", 1]
    script(place.checkout / "fast_neural_style/neural_style/neural_style.py", "train", *given)


# ---- Own Datasets --------------------------------------------------------------------------------------

FILES = {"packs": False}


@training("super resolution", EXAMPLES, "super_resolution/main.py", **FILES)
def super_resolution(place: Place) -> None:
    for split, name in (("train", "train"), ("val", "test")):
        own = place.own / "dataset/BSDS300/images" / name
        own.mkdir(parents=True)
        for file in sorted((place.data / "photos" / split).rglob("*.jpg")):
            shutil.copy(file, own)
    given = ["--upscale_factor", 4, "--batchSize", 8, "--testBatchSize", 8, "--nEpochs", 2]
    script(place.checkout / "super_resolution/main.py", *given)


@training("UNet", "milesial/Pytorch-UNet", "train.py", absent=("wandb",), **FILES)
def unet(place: Place) -> None:
    for folder in ("data/imgs", "data/masks"):
        (place.own / folder).mkdir(parents=True)
    for i in range(12):
        picture(i, 48, 40).save(place.own / f"data/imgs/{i}.png")
        mask = picture(100 + i, 48, 40).convert("L").point(lambda value: value // 128)
        mask.save(place.own / f"data/masks/{i}.png")
    script(place.checkout / "train.py", "-b", 4, "-e", 2, "-s", 1, "-v", 40)


# ---- Without pictures ----------------------------------------------------------------------------------


@training("makemore", "karpathy/makemore", "makemore.py", **FILES)
def makemore(place: Place) -> None:
    words = ["".join(random.Random(i).choices("abcdefgh", k=3 + i % 5)) for i in range(2000)]
    (place.own / "words.txt").write_text("\n".join(words))
    model = ["--n-layer", 1, "--n-head", 2, "--n-embd", 16]
    script(place.checkout / "makemore.py", "-i", "words.txt", "--max-steps", 12, "-b", 8, *model)


@training("minGPT adder", "karpathy/minGPT", "projects/adder/adder.py", **FILES)
def adder(place: Place) -> None:
    in_checkout(place)
    given = ["--trainer.max_iters=12", "--trainer.batch_size=8", "--model.model_type=gpt-nano"]
    script(place.checkout / "projects/adder/adder.py", *given)


plain(
    "DDP tutorial",
    EXAMPLES,
    "distributed/ddp-tutorial-series/multigpu_torchrun.py",
    *(2, 1, "--batch_size", 32),
    ranks=True,
    packs=False,
    looks=True,
    changed="without its look at one batch before `set_epoch`",
)
