"""``fastload doctor DATASET`` and ``fastload doctor SCRIPT.py ARGUMENTS...``.

Words after a script are its arguments; words after a dataset are the doctor's own options.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastload.cli.arguments import add_storage_options, at_least_one, at_least_zero, options_for, place
from fastload.cli.output import print_json, print_lines
from fastload.cli.parser import Parser
from fastload.machine.paths import exists, is_dir, is_file

if TYPE_CHECKING:
    from fastload.diagnose.facts import Verdict


_OF_A_DATASET = ("batch_size", "transform", "num_workers", "shuffle", "cache", "step_rate", "storage_option")
_NAMED = ("train", "eval", "trivial_augment", "rand_augment", "auto_augment")


def add(verbs: Any) -> None:
    """Declare the verb."""
    parser = verbs.add_parser(
        "doctor",
        help="find why training waits for data, and what would help",
        description="Run the loader and its stages on this machine for at most a minute, try possible "
        "remedies on the set's own records, and print what the bottleneck is, what would help, and by how "
        "much. The doctor changes nothing and needs no root: experiments write into a temporary folder; for "
        "cold reads, pages of some records are dropped from the page cache.",
    )
    parser.add_argument(
        "target",
        metavar="DATASET|SCRIPT.py",
        type=place,
        help="packed dataset or its URL, or a training script to run unchanged and end after a while",
    )
    parser.add_argument(
        "rest", metavar="...", nargs=argparse.REMAINDER, help="options, or the script's arguments"
    )
    _add_options(parser)


def _add_options(parser: argparse.ArgumentParser) -> None:
    add_storage_options(parser)
    add = parser.add_argument
    add("--batch-size", type=at_least_one, metavar="N", help="samples per step (default 256)")
    add(
        "--transform",
        metavar="NAME|module:attribute",
        help=f"one of {', '.join(_NAMED)} (224 pixels, float32), or your own (default train)",
    )
    add("--num-workers", type=at_least_zero, metavar="N", help="decoding threads (default: one per CPU)")
    add("--shuffle", choices=("exact", "block", "none"), help="order of an epoch (default exact)")
    add("--cache", metavar="SIZE", help="the loader's cache (default auto)")
    add("--step-rate", type=float, metavar="N", help="samples per second of the training step alone")
    add("--seconds", type=float, default=60.0, metavar="S", help="time limit in seconds (default 60)")
    add("--html", metavar="FILE", type=Path, help="also write a report with charts, as one HTML file")
    add("--json", metavar="FILE", type=Path, help="also write the verdict as JSON; '-': to stdout, alone")
    add("--verbose", action="store_true", help="show the evidence for each sentence")


def run(arguments: argparse.Namespace) -> int:
    """Examine the dataset or script, and print the verdict."""
    is_script = str(arguments.target).endswith(".py")
    if not is_script:
        _refuse_other_files(arguments)
        parser = Parser(prog="fastload doctor DATASET")
        _add_options(parser)
        try:
            parser.parse_args(arguments.rest, arguments)
        except SystemExit as stop:  # argparse has printed the error or the help
            return stop.code if isinstance(stop.code, int) else 2
    else:
        _say_whose(arguments)
    if arguments.seconds < 5:
        raise SystemExit(f"fastload doctor: --seconds must be at least 5. Found: {arguments.seconds:g}.")
    if arguments.html is not None:  # before the experiments: its library or its folder may be missing
        _check_html(arguments.html)
    is_alone = arguments.json == Path("-")
    if arguments.json is not None and not is_alone:
        _check_folder("--json", arguments.json)
    with _stdout_to_stderr() if is_alone else contextlib.nullcontext():
        verdict, facts = _of_script(arguments) if is_script else _of_dataset(arguments)
        if verdict is not None:
            print_lines([verdict.verbose] if arguments.verbose else [one.text for one in verdict.sentences])
    if is_alone and facts is not None:
        print_json(facts)
    return 0


def _refuse_other_files(arguments: argparse.Namespace) -> None:
    """Refuse what is no dataset, and the words that start a script in place of the script."""
    words = [word for word in arguments.rest if word.endswith(".py")]
    target = str(arguments.target)
    if words or ("://" not in target and is_file(target)):
        raise SystemExit(
            f"fastload doctor: {target} is neither a packed dataset nor a Python file (.py). Name a script "
            f"without what starts it: 'fastload doctor {words[0] if words else 'train.py'}'."
        )


def _say_whose(arguments: argparse.Namespace) -> None:
    """Say that options behind a script are the script's, if one of them looks like the doctor's."""
    named = [word.partition("=")[0] for word in arguments.rest]
    own = [word for word in named if word in ("--seconds", "--html", "--step-rate", "--verbose")]
    if own:
        sys.stderr.write(
            f"{own[0]} stands behind {arguments.target} and goes to it, as all that follows. The doctor's "
            f"options come before: 'fastload doctor {own[0]} ... {arguments.target}'.\n"
        )


def _of_dataset(arguments: argparse.Namespace) -> tuple[Verdict, dict[str, Any]]:
    from fastload.diagnose.as_json import verdict_json
    from fastload.diagnose.doctor import examine
    from fastload.diagnose.facts import Stage

    step = None
    if arguments.step_rate is not None:
        if not arguments.step_rate > 0:
            raise SystemExit(
                f"fastload doctor: --step-rate must be more than 0. Found: {arguments.step_rate}."
            )
        step = Stage("step", arguments.step_rate, 0.0, "As given by --step-rate.")
    with _loader(arguments) as loader:
        verdict = examine(loader, step=step, seconds=arguments.seconds)
        facts = verdict_json(verdict)
        _write_json(facts, arguments.json)
        _write(verdict, arguments.html, loader)
    return verdict, facts


def _of_script(arguments: argparse.Namespace) -> tuple[Verdict | None, dict[str, Any] | None]:
    """Return the verdict on a script, and its JSON.

    There may be no verdict, which is printed with why. There is no JSON of a rank that was not watched.
    """
    from fastload.diagnose.as_json import no_verdict_json, verdict_json
    from fastload.diagnose.script import announcement, require_script, watch_script

    options = [name for name in _OF_A_DATASET if getattr(arguments, name) not in (None, [])]
    if options:
        wrong = ", ".join(f"--{name.replace('_', '-')}" for name in options)
        raise SystemExit(f"fastload doctor: {wrong}: a script sets that itself. Leave it out.")
    path = str(arguments.target)
    require_script(path)
    sys.stderr.write(announcement(path, arguments.seconds) + "\n")
    watched = watch_script(path, arguments.rest, arguments.seconds)
    if watched.words:
        sys.stderr.write(watched.words + "\n")
    facts = None
    if watched.verdict is not None:
        facts = verdict_json(watched.verdict)
        _write_json(facts, arguments.json)
        _write(watched.verdict, arguments.html, None)
    elif watched.loop is not None:
        facts = no_verdict_json(watched.words, watched.loop)
        _write_json(facts, arguments.json)
        loop = watched.loop
        waited = f"waited for data for {loop.wait_share:.0%} of its time"
        print_lines([f"The loop reached {loop.rate:.0f} samples/s and {waited}."])
    return watched.verdict, facts


def _write(verdict: Verdict, path: Path | None, loader: Any) -> None:
    if path is not None:
        from fastload.diagnose import report

        report(loader, verdict).save(path)


def _write_json(facts: dict[str, Any], path: Path | None) -> None:
    """Write JSON to a file, whole or not at all; a pipe or device is written to, not replaced."""
    if path is None or path == Path("-"):
        return
    text = json.dumps(facts, indent=1, allow_nan=False) + "\n"
    if exists(path) and not is_file(path):
        path.write_text(text)
        return
    from fastload.packing.files import publishing

    with publishing(path.absolute()) as part:
        part.write_text(text)


@contextlib.contextmanager
def _stdout_to_stderr() -> Iterator[None]:
    """Send what this process, and those that it starts, write to stdout to stderr."""
    own = sys.stdout
    own.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        own.flush()  # a script's logger may have kept the object
        os.dup2(kept, 1)
        os.close(kept)


def _check_html(path: Path) -> None:
    """Check that a report can be made and written to ``path``.

    Raises:
        LibraryMissing: matplotlib is not installed.
        SystemExit: the folder does not exist, or the path is one.
    """
    from fastload.diagnose.pages.page import drawing

    drawing()
    _check_folder("--html", path)


def _check_folder(option: str, path: Path) -> None:
    """Raise SystemExit if a file cannot be at ``path``: its folder is missing, or it is a folder itself."""
    if not is_dir(path.absolute().parent):
        raise SystemExit(f"fastload doctor: {option} {path}: there is no folder {path.absolute().parent}.")
    if is_dir(path):
        raise SystemExit(f"fastload doctor: {option} {path} is a folder. Give the name of a file.")


def _loader(arguments: argparse.Namespace) -> Any:
    from fastload import DataLoader, Ranks

    shuffle = {"exact": True, "block": "block", "none": False}[arguments.shuffle or "exact"]
    try:
        loader = DataLoader(
            str(arguments.target),
            arguments.batch_size or 256,
            shuffle,  # type: ignore[arg-type]
            num_workers=arguments.num_workers,
            transform=_transform(arguments.transform or "train"),
            cache=arguments.cache or "auto",
            storage_options=options_for(arguments, arguments.target),
            ranks=Ranks(0, 1),
        )
    except ValueError as error:  # of an option's value
        raise SystemExit(f"fastload doctor: {error}") from None
    _check_lists(arguments, loader.dataset.schema)  # type: ignore[attr-defined]
    return loader


def _check_lists(arguments: argparse.Namespace, schema: Any) -> None:
    """Raise SystemExit for lists of pictures, of which only a picture rule makes batches."""
    from fastload.sample.fields import Images

    lists = [field.name for field in schema if isinstance(field.kind, Images)]
    if lists and ":" not in (arguments.transform or ""):
        raise SystemExit(
            f"fastload doctor: {arguments.target} has lists of pictures, {lists[0]!r}, and what a job makes "
            "of them is not known. Examine its script, 'fastload doctor train.py', or name its rule: "
            "--transform module:attribute, a fastload.Vision."
        )


def _transform(name: str) -> Any:
    """Return the transform of this name, or the attribute that ``module:attribute`` names.

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
