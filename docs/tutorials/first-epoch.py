# ---
# jupyter:
#   jupytext:
#     text_representation: {format_name: percent}
# ---

# %% [markdown]
# # From a folder to a trained epoch
#
# `photos/` holds 24 photographs of three classes in `train/` and 12 in `val/`. Pack it once.

# %%
from fastload.cli import main

main(["pack", "photos", "my-photos", "--quiet"])

# %% [markdown]
# A loader reads the packed folder.

# %%
from fastload import DataLoader, transforms as T

loader = DataLoader("my-photos/train", batch_size=8, shuffle=True, seed=0,
                    transform=T.Compose([T.RandomResizedCrop(64), T.RandomHorizontalFlip()]))
images, labels = next(iter(loader))
images.shape, labels

# %%
loader.close()
