"""``fastload cache ls | clear | path``: list, remove and locate what the node cache holds."""

from __future__ import annotations

import argparse
import datetime
import os
import pwd
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fastload.cache.files import clean, remove
from fastload.cache.folder import PrivateFolder, folder_path, is_in_memory, other_folders
from fastload.cache.policy import CachedSet, cached_sets, set_name, users_of
from fastload.cache.settings import CacheSetting
from fastload.cli.arguments import add_storage_options, options_for, place
from fastload.cli.output import print_json, print_lines
from fastload.machine.sizes import counted, human_bytes
from fastload.shard.dataset import PackedFiles
from fastload.shard.node_sets import NodeSet, node_sets, remove_node_set

_WHERE = "folder of the in-memory cache, or of a disk tier (default: $FASTLOAD_CACHE_DIR, else /dev/shm)"


def add(verbs: Any) -> None:
    """Declare the verb."""
    parser = verbs.add_parser(
        "cache",
        help="list, remove or locate what the node cache holds",
        description="List, remove or locate what this user's node cache holds: records in memory, or in a "
        "disk tier's folder (--dir), shared by all processes; without --dir also indexes of sets in stores.",
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    ls = actions.add_parser("ls", help="list the cached sets", description="List the cached sets.")
    clear = actions.add_parser(
        "clear",
        help="remove cached sets that nobody uses",
        description="Remove cached sets that nobody uses. Exit code 1 if a DATASET is in use.",
    )
    clear.add_argument(
        "datasets", metavar="DATASET", nargs="*", type=place, help="remove only these datasets' caches"
    )
    clear.add_argument(
        "--stale", action="store_true", help="remove only caches whose dataset is gone or changed"
    )
    path = actions.add_parser(
        "path", help="print where the cache is", description="Print the cache's folder or files."
    )
    path.add_argument(
        "datasets", metavar="DATASET", nargs="*", type=place, help="print these datasets' cache files"
    )
    for action in (clear, path):
        add_storage_options(action)
    for action in (ls, clear, path):
        action.add_argument("--dir", metavar="DIR", type=Path, help=_WHERE)
        action.add_argument("--json", action="store_true", help="print one JSON object instead of lines")


def run(arguments: argparse.Namespace) -> int:
    """Run the action."""
    root = (arguments.dir or CacheSetting().folder).absolute()
    if arguments.action == "path":
        return _path(root, arguments)
    with ExitStack() as stack:
        try:
            folder = stack.enter_context(PrivateFolder(root, on_disk=not is_in_memory(root)))
        except FileNotFoundError:
            folder = None
        kept = node_sets() if arguments.dir is None else []
        if arguments.action == "ls":
            return _ls(folder, root, kept, arguments)
        return _clear(folder, root, [] if arguments.stale else kept, arguments)


def _path(root: Path, arguments: argparse.Namespace) -> int:
    folder = folder_path(root)
    names = [set_name(_opened(given, arguments), "encoded") for given in arguments.datasets]
    paths = [str(folder / name) for name in names] or [str(folder)]
    if arguments.json:
        print_json({"paths": paths})
    else:
        print_lines(paths)
    return 0


def _ls(
    folder: PrivateFolder | None, root: Path, kept: Sequence[NodeSet], arguments: argparse.Namespace
) -> int:
    sets = cached_sets(folder) if folder is not None else []
    others = list(other_folders(folder.root)) if folder is not None else []
    if arguments.json:
        owners = [{"folder": str(path), "owner": owner, "bytes": size} for path, owner, size in others]
        facts = {"folder": str(folder_path(root)), "sets": [_facts(each) for each in sets]}
        indexes = [{**asdict(each), "path": str(each.path)} for each in kept]
        print_json({**facts, "others": owners, "indexes": indexes})
        return 0
    total = sum(each.bytes for each in sets)
    lines = [
        f"{folder_path(root)} ({_user(os.geteuid())}): {human_bytes(total)} in {counted(len(sets), 'set')}"
    ]
    lines += map(_line, sets)
    for path, owner, held in others:
        lines.append(f"{path} ({_user(owner)}): {'unknown size' if held is None else human_bytes(held)}")
    if kept:
        total = sum(each.bytes for each in kept)
        lines.append(
            f"{kept[0].path.parent}: {human_bytes(total)}, indexes of {counted(len(kept), 'set')} in stores"
        )
    lines += map(_index_line, kept)
    print_lines(lines)
    return 0


def _index_line(kept: NodeSet) -> str:
    use = "in use" if kept.in_use else "not in use"
    return f"  {kept.source or 'unknown source'}  {kept.path.name}  {human_bytes(kept.bytes)}  {use}"


def _user(uid: int) -> str:
    try:
        return f"user {pwd.getpwuid(uid).pw_name}"
    except KeyError:  # a container knows only its own users
        return f"user {uid}"


def _facts(cached: CachedSet) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "path": str(cached.path),
        "bytes": cached.bytes,
        "owner": cached.path.parent.stat().st_uid,
        "stale": cached.stale or None,
    }
    info = cached.info
    if info is not None:
        facts |= {
            "dataset": str(info.source),
            "seal": info.dataset_id,
            "tier": info.tier,
            "created": info.created,
            "records": info.num_records,
            "set_bytes": info.set_bytes,
            "room_records": info.room_records,
            "room_bytes": info.room_bytes,
            "ready_records": info.ready_records,
            "ready_bytes": info.ready_bytes,
            "in_use": info.in_use,
            "pids": list(users_of(cached.path)) if info.in_use else [],
        }
    return facts


def _line(cached: CachedSet) -> str:
    info = cached.info
    if info is None:
        return f"  {cached.name}  {human_bytes(cached.bytes)}  stale: {cached.stale}"
    filled = info.ready_bytes / info.room_bytes if info.room_bytes else 1.0
    held = info.room_bytes / info.set_bytes if info.set_bytes else 1.0
    created = datetime.datetime.fromtimestamp(info.created).strftime("%Y-%m-%d %H:%M")
    state = f"stale: {cached.stale}" if cached.stale else _use(cached) if info.in_use else "not in use"
    return (
        f"  {info.source}  {info.tier}  {human_bytes(cached.bytes)}  room for {held:.0%} of "
        f"{human_bytes(info.set_bytes)}, {filled:.0%} of it filled  created {created}  {state}"
    )


def _use(cached: CachedSet) -> str:
    pids = users_of(cached.path)
    if not pids:
        return "in use, by processes that cannot be seen from here"
    return f"in use by {counted(len(pids), 'process')}: {', '.join(map(str, pids))}"


def _clear(
    folder: PrivateFolder | None, root: Path, indexes: Sequence[NodeSet], arguments: argparse.Namespace
) -> int:
    removed: list[CachedSet] = []
    kept: list[CachedSet] = []
    if folder is not None:
        with folder.creating():
            clean(folder)
            for cached in _chosen(cached_sets(folder), arguments):
                (removed if remove(folder, cached.name) else kept).append(cached)
    wanted = {str(given).rstrip("/") for given in arguments.datasets}
    chosen = [each for each in indexes if not wanted or each.source in wanted]
    gone = [each for each in chosen if remove_node_set(each)]
    used = [each for each in chosen if each not in gone]
    freed = sum(each.bytes for each in removed) + sum(each.bytes for each in gone)
    if arguments.json:
        paths = [
            [str(each.path) for each in caches] + [str(each.path) for each in stored]
            for caches, stored in ((removed, gone), (kept, used))
        ]
        facts = {"folder": str(folder_path(root)), "bytes": freed}
        print_json({**facts, "removed": paths[0], "in_use": paths[1]})
    else:
        indexed = f", indexes of {counted(len(gone), 'set')} in stores" if gone else ""
        lines = [
            f"{folder_path(root)}: {counted(len(removed), 'set')} removed{indexed}, {human_bytes(freed)}"
        ]
        lines += [f"  kept {cached.path}: {_use(cached)}" for cached in kept]
        print_lines([*lines, *(f"  kept {each.path}: {each.source} is in use" for each in used)])
    return 1 if (kept or used) and arguments.datasets else 0


def _opened(given: str | Path, arguments: argparse.Namespace) -> PackedFiles:
    return PackedFiles(given, entries=False, storage_options=options_for(arguments, given))


def _chosen(found: Sequence[CachedSet], arguments: argparse.Namespace) -> list[CachedSet]:
    sources = {
        given.absolute() if isinstance(given, Path) else _opened(given, arguments).folder
        for given in arguments.datasets
    }
    return [
        each
        for each in found
        if (not arguments.stale or each.stale)
        and (not sources or (each.info is not None and each.info.source in sources))
    ]
