"""Training scripts with one known fault each: what is wrong with them, where, and what mends them.

The scripts are in doctor/cases/. A line with the fault ends in ``# the fault``; ``--mended`` applies the fix.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["CASES", "CAUSES", "FIXES", "FOLDER", "Case", "marked_lines"]

FOLDER = Path(__file__).resolve().parent / "cases"
MARK = "# the fault"

# What can be the cause, and what it means.
CAUSES: Mapping[str, str] = {
    "step": "the model is the limit",
    "step-sync": "the step fetches numbers one by one, or prints them",
    "step-logging": "the step logs, saves or waits for the disk",
    "transfer": "copies to the device",
    "batch-size": "what each step costs beside its samples",
    "no-workers": "the training process loads",
    "few-workers": "fewer workers than cores",
    "many-workers": "workers stand in each other's way",
    "workers-restarted": "workers start anew each epoch",
    "short-epochs": "nothing is loaded ahead at an epoch's start",
    "storage-latency": "each request waits",
    "storage-bandwidth": "bytes come slowly",
    "small-files": "what each file costs beside its bytes",
    "sequential-format": "random reads of what can only be read from its beginning",
    "chunked-container": "chunks are unpacked again for each row",
    "large-pictures": "pictures are much larger than what is made of them",
    "decode": "decoding of pictures",
    "python": "the Dataset's own Python",
    "lock": "a lock lets one load at a time",
    "augmentation": "a transform",
    "collate": "the collate function",
    "pickling": "samples of many objects go through a queue",
    "shared-memory": "large batches are copied through shared memory",
    "processor": "a vision-language model's processor",
    "uneven-ranks": "ranks wait for one that has more to do",
    "divided-twice": "each rank sees a part of its part",
    "mesh": "samples are divided by the wrong rank",
    "swap": "memory is swapped",
    "copy-on-write": "workers copy the Dataset's objects in time",
    "quota": "the CPU quota",
}

# What a fix is called, and words of which one is in the name or the words of the doctor's fix.
FIXES: Mapping[str, tuple[str, ...]] = {
    "workers": ("workers", "fewer-workers"),
    "persistent": ("persistent-workers",),
    "batch": ("batch-size",),
    "epochs": ("longer-epochs",),
    "line": ("line-python", "line-transform", "line-collate", "line-logging", "line-sync", "line-pickling"),
    "smaller": ("max-side",),
    "chunks": ("line-reading",),
    "files": ("line-reading",),
    "decoded": ("line-decode",),
    "bytes": ("line-shared-memory",),
    "balance": ("balance",),
    "lock": ("line-lock",),
    "processor": ("line-processor",),
}


@dataclass(frozen=True)
class Case:
    """A script and the truth about it.

    Args:
        name: of the case.
        script: below FOLDER.
        data: name of its set in doctor/case_data.py.
        causes: those that are right.
        place: whether a line with the fault must be named.
        fix: key of FIXES, whose predicted gain is compared with what ``--mended`` gives; "": none to try.
        arguments: of the script, further ones.
        launch: "" or "torchrun 2".
        trouble: what the environment must have, a key of case_data's TROUBLES; "": nothing.
        notes: what else is to be known.
    """

    name: str
    script: str
    data: str
    causes: tuple[str, ...]
    place: bool = False
    fix: str = ""
    arguments: tuple[str, ...] = ()
    launch: str = ""
    trouble: str = ""
    notes: str = ""

    @property
    def path(self) -> Path:
        """The script."""
        return FOLDER / self.script


def marked_lines(case: Case) -> set[tuple[Path, int]]:
    """The lines with the fault: of the script, and of what lies beside one that has a folder of its own."""
    paths = [case.path] if case.path.parent == FOLDER else sorted(case.path.parent.rglob("*.py"))
    return {
        (path, number)
        for path in paths
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if line.endswith(MARK)
    }


TORCHRUN = "torchrun 2"

# As users of other projects have had them.
REPORTED = (
    Case("Pillow without workers", "pillow_no_workers.py", "photos", ("no-workers",), fix="workers"),
    Case("camera photographs", "camera_photos.py", "camera", ("large-pictures",), fix="smaller"),
    Case("pandas lookup", "pandas_lookup.py", "patients", ("python",), True, "line"),
    Case("HDF5 behind a lock", "hdf5_lock.py", "digits", ("lock", "chunked-container"), True, "chunks",
         notes="the fix reads whole chunks; the lock stays"),
    Case("slow open", "slow_open.py", "photos", ("storage-latency",), True, "workers"),
    Case("two batches an epoch", "two_batches_an_epoch.py", "photos", ("workers-restarted",),
         fix="persistent"),
    Case("batch of one", "batch_of_one.py", "vectors", ("batch-size",), fix="batch"),
    Case("heavy model", "heavy_model.py", "photos", ("step",)),
    Case("saves each step", "saves_each_step.py", "vectors", ("step-logging",), True, "line"),
    Case("noise in Python", "python_noise.py", "photos", ("augmentation", "python"), True, "line"),
    Case("copying collate", "copying_collate.py", "photos", ("collate",), True, "line"),
)  # fmt: skip

OTHERS = (
    Case("one worker", "one_worker.py", "photos", ("few-workers",), fix="workers", notes="no functions"),
    Case("many workers", "many_workers.py", "shards", ("many-workers", "chunked-container"), fix="workers",
         notes="each worker unpacks each shard for itself"),
    Case("lock between threads", "thread_lock.py", "tiles", ("lock",), True, "lock"),
    Case("compressed archive", "tar_gz_scan.py", "tiles", ("sequential-format",), True, "files"),
    Case("Parquet row by row", "parquet_rows.py", "spectra", ("chunked-container",), True, "chunks"),
    Case("elastic deformation", "elastic/train.py", "photos", ("augmentation",), True, "line",
         notes="the transform is in another file"),
    Case("decoding, spawned", "decode_spawn.py", "photos", ("decode",), fix="decoded"),
    Case("ragged collate", "ragged_collate.py", "scenes", ("collate",), True, "line"),
    Case("pickled objects", "pickled_objects.py", "scenes", ("pickling",), fix="line"),
    Case("float scans", "float_scans.py", "large_arrays", ("shared-memory",), fix="bytes"),
    Case("frames as files", "frames_as_files.py", "clips", ("small-files",), True, "files"),
    Case("item for each sample", "item_for_each_sample.py", "vectors", ("step-sync",), True, "line"),
    Case("short epochs", "short_epochs.py", "photos", ("short-epochs",), fix="epochs"),
    Case("raw on a slow disk", "raw_on_slow_disk.py", "raw_pictures", ("storage-bandwidth",),
         trouble="slow_disk", fix="files"),
    Case("tokenizer in Python", "python_tokenizer.py", "reviews", ("python",), True, "line",
         notes="an IterableDataset"),
    Case("list of objects", "object_list.py", "vectors", ("copy-on-write",),
         notes="costs memory, no time as long as there is some"),
    Case("slow processor", "vision_language/train.py", "photos", ("processor",), True, "processor"),
    Case("uneven ranks", "uneven_ranks.py", "two_cameras", ("uneven-ranks",), fix="balance", launch=TORCHRUN),
    Case("divided twice", "divided_twice.py", "vectors", ("divided-twice",), launch=TORCHRUN,
         notes="half of the samples are never seen; the rate is the same"),
    Case("mesh by global rank", "mesh_by_global_rank.py", "vectors", ("mesh",), launch=TORCHRUN,
         notes="a tensor-parallel group gets different samples; the rate is the same"),
)  # fmt: skip

CASES: tuple[Case, ...] = REPORTED + OTHERS
