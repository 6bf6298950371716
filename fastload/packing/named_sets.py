"""Packed sets that a folder or URL names: itself, or those in it, as train/ and val/."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastload.errors import FormatError
from fastload.machine.paths import exists, is_dir
from fastload.remote.opening import place_of, shared_store
from fastload.shard.dataset import PackedFiles
from fastload.shard.manifest import MANIFEST_NAME, Manifest
from fastload.shard.node_sets import read_manifest


def manifest_at(folder: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None) -> Manifest:
    """Read the manifest of a folder or of a URL.

    Raises:
        FormatError: the manifest is missing or damaged.
        RemoteError: the store does not deliver it.
    """
    folder, location, options = place_of(folder, storage_options)
    if location is None:
        return Manifest.read(Path(folder).absolute())
    return read_manifest(location, shared_store(location, options))


def sets_in(
    folder: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None
) -> dict[str, str]:
    """Return the packed datasets directly inside a folder or URL, by name; none if that is a dataset itself.

    Raises:
        OSError: the folder, or one in it, cannot be looked into.
        RemoteError: the store cannot be listed.
    """
    place, location, options = place_of(folder, storage_options)
    if location is None:
        if not is_dir(place) or exists(Path(place) / MANIFEST_NAME):
            return {}
        paths = (Path(place) / name for name in sorted(os.listdir(place)))
        return {path.name: str(path) for path in paths if exists(path / MANIFEST_NAME)}
    prefix = f"{location.path}/" if location.path else ""
    inside = [file.path[len(prefix) :] for file in shared_store(location, options).list(prefix)]
    if MANIFEST_NAME in inside:
        return {}
    names = [name.removesuffix(f"/{MANIFEST_NAME}") for name in inside if name.endswith(f"/{MANIFEST_NAME}")]
    return {name: str(location / name) for name in sorted(names) if "/" not in name}


def opened_sets(
    folder: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None
) -> dict[str, PackedFiles]:
    """Open the dataset at a folder or URL, whose name is "" here, or else those in it, as train/ and val/.

    Raises:
        FormatError: there is none, or one is damaged.
        OSError, RemoteError: see :func:`sets_in`.
    """
    try:
        return {"": PackedFiles(folder, storage_options=storage_options)}
    except FormatError:
        places = sets_in(folder, storage_options)
        if not places:
            raise
        return {name: PackedFiles(at, storage_options=storage_options) for name, at in places.items()}


def has_entries(folder: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None) -> bool:
    """Whether a folder or a URL has entry points.

    Raises:
        RemoteError: the store does not answer.
    """
    name = manifest_at(folder, storage_options).entries_name
    folder, location, options = place_of(folder, storage_options)
    if location is None:
        return exists(Path(folder).absolute() / name)
    return shared_store(location, options).head((location / name).path) is not None
