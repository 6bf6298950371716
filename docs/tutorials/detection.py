# ---
# jupyter:
#   jupytext:
#     text_representation: {format_name: percent}
# ---

# %% [markdown]
# # From COCO annotations to batches with boxes
#
# You pack photographs with their annotations, and get batches whose boxes and masks follow every crop and
# flip.
#
# `shapes/` is a small set in COCO's form: 16 photographs on which discs and triangles are drawn, and their
# outlines in `annotations/instances_train.json`. (A hidden cell of this notebook draws it.)

# %% tags=["hide"]
import json
import math
import random
from pathlib import Path

from PIL import Image, ImageDraw

CATEGORIES = [{"id": 1, "name": "disc"}, {"id": 2, "name": "triangle"}]
Path("shapes/train").mkdir(parents=True)
Path("shapes/annotations").mkdir()
draws, images, objects = random.Random(0), [], []
for number, path in enumerate(
    sorted(Path("photos/train").rglob("*.jpg"))[::3] * 2, start=1
):
    picture = Image.open(path).convert("RGB")
    images.append(
        {
            "id": number,
            "file_name": f"{number:03d}.jpg",
            "width": picture.width,
            "height": picture.height,
        }
    )
    for _ in range(draws.randint(1, 3)):
        category, radius = draws.choice((1, 2)), draws.uniform(22, 50)
        x, y = (draws.uniform(radius, side - radius) for side in picture.size)
        corners, turn = (40 if category == 1 else 3), draws.uniform(0, 2)
        angles = [turn + 2 * math.pi * corner / corners for corner in range(corners)]
        points = [
            (x + radius * math.cos(angle), y + radius * math.sin(angle))
            for angle in angles
        ]
        colour = tuple(draws.randrange(256) for _ in range(3))
        ImageDraw.Draw(picture).polygon(points, fill=colour)
        left, top = (min(point[axis] for point in points) for axis in (0, 1))
        width, height = (
            max(point[axis] for point in points) - start
            for axis, start in ((0, left), (1, top))
        )
        about = {
            "id": len(objects) + 1,
            "image_id": number,
            "category_id": category,
            "iscrowd": 0,
        }
        outline = [value for point in points for value in point]
        objects.append(
            about
            | {
                "bbox": [left, top, width, height],
                "area": width * height,
                "segmentation": [outline],
            }
        )
    picture.save(f"shapes/train/{number:03d}.jpg", quality=92)
Path("shapes/annotations/instances_train.json").write_text(
    json.dumps({"images": images, "annotations": objects, "categories": CATEGORIES})
)

# %% [markdown]
# ## Pack once
#
# In a shell this is `fastload pack shapes packed-shapes --annotations
# shapes/annotations/instances_train.json`.

# %%
import fastload

fastload.pack(
    "shapes", "packed-shapes", annotations="shapes/annotations/instances_train.json"
)
dataset = fastload.PackedDataset("packed-shapes")
print(len(dataset), "samples with the fields")
print(*dataset.schema, sep="\n")

# %% [markdown]
# ## Batches for torchvision's models
#
# `collate="list"` gives a list of pictures and a list of targets, as torchvision's detection models take
# them. Pictures may differ in size. `masks="dense"` draws the outlines at the delivered size.

# %%
from fastload import DataLoader, Fields, transforms as T

chain = T.Compose(
    [
        T.RandomPhotometricDistort(),
        T.RandomZoomOut(fill=(123, 117, 104), side_range=(1, 2), p=0.5),
        T.RandomIoUCrop(),
        T.Resize(200, max_size=300),
        T.RandomHorizontalFlip(),
        T.SanitizeBoundingBoxes(),
    ]
)
loader = DataLoader(
    "packed-shapes",
    batch_size=8,
    shuffle=True,
    seed=1,
    transform=chain,
    collate="list",
    fields=Fields(masks="dense"),
)
images, targets = next(iter(loader))
print("pictures:", *(tuple(image.shape) for image in images[:3]), "...")
print("the first target:")
for name, value in targets[0].items():
    print(f"  {name:9}", getattr(value, "shape", value))

# %% [markdown]
# ## Look at them
#
# Draw before you train: a box in the wrong format shows at once.

# %%
import matplotlib.pyplot as plt

names = ("background", *dataset.schema["labels"].kind.classes)
figure, axes = plt.subplots(2, 4, figsize=(10, 5.5), layout="constrained")
for axis, image, target in zip(axes.flat, images, targets, strict=True):
    axis.imshow(image.permute(1, 2, 0))
    axis.axis("off")
    for box, label, mask in zip(
        target["boxes"], target["labels"], target["masks"], strict=True
    ):
        left, top, right, bottom = box.tolist()
        size = right - left, bottom - top
        axis.add_patch(plt.Rectangle((left, top), *size, fill=False, color="red"))
        axis.text(left, top, names[label], color="white", backgroundcolor="red")
        axis.contour(mask, levels=[0.5], colors="yellow", linewidths=1)

# %% [markdown]
# ## The same set for DETR and for YOLO
#
# You do not pack again: the loader gives batches their form.

# %%
square = T.Compose([T.RandomHorizontalFlip(), T.Resize((256, 256))])
for form in ("detr", "yolo"):
    with_form = DataLoader(
        "packed-shapes", batch_size=4, transform=square, collate=form
    )
    batch = next(iter(with_form))
    shapes = {name: tuple(v.shape) for name, v in batch.items() if hasattr(v, "shape")}
    print(form, shapes)
    with_form.close()

# %% [markdown]
# ## Evaluate
#
# `dataset.coco` is a `pycocotools` object made from the packed fields. Evaluators accept it.

# %%
truth = loader.dataset.coco
print(len(truth.getImgIds()), "images,", len(truth.getAnnIds()), "annotations")
loader.close()

# %% [markdown]
# More: [Detection](../guide/detection.md), and [which transforms boxes and masks
# follow](../guide/fields.md).
