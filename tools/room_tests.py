"""Which tests cover which room: tables for fastload/ and csrc/core/, by which ``make check`` chooses tests.

A new room gets a line here and in tests/contract/test_layers.py, which compares the two.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ALWAYS", "CORE_ROOMS", "ROOMS", "CoreRoom", "Room"]


@dataclass(frozen=True)
class Room:
    """Tests of a room of fastload/: folders and files below tests/.

    ``slow_from``: where a room has more tests than fit into a check, those of so many seconds stay out.
    """

    tests: tuple[str, ...]
    slow_from: float | None = None


@dataclass(frozen=True)
class CoreRoom:
    """Tests of a room of csrc/core/: words of tests/cpp/test_WORD.cpp and memory/, and rooms of fastload/."""

    words: tuple[str, ...]
    rooms: tuple[str, ...] = ()


# Of every change: the rules of the house, and what a user's first lines need.
ALWAYS = tuple(
    f"contract/test_{word}.py" for word in ("layers", "house_rules", "types", "first_batch", "resolve")
)

ROOMS: dict[str, Room] = {
    "_version": Room(("contract/test_package.py",)),
    "errors": Room(("contract/test_faults.py", "contract/test_handlers.py")),
    "extras": Room(("contract/test_extras.py",)),
    "unbuilt": Room(("contract/test_package.py", "install")),
    "_native": Room(("contract/test_package.py", "contract/test_loader.py")),
    "machine": Room(
        (
            "contract/test_cpu_budget.py",
            "contract/test_interrupts.py",
            "contract/test_no_proc.py",
            "contract/test_regular_files.py",
            "contract/test_temporary.py",
            "cache/test_settings.py",
            "cache/test_small_machines.py",
            "pack/test_looks.py",
            "prefetch",
        )
    ),
    "sample": Room(("sample",)),
    "collate": Room(("sample", "transfer/test_collate_on_device.py", "transfer/test_nested.py")),
    "remote": Room(("remote",)),
    "transforms": Room(("transform",), slow_from=0.3),
    "vlm": Room(("vlm",)),
    "shard": Room(("shard", "golden", "attacks", "pack/test_roundtrip.py")),
    "sampler": Room(("sampler",)),
    "dataset": Room(
        (
            "decode",
            "shard/test_dataset.py",
            "contract/test_from_torch.py",
            "contract/test_mix.py",
            "contract/test_pictures.py",
            "contract/test_several_views.py",
            "contract/test_targets.py",
            "contract/test_torch_dataset.py",
            "contract/test_views.py",
        )
    ),
    "prefetch": Room(("prefetch",)),
    "cache": Room(("cache",)),
    "packing": Room(("pack", "golden", "attacks"), slow_from=0.2),
    "transfer": Room(("transfer",)),
    "backends": Room(("prefetch", "transfer", "callables", "dali", "contract/test_loader.py"), slow_from=0.3),
    "ranks": Room(("ranks",)),
    "loader": Room(("contract", "callables"), slow_from=0.2),
    "diagnose": Room(("diagnose",)),
    "integrations": Room(
        (
            "contract/test_dlio.py",
            "contract/test_frameworks.py",
            "contract/test_from_torch.py",
            "diagnose/test_streams.py",
        )
    ),
    "cli": Room(
        (
            "contract/test_interrupts.py",
            "contract/test_terminal.py",
            "pack/test_cli.py",
            "pack/test_cli_words.py",
            "pack/test_entries_cli.py",
            "remote/test_commands.py",
            "tools",
        )
    ),
    "__init__": Room(("contract/test_package.py", "contract/test_promises.py")),
    "__main__": Room(("contract/test_package.py",)),
}

CORE_ROOMS: dict[str, CoreRoom] = {
    "base": CoreRoom(("base", "exit_gate", "fused", "memory_instrument"), ("_native",)),
    "io": CoreRoom(("buffer_pool", "byte_source", "file_bytes", "guarded_range", "memory_shard"), ("shard",)),
    "decode": CoreRoom(
        (
            "decode",
            "orientation",
            "entropy",
            "coefficients",
            "jpeg",
            "jpeg_damage",
            "jpeg_kernels",
            "memory_decode",
        ),
        ("dataset",),
    ),
    "transform": CoreRoom(
        ("blur", "cut", "noise", "pixels", "pointwise", "transform", "view", "warp", "memory_transform"),
        ("transforms",),
    ),
    "vision": CoreRoom(("vision", "memory_transform"), ("transforms",)),
    "collate": CoreRoom(("engine", "memory_feed"), ("collate",)),
    "shard": CoreRoom(("index", "entries", "memory_shard"), ("shard",)),
    "remote": CoreRoom(("remote", "memory_shard"), ("remote",)),
    "transcode": CoreRoom(("coding_choice", "coefficients", "jpeg_parts", "memory_transcode"), ("dataset",)),
    "cache": CoreRoom(
        ("cache", "decoded", "disk_tier", "filler", "memory_cache", "cache_schedules", "tier_schedules"),
        ("cache",),
    ),
    "sample": CoreRoom(("fields", "objects", "memory_feed"), ("sample",)),
    "sampler": CoreRoom(("packing",), ("sampler",)),
    "read_ahead": CoreRoom(("read_ahead", "byte_source"), ("prefetch",)),
    "engine": CoreRoom(
        (
            "engine",
            "kept_pictures",
            "memory_engine",
            "memory_feed",
            "pool",
            "prefetch",
            "record_feed",
            "shared_picture",
            "windows",
        ),
        ("prefetch", "_native"),
    ),
    "pack": CoreRoom(("memory_transcode",), ("packing",)),
}
