"""The sub-policies that AutoAugment's search found: pairs of operations, each with its probability and its
magnitude of ten. Cubuk et al., "AutoAugment: Learning Augmentation Policies from Data" (arXiv 1805.09501),
tables 7 to 9; the names are torchvision's.
"""

from __future__ import annotations

__all__ = ["IMAGENET_V0", "SUB_POLICIES", "SubPolicy"]

SubPolicy = tuple[tuple[str, float, int], ...]


def _read(table: str) -> tuple[SubPolicy, ...]:
    """A line a sub-policy; a magnitude where an operation has none is left out, and 0."""
    found = []
    for line in table.strip().splitlines():
        words = [part.split() for part in line.split(",")]
        found.append(tuple((name, float(p), int(*level)) for name, p, *level in words))
    return tuple(found)


SUB_POLICIES = {
    "imagenet": _read("""
        Posterize .4 8, Rotate .6 9
        Solarize .6 5, AutoContrast .6
        Equalize .8, Equalize .6
        Posterize .6 7, Posterize .6 6
        Equalize .4, Solarize .2 4
        Equalize .4, Rotate .8 8
        Solarize .6 3, Equalize .6
        Posterize .8 5, Equalize 1
        Rotate .2 3, Solarize .6 8
        Equalize .6, Posterize .4 6
        Rotate .8 8, Color .4 0
        Rotate .4 9, Equalize .6
        Equalize 0, Equalize .8
        Invert .6, Equalize 1
        Color .6 4, Contrast 1 8
        Rotate .8 8, Color 1 2
        Color .8 8, Solarize .8 7
        Sharpness .4 7, Invert .6
        ShearX .6 5, Equalize 1
        Color .4 0, Equalize .6
        Equalize .4, Solarize .2 4
        Solarize .6 5, AutoContrast .6
        Invert .6, Equalize 1
        Color .6 4, Contrast 1 8
        Equalize .8, Equalize .6
    """),
    "cifar10": _read("""
        Invert .1, Contrast .2 6
        Rotate .7 2, TranslateX .3 9
        Sharpness .8 1, Sharpness .9 3
        ShearY .5 8, TranslateY .7 9
        AutoContrast .5, Equalize .9
        ShearY .2 7, Posterize .3 7
        Color .4 3, Brightness .6 7
        Sharpness .3 9, Brightness .7 9
        Equalize .6, Equalize .5
        Contrast .6 7, Sharpness .6 5
        Color .7 7, TranslateX .5 8
        Equalize .3, AutoContrast .4
        TranslateY .4 3, Sharpness .2 6
        Brightness .9 6, Color .2 8
        Solarize .5 2, Invert 0
        Equalize .2, AutoContrast .6
        Equalize .2, Equalize .6
        Color .9 9, Equalize .6
        AutoContrast .8, Solarize .2 8
        Brightness .1 3, Color .7 0
        Solarize .4 5, AutoContrast .9
        TranslateY .9 9, TranslateY .7 9
        AutoContrast .9, Solarize .8 3
        Equalize .8, Invert .1
        TranslateY .7 9, AutoContrast .9
    """),
    "svhn": _read("""
        ShearX .9 4, Invert .2
        ShearY .9 8, Invert .7
        Equalize .6, Solarize .6 6
        Invert .9, Equalize .6
        Equalize .6, Rotate .9 3
        ShearX .9 4, AutoContrast .8
        ShearY .9 8, Invert .4
        ShearY .9 5, Solarize .2 6
        Invert .9, AutoContrast .8
        Equalize .6, Rotate .9 3
        ShearX .9 4, Solarize .3 3
        ShearY .8 8, Invert .7
        Equalize .9, TranslateY .6 6
        Invert .9, Equalize .6
        Contrast .3 3, Rotate .8 4
        Invert .8, TranslateY 0 2
        ShearY .7 6, Solarize .4 8
        Invert .6, Rotate .8 4
        ShearY .3 7, TranslateX .9 3
        ShearX .1 6, Invert .6
        Solarize .7 2, TranslateY .6 7
        ShearY .8 4, Invert .8
        ShearX .7 9, TranslateY .8 3
        ShearY .8 5, AutoContrast .7
        ShearX .7 2, Invert .1
    """),
}

# Of EfficientNet's TPU implementation; timm's "v0".
IMAGENET_V0 = _read("""
    Equalize .8, ShearY .8 4
    Color .4 9, Equalize .6
    Color .4 1, Rotate .6 8
    Solarize .8 3, Equalize .4
    Solarize .4 2, Solarize .6 2
    Color .2 0, Equalize .8
    Equalize .4, SolarizeAdd .8 3
    ShearX .2 9, Rotate .6 8
    Color .6 1, Equalize 1
    Invert .4, Rotate .6 0
    Equalize 1, ShearY .6 3
    Color .4 7, Equalize .6
    Posterize .4 6, AutoContrast .4
    Solarize .6 8, Color .6 9
    Solarize .2 4, Rotate .8 9
    Rotate 1 7, TranslateYRel .8 9
    ShearX 0 0, Solarize .8 4
    ShearY .8 0, Color .6 4
    Color 1 0, Rotate .6 2
    Equalize .8, Equalize 0
    Equalize 1, AutoContrast .6
    ShearY .4 7, SolarizeAdd .6 7
    Posterize .8 2, Solarize .6 10
    Solarize .6 8, Equalize .6
    Color .8 6, Rotate .4 5
""")
