# ---
# jupyter:
#   jupytext:
#     text_representation: {format_name: percent}
# ---

# %% [markdown]
# # From a folder to a trained epoch
#
# You pack a folder of photographs, train a small network on it, and ask the loader what it did.
#
# Here, `photos/` holds 24 photographs of three classes in `train/` and 12 in `val/`. Any folder with this
# layout will do.

# %%
from pathlib import Path

for split in ("train", "val"):
    for folder in sorted(Path("photos", split).iterdir()):
        print(folder, len(list(folder.iterdir())))

# %% [markdown]
# ## Pack once
#
# In a shell this is `fastload pack photos my-photos`. It stores the image files unchanged, byte for byte.

# %%
import fastload

for result in fastload.pack("photos", "my-photos"):
    packed = result.manifest
    print(result.output.name, packed.num_records, "images of", *packed.classes)

# %% [markdown]
# ## Make the loaders
#
# The arguments have the names of torch's `DataLoader`, the transforms those of torchvision.

# %%
from fastload import DataLoader, transforms as T

normalize = T.Normalize(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
train = DataLoader(
    "my-photos/train",
    batch_size=8,
    shuffle=True,
    seed=0,
    transform=T.Compose(
        [T.RandomResizedCrop(96, scale=(0.3, 1)), T.RandomHorizontalFlip(), normalize]
    ),
)
val = DataLoader(
    "my-photos/val",
    batch_size=8,
    transform=T.Compose([T.Resize(110), T.CenterCrop(96), normalize]),
)

images, labels = next(iter(train))
print(images.shape, images.dtype, labels)

# %% [markdown]
# `explain()` says where each step of the transform runs. Here all of them run in the engine's threads.

# %%
print(train.explain())

# %% [markdown]
# ## Train
#
# The loop is the one you know. Each epoch automatically has a new order.

# %%
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(
    nn.Conv2d(3, 16, 3, stride=4),
    nn.ReLU(),
    nn.Conv2d(16, 32, 3, stride=2),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(2),
    nn.Flatten(),
    nn.Linear(128, 3),
)
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

for epoch in range(15):
    model.train()
    for images, labels in train:
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if epoch % 5 == 4:
        model.eval()
        with torch.no_grad():
            hits = sum(int((model(x).argmax(1) == y).sum()) for x, y in val)
        print(f"epoch {epoch + 1}: loss {loss.item():.2f}, {hits} of 12 right")

# %% [markdown]
# ## Look at what the loader did
#
# `stats()` says what was delivered, how many seconds each stage took (summed over all threads), and how
# long your loop waited for data. Look at the waiting first: a share near 0 means that the loader keeps
# up.

# %%
stats = train.stats()
print("samples", stats["samples"], "threads", stats["threads"])
for name in ("decode", "transform"):
    print(f"{name:10} {stats['stages'][name]['seconds']:.2f} s")
print(f"waited for data in {stats['data_wait']['share']:.0%} of the time")

# %% [markdown]
# Both loaders share one pool of threads, which ends when the last loader is closed.

# %%
train.close()
val.close()

# %% [markdown]
# Next: [see what an augmentation does](recipes.md), or [stop and resume](resume-and-ranks.md).
