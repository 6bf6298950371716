"""Transforms of this project: elastic deformation, as for handwriting (Simard et al., 2003)."""

import numpy as np


def smooth(field, radius):
    """The mean of all values within the radius."""
    total = np.zeros_like(field)
    for dy in range(-radius, radius + 1):  # the fault
        for dx in range(-radius, radius + 1):  # the fault
            total += np.roll(field, (dy, dx), (0, 1))  # the fault
    return total / (2 * radius + 1) ** 2


class Elastic:
    """Moves each pixel by a smooth random field."""

    def __init__(self, strength=60.0, radius=8):
        self.strength = strength
        self.radius = radius

    def __call__(self, pixels):
        height, width = pixels.shape[:2]
        dy = self.field(height, width)
        dx = self.field(height, width)
        y, x = np.meshgrid(np.arange(height), np.arange(width), indexing="ij")
        y = np.clip(y + dy, 0, height - 1.001)
        x = np.clip(x + dx, 0, width - 1.001)
        return bilinear(pixels, y, x)

    def field(self, height, width):
        return smooth(np.random.uniform(-1, 1, (height, width)), self.radius) * self.strength


class CoarseElastic(Elastic):
    """The same from a field of 8x8 numbers, which is made larger."""

    def field(self, height, width):
        coarse = np.random.uniform(-1, 1, (8, 8)) * self.strength / 8
        y, x = np.linspace(0, 6.99, height), np.linspace(0, 6.99, width)
        return bilinear(coarse, *np.meshgrid(y, x, indexing="ij"))


def bilinear(image, y, x):
    """The image's values at fractional places."""
    top, left = y.astype(int), x.astype(int)
    fy, fx = y - top, x - left
    if image.ndim == 3:
        fy, fx = fy[..., None], fx[..., None]
    upper = image[top, left] * (1 - fx) + image[top, left + 1] * fx
    lower = image[top + 1, left] * (1 - fx) + image[top + 1, left + 1] * fx
    return (upper * (1 - fy) + lower * fy).astype(np.float32)
