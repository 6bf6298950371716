"""The tree of causes: what can limit a training loop, how each is told from its neighbours, and what to do.

:data:`CAUSES` is both the program's table and the page docs/guide/causes.md, which is written from it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from fastload.diagnose.attribution import WORDS, Attribution, Place

# ---- What is known of a loop ------------------------------------------------------------------------


@dataclass(frozen=True)
class Evidence:
    """What was measured of a loop with torch's loader. Shares are 0 to 1.

    Args:
        is_limited_by_data: whether faster data would make the loop faster.
        wait: share of the loop's time in which it waits for a batch, or makes it itself.
        starting: share of the loop's time, after its first pass began, in which workers start anew.
        first: share of the loop's time that first batches of later passes take longer than others.
        workers: worker processes.
        cpus: CPUs that the process may use.
        persistent: whether workers live on between passes.
        batch_size: samples of a batch.
        makers: share of the time at work of those who make samples, by kind of work; waits for a CPU are
            taken out.
        loop: share of the loop's time by kind of work in it.
        busy: share of the workers' time in which they have work.
        waits: share of the makers' time at work in which they wait, by what for ("open", "read", ...).
        place: the makers' line with the greatest share, by kind of work.
        step_place: likewise, of the step.
        sample_seconds: seconds that one maker takes for a sample.
        sample_bytes: bytes that are read for a sample; 0: not known.
        picture_side: the longer side of the pictures that are decoded, in pixels (the median); 0: not known.
        batch_side: the longer side of the pictures in a batch; 0: there are none.
        containers: how the arrays are stored that are read.
        fixed: share of a step's time that does not depend on its batch size; None: not known.
        copies: gain that copies from pinned memory would bring.
        gains: what was tried, by its name.
        swapping: share of the makers' and the loop's time in which they wait for pages of memory from swap.
        copied: bytes of memory a second that workers copy because they write to (or count references in) what
            they share with the main process.
        is_step_slower: whether the loader alone is faster than the step alone.
        limited: gain of what a CPU quota takes away.
    """

    is_limited_by_data: bool = True
    wait: float = 0.0
    starting: float = 0.0
    first: float = 0.0
    workers: int = 0
    cpus: float = 1.0
    persistent: bool = False
    batch_size: int = 32
    makers: Mapping[str, float] = field(default_factory=dict)
    loop: Mapping[str, float] = field(default_factory=dict)
    busy: float = 1.0
    waits: Mapping[str, float] = field(default_factory=dict)
    place: Mapping[str, Place] = field(default_factory=dict)
    step_place: Mapping[str, Place] = field(default_factory=dict)
    sample_seconds: float = 0.0
    sample_bytes: float = 0.0
    picture_side: int = 0
    batch_side: int = 0
    containers: tuple[str, ...] = ()
    fixed: float | None = None
    copies: float = 0.0
    gains: Mapping[str, float] = field(default_factory=dict)
    swapping: float = 0.0
    copied: float = 0.0
    is_step_slower: bool = False
    limited: float = 0.0

    def share(self, *kinds: str) -> float:
        """Return the makers' share of these kinds."""
        return sum(self.makers.get(kind, 0.0) for kind in kinds)

    def of_loop(self, *kinds: str) -> float:
        """Return the loop's share of these kinds."""
        return sum(self.loop.get(kind, 0.0) for kind in kinds)

    def on_the_way(self, kind: str) -> float:
        """Return the shares of a kind in workers and in the loop, for batches between them."""
        return self.share(kind) + self.of_loop(kind)

    def library(self, kind: str) -> str:
        """Return the library that the greatest place of a kind has called."""
        return self.place[kind].spot.library if kind in self.place else ""

    @property
    def blocked(self) -> float:
        """Share of the makers' time in which they wait for storage or something like it."""
        return sum(self.waits.get(name, 0.0) for name in ("open", "read", "network", "sleep", "fault"))

    @property
    def is_idle(self) -> bool:
        """Whether workers mostly have no work, although the loop waits."""
        return self.workers > 0 and self.busy < IDLE

    @property
    def is_large(self) -> bool:
        """Whether pictures are much larger than what a batch gets of them."""
        wanted = self.batch_side or 224
        return self.picture_side >= LARGE and self.picture_side >= LARGER * wanted


SHARE = 0.4  # of the makers' time; a kind of work with more limits
HEAVY, MORE = 0.5, 0.15  # of the makers' time in one transform of a library; more, if there are few workers
PART = 0.15  # of the makers' time; a part of samples that is worth a word
SAID = 0.05  # likewise; smaller ones are not said
NEAR = 0.05  # shares of a profile that differ by less are alike
SMALL_SHARE = 0.3  # likewise, for what should take next to nothing
STARTS = 0.08  # share of the loop's time for starting workers anew
MOST_STARTS = 0.25  # likewise, with the waits for first batches, which slow samples have, too
FIRSTS = 0.12  # share of the loop's time for the waits for first batches
IN_STEP = 0.15  # share of the loop's time for what does not train
IDLE = 0.5
LARGE, LARGER = 1000, 2.5  # pixels; times the side of the pictures in a batch
GAIN = 0.10  # a gain that shows a cause
FIXED = 0.5  # share of a step that does not depend on its samples
SMALL_BATCH = 16
SMALL_FILE = 64 << 10  # bytes
BANDWIDTH = 256 << 10  # bytes of a sample from which on the amount counts, and not the number of reads
MOSTLY = 4.0  # times as long in read() as in open(): the amount counts, too
QUICK_OPEN = 0.008  # seconds; slower ones are a slow storage's, however small the file
SWAPS = 0.1
MANY = 1.5  # workers a CPU
COPIED = 20e6  # bytes a second of memory that workers copy
LITTLE = 0.25  # share of waiting above which a step's fixed cost is not what limits
MOST_STEPS = 0.5  # share of waiting above which the step is not looked at


# ---- The table --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cause:
    """One leaf of the tree.

    Args:
        key: its name in ``Verdict.limit`` and in JSON.
        title: its name in words.
        branch: the branch of the tree: "ranks", "step", "loader", "storage", "samples", "passing", "machine".
        symptom: what a user sees.
        test: what the doctor measures, and how it differs from its neighbours.
        fix: what to do.
        gain: what that is expected to give.
        holds: whether the evidence shows it; None: it is found elsewhere (ranks, packed sets).
        headline: the verdict's sentence; ``{place}``, ``{share}`` and the like are filled in.
        kinds: kinds of work whose greatest line the verdict names.
    """

    key: str
    title: str
    branch: str
    symptom: str
    test: str
    fix: str
    gain: str
    headline: str
    holds: Callable[[Evidence], bool] | None = None
    kinds: tuple[str, ...] = ()


def _dominates(e: Evidence, kind: str, least: float = SHARE) -> bool:
    """Whether the makers have work, and this kind is a great part of it and no other one is greater."""
    share = e.share(kind)
    works = e.is_limited_by_data and not e.is_idle
    return works and share >= least and share >= _greatest(e) - 0.1


def _greatest(e: Evidence) -> float:
    """Return the greatest share of the makers' time in one kind of work."""
    return max(e.makers.values(), default=0.0)


def _of_storage(e: Evidence) -> bool:
    return e.is_limited_by_data and not e.is_idle and e.blocked >= SHARE and not _of_container(e)


def _of_container(e: Evidence) -> bool:
    return e.library("reading") in (*CHUNKED, *SEQUENTIAL)


CHUNKED = ("h5py", "zarr", "pyarrow", "tables", "netCDF4")
SEQUENTIAL = ("tarfile", "gzip", "bz2", "lzma", "_compression", "compression", "zipfile", "zlib")


def _in_step(e: Evidence, kind: str) -> bool:
    """Whether something in the step that does not train takes more of the loop than waiting for data does."""
    share = e.of_loop(kind)
    others = max(e.of_loop(other) for other in ("sync", "logging", "copies") if other != kind)
    return share >= IN_STEP and share >= others and (share >= e.wait or e.is_step_slower)


def _is_fixed(e: Evidence) -> bool:
    small = e.batch_size <= SMALL_BATCH and e.fixed is not None and e.fixed >= FIXED
    return small and e.wait < LITTLE and e.gains.get("batch-size", 1.0) >= GAIN


CAUSES: tuple[Cause, ...] = (
    # -- ranks: between processes, found before anything else
    Cause(
        "divided-twice", "Shares divided twice", "ranks",
        "an epoch is 1/N of what it should be; some samples are never seen",
        "the ranks' datasets differ, and their samplers also divide by the number of ranks",
        "a DistributedSampler over the whole dataset, or the rank's own share without one",
        "not speed: the samples that were lost", "Each rank's own share is divided a second time.",
    ),
    Cause(
        "mesh", "Division over the wrong ranks", "ranks",
        "with tensor or pipeline parallelism, losses differ from a run on one rank",
        "a DeviceMesh has a dimension of a model's parts, and the sampler divides over all ranks",
        "num_replicas= and rank= of the data-parallel dimension (fastload: "
        "`ranks=fastload.Ranks(mesh=mesh)`)",
        "not speed: the right samples", "The sampler divides over ranks that train one model together.",
    ),
    Cause(
        "uneven-ranks", "Uneven ranks", "ranks",
        "one rank waits for data, the others wait for it in the step",
        "waiting for a batch, by rank: one is far above the median",
        "what the doctor says of that rank: larger samples, fewer threads, slower storage",
        "up to the waiting of the slow rank", "One rank keeps the others waiting.",
    ),
    Cause(
        "ranks", "A slow rank of fastload's", "ranks",
        "as above, with fastload's loader, which exchanges the ranks' clocks",
        "clocks of each rank, written by its own loader",
        "what helps on the slow rank", "up to the waiting of the slow rank", "One rank is slow.",
    ),
    # -- machine
    Cause(
        "swap", "Memory that swaps", "machine",
        "everything is slow and the disk is busy, although files are cached",
        "pages are read back from swap while the loop runs",
        "fewer workers, a smaller prefetch_factor, a smaller cache; arrays in place of Python objects",
        "the whole of the waiting for pages",
        "Memory swaps: {swapping} of the time goes into reading pages back from swap.",
        lambda e: e.swapping >= SWAPS,
    ),
    Cause(
        "quota", "A CPU quota", "machine",
        "the CPUs of the machine are idle, and the job is throttled",
        "the cgroup's quota is below the CPUs of the affinity mask, and a larger one would help",
        "a larger quota", "computed: what the CPUs would give",
        "The CPU quota is the bottleneck.",
        lambda e: e.is_limited_by_data and e.limited >= GAIN and e.blocked < SHARE,
    ),
    # -- passes
    Cause(
        "workers-restarted", "Workers started anew", "loader",
        "a pause at the start of each epoch; epochs are short",
        "seconds in which workers start and fill their queues again, of each pass but the first; "
        "persistent_workers is False",
        "persistent_workers=True", "measured: whole epochs in both ways",
        "Workers are started anew for each epoch, which takes {starts} of the loop's time.",
        lambda e: e.workers > 0
        and not e.persistent
        and (e.starting >= STARTS or e.starting + e.first >= MOST_STARTS),
        ("starting",),
    ),
    # -- step
    Cause(
        "step-sync", "A step that synchronises", "step",
        "the loop hardly waits for data; `.item()`, `.cpu()` or printing in each step",
        "share of the loop in lines that wait for the device or convert tensors, against logging and copies",
        "fewer of them: every hundredth step, or sums that stay on the device",
        "up to that share", "The step synchronises: {place} takes {share} of the loop's time.",
        lambda e: _in_step(e, "sync"), ("sync",),
    ),
    Cause(
        "step-logging", "Logging and saving", "step",
        "the loop hardly waits for data; files are written in each step",
        "share of the loop in lines that print, write, save or flush, against synchronising and copies",
        "every hundredth step, or in a thread; no fsync",
        "up to that share", "Logging and saving in the step: {place} takes {share} of the loop's time.",
        lambda e: _in_step(e, "logging"), ("logging",),
    ),
    Cause(
        "transfer", "Copies to the device", "step",
        "a GPU waits between steps, and the loop hardly waits for data",
        "a copy of the batch's bytes from pageable memory, timed against one from pinned memory",
        'pin_memory=True and `.to(device, non_blocking=True)`; `fastload.DataLoader(device="cuda")`',
        "measured on the device", "Copying to the device is the bottleneck.",
        lambda e: e.wait < MOST_STEPS and (e.copies >= GAIN or _in_step(e, "copies")), ("copies",),
    ),
    Cause(
        "batch-size", "Small batches", "step",
        "many steps per second; time per sample falls with larger batches",
        "the step on four times the samples, against the step as it is; for packed sets the loader likewise",
        "a larger batch_size; without gradient accumulation, if that was only for memory",
        "measured: loader and step on larger batches",
        "Small batches are the bottleneck: {fixed} of a step's time does not depend on its {batch} samples.",
        _is_fixed,
    ),
    Cause(
        "step", "The model is the limit", "step",
        "the loop hardly waits for data (less than 8% of its time)",
        "the step is no faster on a batch that is already there",
        "nothing in the data: mixed precision, compilation, a smaller model, more GPUs",
        "none for the data", "The training step is the bottleneck.",
        lambda e: not e.is_limited_by_data,
    ),
    Cause(
        "many-workers", "Too many workers", "loader",
        "more workers than CPUs, and less memory",
        "fewer workers, tried in turns, are faster",
        "num_workers= as many as CPUs", "measured",
        "Too many workers: {workers} on {cpus} CPUs hold each other up.",
        lambda e: e.is_limited_by_data
        and e.workers > MANY * e.cpus
        and e.gains.get("fewer-workers", 0.0) >= GAIN,
    ),
    # -- samples
    Cause(
        "lock", "A lock, or a shared handle", "samples",
        "more workers or threads do not help, and the CPUs are idle",
        "share of the makers' time in which they wait for a lock, and whose",
        "a handle for each worker, opened on first use in it; no lock",
        "up to all workers at once",
        "A lock is the bottleneck: {place} waits for it for {share} of the workers' time.",
        lambda e: e.is_limited_by_data and e.share("lock") >= SMALL_SHARE - 0.05, ("lock",),
    ),
    Cause(
        "processor", "A processor of a vision-language model", "samples",
        "CPUs are busy in transformers' processors",
        "share of the makers' time in transformers' processing files, against other transforms",
        "fastload's threads (`fastload.DataLoader(..., transform=fastload.Vision(processor))`); processors' "
        "fast versions; in workers and not in the main process; smaller pictures before it",
        "up to that share",
        "The model's processor is the bottleneck: {place} takes {share} of the time that samples take.",
        lambda e: _dominates(e, "processor"), ("processor",),
    ),
    Cause(
        "video", "Decoding of video", "samples",
        "CPUs are busy decoding video in `__getitem__`; more frames per sample make it slower",
        "share of the makers' time in torchcodec, PyAV, decord and their like, against reading and pictures",
        "frames decoded once, into records that are read one by one: `fastload pack SET OUT --as lerobot`, "
        'and `fastload.Fields(windows=...)` in place of `delta_timestamps`; for other videos, their frames '
        "as files, and `fastload pack --runs`",
        "up to that share, and more; frames need more disk than video",
        "Decoding of video is the bottleneck: {place} takes {share} of the time that samples take.",
        lambda e: _dominates(e, "video", SMALL_SHARE), ("video",),
    ),
    Cause(
        "sequential-format", "Random reads of a sequential format", "samples",
        "reading small samples from a large tar or gzip file takes long",
        "share of the makers' time inside tarfile, gzip and their like, running or waiting",
        "an index of offsets into an uncompressed file; `fastload index` for tars; `fastload pack`",
        "the larger the file, the more",
        "Random reads of a sequential format are the bottleneck: {place} takes {share} of the time that "
        "samples take, in {library}.",
        lambda e: _dominates(e, "reading") and e.library("reading") in SEQUENTIAL, ("reading",),
    ),
    Cause(
        "chunked-container", "A chunked container, read against its chunks", "samples",
        "reading single rows of HDF5, Zarr or Parquet keeps the CPUs busy",
        "share of the makers' time inside the container's library, and the rows of a chunk",
        "chunks of one sample; reads of whole chunks (samples shuffled in blocks); `fastload pack`",
        "up to the rows of a chunk",
        "Reading against the chunks is the bottleneck: {place} takes {share} of the time that samples take, "
        "in {library}{containers}.",
        lambda e: _dominates(e, "reading") and e.library("reading") in CHUNKED, ("reading",),
    ),
    Cause(
        "storage-latency", "Slow storage: latency", "storage",
        "CPUs are idle, and workers wait in open() or read()",
        "share of the makers' time in which they wait for storage; few bytes for each wait",
        "more workers than CPUs, whose waits overlap; shards in place of files; `fastload warm`, cache=",
        "measured: more workers",
        "Slow storage is the bottleneck: {place} waits for {blocked} of the time that samples take "
        "({wait_ms} ms each).",
        lambda e: _of_storage(e) and not _is_bandwidth(e) and not _are_small(e), ("reading", "sleep"),
    ),
    Cause(
        "small-files", "Small files", "storage",
        "CPUs are idle, files are small, and a directory has very many",
        "as before, but each wait is short (below 8 ms) and each file small (below 64 KB); or the CPUs are "
        "busy in open() and read() themselves",
        "shards: `fastload pack`; more workers", "measured, if the files are pictures",
        "Small files are the bottleneck: opening and reading them, at {place}, takes {reading} of the time "
        "that samples take.",
        lambda e: (_of_storage(e) and _are_small(e)) or _are_many(e), ("reading",),
    ),
    Cause(
        "storage-bandwidth", "Slow storage: bandwidth", "storage",
        "the disk or the network is at its limit",
        "as before, but it is read() that waits, not open(), and more workers do not help",
        "smaller records (`pack --max-side`); a cache in memory or on a local disk; `fastload warm`",
        "up to that share",
        "Storage is the bottleneck: {place} waits for {blocked} of the time that samples take, for "
        "{sample_mb} MB each.",
        lambda e: _of_storage(e) and _is_bandwidth(e), ("reading",),
    ),
    Cause(
        "collate", "The collate function", "samples",
        "CPUs are busy in collate_fn", "share of the makers' time in the collate function, by line",
        "whole-array operations (torch.stack, pad_sequence); less work per batch", "up to that share",
        "The collate function is the bottleneck: {place} takes {share} of the time that samples take.",
        lambda e: _dominates(e, "collate"), ("collate",),
    ),
    Cause(
        "large-pictures", "Large pictures", "samples",
        "CPUs are busy decoding, and a batch gets a fraction of each picture",
        "share of the makers' time in decoding, and pictures at least 2.5 times as large as in the batch",
        "`fastload pack --max-side`; Pillow's `Image.draft`; crops that decode only what they need, as "
        "fastload's do",
        "measured on the files themselves",
        "Decoding of large pictures is the bottleneck: {share} of the time that samples take is decoding, at "
        "{place}; they have {side} pixels on a side, a batch {batch_side}.",
        lambda e: _dominates(e, "decode") and e.is_large, ("decode",),
    ),
    Cause(
        "python", "The Dataset's Python", "samples",
        "CPUs are busy in `__getitem__`, not in decoding or transforms",
        "share of the makers' time in the Dataset's own lines, against transforms and decoding",
        "the work done once, before training (in `__init__`, or when packing); vectorised or in a library",
        "up to that share",
        "The Dataset's Python is the bottleneck: {place} takes {share} of the time that samples take.",
        lambda e: _dominates(e, "python"), ("python",),
    ),
    Cause(
        "augmentation", "Heavy augmentation", "samples",
        "CPUs are busy in transforms",
        "share of the makers' time in transforms, by line; one of them dominates",
        "the same transform in fastload.transforms (in C++), in a library, or on the device; fewer of them",
        "up to that share",
        "Augmentation is the bottleneck: {place} takes {share} of the time that samples take.",
        lambda e: _dominates(e, "transform") and _is_heavy(e), ("transform",),
    ),
    Cause(
        "copy-on-write", "Memory that is copied on write", "machine",
        "memory grows with each epoch and each worker, until there is none",
        "memory that each worker has for itself grows by more than 20 MB per second",
        "NumPy arrays or Arrow tables in place of lists and dicts of Python objects in the Dataset",
        "memory; speed only a little",
        "Workers copy the Dataset's memory: it grows by {copied} MB a second, because counting references to "
        "Python objects writes to them.",
        lambda e: e.workers > 0 and e.copied >= COPIED,
    ),
    # -- passing batches between processes
    Cause(
        "pickling", "Pickling of large samples", "passing",
        "workers and the main process are busy, but not with the dataset",
        "share of their time in pickle, for objects that are not tensors; tensors go through shared memory",
        "tensors or NumPy arrays in place of Python objects; a collate function that makes tensors in the "
        "worker",
        "up to that share", "Pickling is the bottleneck: batches take {share} of the time on their way.",
        lambda e: e.is_limited_by_data
        and e.on_the_way("pickling") >= SMALL_SHARE
        and e.on_the_way("pickling") >= e.on_the_way("shared-memory"),
        ("pickling",),
    ),
    Cause(
        "shared-memory", "Copies into shared memory", "passing",
        "large tensors; workers spend their time in torch.stack",
        "share of the workers' time in stacking and sharing tensors, against making samples",
        "smaller samples from the dataset: uint8 in place of float32 (normalise on the device), crops in the "
        "worker; fastload: batches are written where they are needed",
        "measured or up to that share",
        "Copies into shared memory are the bottleneck: {share} of the workers' time.",
        lambda e: e.is_limited_by_data
        and max(e.share("shared-memory"), e.of_loop("shared-memory")) >= SMALL_SHARE,
        ("shared-memory",),
    ),
    Cause(
        "short-epochs", "Short epochs", "loader",
        "a pause at the start of each epoch, although workers are kept",
        "as before, but persistent_workers is True: only the queues run empty",
        "longer epochs: a sampler that repeats the dataset (fastload.RepeatedSampler, torch's RandomSampler "
        "with num_samples=)",
        "up to the share of the pauses",
        "Epochs are short: {starts} of the loop's time is the wait for the first batch of each.",
        lambda e: e.workers > 0 and e.is_limited_by_data and e.persistent and e.first >= FIRSTS,
    ),
    # -- loader
    Cause(
        "no-workers", "No workers", "loader",
        "num_workers=0: the loop makes its samples itself",
        "no kind of work stands out, and the loop's own thread does it",
        "num_workers= as many as CPUs, and persistent_workers=True; fastload",
        "measured", "No workers: the loop makes its samples itself, for {wait} of its time.",
        lambda e: e.is_limited_by_data and e.workers == 0,
    ),
    Cause(
        "few-workers", "Too few workers or threads", "loader",
        "CPUs are idle while the loop waits, and nothing waits for storage",
        "more workers, tried in turns, are faster",
        "num_workers= as many as CPUs; fastload: leave num_workers out, or autotune=True", "measured",
        "Too few workers: {workers} on {cpus} CPUs.",
        lambda e: e.is_limited_by_data
        and not e.is_idle
        and max(e.gains.get("workers", 0.0), e.gains.get("threads", 0.0)) >= GAIN,
    ),
    Cause(
        "decode", "Decoding", "samples",
        "all CPUs decode; pictures are not large", "share of the makers' time in decoding",
        "`fastload pack` (entry points, exact crops); a faster decoder; `cache=fastload.Cache(decoded=)`",
        "measured, if the samples are picture files",
        "Decoding is the bottleneck: {place} takes {share} of the time that samples take.",
        lambda e: e.is_limited_by_data
        and not e.is_idle
        and e.share("decode") > 0
        and e.share("decode") >= e.share("transform", "python"),
        ("decode",),
    ),
    Cause(
        "transform", "Transforms", "samples",
        "all CPUs are busy, in transforms of which none stands out",
        "share of the makers' time in transforms",
        "fastload.transforms (in C++), or on the device", "measured, if the samples are picture files",
        "Transforms are the bottleneck: they take {share} of the time that samples take, most of it at "
        "{place}.",
        lambda e: e.is_limited_by_data
        and not e.is_idle
        and e.share("transform") >= max(SAID, _greatest(e) - NEAR),
        ("transform",),
    ),
    Cause(
        "samples", "Samples, in several places", "samples",
        "all CPUs are busy making samples, and no one part of it takes most of the time",
        "shares of the makers' time by kind of work, of which none is large enough for a cause above",
        "the parts one after the other, the greatest first; `fastload pack` and fastload.transforms, which "
        "take decoding and transforms together",
        "up to the shares of the parts", "Making samples is the bottleneck, in several places: {parts}.",
        lambda e: e.is_limited_by_data and not e.is_idle and _greatest(e) >= SAID,
    ),
    # -- packed sets only
    Cause(
        "storage", "Storage under a packed set", "storage",
        "records arrive more slowly than they are decoded", "cold reads of records, at random and in order",
        '`shuffle="block"`, cache= in memory or on a local disk, `fastload warm`, smaller records',
        "measured",
        "Storage is the bottleneck.",
    ),
    Cause(
        "prefetch", "Uneven samples", "loader",
        "the loader is fast enough on average, but waits come in bursts",
        "a quarter of the waits make up most of the waiting",
        "prefetch_factor=; autotune=True", "measured", "Uneven samples are the bottleneck.",
    ),
    Cause(
        "unknown", "Not found", "machine",
        "none of the above", "nothing that was measured explains the waiting", "`--verbose`, and a profiler",
        "not known", "The bottleneck was not found.", lambda e: True,
    ),
)  # fmt: skip

BY_KEY: Mapping[str, Cause] = {cause.key: cause for cause in CAUSES}


def _is_bandwidth(e: Evidence) -> bool:
    by_open = e.waits.get("open", 0.0) + e.waits.get("sleep", 0.0)
    reads = e.waits.get("read", 0.0) + e.waits.get("fault", 0.0)
    if e.gains.get("workers", 0.0) >= SHARE:
        return False  # more reads at once bring more bytes
    return reads > by_open and (e.sample_bytes >= BANDWIDTH or reads > MOSTLY * by_open)


def _are_small(e: Evidence) -> bool:
    short = e.blocked * e.sample_seconds < QUICK_OPEN
    return short and 0 < e.sample_bytes < SMALL_FILE and e.waits.get("sleep", 0.0) < 0.1


def _are_many(e: Evidence) -> bool:
    """Whether files are opened and read from memory for most of the time: each costs more than its bytes."""
    return _dominates(e, "reading") and e.blocked < SHARE and not _of_container(e)


def _is_heavy(e: Evidence) -> bool:
    """Whether one transform dominates, or the user's own code does it."""
    place = e.place.get("transform")
    if place is None:
        return False
    if place.spot.line > 0 and not place.spot.library:
        return place.share >= SMALL_SHARE
    return place.share >= HEAVY + (MORE if e.workers < e.cpus else 0.0)


def cause_of(evidence: Evidence) -> Cause:
    """Return the first cause of :data:`CAUSES` that the evidence shows."""
    return next(cause for cause in CAUSES if cause.holds is not None and cause.holds(evidence))


# ---- Words ------------------------------------------------------------------------------------------


def headline(cause: Cause, evidence: Evidence) -> str:
    """Return the verdict's sentence."""
    e, place = evidence, place_of(cause, evidence)
    share = place.share if place is not None else 0.0
    if cause.branch == "passing":
        share = max(e.share(*cause.kinds), e.of_loop(*cause.kinds))
    elif cause.key in ("large-pictures", "transform"):
        share = e.share(*cause.kinds)
    stored = f" ({', '.join(e.containers)})" if e.containers else ""
    return cause.headline.format(
        place=place or "code that was not found",
        share=f"{share:.0%}",
        library=e.library("reading"),
        containers=stored,
        blocked=f"{e.blocked:.0%}",
        reading=f"{e.share('reading'):.0%}",
        wait_ms=f"{1000 * e.blocked * e.sample_seconds:.3g}",
        sample_mb=f"{e.sample_bytes / 1e6:.2g}",
        starts=f"{e.starting + e.first:.0%}",
        fixed=f"{e.fixed or 0.0:.0%}",
        batch=e.batch_size,
        side=e.picture_side,
        batch_side=e.batch_side or "fewer",
        workers=f"{e.workers} worker{'s' * (e.workers != 1)}",
        cpus=f"{e.cpus:g}",
        wait=f"{e.wait:.0%}",
        swapping=f"{e.swapping:.0%}",
        copied=f"{e.copied / 1e6:.0f}",
        parts=_parts(e),
    )


def _parts(e: Evidence) -> str:
    """Say which kinds of work samples take, the greatest first, each with its greatest line."""
    kinds = sorted(
        (kind for kind, share in e.makers.items() if share >= PART), key=lambda kind: -e.makers[kind]
    )
    kinds = kinds or sorted(e.makers, key=lambda kind: -e.makers[kind])[:1]
    words = [f"{WORDS.get(kind, kind)} {e.makers[kind]:.0%}" for kind in kinds]
    placed = [f" ({e.place[kind]})" if kind in e.place else "" for kind in kinds]
    return ", ".join(map("".join, zip(words, placed, strict=True))) + " of the time that samples take"


def place_of(cause: Cause, evidence: Evidence) -> Place | None:
    """Return the line that the verdict names; None if the cause is no line's."""
    places = evidence.step_place if cause.branch == "step" else evidence.place
    found = [places[kind] for kind in cause.kinds if kind in places]
    return max(found, key=lambda place: place.share, default=None)


def places_by_kind(attribution: Attribution) -> tuple[dict[str, Place], dict[str, Place]]:
    """Return the greatest line of each kind, of the makers and of the step."""
    makers: dict[str, Place] = {}
    steps: dict[str, Place] = {}
    for place in attribution.places:
        makers.setdefault(place.kind, place)
    for place in attribution.steps:
        steps.setdefault(place.kind, place)
    return makers, steps


# ---- The page ---------------------------------------------------------------------------------------

_BRANCHES = {
    "step": "The step",
    "samples": "Making samples",
    "storage": "Storage",
    "loader": "Workers and passes",
    "passing": "Batches on their way",
    "ranks": "Several ranks",
    "machine": "The machine",
}


def page() -> str:
    """Return docs/guide/causes.md."""
    lines = [
        "---",
        "hide: [toc]",
        "---",
        "# Causes: the tree that the doctor walks",
        "",
        "This page is written from the program's own table, in `fastload/diagnose/causes.py`. The",
        "doctor tries the causes in the order of their numbers. The first one that the measurements show is",
        "the verdict, and its *key* stands in `Verdict.limit` and in `--json`. Causes without a number come",
        "from a comparison of ranks, or from an examination of a packed set.",
        "",
        "Shares of time are those of a profile: what each worker and the loop do, fifty times a second.",
        "Waits for a CPU that other processes use are taken out of them.",
        "",
    ]
    order = {cause.key: str(n) for n, cause in enumerate((c for c in CAUSES if c.holds is not None), 1)}
    for branch, title in _BRANCHES.items():
        lines += [
            f"## {title}",
            "",
            "| | cause | symptom | test | fix | expected gain |",
            "|---|---|---|---|---|---|",
        ]
        for cause in CAUSES:
            if cause.branch == branch:
                name = f"{cause.title} (`{cause.key}`)"
                cells = (order.get(cause.key, ""), name, cause.symptom, cause.test, cause.fix, cause.gain)
                lines.append(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |")
        lines.append("")
    return "\n".join(lines).rstrip("\n") + "\n"
