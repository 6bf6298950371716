"""``fastload doctor DATASET``."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from pathlib import Path
from typing import Any

from fastload.cli.arguments import add_storage_options, at_least_one, at_least_zero, options_for, place
from fastload.cli.output import print_lines

__all__ = ["add", "run"]

_NAMED = ("train", "eval", "trivial_augment", "rand_augment", "auto_augment")


def add(verbs: Any) -> None:
    """Declare the verb."""
    parser = verbs.add_parser(
        "doctor",
        help="why training waits for data, and what would help",
        description="Runs the loader and its stages on this machine for a minute at most, tries what could "
        "help on the set's own records, and says what limits, what would help, and by how much. Changes "
        "nothing and needs no root: experiments write into a temporary folder; to read cold, the pages of "
        "some records are dropped from the page cache.",
    )
    parser.add_argument("target", metavar="DATASET", type=place, help="a packed dataset, or its URL")
    add_storage_options(parser)
    add = parser.add_argument
    add("--batch-size", type=at_least_one, default=256, metavar="N", help="samples a step (default 256)")
    add(
        "--transform",
        default="train",
        metavar="NAME|module:attribute",
        help=f"one of {', '.join(_NAMED)} (224 pixels, float32), or the user's own (default train)",
    )
    add("--num-workers", type=at_least_zero, metavar="N", help="decoding threads (default: one a CPU)")
    add(
        "--shuffle",
        choices=("exact", "block", "none"),
        default="exact",
        help="order of an epoch (default exact)",
    )
    add("--cache", metavar="SIZE", help="the loader's cache (default auto)")
    add("--step-rate", type=float, metavar="N", help="samples a second that the step can take alone")
    add("--seconds", type=float, default=60.0, metavar="S", help="that it may take (default 60)")
    add("--html", metavar="FILE", type=Path, help="write a report with charts, too, in one file")
    add("--verbose", action="store_true", help="each sentence with what it rests on")


def run(arguments: argparse.Namespace) -> int:
    """Examine, and print the verdict."""
    from fastload.diagnose.doctor import examine
    from fastload.diagnose.facts import Stage

    if arguments.html is not None:  # before the experiments: its library or its folder may be missing
        _check_html(arguments.html)
    step = None
    if arguments.step_rate is not None:
        if not arguments.step_rate > 0:
            raise SystemExit(
                f"fastload doctor: --step-rate must be more than 0. Found: {arguments.step_rate}."
            )
        step = Stage("step", arguments.step_rate, 0.0, "As given by --step-rate.")
    if arguments.seconds < 5:
        raise SystemExit(f"fastload doctor: --seconds must be at least 5. Found: {arguments.seconds:g}.")
    with _loader(arguments) as loader:
        verdict = examine(loader, step=step, seconds=arguments.seconds)
        if arguments.html is not None:
            from fastload.diagnose.report import write_report

            write_report(verdict, arguments.html, loader)
    print_lines([verdict.verbose] if arguments.verbose else [sentence.text for sentence in verdict.sentences])
    return 0


def _check_html(path: Path) -> None:
    """That a report can be made, and written there.

    Raises:
        LibraryMissing: there is no matplotlib.
        SystemExit: there is no such folder.
    """
    from fastload.diagnose.report.figures import drawing

    drawing()
    if not path.absolute().parent.is_dir():
        raise SystemExit(f"fastload doctor: --html {path}: there is no folder {path.absolute().parent}.")


def _loader(arguments: argparse.Namespace) -> Any:
    from fastload import DataLoader

    shuffle = {"exact": True, "block": "block", "none": False}[arguments.shuffle]
    return DataLoader(
        str(arguments.target),
        arguments.batch_size,
        shuffle,  # type: ignore[arg-type]
        num_workers=arguments.num_workers,
        transform=_transform(arguments.transform),
        cache=arguments.cache or "auto",
        storage_options=options_for(arguments, arguments.target),
        rank=0,
        world_size=1,
    )


def _transform(name: str) -> Any:
    """A transform by name, or the attribute of a module.

    Raises:
        SystemExit: there is none.
    """
    from fastload import transforms as T

    normalize = T.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    if name == "eval":
        return T.Compose([T.Resize(256), T.CenterCrop(224), normalize])
    policies = {
        "train": (),
        "trivial_augment": (T.TrivialAugmentWide(),),
        "rand_augment": (T.RandAugment(2, 9),),
        "auto_augment": (T.AutoAugment(),),
    }
    if name in policies:
        start = (T.RandomResizedCrop(224), T.RandomHorizontalFlip())
        return T.Compose([*start, *policies[name], normalize])
    module, colon, attribute = name.partition(":")
    if not colon:
        raise SystemExit(
            f"fastload doctor: --transform is one of {', '.join(_NAMED)}, or module:attribute. "
            f"Found: {name!r}."
        )
    sys.path.insert(0, os.getcwd())
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise SystemExit(f"fastload doctor: --transform {name}: {error}.") from None
