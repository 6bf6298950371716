# ---
# jupyter:
#   jupytext:
#     text_representation: {format_name: percent}
# ---

# %% [markdown]
# # See what an augmentation does
#
# Before you train for days, look at the pictures that your model will get. Here, `imagenet/train` is a
# packed folder of 24 photographs.

# %%
import matplotlib.pyplot as plt
import torch
from fastload import DataLoader, transforms as T
from fastload.transforms import batch as B

CAT, ROCKET = 0, 16  # two samples, by their number in the set


def batch(transform, samples, **options):
    """One batch of these samples."""
    loader = DataLoader(
        "imagenet/train",
        batch_size=len(samples),
        sampler=samples,
        seed=0,
        transform=transform,
        **options,
    )
    images, labels = next(iter(loader))
    loader.close()
    return images, labels


# %% [markdown]
# ## Eight draws of one photograph
#
# If a sampler lists a sample eight times, the loader draws a crop each time. Each row is a different
# chain.

# %%
crop = T.RandomResizedCrop(128)
rows = {
    "RandomResizedCrop": crop,
    "RandAugment": T.Compose([crop, T.RandAugment(2, 9)]),
    "TrivialAugmentWide": T.Compose([crop, T.TrivialAugmentWide()]),
    "timm, rand-m9-mstd0.5-inc1": T.Compose(
        [crop, T.TimmAugment("rand-m9-mstd0.5-inc1")]
    ),
    "RandomErasing": T.Compose([crop, T.RandomErasing(p=1.0)]),
}
pictures = [batch(chain, [CAT] * 8)[0] for chain in rows.values()]

# %% [markdown]
# ## CutMix works on a batch
#
# `batch_transform=` gets the whole batch. Each label becomes a row with a weight for each class.

# %%
mixed, labels = batch(crop, [CAT, ROCKET] * 4, batch_transform=B.CutMix(num_classes=3))
rows["CutMix"] = None
pictures.append(mixed)
print(labels.shape)
print(labels[:2])

# %% [markdown]
# ## Two views for SimCLR
#
# `Views` makes several pictures of one sample, each with its own draws. The record is read once.

# %%
jitter = T.RandomApply([T.ColorJitter(0.8, 0.8, 0.8, 0.2)], 0.8)
blur = T.RandomApply([T.GaussianBlur(13, (0.1, 2.0))], 0.5)
view = T.Compose([crop, T.RandomHorizontalFlip(), jitter, T.RandomGrayscale(0.2), blur])

loader = DataLoader(
    "imagenet/train",
    batch_size=8,
    sampler=[CAT] * 8,
    seed=0,
    transform=T.Views(first=view, second=view),
)
views = next(iter(loader))
loader.close()
print({name: tuple(value.shape) for name, value in views.items()})
rows |= {"SimCLR, first view": None, "SimCLR, second view": None}
pictures += [views["first"], views["second"]]

# %% [markdown]
# ## All of them
#
# The crops are the same in the first rows: what comes after a crop does not change its draws.

# %%
figure, axes = plt.subplots(len(pictures), 8, figsize=(10, 10.5), layout="constrained")
for name, row, images in zip(rows, axes, pictures, strict=True):
    row[0].set_title(name, loc="left", fontsize=9)
    for axis, image in zip(row, images, strict=True):
        axis.imshow(image.permute(1, 2, 0).to(torch.uint8))
        axis.axis("off")

# %% [markdown]
# Run it again, and you get the same pictures: each draw depends on the seed, the epoch and the sample,
# but not on the number of threads.

# %%
again = batch(rows["RandAugment"], [CAT] * 8, num_workers=1)[0]
print(torch.equal(again, pictures[1]))

# %% [markdown]
# [Recipes](../guide/recipes.md) has all of them, and covers torchvision's and timm's own objects.
