"""The images that several tables share, packed once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from harness.command_line import pack_folder
from starvation.feeds import Work

from articles.setting import Setting

__all__ = ["prepare", "work"]


def prepare(setting: Setting) -> None:
    """Pack the images as the training set of ``workdir/packed``, if no other table did."""
    target = setting.folder / "packed" / "train"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        pack_folder(Path(setting.images), target)


def work(setting: Setting, threads: int | None = None, device: str | None = None) -> Work:
    """What a feed is told."""
    whole = Work(
        images=Path(setting.images),
        packed=setting.folder / "packed" / "train",
        batch=setting.batch,
        size=setting.size,
        threads=setting.threads,
        device=setting.device,
    )
    return replace(
        whole,
        threads=whole.threads if threads is None else threads,
        device=device or whole.device,
    )
