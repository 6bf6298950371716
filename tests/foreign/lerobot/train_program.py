"""LeRobot's own training script, as it is or with its loader replaced; what it trained on goes into a file.

    python train_program.py RECORD PACKED SHUFFLE ARGUMENT...

RECORD: the JSON file that is written, with the rank as its suffix. PACKED: a packed set, or "-": as
it is. SHUFFLE: whether rows are shuffled, "yes" or "no"; the script always does. ARGUMENTs are its own.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import bare_torchvision  # noqa: F401
import torch
from lerobot.scripts import lerobot_train

#: Its first Python block is what stands in place of the script's own loader.
PAGE = Path(__file__).parents[3] / "docs" / "start" / "lerobot.md"
BEGIN, END = "    dataloader = torch.utils.data.DataLoader(", "\n    # Prepare everything"


def main() -> None:
    """Run the script."""
    record, packed, shuffle, *arguments = sys.argv[1:]
    text = Path(lerobot_train.__file__).read_text(encoding="utf-8")
    begin = text.index(BEGIN)
    if packed != "-":
        text = text[:begin] + three_lines(packed) + text[text.index(END, begin) :]
    if shuffle == "no":
        text = text.replace("        shuffle = True\n", "        shuffle = False\n")
    module = ModuleType("train")
    sys.modules["train"] = module  # dataclasses and the parser look there
    exec(compile(text, "lerobot_train.py", "exec", dont_inherit=True), module.__dict__)
    seen = watched(module)
    sys.argv = ["lerobot_train.py", *arguments]
    module.main()
    Path(record).with_suffix(f".{os.environ.get('RANK', 0)}").write_text(json.dumps(seen))


def three_lines(packed: str) -> str:
    """The page's, with the path of the packed set."""
    lines = PAGE.read_text(encoding="utf-8").split("```python\n", 1)[1].split("```", 1)[0].splitlines()
    assert len(lines) == 3, lines
    return "".join(f"    {line}\n" for line in lines).replace('"pusht-packed"', repr(packed))


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
