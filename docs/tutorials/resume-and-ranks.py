# ---
# jupyter:
#   jupytext:
#     text_representation: {format_name: percent}
# ---

# %% [markdown]
# # Stop in the middle, resume on more ranks
#
# A job stops in the middle of an epoch, and resumes on a different number of GPUs. Does each sample still
# come exactly once? Here you simulate the ranks in one process and count.
#
# `imagenet/train` is a packed folder of 24 photographs.

# %%
from fastload import DataLoader, Ranks, transforms as T

GLOBAL_BATCH = 4  # of all ranks together


def loader_of(rank, world_size):
    """What this rank makes. In a real job `ranks=` is left out: the launcher says it."""
    return DataLoader(
        "imagenet/train",
        batch_size=GLOBAL_BATCH // world_size,
        shuffle=True,
        seed=0,
        transform=T.Compose([T.RandomResizedCrop(64), T.RandomHorizontalFlip()]),
        ranks=Ranks(rank, world_size),
    )


def run(world_size, steps, state=None):
    """Some steps of a job: what all ranks got in each, and the state after them."""
    received, states = [[] for _ in range(steps)], []
    for rank in range(world_size):
        loader = loader_of(rank, world_size)
        if state is not None:
            loader.load_state_dict(state)
        iterator = iter(loader)
        for step in range(steps):
            images, labels = next(iterator)
            received[step] += list(zip(images, labels.tolist(), strict=True))
        states.append(loader.state_dict())
        loader.close()
    assert all(one == states[0] for one in states)  # the same on all ranks
    return received, states[0]


# %% [markdown]
# ## The run that is not stopped
#
# One epoch on one rank: 24 samples, 6 steps.

# %%
whole, _ = run(world_size=1, steps=6)
print([[label for _, label in step] for step in whole])

# %% [markdown]
# ## The run that is stopped
#
# Two steps on two ranks. Then comes the state, as you would save it in a checkpoint:

# %%
before, state = run(world_size=2, steps=2)
print(state)

# %% [markdown]
# The run resumes on four ranks, with the same global batch.

# %%
after, _ = run(world_size=4, steps=4, state=state)

# %% [markdown]
# ## Compare
#
# At each step the stopped run has the same samples as the other, with the same pixels: crops depend on
# seed, epoch and sample.

# %%
import torch

for step, (one, other) in enumerate(zip(whole, before + after, strict=True)):
    same = all(
        torch.equal(a, b) and la == lb
        for (a, la), (b, lb) in zip(one, other, strict=True)
    )
    print(f"step {step}: {'the same samples and pixels' if same else 'DIFFERENT'}")

# %% [markdown]
# ## What does not divide
#
# Twelve validation photographs on five ranks do not divide evenly. All ranks need the same number of
# batches, so some get a padding row. Padding rows have label -100, which `cross_entropy` ignores, and
# `fastload.valid` takes them out.

# %%
import fastload

counts = []
for rank in range(5):
    val = DataLoader(
        "imagenet/val",
        batch_size=4,
        transform=T.Resize((64, 64)),
        ranks=Ranks(rank, 5),
    )
    for images, labels in val:
        real, _ = fastload.valid((images, labels))
        counts.append(len(real))
        print(f"rank {rank}: labels {labels.tolist()}, {len(real)} real")
    val.close()
print("in all", sum(counts))

# %% [markdown]
# In a real job this takes three lines: `train.state_dict()` when you save, `train.load_state_dict(...)`
# when you load, and `batch_size=GLOBAL_BATCH // world_size`. [Several ranks](../guide/distributed.md) has
# the rest.
