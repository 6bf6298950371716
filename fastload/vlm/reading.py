"""Picture rules read from image processors of transformers, whose settings are all understood or refused.

transformers is never imported: an object is known by its class's name, and its attributes are looked at.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from fastload.vlm.rules import (
    Dtype,
    Gemma3,
    Grid,
    Idefics3,
    InternVL,
    LlavaOneVision,
    PaliGemma,
    Qwen2VL,
    Rule,
    SigLIP2,
)

_FILTERS = {1: "lanczos", 2: "bilinear", 3: "bicubic"}  # PIL.Image.Resampling
_SIZE_KEYS = ("height", "width", "shortest_edge", "longest_edge", "max_height", "max_width")
#: Settings of all image processors. Those of _NEUTRAL change nothing for pictures in RGB, as all of
#: fastload's are.
_COMMON = frozenset(
    {
        "do_resize", "size", "resample", "do_rescale", "rescale_factor", "do_normalize", "image_mean",
        "image_std", "do_center_crop", "crop_size", "do_pad", "pad_size",
    }
)  # fmt: skip
_NEUTRAL = frozenset(
    {
        "do_convert_rgb", "default_to_square", "input_data_format", "device", "return_tensors",
        "disable_grouping", "processor_class", "image_processor_type", "model_input_names",
        "image_seq_length", "return_row_col_info", "video_sampling",
    }
)  # fmt: skip
#: Tokens of a tile of Idefics3 and SmolVLM, by the tile's side: their checkpoints differ in the model's
#: patches.
_IDEFICS3_TOKENS = {364: 169, 384: 81, 512: 64}


@dataclass(frozen=True, init=False, repr=False)
class Vision:
    """A picture rule, read from a processor of transformers.

    It keeps the rule alone, not the processor, and prints and pickles as the rule does.

    Args:
        source: an image processor, a processor that has one, or a rule. Of a whole processor, what it passes
            to its image processor goes first (``images_kwargs``: InternVL's cuts tiles, Gemma 3's does not
            pan), and it knows how many tokens a tile has.
        dtype: of the values: "float32", "bfloat16" or "uint8". None: the rule's own, "float32" for a
            processor.

    Raises:
        TypeError: an object that is none of these, or of a class that is not known.
        ValueError: a setting that no rule has. It is named.
    """

    is_vision: ClassVar[bool] = True
    rule: Rule

    def __init__(self, source: Any, dtype: Dtype | None = None) -> None:
        rule = source.rule if isinstance(source, Vision) else source
        if not isinstance(rule, Rule):
            rule = _read(source)
        object.__setattr__(self, "rule", rule if dtype is None else replace(rule, dtype=dtype))  # type: ignore[type-var]

    def __repr__(self) -> str:
        return f"Vision({self.rule!r})"

    @property
    def dtype(self) -> Dtype:
        """The dtype of the values."""
        return self.rule.dtype

    def in_bytes(self) -> Vision:
        """See :meth:`fastload.vlm.rules.Rule.in_bytes`."""
        return Vision(self.rule.in_bytes())

    def core(self) -> tuple[str, dict[str, Any]]:
        """See :meth:`fastload.vlm.rules.Rule.core`."""
        return self.rule.core()

    def sizes(self, height: int, width: int, pictures: int = 1) -> Grid:
        """See :meth:`fastload.vlm.rules.Rule.sizes`."""
        return self.rule.sizes(height, width, pictures)

    def tokens_of(self, sizes: Any, pictures: Any = 1) -> Any:
        """See :meth:`fastload.vlm.rules.Rule.tokens_of`."""
        return self.rule.tokens_of(sizes, pictures)


def _read(source: Any) -> Rule:
    """Return the rule of a processor."""
    whole = source if hasattr(source, "image_processor") else None
    processor = source if whole is None else whole.image_processor
    kind = type(processor).__name__
    name = kind.removesuffix("Pil").removesuffix("Fast")
    if name not in _READERS:
        raise TypeError(
            f"Vision knows the image processors {', '.join(_READERS)}, also as ...Pil and ...Fast. Found: "
            f"{kind}. Pass one of these, a processor that has one, or a rule, as Qwen2VL(...)."
        )
    reader, own = _READERS[name]
    settings = _Settings(kind, processor, whole)
    settings.check(own)
    return reader(settings)


# ---- Settings ---------------------------------------------------------------------------------------


class _Settings:
    """The effective settings of an image processor."""

    def __init__(self, kind: str, processor: Any, whole: Any) -> None:
        self.kind = kind
        self.processor = processor
        self.whole = whole
        self.passed = {} if whole is None else _passed(whole)

    def get(self, name: str, default: Any = None) -> Any:
        """The value of a setting; what is None counts as not given."""
        value = self.passed.get(name)
        if value is None:
            value = getattr(self.processor, name, None)
        return default if value is None else value

    def flag(self, name: str, default: bool) -> bool:
        """Whether a step is on: None is off, as it is for transformers' ``if``."""
        return bool(self.passed.get(name, getattr(self.processor, name, default)))

    def of_whole(self, name: str) -> Any:
        """What only a whole processor knows; None without."""
        return getattr(self.whole, name, None)

    def refuse(self, name: str, value: Any, legal: str, advice: str = "") -> ValueError:
        """Return the error for a setting."""
        advice = advice or "Write the rule that you need, or use the processor itself"
        return ValueError(f"{self.kind}.{name} must be {legal}. Found: {_shown(value)}. {advice}.")

    def check(self, own: frozenset[str]) -> None:
        """Raise for what no rule has: a step left out or added, or a setting that is not known."""
        for name in ("do_resize", "do_rescale"):
            if not self.flag(name, True):
                raise self.refuse(name, self.get(name), "True")
        if self.flag("do_center_crop", False):
            raise self.refuse("do_center_crop", self.get("do_center_crop"), "off")
        if self.get("pad_size") is not None:
            raise self.refuse("pad_size", self.get("pad_size"), "None")
        layout = getattr(self.get("data_format"), "value", self.get("data_format"))
        if layout not in (None, "channels_first"):
            raise self.refuse("data_format", layout, "channels_first")
        known = _COMMON | _NEUTRAL | own | {"data_format"}
        # Since transformers 5 the class lists what it reads, and other attributes change nothing.
        read = getattr(self.processor, "_valid_kwargs_names", None)
        for name, value in {**vars(self.processor), **self.passed}.items():
            has_effect = read is None or name in read or name in self.passed
            if not name.startswith("_") and name not in known and value is not None and has_effect:
                raise ValueError(
                    f"{self.kind}.{name} is a setting that Vision does not know. Found: {_shown(value)}. "
                    "Write the rule that you need, or use the processor itself."
                )

    def pixels(self) -> dict[str, Any]:
        """Return filter, mean, std and rescale."""
        resample = self.get("resample")
        number = getattr(
            resample, "value", resample
        )  # an enum's of Pillow, or of torchvision, which has words
        word = _FILTERS.get(number, number) if isinstance(number, int) else number
        if word not in _FILTERS.values():
            raise self.refuse("resample", resample, "BILINEAR, BICUBIC or LANCZOS")
        scale = self.get("rescale_factor", 1 / 255)
        if self.flag("do_normalize", True):
            mean, std = (self._three(name) for name in ("image_mean", "image_std"))
        else:
            mean, std = (0.0,) * 3, (1.0,) * 3
        return {"filter": word, "mean": mean, "std": std, "rescale": scale}

    def _three(self, name: str) -> Any:
        value = self.get(name)
        value = value.tolist() if hasattr(value, "tolist") else value
        if value is None:
            raise self.refuse(name, value, "given, as do_normalize is on")
        return tuple(value) if isinstance(value, list) else value

    def size(self, name: str, *keys: str) -> tuple[int, ...]:
        """Return the parts of a size setting that must have these keys and no others."""
        size = self.get(name)
        if isinstance(size, Mapping):
            parts = {key: value for key, value in size.items() if value is not None}
        else:
            parts = {key: getattr(size, key) for key in _SIZE_KEYS if getattr(size, key, None) is not None}
        if set(parts) != set(keys):
            raise self.refuse(name, parts or size, f"a size by {' and '.join(keys)}")
        return tuple(parts[key] for key in keys)

    def square(self, name: str, *keys: str) -> int:
        """Return the side of a size setting that must be a square."""
        found = self.size(name, *keys)
        if len(set(found)) != 1:
            raise self.refuse(name, found, "a square")
        return found[0]

    def tokens(self, name: str) -> dict[str, Any]:
        """Return the tokens of a tile, where the whole processor says them."""
        found = self.of_whole(name)
        return {} if found is None else {"tile_tokens": int(found)}


def _passed(whole: Any) -> dict[str, Any]:
    """What a whole processor passes to its image processor unless a call says otherwise."""
    # transformers 4: in the class of the call's arguments, in the processor's module. 5: an attribute, and a
    # module that warns when it is asked for that class.
    module = sys.modules.get(type(whole).__module__)
    arguments = getattr(module, "__dict__", {}).get(f"{type(whole).__name__}Kwargs")
    defaults = getattr(arguments, "_defaults", None) or {}
    return {**(getattr(whole, "images_kwargs", None) or {}), **defaults.get("images_kwargs", {})}


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


# ---- Classes ----------------------------------------------------------------------------------------


def _qwen2_vl(settings: _Settings) -> Rule:
    least, most = settings.get("min_pixels"), settings.get("max_pixels")
    if least is None or most is None:
        shortest, longest = settings.size(
            "size", "shortest_edge", "longest_edge"
        )  # in pixels of the whole picture
        least, most = (shortest if least is None else least), (longest if most is None else most)
    return Qwen2VL(
        patch=settings.get("patch_size", 14),
        merge=settings.get("merge_size", 2),
        temporal=settings.get("temporal_patch_size", 2),
        min_pixels=least,
        max_pixels=most,
        **settings.pixels(),
    )


def _siglip2(settings: _Settings) -> Rule:
    return SigLIP2(
        patch=settings.get("patch_size", 16),
        max_patches=settings.get("max_num_patches", 256),
        **settings.pixels(),
    )


def _idefics3(settings: _Settings) -> Rule:
    _check_padded(settings)
    tile = settings.square("max_image_size", "longest_edge")
    tokens = settings.tokens("image_seq_len")
    if not tokens:
        if tile not in _IDEFICS3_TOKENS:
            raise settings.refuse(
                "max_image_size",
                tile,
                f"one of {', '.join(map(str, _IDEFICS3_TOKENS))}, whose image tokens are known",
                "Pass the whole processor, whose image_seq_len says them",
            )
        tokens = {"tile_tokens": _IDEFICS3_TOKENS[tile]}
    return Idefics3(
        longest_edge=settings.square("size", "longest_edge"),
        tile=tile,
        crop_to_patches=settings.flag("do_image_splitting", True),
        **tokens,
        **settings.pixels(),
    )


def _llava_onevision(settings: _Settings) -> Rule:
    _check_padded(settings)
    if not settings.flag("do_normalize", True):  # squares are padded with the mean's colour all the same
        raise settings.refuse("do_normalize", settings.get("do_normalize"), "True")
    if settings.get("crop_size") is not None:
        raise settings.refuse("crop_size", settings.get("crop_size"), "None")
    by_edge = settings.get("size") is not None and _has_edge(settings.get("size"))
    tile = settings.square("size", *(("shortest_edge",) if by_edge else ("height", "width")))
    words = settings.of_whole("vision_aspect_ratio")
    more: dict[str, Any] = {"tile_tokens": (tile // 14) ** 2, **settings.tokens("num_image_tokens")}
    if words is not None:
        number = str(words).removeprefix("anyres_max_")
        if not number.isdecimal():
            raise settings.refuse("vision_aspect_ratio", words, "anyres_max_ and a number")
        more["anyres_max"] = int(number)
    if settings.of_whole("vision_feature_select_strategy") is not None:
        more["select"] = settings.of_whole("vision_feature_select_strategy")
    return LlavaOneVision(
        tile=tile,
        pinpoints=tuple(map(tuple, settings.get("image_grid_pinpoints", ()))),
        **more,
        **settings.pixels(),
    )


def _has_edge(size: Any) -> bool:
    found = size.get("shortest_edge") if isinstance(size, Mapping) else getattr(size, "shortest_edge", None)
    return found is not None


def _check_padded(settings: _Settings) -> None:
    if not settings.flag("do_pad", True):
        raise settings.refuse("do_pad", settings.get("do_pad"), "True")


def _internvl(settings: _Settings) -> Rule:
    return InternVL(
        tile=settings.square("size", "height", "width"),
        crop_to_patches=settings.flag("crop_to_patches", False),
        min_tiles=settings.get("min_patches", 1),
        max_tiles=settings.get("max_patches", 12),
        **settings.tokens("image_seq_length"),
        **settings.pixels(),
    )


def _gemma3(settings: _Settings) -> Rule:
    pan = settings.flag("do_pan_and_scan", False)
    names = {
        "pan_min_crop": "pan_and_scan_min_crop_size",
        "pan_max_crops": "pan_and_scan_max_num_crops",
        "pan_min_ratio": "pan_and_scan_min_ratio_to_activate",
    }
    numbers = {part: settings.get(name) for part, name in names.items()} if pan else {}
    for part, value in numbers.items():
        if value is None:
            raise settings.refuse(names[part], value, "given, as do_pan_and_scan is on")
    return Gemma3(
        size=_pair(settings),
        pan_and_scan=pan,
        **numbers,
        **settings.tokens("image_seq_length"),
        **settings.pixels(),
    )


def _paligemma(settings: _Settings) -> Rule:
    height, width = _pair(settings)
    # Its processors say it; a plain SigLIP one does not, and PaliGemma's patches have 14 pixels.
    tokens = getattr(settings.processor, "image_seq_length", None) or (height // 14) * (width // 14)
    return PaliGemma(size=(height, width), tile_tokens=int(tokens), **settings.pixels())


def _pair(settings: _Settings) -> tuple[int, int]:
    height, width = settings.size("size", "height", "width")
    return height, width


#: By the classes' names in transformers: how they are read, and their own settings.
_READERS: Mapping[str, tuple[Callable[[_Settings], Rule], frozenset[str]]] = {
    "Qwen2VLImageProcessor": (
        _qwen2_vl,
        frozenset({"min_pixels", "max_pixels", "patch_size", "temporal_patch_size", "merge_size"}),
    ),
    "Siglip2ImageProcessor": (_siglip2, frozenset({"patch_size", "max_num_patches"})),
    "Idefics3ImageProcessor": (_idefics3, frozenset({"do_image_splitting", "max_image_size"})),
    "SmolVLMImageProcessor": (_idefics3, frozenset({"do_image_splitting", "max_image_size"})),
    "LlavaOnevisionImageProcessor": (_llava_onevision, frozenset({"image_grid_pinpoints"})),
    "GotOcr2ImageProcessor": (_internvl, frozenset({"crop_to_patches", "min_patches", "max_patches"})),
    "Gemma3ImageProcessor": (
        _gemma3,
        frozenset(
            {
                "do_pan_and_scan",
                "pan_and_scan_min_crop_size",
                "pan_and_scan_max_num_crops",
                "pan_and_scan_min_ratio_to_activate",
            }
        ),
    ),
    "SiglipImageProcessor": (_paligemma, frozenset()),
}
