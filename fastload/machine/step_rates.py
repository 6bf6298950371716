"""How fast GPUs train networks, as published or measured, and how many CPUs clouds put beside a GPU.

Every rate has its source; what has none is not here. Rates of different sources are of different programs.
"""

from __future__ import annotations

from dataclasses import dataclass

#: Where rates and shapes are from, by the name that they have here.
SOURCES = {
    "fastload": "docs/project/gpu.md: synthetic batches in bf16, channels last",
    "lambda": "github.com/lambdal/deeplearning-benchmark at aa5addb, "
    "pytorch/pytorch-train-throughput-fp16.csv and -v2-fp16.csv: NVIDIA's examples with mixed precision",
    "nvidia": "github.com/NVIDIA/DeepLearningExamples at 729963d, the READMEs of PyTorch: resnet50v1.5, SSD, "
    "MaskRCNN, with mixed precision",
    "timm": "github.com/huggingface/pytorch-image-models at aa4b585, "
    "results/benchmark-train-amp-nhwc-pt112-cu113-rtx3090.csv",
    "dinov2": "github.com/facebookresearch/dinov2 at b8931f7, README: 125,000 steps of 64 pictures a GPU in "
    "about a day",
    "mae": "github.com/facebookresearch/mae at efb2a80, PRETRAIN.md: 800 epochs of ImageNet-1K in about "
    "42 hours on 64 GPUs",
    "ffcv": "github.com/libffcv/ffcv-imagenet at 4dd291a, README: 88 epochs of ImageNet-1K in 187.3 minutes "
    "on one GPU, at 160 to 192 pixels",
    "rosetta": "github.com/NVIDIA/JAX-Toolbox at fd58524, rosetta/rosetta/projects/vit/README.md: "
    "pre-training on 8 GPUs, 512 pictures a GPU",
    "vit5": "github.com/NVIDIA-BioNeMo/nvSubquadratic at 5129129, benchmarks/README.md: the full step of "
    "ViT-5-Small on 8 GPUs, 256 pictures a GPU, compiled, bf16",
    "mlperf": "github.com/mlcommons/storage at caa90c9, configs/dlio/workload/resnet50_*.yaml: what MLPerf "
    "Storage emulates, 400 pictures a step",
    "aws": "karpenter.sh/docs/reference/instance-types (github.com/aws/karpenter-provider-aws at 1d92708)",
    "google": "docs.cloud.google.com/compute/docs/gpus",
    "azure": "learn.microsoft.com/azure/virtual-machines: nda100-v4-series, ndh100v5-series",
    "fal": "docs.fal.ai/documentation/deployment/machine-types",
}


@dataclass(frozen=True)
class StepRate:
    """How fast one GPU trains a network.

    Args:
        gpu, network: their names here.
        rate: pictures per second.
        source: a key of :data:`SOURCES`.
    """

    gpu: str
    network: str
    rate: float
    source: str


@dataclass(frozen=True)
class Shape:
    """A machine that one can rent.

    Args:
        name: what its cloud calls it.
        gpu: the name of its GPUs here.
        gpus, cpus: how many it has; a CPU is mostly one of a core's two hardware threads.
        source: a key of :data:`SOURCES`.
    """

    name: str
    gpu: str
    gpus: int
    cpus: int
    source: str

    @property
    def cpus_a_gpu(self) -> float:
        """CPUs for each GPU."""
        return self.cpus / self.gpus


#: Of several sources for a GPU and a network, the one with the highest rate; MLPerf's have their own name.
RATES = (
    StepRate("H200", "resnet18", 13270, "fastload"),
    StepRate("H200", "resnet50", 4726, "fastload"),
    StepRate("H200", "vit_small", 4396, "fastload"),
    StepRate("H200", "ssd", 946, "lambda"),
    StepRate("H100", "resnet50", 2790, "lambda"),
    StepRate("H100", "resnet50_mlperf", 1786, "mlperf"),
    StepRate("H100", "vit5_small", 3638, "vit5"),
    StepRate("H100", "vit_base", 1459, "rosetta"),
    StepRate("H100", "ssd", 866, "lambda"),
    StepRate("H100-PCIe", "resnet50", 1976, "lambda"),
    StepRate("H100-PCIe", "ssd", 607, "lambda"),
    StepRate("A100", "resnet18_ffcv", 10032, "ffcv"),
    StepRate("A100", "resnet50", 2470, "nvidia"),
    StepRate("A100", "resnet50_mlperf", 920, "mlperf"),
    StepRate("A100", "vit_base", 900, "rosetta"),
    StepRate("A100", "ssd", 724, "nvidia"),
    StepRate("A100", "maskrcnn", 24, "nvidia"),
    StepRate("A100", "dinov2_vit_large", 93, "dinov2"),
    StepRate("RTX4090", "resnet50", 1301, "lambda"),
    StepRate("RTX4090", "ssd", 379, "lambda"),
    StepRate("RTX3090", "resnet18", 3482, "timm"),
    StepRate("RTX3090", "resnet50", 1218, "timm"),
    StepRate("RTX3090", "vit_small", 1058, "timm"),
    StepRate("RTX3090", "vit_base", 393, "timm"),
    StepRate("RTX3090", "convnext_base", 339, "timm"),
    StepRate("V100", "mae_vit_large", 106, "mae"),
    StepRate("A10", "resnet50", 638, "lambda"),
    StepRate("A10", "ssd", 174, "lambda"),
)
#: Networks whose loader crops to 224, flips and normalises; the others' loaders do other work for a picture.
CROPS = (
    "resnet18",
    "resnet50",
    "resnet50_mlperf",
    "vit_small",
    "vit5_small",
    "vit_base",
    "convnext_base",
    "mae_vit_large",
)

SHAPES = (
    Shape("AWS p4d.24xlarge", "A100", 8, 96, "aws"),
    Shape("Azure ND96asr_v4", "A100", 8, 96, "azure"),
    Shape("Google a2-highgpu-1g", "A100", 1, 12, "google"),
    Shape("fal GPU-A100", "A100", 1, 12, "fal"),
    Shape("AWS p5.4xlarge", "H100", 1, 16, "aws"),
    Shape("AWS p5.48xlarge", "H100", 8, 192, "aws"),
    Shape("Azure ND96isr_H100_v5", "H100", 8, 96, "azure"),
    Shape("Google a3-highgpu-8g", "H100", 8, 208, "google"),
    Shape("fal GPU-H100", "H100", 1, 12, "fal"),
    Shape("AWS p5en.48xlarge", "H200", 8, 192, "aws"),
    Shape("Google a3-ultragpu-8g", "H200", 8, 224, "google"),
    Shape("fal GPU-H200", "H200", 1, 12, "fal"),
    Shape("fal GPU-RTX4090", "RTX4090", 1, 12, "fal"),
)

GPUS = tuple(dict.fromkeys(rate.gpu for rate in RATES))


def rate_of(gpu: str, network: str) -> StepRate | None:
    """Return what is known of a network on a GPU; None: nothing."""
    return next((rate for rate in RATES if (rate.gpu, rate.network) == (gpu, network)), None)


def fed(cpus: float, a_core: float, rate: float) -> float:
    """Return the share of a step's rate that a loader on so many CPUs can feed, at most 1.

    Args:
        cpus: for the loader, each counted as a core.
        a_core: pictures per second that the loader makes on one.
        rate: pictures per second of the step.
    """
    return min(1.0, cpus * a_core / rate)
