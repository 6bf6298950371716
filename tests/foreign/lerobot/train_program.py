"""LeRobot's own training script, as it is or with its loader replaced; what it trained on goes into a file.

    python train_program.py RECORD PACKED SHUFFLE ARGUMENT...

RECORD: the JSON file that is written. PACKED: a packed set, or "-" for the script as it is. SHUFFLE: whether
rows are shuffled, "yes" or "no"; the script always does. ARGUMENTs are the script's own.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import bare_torchvision  # noqa: F401
import torch
from lerobot.scripts import lerobot_train

#: What stands in place of the script's own loader.
THREE_LINES = """\
    from fastload import DataLoader, Fields
    order = {"shuffle": shuffle, "sampler": sampler, "fields": Fields(windows=dataset.delta_timestamps)}
    dataloader = DataLoader(PACKED, cfg.batch_size, transform=FLOATS, **order)
"""
BEGIN, END = "    dataloader = torch.utils.data.DataLoader(", "\n    # Prepare everything"


def main() -> None:
    """Run the script."""
    record, packed, shuffle, *arguments = sys.argv[1:]
    text = Path(lerobot_train.__file__).read_text(encoding="utf-8")
    begin = text.index(BEGIN)
    if packed != "-":
        text = text[:begin] + THREE_LINES + text[text.index(END, begin) :]
    if shuffle == "no":
        text = text.replace("        shuffle = True\n", "        shuffle = False\n")
    module = ModuleType("train")
    sys.modules["train"] = module  # dataclasses and the parser look there
    if packed != "-":
        from fastload.transforms import ToDtype

        module.__dict__.update(PACKED=packed, FLOATS=ToDtype("float32", scale=True))
    exec(compile(text, "lerobot_train.py", "exec", dont_inherit=True), module.__dict__)
    seen = watched(module)
    sys.argv = ["lerobot_train.py", *arguments]
    module.main()
    Path(record).write_text(json.dumps(seen))


def watched(module: Any) -> list[dict[str, Any]]:
    """Have the script's own functions note each batch, the rows in it, and the loss."""
    seen: list[dict[str, Any]] = []
    cycle, update = module.cycle, module.update_policy

    def noted(loader: Any) -> Iterator[Any]:
        for batch in cycle(loader):
            kinds = {
                name: [str(value.dtype), list(value.shape)] if isinstance(value, torch.Tensor) else "texts"
                for name, value in batch.items()
            }
            seen.append({"rows": batch["index"].tolist(), "kinds": kinds})
            yield batch

    def updated(*arguments: Any, **named: Any) -> Any:
        tracker, output = update(*arguments, **named)
        seen[-1]["loss"] = tracker.loss.val
        return tracker, output

    module.cycle, module.update_policy = noted, updated
    return seen


if __name__ == "__main__":
    main()
