# ---
# jupyter:
#   jupytext:
#     text_representation: {format_name: percent}
#   needs: [transformers]
# ---

# %% [markdown]
# # Train a vision-language model on packs
#
# You pack a Parquet file of pictures and conversations, let a processor of transformers say how they become
# tokens, put several conversations into each sequence, train a small Qwen2-VL, and stop and resume the
# training. It runs on a CPU in half a minute.
#
# `finevision/` has one Parquet file in the form of FineVision: in each row a list of pictures, a list of
# turns, and where they are from. (A hidden cell of this notebook draws it.) The notebook needs transformers,
# 5 or newer.

# %% tags=["hide"]
import io
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image, ImageDraw

draws, rows = random.Random(0), []
COLOURS = ("red", "green", "blue", "orange")
for _ in range(64):
    images, named = [], []
    for _ in range(draws.choice((0, 1, 1, 2))):
        size = draws.randint(60, 160), draws.randint(60, 160)
        colour, shape = draws.choice(COLOURS), draws.choice(("disc", "square"))
        picture, file = Image.new("RGB", size, "white"), io.BytesIO()
        draw = ImageDraw.Draw(picture)
        (draw.ellipse if shape == "disc" else draw.rectangle)((20, 20, 50, 50), colour)
        picture.save(file, "PNG")
        images.append({"bytes": file.getvalue(), "path": None})
        named.append(f"a {colour} {shape}")
    turn = {
        "user": "What is in the picture?",
        "assistant": " and ".join(named) or "no picture",
    }
    more = {"user": "Are you sure?", "assistant": "Yes."}
    rows.append(
        {
            "images": images,
            "texts": [turn, more][: draws.randint(1, 2)],
            "source": "drawn",
        }
    )
Path("finevision").mkdir()
pq.write_table(pa.Table.from_pylist(rows), "finevision/train-00000.parquet")

# %% [markdown]
# ## Pack once
#
# In a shell this is `fastload pack finevision chats`. The kinds of the fields are found in the file.

# %%
import fastload

fastload.pack("finevision", "chats")
dataset = fastload.PackedDataset("chats")
print(len(dataset), "samples with the fields", *dataset.schema)
print(len(dataset[1]["images"]), "pictures,", dataset[1]["texts"])

# %% [markdown]
# ## The processor
#
# In your script this is one line:
#
# ```python
# processor = AutoProcessor.from_pretrained("Qwen/Qwen2-VL-2B-Instruct")
# ```
#
# Here a hidden cell makes a processor of the same class, with a tokenizer of a few hundred tokens, so that
# nothing is downloaded.

# %% tags=["hide"]
from types import SimpleNamespace

import tokenizers
import transformers
from tokenizers import AddedToken, decoders, models, pre_tokenizers, trainers
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import (
    Qwen2VLImageProcessorPil,
)

transformers.logging.set_verbosity_error()
made = tokenizers.Tokenizer(models.BPE())
made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
made.decoder = decoders.ByteLevel()
alphabet = pre_tokenizers.ByteLevel.alphabet()
texts = [turn[role] for row in rows for turn in row["texts"] for role in turn]
made.train_from_iterator(
    texts,
    trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False),
)
marks = ("im_start", "im_end", "endoftext", "vision_start", "vision_end", "image_pad")
made.add_special_tokens(
    [AddedToken(f"<|{name}|>", normalized=False) for name in (*marks, "video_pad")]
)
tokenizer = transformers.PreTrainedTokenizerFast(
    tokenizer_object=made, eos_token="<|im_end|>", pad_token="<|endoftext|>"
)
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% for part in message['content'] %}{% if part['type'] == 'image' %}"
    "<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ part['text'] }}{% endif %}"
    "{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


class Qwen2VLProcessor(transformers.Qwen2VLProcessor):
    """Without videos, which want torchvision."""

    def check_argument_for_proper_class(self, name, argument):
        return None


processor = Qwen2VLProcessor(
    image_processor=Qwen2VLImageProcessorPil(
        size={"shortest_edge": 56 * 56, "longest_edge": 112 * 112}
    ),
    tokenizer=tokenizer,
    video_processor=SimpleNamespace(num_frames=4, fps=1),
    chat_template=TEMPLATE,
)

# %%
chat, vision = fastload.Chat(processor), fastload.Vision(processor)
document = chat.document(dataset[1]["texts"], [(4, 6)] * len(dataset[1]["images"]))
print(tokenizer.decode(document.input_ids))
print("learnt:", repr(tokenizer.decode(document.input_ids[document.labels != -100])))

# %% [markdown]
# `Vision` has read how the processor resizes pictures, `Chat` how it writes conversations. Only answers are
# learnt.
#
# ## Plan the packs
#
# How long is each conversation? Texts are tokenised once, and their lengths kept beside the set. A picture's
# tokens follow from its size, without opening it. Then each sequence of 256 tokens gets several
# conversations:

# %%
lengths = chat.lengths("chats", vision)
print(lengths)
packs = fastload.PackingSampler(lengths.tokens, tokens=256, costs=lengths.images)


def loader_of():
    return fastload.DataLoader(
        "chats", batch_size=2, sampler=packs, seed=0, transform=vision, text=chat
    )


loader = loader_of()
print(packs)

# %% [markdown]
# ## A batch
#
# It has two packs. The names and the pictures' values are the processor's own; `position_ids` say where each
# document begins, and `documents` which samples each pack has.

# %%
batch = next(iter(loader))
for name, value in batch.items():
    print(f"{name:16}", tuple(value.shape) if hasattr(value, "shape") else value)
print("samples:", [pack.tolist() for pack in batch["documents"].to_list()])

# %% [markdown]
# ## Train
#
# A small Qwen2-VL with random weights; in your script this is
# `Qwen2VLForConditionalGeneration.from_pretrained(...)`. `use_cache=False` is required: with a cache,
# transformers does not keep the documents of a pack apart.

# %%
import torch

text = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": len(tokenizer),
    "bos_token_id": None,
    "eos_token_id": tokenizer.eos_token_id,
    "rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]},
}
config = transformers.Qwen2VLConfig(
    text_config=text,
    vision_config={"depth": 1, "embed_dim": 32, "hidden_size": 64, "num_heads": 2},
    image_token_id=processor.image_token_id,
)


def model_of():
    torch.manual_seed(0)
    model = transformers.Qwen2VLForConditionalGeneration(config)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2)


def step(model, optimizer, batch):
    names = ["input_ids", "labels", "position_ids", "pixel_values", "image_grid_thw"]
    loss = model(**{name: batch[name] for name in names}, use_cache=False).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


loader.close()
loader = loader_of()
model, optimizer = model_of()
losses = [step(model, optimizer, batch) for batch in loader]
loader.close()
print("losses:", *(f"{loss:.2f}" for loss in losses))

# %% [markdown]
# ## Stop, and go on
#
# After three steps the job ends. What is saved is the model, the optimizer and the loader's state:

# %%
stopped = loader_of()
model, optimizer = model_of()
reading = iter(stopped)
before = [step(model, optimizer, next(reading)) for _ in range(3)]
checkpoint = {"loader": stopped.state_dict(), "model": model, "optimizer": optimizer}
print(checkpoint["loader"])
stopped.close()

# %% [markdown]
# A new loader goes on with the fourth step. The losses are those of the training that was not stopped.

# %%
resumed = loader_of()
resumed.load_state_dict(checkpoint["loader"])
after = [
    step(checkpoint["model"], checkpoint["optimizer"], batch) for batch in resumed
]
print("losses:", *(f"{loss:.2f}" for loss in before + after))
print("the same:", before + after == losses)
resumed.close()

# %% [markdown]
# On several GPUs, start the script with torchrun: ranks share the packs of a step. The state can be loaded on
# any number of ranks that divides them. [Conversations](../guide/chat.md) has the rest,
# [Recipes](../guide/vlm-recipes.md) how this goes into Trainer and other scripts.
