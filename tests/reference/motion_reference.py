"""Operations that move pixels, by Pillow's own functions: what torchvision and timm call with the same
numbers, from their sources."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from PIL import Image
from transform_reference import Draws, below

from fastload._native import _C

FIRST = Draws(0, 0, 0)
PERSPECTIVE = 64 + 38  # DrawOp::kPixels and the operation's number
OWN = 24  # PixelDraws::kOwn
FILTERS = (Image.Resampling.NEAREST, Image.Resampling.BILINEAR, Image.Resampling.BICUBIC)


def transformed(picture: Image.Image, matrix: Sequence[float], last: Sequence[float]) -> Image.Image:
    """``last``: filter, red, green, blue."""
    kind = Image.Transform.AFFINE if len(matrix) == 6 else Image.Transform.PERSPECTIVE
    filter, fill = FILTERS[int(last[0])], filled(picture, last)
    return picture.transform(picture.size, kind, tuple(matrix), filter, fillcolor=fill)


def filled(picture: Image.Image, last: Sequence[float]) -> Any:
    """The fill of an image, or of a mask."""
    fill = tuple(int(value) for value in last[-3:])
    return fill if picture.mode == "RGB" else fill[0]


def inverse_matrix(
    center: Sequence[float], angle: float, translate: Sequence[float], scale: float, shear: Sequence[float]
) -> list[float]:
    """torchvision's _get_inverse_affine_matrix (transforms/functional.py), term by term."""
    rot, sx, sy = math.radians(angle), math.radians(shear[0]), math.radians(shear[1])
    (cx, cy), (tx, ty) = center, translate
    a = math.cos(rot - sy) / math.cos(sy)
    b = -math.cos(rot - sy) * math.tan(sx) / math.cos(sy) - math.sin(rot)
    c = math.sin(rot - sy) / math.cos(sy)
    d = -math.sin(rot - sy) * math.tan(sx) / math.cos(sy) + math.cos(rot)
    matrix = [x / scale for x in (d, -b, 0.0, -c, a, 0.0)]
    matrix[2] += matrix[0] * (-cx - tx) + matrix[1] * (-cy - ty)
    matrix[5] += matrix[3] * (-cx - tx) + matrix[4] * (-cy - ty)
    return [*matrix[:2], matrix[2] + cx, *matrix[3:5], matrix[5] + cy]


def inverse_matrix_of_v2(
    center: Sequence[float], angle: float, translate: Sequence[float], scale: float, shear: Sequence[float]
) -> list[float]:
    """The same of transforms/v2/functional/_geometry.py, which rounds otherwise."""
    rot, sx, sy = math.radians(angle), math.radians(shear[0]), math.radians(shear[1])
    (cx, cy), (tx, ty) = center, translate
    a = math.cos(rot - sy) / math.cos(sy)
    b = -(a * math.tan(sx) + math.sin(rot))
    c = math.sin(rot - sy) / math.cos(sy)
    d = math.cos(rot) - c * math.tan(sx)
    matrix = [d / scale, -b / scale, 0.0, -c / scale, a / scale, 0.0]
    matrix[2] = cx - matrix[0] * (cx + tx) - matrix[1] * (cy + ty)
    matrix[5] = cy - matrix[3] * (cx + tx) - matrix[4] * (cy + ty)
    return matrix


def affine(picture: Image.Image, numbers: Sequence[float]) -> Image.Image:
    angle, share_x, share_y, scale, shear_x, shear_y, has_center, *center, version = numbers[:10]
    width, height = picture.size
    middle = center if has_center else [width * 0.5, height * 0.5]
    move = [round(share_x * width), round(share_y * height)]
    of = inverse_matrix if version == 1 else inverse_matrix_of_v2
    return transformed(picture, of(middle, angle, move, scale, (shear_x, shear_y)), numbers[10:])


def rotate(picture: Image.Image, numbers: Sequence[float]) -> Image.Image:
    angle, has_center, x, y, kind, *_ = numbers
    center = (x, y) if has_center else None
    return picture.rotate(angle, FILTERS[int(kind)], False, center, fillcolor=filled(picture, numbers))


def _torchvisions(factor: float) -> float:
    """The shear's angle that AutoAugment and its kin give to F.affine."""
    return math.degrees(math.atan(factor))


def shear_x(picture: Image.Image, numbers: Sequence[float]) -> Image.Image:
    factor, by_angle, *last = numbers
    matrix: Sequence[float] = (1, factor, 0, 0, 1, 0)
    if by_angle:
        matrix = inverse_matrix((0, 0), 0.0, (0, 0), 1.0, (_torchvisions(factor), 0.0))
    return transformed(picture, matrix, last)


def shear_y(picture: Image.Image, numbers: Sequence[float]) -> Image.Image:
    factor, by_angle, *last = numbers
    matrix: Sequence[float] = (1, 0, 0, factor, 1, 0)
    if by_angle:
        matrix = inverse_matrix((0, 0), 0.0, (0, 0), 1.0, (0.0, _torchvisions(factor)))
    return transformed(picture, matrix, last)


def translate(picture: Image.Image, numbers: Sequence[float], axis: int) -> Image.Image:
    pixels, share, whole, *last = numbers
    distance = pixels + share * picture.size[axis]
    if whole:
        middle = [side * 0.5 for side in picture.size]
        move = [0, 0]
        move[axis] = int(np.float32(distance))
        return transformed(picture, inverse_matrix(middle, 0.0, move, 1.0, (0.0, 0.0)), last)
    matrix = [1.0, 0.0, 0.0, 0.0, 1.0, 0.0]
    matrix[2 + 3 * axis] = -distance
    return transformed(picture, matrix, last)


def translate_x(picture: Image.Image, numbers: Sequence[float]) -> Image.Image:
    return translate(picture, numbers, 0)


def translate_y(picture: Image.Image, numbers: Sequence[float]) -> Image.Image:
    return translate(picture, numbers, 1)


def horizontal_flip(picture: Image.Image, numbers: Sequence[float] = ()) -> Image.Image:
    return picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)


def vertical_flip(picture: Image.Image, numbers: Sequence[float] = ()) -> Image.Image:
    return picture.transpose(Image.Transpose.FLIP_TOP_BOTTOM)


def coefficients(corners: Sequence[Sequence[float]], moved: Sequence[Sequence[float]]) -> list[float]:
    """torchvision's _get_perspective_coeffs, which solves by least squares in double."""
    rows: list[list[float]] = []
    for (x, y), (u, v) in zip(moved, corners, strict=True):
        rows.append([x, y, 1, 0, 0, 0, -u * x, -u * y])
        rows.append([0, 0, 0, x, y, 1, -v * x, -v * y])
    found, *_ = np.linalg.lstsq(np.array(rows, float), np.array(corners, float).reshape(8), rcond=None)
    return [float(np.float32(value)) for value in found]


def pulled_corners(scale: float, size: tuple[int, int], draws: Draws) -> list[tuple[int, int]]:
    """torchvision's RandomPerspective.get_params, by Philox."""
    width, height = size
    corners = []
    for i, (right, bottom) in enumerate([(False, False), (True, False), (True, True), (False, True)]):
        words = draws.words(PERSPECTIVE, OWN + i)
        x = below(words[0], words[1], int(scale * (width // 2)) + 1)
        y = below(words[2], words[3], int(scale * (height // 2)) + 1)
        corners.append((width - 1 - x if right else x, height - 1 - y if bottom else y))
    return corners


def perspective(picture: Image.Image, numbers: Sequence[float], draws: Draws = FIRST) -> Image.Image:
    """The first of a chain, by the core's coefficients: :func:`coefficients` differs in the last bits."""
    key = draws.seed, draws.epoch, draws.sample
    matrix, is_perspective = _C.motion_of("perspective", list(numbers), *picture.size, *key)
    return transformed(picture, matrix, numbers[1:]) if is_perspective else picture


# Each operation of the core that moves pixels, with numbers to try it by.
MOVING: dict[str, tuple[Callable[..., Image.Image], tuple[float, ...]]] = {
    "affine": (affine, (30.0, 0.1, -0.2, 1.2, 10.0, -5.0, 0.0, 0.0, 0.0, 2.0, 2.0, 9.0, 99.0, 199.0)),
    "rotate": (rotate, (-33.3, 0.0, 0.0, 0.0, 1.0, 128.0, 128.0, 128.0)),
    "shear_x": (shear_x, (0.3, 1.0, 0.0, 0.0, 0.0, 0.0)),
    "shear_y": (shear_y, (-0.27, 0.0, 2.0, 0.0, 0.0, 0.0)),
    "translate_x": (translate_x, (0.0, 0.3, 1.0, 0.0, 7.0, 8.0, 9.0)),
    "translate_y": (translate_y, (-5.3, 0.0, 0.0, 1.0, 7.0, 8.0, 9.0)),
    "horizontal_flip": (horizontal_flip, ()),
    "vertical_flip": (vertical_flip, ()),
    "perspective": (perspective, (0.5, 1.0, 0.0, 0.0, 0.0)),
}
