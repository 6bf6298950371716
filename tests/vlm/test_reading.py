"""Vision reads a rule from what looks like a processor of transformers, and refuses what it does not know.

Stand-ins have the attributes that transformers' objects have, of 4.57 (plain dicts, ints) and of 5 (objects,
enums); the classes themselves are in tests/foreign/transformers/test_vlm_rules.py.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from enum import Enum, IntEnum
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from fastload.vlm import reading, rules
from fastload.vlm.reading import Vision
from fastload.vlm.rules import (
    CLIP_MEAN,
    CLIP_STD,
    Gemma3,
    Idefics3,
    InternVL,
    LlavaOneVision,
    PaliGemma,
    Qwen2VL,
    Rule,
    SigLIP2,
)


class Resampling(IntEnum):
    NEAREST, LANCZOS, BILINEAR, BICUBIC = range(4)


class InterpolationMode(Enum):  # torchvision's
    BICUBIC = "bicubic"
    BOX = "box"


CLIP = {"image_mean": list(CLIP_MEAN), "image_std": list(CLIP_STD)}
HALF = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
FLAGS = {"do_resize": True, "do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True}
SQUARE = {"height": 384, "width": 384}
#: Settings of the classes as transformers 4.57 leaves them on its objects.
CLASSES: dict[str, dict[str, Any]] = {
    "Qwen2VL": {
        **CLIP,
        "resample": 3,
        "size": {"shortest_edge": 3136, "longest_edge": 1003520},
        "min_pixels": 3136,
        "max_pixels": 1003520,
        "patch_size": 14,
        "temporal_patch_size": 2,
        "merge_size": 2,
        "do_convert_rgb": True,
    },
    "Siglip2": {**HALF, "resample": 2, "patch_size": 16, "max_num_patches": 256, "do_convert_rgb": None},
    "Idefics3": {
        **HALF,
        "resample": 1,
        "size": {"longest_edge": 1456},
        "max_image_size": {"longest_edge": 364},
        "do_pad": True,
        "do_image_splitting": True,
    },
    "SmolVLM": {
        **HALF,
        "resample": 1,
        "size": {"longest_edge": 2048},
        "max_image_size": {"longest_edge": 512},
        "do_pad": True,
        "do_image_splitting": True,
        "video_sampling": {"fps": 1},
    },
    "LlavaOnevision": {
        **CLIP,
        "resample": 3,
        "size": SQUARE,
        "do_pad": True,
        "image_grid_pinpoints": [[384, 768], [768, 384]],
    },
    "GotOcr2": {
        **CLIP,
        "resample": 3,
        "size": SQUARE,
        "crop_to_patches": True,
        "min_patches": 1,
        "max_patches": 12,
    },
    "Gemma3": {
        **HALF,
        "resample": 2,
        "size": {"height": 896, "width": 896},
        "do_pan_and_scan": None,
        "pan_and_scan_min_crop_size": None,
        "pan_and_scan_max_num_crops": None,
        "pan_and_scan_min_ratio_to_activate": None,
    },
    "Siglip": {**HALF, "resample": 3, "size": {"height": 448, "width": 448}},
}
RULES: dict[str, Rule] = {
    "Qwen2VL": Qwen2VL(),
    "Siglip2": SigLIP2(),
    "Idefics3": Idefics3(),
    "SmolVLM": Idefics3(2048, 512, tile_tokens=64),
    "LlavaOnevision": LlavaOneVision(pinpoints=((384, 768), (768, 384))),
    "GotOcr2": InternVL(crop_to_patches=True),
    "Gemma3": Gemma3((896, 896)),
    "Siglip": PaliGemma((448, 448), tile_tokens=1024),
}


def processor(name: str, suffix: str = "", **changes: Any) -> Any:
    """An object of a class of that name, with these attributes."""
    made = type(f"{name}ImageProcessor{suffix}", (), {})()
    vars(made).update({**FLAGS, **CLASSES[name], **changes})
    return made


# ---- What is read -----------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["", "Fast", "Pil"])
@pytest.mark.parametrize("name", CLASSES)
def test_a_class_is_known_by_its_name(name: str, suffix: str) -> None:
    vision = Vision(processor(name, suffix))
    assert vision.rule == RULES[name]
    assert vision.core() == RULES[name].core()
    assert vision.sizes(300, 200) == RULES[name].sizes(300, 200)
    assert vision.tokens_of([[300, 200]], 2).tolist() == [RULES[name].sizes(300, 200, 2).tokens]


@pytest.mark.parametrize("name", CLASSES)
def test_settings_as_transformers_5_has_them(name: str) -> None:
    """Sizes are objects with all keys, filters are enums, and means are tuples."""
    settings = dict(CLASSES[name])
    keys = ("height", "width", "shortest_edge", "longest_edge", "max_height", "max_width")
    for part in ("size", "max_image_size"):
        if part in settings:
            settings[part] = SimpleNamespace(**{key: settings[part].get(key) for key in keys})
    settings["resample"] = Resampling(settings["resample"])
    settings["image_mean"] = tuple(settings["image_mean"])
    assert Vision(processor(name, **settings)).rule == RULES[name]


def test_filters() -> None:
    found = [
        Vision(processor("Siglip", resample=value)).rule.filter
        for value in (1, 2, 3, Resampling.LANCZOS, InterpolationMode.BICUBIC)
    ]
    assert found == ["lanczos", "bilinear", "bicubic", "lanczos", "bicubic"]


def test_steps_that_a_table_can_leave_out() -> None:
    rule = Vision(processor("Qwen2VL", do_normalize=False, rescale_factor=1.0)).rule
    assert rule == Qwen2VL(mean=(0, 0, 0), std=(1, 1, 1), rescale=1.0)
    assert Vision(processor("Siglip", image_mean=0.25)).rule.mean == (0.25, 0.25, 0.25)
    assert Vision(processor("Idefics3", do_image_splitting=False)).rule == Idefics3(crop_to_patches=False)


def test_limits_set_later_go_first() -> None:
    """As in the classes: ``processor.max_pixels = ...`` changes what a call does."""
    assert Vision(processor("Qwen2VL", max_pixels=5000)).rule == Qwen2VL(max_pixels=5000)
    assert Vision(processor("Qwen2VL", min_pixels=None, max_pixels=None)).rule == Qwen2VL()


def test_sizes_by_the_shortest_edge_of_a_square() -> None:
    assert Vision(processor("LlavaOnevision", size={"shortest_edge": 384})).rule == RULES["LlavaOnevision"]


def test_pan_and_scan() -> None:
    changes = {
        "do_pan_and_scan": True,
        "pan_and_scan_min_crop_size": 128,
        "pan_and_scan_max_num_crops": 3,
        "pan_and_scan_min_ratio_to_activate": 1.5,
    }
    assert Vision(processor("Gemma3", **changes)).rule == Gemma3((896, 896), True, 128, 3, 1.5)


def test_attributes_that_the_class_does_not_read_change_nothing() -> None:
    assert Vision(processor("Siglip", max_side=7, _valid_kwargs_names=["size"])).rule == RULES["Siglip"]


# ---- Whole processors -------------------------------------------------------------------------------


def test_a_whole_processor_passes_settings_and_knows_tokens() -> None:
    whole = SimpleNamespace(image_processor=processor("GotOcr2", crop_to_patches=False), image_seq_length=64)
    assert Vision(whole).rule == InternVL(tile_tokens=64)
    whole.images_kwargs = {"crop_to_patches": True}
    assert Vision(whole).rule == InternVL(crop_to_patches=True, tile_tokens=64)
    whole = SimpleNamespace(
        image_processor=processor("LlavaOnevision"), num_image_tokens=100, vision_aspect_ratio="anyres_max_4",
        vision_feature_select_strategy="default",
    )  # fmt: skip
    rule = Vision(whole).rule
    assert isinstance(rule, LlavaOneVision)
    assert (rule.tile_tokens, rule.anyres_max, rule.select) == (100, 4, "default")
    whole = SimpleNamespace(
        image_processor=processor("Idefics3", max_image_size={"longest_edge": 98}), image_seq_len=7
    )
    assert Vision(whole).rule == Idefics3(tile=98, tile_tokens=7)
    assert Vision(processor("Siglip", image_seq_length=9)).rule == PaliGemma((448, 448), tile_tokens=9)


def test_a_whole_processor_of_transformers_4(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it passes stands in its module, in a class that is named after it."""
    module = ModuleType("stand_in_for_internvl")
    defaults = {"images_kwargs": {"crop_to_patches": True}}
    vars(module)["InternVLProcessorKwargs"] = type("InternVLProcessorKwargs", (), {"_defaults": defaults})
    monkeypatch.setitem(sys.modules, module.__name__, module)
    whole = type("InternVLProcessor", (), {"__module__": module.__name__})()
    whole.image_processor = processor("GotOcr2", crop_to_patches=False)
    assert Vision(whole).rule == InternVL(crop_to_patches=True)


# ---- What is refused --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "source", [object(), None, "Qwen/Qwen2-VL", SimpleNamespace(image_processor=3), Qwen2VL]
)
def test_other_objects(source: Any) -> None:
    kind = type(getattr(source, "image_processor", source)).__name__
    with pytest.raises(
        TypeError, match=rf"knows the image processors Qwen2VL.* Found: {kind}. Pass one of these"
    ):
        Vision(source)


def test_other_classes() -> None:
    with pytest.raises(TypeError, match=r"Found: CLIPImageProcessorFast."):
        Vision(type("CLIPImageProcessorFast", (), {})())


@pytest.mark.parametrize(
    ("name", "changes", "said"),
    [
        (
            "Qwen2VL",
            {"do_resize": False},
            r"Qwen2VLImageProcessor.do_resize must be True. Found: False. Write the",
        ),
        ("Qwen2VL", {"do_resize": None}, r"do_resize must be True. Found: None."),
        ("Siglip", {"do_rescale": False}, r"SiglipImageProcessor.do_rescale must be True. Found: False."),
        ("Siglip", {"do_center_crop": True}, r"do_center_crop must be off. Found: True."),
        ("Siglip", {"pad_size": {"height": 9}}, r"pad_size must be None. Found: {'height': 9}."),
        (
            "Siglip",
            {"data_format": "channels_last"},
            r"data_format must be channels_first. Found: 'channels_last'.",
        ),
        ("Siglip", {"resample": 0}, r"resample must be BILINEAR, BICUBIC or LANCZOS. Found: 0."),
        ("Siglip", {"resample": None}, r"resample must be BILINEAR, BICUBIC or LANCZOS. Found: None."),
        ("Siglip", {"resample": InterpolationMode.BOX}, r"resample must be .* Found: <InterpolationMode.BOX"),
        ("Siglip", {"image_std": None}, r"image_std must be given, as do_normalize is on. Found: None."),
        (
            "Siglip",
            {"size": {"shortest_edge": 9}},
            r"size must be a size by height and width. Found: {'shortest_edge",
        ),
        ("Siglip", {"size": 224}, r"size must be a size by height and width. Found: 224."),
        (
            "Siglip",
            {"max_side": 7},
            r"SiglipImageProcessor.max_side is a setting that Vision does not know. Found: 7.",
        ),
        ("Siglip2", {"patch_size": 0}, r"SigLIP2.patch must be an integer of at least 1. Found: 0."),
        (
            "Qwen2VL",
            {"size": {"longest_edge": 9}, "max_pixels": None},
            r"by shortest_edge and longest_edge. Found: {",
        ),
        ("Idefics3", {"do_pad": False}, r"do_pad must be True. Found: False."),
        (
            "Idefics3",
            {"size": {"height": 9, "width": 9}},
            r"size must be a size by longest_edge. Found: {'height': 9",
        ),
        (
            "Idefics3",
            {"max_image_size": {"longest_edge": 100}},
            r"must be one of 364, 384, 512, .* Pass the whole pro",
        ),
        ("LlavaOnevision", {"do_normalize": False}, r"do_normalize must be True. Found: False."),
        ("LlavaOnevision", {"crop_size": SQUARE}, r"crop_size must be None. Found: {'height': 384"),
        ("LlavaOnevision", {"do_pad": None}, r"do_pad must be True. Found: None."),
        (
            "LlavaOnevision",
            {"size": {"height": 384, "width": 300}},
            r"size must be a square. Found: \(384, 300\).",
        ),
        (
            "LlavaOnevision",
            {"image_grid_pinpoints": [[100, 384]]},
            r"of multiples of tile, 384. Found: \(100, 384\)",
        ),
        ("GotOcr2", {"size": {"height": 384, "width": 300}}, r"size must be a square. Found: \(384, 300\)."),
        (
            "Gemma3",
            {"do_pan_and_scan": True},
            r"pan_and_scan_min_crop_size must be given, as do_pan_and_scan is on",
        ),
    ],
)
def test_settings_that_no_rule_has(name: str, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Vision(processor(name, **changes))


def test_passed_settings_are_looked_at_too() -> None:
    whole = SimpleNamespace(image_processor=processor("Siglip"), images_kwargs={"do_flip": True})
    with pytest.raises(
        ValueError, match=r"SiglipImageProcessor.do_flip is a setting that Vision does not know."
    ):
        Vision(whole)
    whole = SimpleNamespace(image_processor=processor("LlavaOnevision"), vision_aspect_ratio="square")
    with pytest.raises(
        ValueError, match=r"vision_aspect_ratio must be anyres_max_ and a number. Found: 'square'."
    ):
        Vision(whole)


# ---- The value --------------------------------------------------------------------------------------


def test_it_keeps_the_rule_alone() -> None:
    vision = Vision(processor("Qwen2VL", patch_size=16), dtype="bfloat16")
    assert vision.rule == Qwen2VL(16, dtype="bfloat16")
    assert repr(vision) == "Vision(Qwen2VL(patch=16, dtype='bfloat16'))"
    assert eval(repr(vision), {**vars(rules), **vars(reading)}) == vision
    again = pickle.loads(pickle.dumps(vision))
    assert again == vision
    assert hash(again) == hash(vision)


def test_dtypes() -> None:
    assert Vision(SigLIP2(dtype="uint8")).rule.dtype == "uint8"
    assert Vision(SigLIP2(dtype="uint8"), "float32").rule.dtype == "float32"
    assert Vision(Vision(SigLIP2()), "uint8").rule.dtype == "uint8"
    with pytest.raises(
        ValueError, match=r"SigLIP2.dtype must be one of float32, bfloat16, uint8. Found: 'int8'."
    ):
        Vision(SigLIP2(), "int8")  # type: ignore[arg-type]


def test_transformers_is_not_imported() -> None:
    """Not even where it is installed: an import of it fails here."""
    code = """
import sys
sys.modules["transformers"] = sys.modules["torchvision"] = sys.modules["PIL"] = None
from fastload.vlm.reading import Vision
made = type("Siglip2ImageProcessor", (), {})()
vars(made).update(resample=2, image_mean=[0.5] * 3, image_std=[0.5] * 3)
print(Vision(made))
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "Vision(SigLIP2())"
