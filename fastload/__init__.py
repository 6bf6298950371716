"""fastload: image data loading for PyTorch training.

Importing this package imports nothing else: each name is imported when it is first used, and brings torch or
a shard format's library only if it needs it.
"""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers know this name; importing ``typing`` would take most of the time here
if TYPE_CHECKING:
    from fastload import errors, transforms
    from fastload._version import __version__ as __version__
    from fastload.backends.values import Block, Cache, Dali, Device, Fields, OnError, Pad, Ranks, Tokenizers
    from fastload.collate.detection import Detection
    from fastload.collate.patches import Patches
    from fastload.dataset.packed import MixedDataset, PackedDataset, mix
    from fastload.diagnose import this as diagnose
    from fastload.loader.data_loader import DataLoader
    from fastload.loader.migration import Migration, migrate
    from fastload.loader.padding import valid
    from fastload.packing.from_python import pack
    from fastload.sample.fields import (
        Array,
        Boxes,
        Bytes,
        Image,
        Images,
        Json,
        Keypoints,
        Label,
        Labels,
        Mask,
        Polygons,
        Scalar,
        Text,
        Texts,
    )
    from fastload.sample.ragged import Ragged
    from fastload.sample.schema import Captions, Field, Of, Schema
    from fastload.sample.windows import Windows
    from fastload.sampler import RepeatedSampler, SubsetSampler, WeightedSampler
    from fastload.sampler.buckets import BucketSampler
    from fastload.sampler.packs import PackingSampler
    from fastload.sampler.schedule import Schedule
    from fastload.vlm.chat import Chat
    from fastload.vlm.reading import Vision
    from fastload.vlm.rules import (
        Gemma3,
        Idefics3,
        InternVL,
        LlavaOneVision,
        PaliGemma,
        Qwen2VL,
        SigLIP2,
    )

__all__ = [
    "IGNORE_LABEL",
    "Array",
    "Block",
    "Boxes",
    "BucketSampler",
    "Bytes",
    "Cache",
    "Captions",
    "Chat",
    "Dali",
    "DataLoader",
    "Detection",
    "Device",
    "Field",
    "Fields",
    "Gemma3",
    "Idefics3",
    "Image",
    "Images",
    "InternVL",
    "Json",
    "Keypoints",
    "Label",
    "Labels",
    "LlavaOneVision",
    "Mask",
    "Migration",
    "MixedDataset",
    "Of",
    "OnError",
    "PackedDataset",
    "PackingSampler",
    "Pad",
    "PaliGemma",
    "Patches",
    "Polygons",
    "Qwen2VL",
    "Ragged",
    "Ranks",
    "RepeatedSampler",
    "Scalar",
    "Schedule",
    "Schema",
    "SigLIP2",
    "SubsetSampler",
    "Text",
    "Texts",
    "Tokenizers",
    "Vision",
    "WeightedSampler",
    "Windows",
    "diagnose",
    "errors",
    "migrate",
    "mix",
    "pack",
    "transforms",
    "valid",
]

#: The label of padding and of skipped samples; torch's ``cross_entropy`` ignores it by default.
IGNORE_LABEL = -100

# The module of each name; None for names that are modules themselves.
_LAZY = {
    "Windows": "fastload.sample.windows",
    "Tokenizers": "fastload.backends.values",
    "Ranks": "fastload.backends.values",
    "Pad": "fastload.backends.values",
    "OnError": "fastload.backends.values",
    "Fields": "fastload.backends.values",
    "Device": "fastload.backends.values",
    "Array": "fastload.sample.fields",
    "Block": "fastload.backends.values",
    "Boxes": "fastload.sample.fields",
    "BucketSampler": "fastload.sampler.buckets",
    "Bytes": "fastload.sample.fields",
    "Cache": "fastload.backends.values",
    "Captions": "fastload.sample.schema",
    "Chat": "fastload.vlm.chat",
    "Dali": "fastload.backends.values",
    "DataLoader": "fastload.loader.data_loader",
    "Detection": "fastload.collate.detection",
    "Patches": "fastload.collate.patches",
    "Field": "fastload.sample.schema",
    "Image": "fastload.sample.fields",
    "Images": "fastload.sample.fields",
    "Json": "fastload.sample.fields",
    "Keypoints": "fastload.sample.fields",
    "Label": "fastload.sample.fields",
    "Labels": "fastload.sample.fields",
    "Mask": "fastload.sample.fields",
    "Migration": "fastload.loader.migration",
    "MixedDataset": "fastload.dataset.packed",
    "Of": "fastload.sample.schema",
    "PackedDataset": "fastload.dataset.packed",
    "PackingSampler": "fastload.sampler.packs",
    "Polygons": "fastload.sample.fields",
    "Ragged": "fastload.sample.ragged",
    "RepeatedSampler": "fastload.sampler",
    "Scalar": "fastload.sample.fields",
    "Schedule": "fastload.sampler.schedule",
    "Schema": "fastload.sample.schema",
    "SubsetSampler": "fastload.sampler",
    "Text": "fastload.sample.fields",
    "Texts": "fastload.sample.fields",
    "WeightedSampler": "fastload.sampler",
    "Gemma3": "fastload.vlm.rules",
    "Idefics3": "fastload.vlm.rules",
    "InternVL": "fastload.vlm.rules",
    "LlavaOneVision": "fastload.vlm.rules",
    "PaliGemma": "fastload.vlm.rules",
    "Qwen2VL": "fastload.vlm.rules",
    "SigLIP2": "fastload.vlm.rules",
    "Vision": "fastload.vlm.reading",
    "__version__": "fastload._version",
    "diagnose": None,  # its module, which can be called
    "errors": None,
    "migrate": "fastload.loader.migration",
    "mix": "fastload.dataset.packed",
    "pack": "fastload.packing.from_python",
    "transforms": None,
    "valid": "fastload.loader.padding",
}


def _is_main_interpreter() -> bool:
    import _thread

    asked = getattr(_thread, "_is_main_interpreter", None)
    if asked is not None:
        return bool(asked())
    try:  # up to Python 3.12
        import _xxsubinterpreters as interpreters  # type: ignore[import-not-found, unused-ignore]
    except ImportError:  # a Python without subinterpreters
        return True
    return bool(interpreters.get_current() == interpreters.get_main())


def _check_interpreter() -> None:
    """Raise ImportError in a subinterpreter, before torch or the extension hangs or crashes there."""
    if not _is_main_interpreter():
        raise ImportError(
            "fastload cannot be imported in a subinterpreter: its threads and torch belong to the process's "
            "main interpreter. Import it there, or use processes (multiprocessing, ProcessPoolExecutor) in "
            "place of subinterpreters; under mod_wsgi set 'WSGIApplicationGroup %{GLOBAL}'.",
            name="fastload",
        )


def _check_built() -> None:
    """Let an installed package take this one's place, if this is a source folder that was not built.

    Python looks into the current folder first, so in a checkout ``import fastload`` finds the sources, which
    have no extension. Whoever types it there means the installed package.

    Raises:
        ImportError: none is installed; the message says what to do.
    """
    import sys
    from importlib.machinery import PathFinder

    if PathFinder.find_spec("fastload._C", __path__) is not None:
        return
    finders = [finder for finder in sys.meta_path if hasattr(finder, "find_spec")]  # editable installations'
    if all(finder.find_spec("fastload._C", __path__) is None for finder in finders):
        from fastload.unbuilt import give_way

        give_way(sys.modules[__name__])


_check_interpreter()

if not TYPE_CHECKING:  # or type checkers would believe that every name exists

    def __getattr__(name: str) -> object:
        """Import a public name, and return it."""
        if name not in _LAZY:
            raise AttributeError(f"module 'fastload' has no attribute {name!r}")
        from importlib import import_module

        home = _LAZY[name]
        found = getattr(import_module(home), name) if home else import_module(f"fastload.{name}")
        globals()[name] = found
        return found

    def __dir__() -> list[str]:
        """List all names of the package, including those not imported yet."""
        return sorted({*globals(), *_LAZY})


_check_built()  # last: it may replace all of these names by another package's
