"""The slow image processor: NumPy, one picture and one patch after the other."""

import numpy as np

PATCH = 14
SIDE = 224
MEAN = np.array([0.481, 0.458, 0.408])
STD = np.array([0.269, 0.261, 0.276])


class PatchImageProcessor:
    def resize(self, image):
        """Bilinear, with arrays of float64."""
        height, width = image.shape[:2]
        y, x = np.linspace(0, height - 1.001, SIDE), np.linspace(0, width - 1.001, SIDE)
        top, left = y.astype(int), x.astype(int)
        fy, fx = (y - top)[:, None, None], (x - left)[None, :, None]
        rows = image[top] * (1 - fy) + image[top + 1] * fy
        return rows[:, left] * (1 - fx) + rows[:, left + 1] * fx

    def normalize(self, image):
        return (image / 255.0 - MEAN) / STD

    def patches(self, image):
        count = SIDE // PATCH
        found = []
        for row in range(count):
            for column in range(count):
                patch = image[row * PATCH : (row + 1) * PATCH, column * PATCH : (column + 1) * PATCH]
                found.append(patch.transpose(2, 0, 1).reshape(-1).astype(np.float32))
        return np.stack(found)

    def __call__(self, images):
        pixel_values = [self.patches(self.normalize(self.resize(np.asarray(image)))) for image in images]
        return {"pixel_values": np.stack(pixel_values)}
