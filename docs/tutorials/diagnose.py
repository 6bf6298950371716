# ---
# jupyter:
#   jupytext:
#     text_representation: {format_name: percent}
# ---

# %% [markdown]
# # A loop that starves
#
# A training loop is slow. Is it the data? You let `fastload.diagnose` watch the loop, read its verdict,
# make a change, and measure again.
#
# `imagenet/train` is a packed folder of 24 photographs. The training step is a pause of 4 ms, about what
# a small model on a GPU might take.

# %%
import textwrap
import time
import warnings

import fastload
import numpy as np
import torch
from fastload import DataLoader, transforms as T


def epochs(loader, count):
    """Train, if a pause is training; the images of a second."""
    begin, images = time.perf_counter(), 0
    for _ in range(count):
        for batch, _labels in loader:
            time.sleep(0.004)
            images += len(batch)
    return images / (time.perf_counter() - begin)


# %% [markdown]
# ## The slow loop
#
# The transform ends with a custom function, which adds noise in Python.


# %%
def film_grain(image):
    """Noise, drawn with NumPy, as people write it."""
    noise = np.random.normal(0, 8, image.shape)
    return torch.from_numpy(np.clip(image.numpy() + noise, 0, 255).astype(np.uint8))


crop = [T.RandomResizedCrop(224), T.RandomHorizontalFlip()]
options = {
    "batch_size": 8,
    "shuffle": True,
    "seed": 0,
    "num_workers": 1,
    "persistent_workers": True,
}
chain = T.Compose([*crop, T.ToDtype("uint8"), film_grain])
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it says what you are to find here
    slow = DataLoader("imagenet/train", transform=chain, **options)

# %% [markdown]
# `diagnose` watches the loop as it is.

# %%
with fastload.diagnose(slow, seconds=5) as watched:
    slow_rate = epochs(slow, 15)
share = slow.stats()["data_wait"]["share"]
print(f"{slow_rate:.0f} images/s; the loop waits for data in {share:.0%} of the time")

# %% [markdown]
# Then it tries on this machine what would help, and reports it:

# %%
print(textwrap.fill(str(watched.verdict), 80))

# %% [markdown]
# `explain()` shows where each step runs. `film_grain` runs in Python, so batches are put together there,
# too.

# %%
print(slow.explain())
slow.close()

# %% [markdown]
# ## The change
#
# The engine has an equivalent transform: `GaussianNoise`. As in torchvision, `sigma` is a fraction of the
# full range.

# %%
fast = DataLoader(
    "imagenet/train",
    transform=T.Compose([*crop, T.GaussianNoise(sigma=8 / 255)]),
    **options,
)
fast_rate = epochs(fast, 15)
share = fast.stats()["data_wait"]["share"]
print(f"{fast_rate:.0f} images/s; the loop waits for data in {share:.0%} of the time")
fast.close()

# %% [markdown]
# To watch a whole script, unchanged, run `fastload doctor train.py`. [The doctor](../guide/doctor.md)
# explains how it reaches its verdict, and [Tuning](../guide/tuning.md) lists what else helps.
