"""Optional libraries: the extra that brings each, and the error that says so if it is not installed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from fastload.errors import LibraryMissing

#: By import name: what the library is called, and its extra in pyproject.toml.
LIBRARIES = {
    "PIL": ("Pillow", "pil"),
    "av": ("PyAV", "video"),
    "botocore": ("botocore", "remote"),
    "composer": ("Composer", "composer"),
    "dlio_benchmark": ("DLIO", "dlio"),
    "huggingface_hub": ("huggingface_hub", "hub"),
    "ignite": ("PyTorch-Ignite", "ignite"),
    "matplotlib": ("matplotlib", "report"),
    "nvidia": ("NVIDIA DALI", "dali"),
    "obstore": ("obstore", "remote"),
    "open_clip_train": ("OpenCLIP", "openclip"),
    "prometheus_client": ("prometheus_client", "prometheus"),
    "pycocotools": ("pycocotools", "coco"),
    "ray": ("Ray", "ray"),
    "shtab": ("shtab", "completion"),
    "timm": ("timm", "timm"),
    "torchcodec": ("torchcodec", "torchcodec"),
    "torchdata": ("torchdata", "torchdata"),
    "torchvision": ("torchvision", "torchvision"),
    "yaml": ("PyYAML", "yaml"),
}


def pip_line(module: str) -> str:
    """Return the command that installs a library; ``module``: its import name, or a module inside it."""
    top = module.partition(".")[0]
    return f'pip install "fastload[{LIBRARIES[top][1]}]"' if top in LIBRARIES else f"pip install {top}"


def words(module: str, what: str, error: ImportError | None = None) -> str:
    """Say that ``what`` needs a library, and how to get it.

    Args:
        module: see :func:`pip_line`.
        what: begins the sentence.
        error: raised by importing it; None: it is not installed.
    """
    name = LIBRARIES.get(module.partition(".")[0], (module,))[0]
    why = "is not installed" if error is None else f"cannot be imported ({error})"
    return f"{what} needs {name}, which {why}: {pip_line(module)}"


def library_missing(module: str, what: str, error: ImportError | None = None) -> LibraryMissing:
    """Return the error with these :func:`words`."""
    return LibraryMissing(f"{words(module, what, error)}.", name=module)


def need(module: str, what: str) -> None:
    """Import a library, or say how to get it.

    Raises:
        LibraryMissing: it cannot be imported.
    """
    try:
        import_module(module)
    except ImportError as error:
        raise library_missing(module, what, error) from error


def tv_tensors() -> Any:
    """Return torchvision's module of that name.

    Raises:
        LibraryMissing: this torchvision has none.
    """
    need("torchvision.tv_tensors", "torchvision.transforms.v2 in transform, on samples with several fields,")
    from torchvision import tv_tensors as found  # type: ignore[import-not-found,import-untyped,unused-ignore]

    return found
