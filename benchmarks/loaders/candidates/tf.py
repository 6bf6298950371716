"""tf.data. Variants: ``plain`` as TensorFlow's tutorials do it, ``rrc`` and ``aa`` nearer to torchvision.

plain  sample_distorted_bounding_box, decode_and_crop_jpeg (decodes the window only), bilinear resize
       that is not antialiased. Its draws cover less of the image than torchvision's (0.37 against 0.43).
rrc    torchvision's draw instead.
aa     that, and an antialiased resize: the nearest to what Pillow computes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from loaders.jobs import MEAN, STD, Job, listing, random_crop

VARIANTS = ("plain", "rrc", "aa")


def versions() -> dict[str, str]:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow

    return {"tensorflow": tensorflow.__version__}


def prepare(variant: str, folder: Path, workdir: Path) -> None:
    """Nothing: the files are read as they lie."""


def batches(job: Job, variant: str, threads: int, folder: Path, workdir: Path) -> Iterator[int]:
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    items = listing(folder)
    dataset = tf.data.Dataset.from_tensor_slices(([path for path, _ in items], [label for _, label in items]))
    if job.train:
        dataset = dataset.shuffle(len(items))
    dataset = dataset.map(
        lambda path, label: (load(job, variant or "plain", path), label),
        num_parallel_calls=threads,
        deterministic=not job.train,
    )
    dataset = dataset.batch(job.batch, drop_remainder=True).prefetch(2)
    options = tf.data.Options()
    options.threading.private_threadpool_size = threads
    options.threading.max_intra_op_parallelism = 1
    dataset = dataset.with_options(options)
    while True:
        for _images, labels in dataset:
            yield int(labels.shape[0])


def load(job: Job, variant: str, path: Any) -> Any:
    """(224, 224, 3) uint8, or (3, 224, 224) float32."""
    import tensorflow as tf

    data = tf.io.read_file(path)
    antialias = variant == "aa"
    shape = tf.image.extract_jpeg_shape(data)
    window = train_window(shape, variant) if job.train else centre_window(shape)
    image = tf.image.decode_and_crop_jpeg(data, window, channels=3)
    image = tf.image.resize(image, (224, 224), method="bilinear", antialias=antialias)
    if job.train:
        image = tf.image.random_flip_left_right(image)
    if job.normalize:
        image = (image / 255.0 - tf.constant(MEAN)) / tf.constant(STD)
        return tf.transpose(image, (2, 0, 1))
    return tf.cast(tf.round(image), tf.uint8)


def train_window(shape: Any, variant: str) -> Any:
    """top, left, height, width of the training crop."""
    import tensorflow as tf

    if variant == "plain":
        begin, size, _ = tf.image.sample_distorted_bounding_box(
            shape,
            tf.constant([0.0, 0.0, 1.0, 1.0], shape=(1, 1, 4)),
            min_object_covered=0.1,
            aspect_ratio_range=(3 / 4, 4 / 3),
            area_range=(0.08, 1.0),
            max_attempts=10,
            use_image_if_no_bounding_boxes=True,
        )
        return tf.stack([begin[0], begin[1], size[0], size[1]])

    def draw(sizes: Any) -> Any:
        import numpy as np

        left, top, width, height = random_crop(int(sizes[1]), int(sizes[0]))
        return np.array([top, left, height, width], np.int32)

    window = tf.numpy_function(draw, [shape], tf.int32)
    window.set_shape((4,))
    return window


def centre_window(shape: Any) -> Any:
    """The centre square of 224/256 of the shorter side: one crop and one resize give the job's field."""
    import tensorflow as tf

    side = tf.cast(tf.round(tf.cast(tf.minimum(shape[0], shape[1]), tf.float32) * (224 / 256)), tf.int32)
    return tf.stack([(shape[0] - side) // 2, (shape[1] - side) // 2, side, side])
