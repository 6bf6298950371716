"""The DataLoader class: joins sampler, back end, state and clocks, and leaves the work to them."""

from __future__ import annotations

import secrets
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import torch

from fastload.backends.faults import SampleReport
from fastload.backends.iterations import Iterations
from fastload.backends.state import LoaderState, check_kept, keeps_state
from fastload.backends.stats import stage_stats
from fastload.backends.values import Dali, Device, Fields, OnError, Ranks
from fastload.dataset.views import SourceKind, TorchDataLoader
from fastload.errors import StateError, WorldError
from fastload.loader.arguments import (
    Arguments,
    CacheLike,
    Collate,
    OnErrorWord,
    Padding,
    Shuffle,
    TextLike,
)
from fastload.loader.assembly import LoaderPlan
from fastload.loader.epochs import EpochIterator, Epochs
from fastload.loader.keywords import refuse_unknown
from fastload.loader.rank_sampler import RankBatches, sampler_class
from fastload.loader.rebuilt import own_collate, source_of, wraps_ours
from fastload.loader.torch_compat import (
    AutoWorkers,
    accelerate_asks,
    epoch_meant,
    let_skip,
    lightning_made,
    look_for_accelerate,
    set_attributes,
)
from fastload.prefetch.feeder import BatchKey
from fastload.ranks.handshake import Handshake, site_of_loader
from fastload.ranks.preemption import Callbacks
from fastload.ranks.world import OUTSIDE
from fastload.sampler import KeyedSampler, check_position, order_name

if TYPE_CHECKING:
    from fastload.backends.options import Options, Order
    from fastload.backends.protocol import Backend
    from fastload.loader.explain import Explanation
    from fastload.loader.rank_sampler import RankSampler
    from fastload.loader.view import Companion
    from fastload.machine.cpu import ThreadPlan
    from fastload.ranks.world import World
    from fastload.sampler import Sampler
    from fastload.transforms.plan import Plan


# ---- Inspection of a loader -------------------------------------------------------------------------


class Introspection:
    """The part of a DataLoader that only reports: bad samples, clocks, steps, memory."""

    _loader_plan: LoaderPlan
    _epochs: Epochs
    _sampler: RankSampler

    @property
    def errors(self) -> list[SampleReport]:
        """The bad samples met so far (the first 10,000)."""
        return [report for backend in self._epochs.lanes.backends for report in backend.errors]

    def stats(self) -> dict[str, Any]:
        """Return clocks and counts since the loader began (:func:`fastload.backends.stats.stage_stats`).

        If the ranks divide the samples, ``world`` has this one's ``rank``, the world's ``size``, and how
        often they have changed. ``generation``: of a packed set, the one that the epoch has. For a mix,
        ``mixture`` has for each dataset ``where`` it is, the ``samples`` that it has given in the run before
        the consumer's next batch, their ``share`` of all, the share that is the ``wish`` now, and ``pass``,
        how often it has come whole.
        """
        parts = self._loader_plan.dataset.parts if self._loader_plan.packed else ()
        damaged = sum(part.entries.damaged for part in parts if part.entries is not None)
        found = stage_stats(self._epochs.clock, self._epochs.lanes.counts(), damaged)
        beginning = self._loader_plan.beginning
        if beginning.is_divided and beginning.has_begun:
            world = beginning.world
            found["world"] = {"rank": world.rank, "size": world.size, "changes": beginning.moves}
        manifest = getattr(self._loader_plan.set_at(self._epochs.place[0]), "manifest", None)
        found |= {} if manifest is None else {"generation": manifest.generation}
        mixture = self._loader_plan.mixture_at(self._sampler, *self._epochs.place)
        return {**found, "mixture": mixture} if mixture else found

    def explain(self) -> Explanation:
        """Return a printable list of all steps: where each runs, and why."""
        return self._loader_plan.explain(self._sampler.core)

    def memory_plan(self) -> dict[str, int]:
        """Return the bytes that iterating allocates, as upper bounds, and their ``total``.

        ``slots`` batches take ``slot_bytes`` each. ``read_ahead_bytes`` are for records that are not in
        memory, ``source_bytes`` for whole pictures that operations before the crop work on (in all threads),
        ``mosaic_bytes`` for mosaics, ``waiting_bytes`` for records that wait to become coefficients.
        If batches differ in size, ``slot_bytes`` is computed from the set's longest values and largest
        pictures; there may be more batches than ``slots`` if they are smaller, but not more bytes.
        ``pinned_bytes`` of these are page-locked. ``device_slots`` and ``device_bytes`` are held on a device
        for the loader's whole life; each batch takes ``batch_bytes`` more from torch's allocator.
        ``cache_bytes`` are the node cache's, once for all processes of the node, and not in ``total``.

        Raises:
            ValueError: for a torch Dataset, whose workers allocate as they like.
            CacheError: an explicit ``cache`` cannot be provided.
        """
        return self._loader_plan.plan_memory(self._sampler.core)


# ---- DataLoader -------------------------------------------------------------------------------------

if TYPE_CHECKING:
    from typing_extensions import Self
    from typing_extensions import TypeVar as DefaultingTypeVar

    # Without the default every loader would need an annotation.
    T_co = DefaultingTypeVar("T_co", covariant=True, default=Any)
else:
    T_co = TypeVar("T_co", covariant=True)


class DataLoader(Introspection, TorchDataLoader[T_co]):
    """Batches for a training loop, with ``torch.utils.data.DataLoader``'s parameters and more, from threads.

    Args:
        dataset: a folder made by ``fastload pack``, its URL in a store, an open ``PackedDataset``, several of
            these joined by :func:`fastload.mix`, or any torch Dataset, whose code runs in torch's workers.
        batch_size: samples per batch, on this rank; packs with ``fastload.PackingSampler``. None: samples
            one by one.
        shuffle: True: a new uniform order every epoch. "block" or :class:`fastload.Block`: for storage that
            is slow at random reads.
        sampler: ``fastload.WeightedSampler``, ``fastload.PackingSampler`` or another of fastload's, or any
            iterable of sample ids.
        batch_sampler: any iterable of lists of sample ids.
        num_workers: decoding threads; None: this rank's CPU budget. For a torch Dataset: torch's processes.
        collate_fn: called with a batch's list of (image, label), instead of stacking them.
        pin_memory: put batches into pinned memory, if there is CUDA.
        drop_last: leave out an epoch's last, partial batch.
        timeout: seconds to wait for a batch before raising RuntimeError; 0: no limit.
        worker_init_fn, multiprocessing_context: for worker processes; a warning if there are none.
        generator: draws the seed if ``seed`` is None; None: torch's default generator.
        prefetch_factor: batches prepared ahead, in total. None: 2 to 8, and at most 256 MiB of batches that
            vary in size.
        persistent_workers: keep worker processes between epochs. Threads are always kept.
        pin_memory_device, in_order: accepted for compatibility; ignored, with a warning.
        snapshot_every_n_steps: torchdata's, for Datasets that know their own place.
        transform: ``fastload.transforms``, or torchvision's equivalents; None decodes to uint8. Other
            callables run after these, in worker processes.
        seed: order and augmentation depend only on it, on the epoch and on the sample. None: drawn once.
        ranks: None: found by torch.distributed or the launcher; a process group or a DeviceMesh; or
            :class:`fastload.Ranks`.
        on_error: "raise", "skip" or "replace" bad samples; or :class:`fastload.OnError`.
        padding: the last batch of several ranks. "mark": marked entries with label -100 (default without
            shuffle). "repeat": samples from the epoch's beginning (default with shuffle). "end": marked
            entries after all ranks' real ones. "drop": none, so that some ranks have a sample less.
        device: where batches are delivered: None, "cpu", "cuda"; or :class:`fastload.Device`.
        batch_transform: augmentation of whole batches, on the device: ``fastload.transforms.batch``, a
            callable on (images, labels) or on the dict, or a sequence of these.
        autotune: adapt threads and prefetch to measurements. Batches stay the same.
        cache: "auto", "off", a size, "64GB", a share of the memory, "50%", a folder; or
            :class:`fastload.Cache`.
        backend: what decodes: "native", "dali"; or :class:`fastload.Dali`.
        fields: names of the fields to read, None: all; or :class:`fastload.Fields`, which also has windows
            of rows. Batches become dicts.
        collate: the form of batches. "stack": pictures of one size. "pad", "ragged": of different sizes, in
            one padded tensor (:class:`fastload.Pad`) or a list; batches are dicts. "list", "detr", "yolo":
            for these detection trainers (:class:`fastload.Detection`). :class:`fastload.Patches`: rows of
            patches. A callable gets each batch, with pictures that differ in size as a list, and returns
            what is delivered.
        text: by text field, what turns a batch's texts into tokens; :class:`fastload.Tokenizers`; or
            :class:`fastload.Chat`, which makes documents of conversations and pictures.
        storage_options: credentials and other settings of a dataset's URL (``docs/guide/remote.md``).

    It passes ``isinstance`` as a ``torch.utils.data.DataLoader`` and has its attributes, but runs none of its
    code. ``docs/guide/drop-in.md`` says what is the same and what is not.

    Iterating gives ``[images, labels]``: images (batch, 3, height, width) in the transform's dtype, with
    channels_last strides; labels (batch,) int64. For sets with other fields, and with ``fields``,
    "pad" or "ragged", it gives dicts by field name; "valid" says which positions are samples, and
    "pack_offsets", with ``fastload.PackingSampler``, where packs begin.

    Raises:
        ValueError, TypeError: options out of range.
        LibraryMissing: backend="dali", and DALI is not installed.
        FormatError, ShardError: the dataset cannot be opened.
        WorldError: rank and world size contradict each other. At the first batch: only one of them is set, or
            the ranks cannot agree on a seed. Later: they have changed since the loader began.
        CacheError: an explicit ``cache`` cannot be provided (at the first batch).
    """

    _companion: Companion | None = None

    def __new__(cls, *arguments: Any, **named: Any) -> Self:
        """Make a loader: torch's own if it is to wrap another loader's batches (:func:`wraps_ours`)."""
        own: dict[str, Any] = {name: named.get(name) for name in ("batch_sampler", "collate_fn")}
        if wraps_ours(**own):
            return TorchDataLoader(named["dataset"], **own)  # type: ignore[return-value]
        if cls.__init__ is DataLoader.__init__:  # a subclass may take more arguments
            refuse_unknown(DataLoader.__init__, named)
        return super().__new__(cls)

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: Shuffle = None,
        sampler: Iterable[int] | KeyedSampler | None = None,
        batch_sampler: Iterable[Any] | None = None,
        num_workers: int | None = None,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: torch.Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        snapshot_every_n_steps: int | None = 1,
        transform: Any = None,
        seed: int | None = None,
        ranks: Any = None,
        on_error: OnErrorWord | OnError = "raise",
        padding: Padding | None = None,
        device: str | torch.device | Device | None = None,
        batch_transform: Any = None,
        autotune: bool = False,
        cache: CacheLike = "auto",
        backend: Literal["native", "dali"] | Dali = "native",
        fields: Sequence[str] | Fields | None = None,
        collate: Collate = None,
        text: TextLike = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        given = {name: value for name, value in locals().items() if name not in ("self", "__class__")}
        given["collate_fn"] = own_collate(given["collate_fn"])
        if isinstance(num_workers, AutoWorkers):
            given["num_workers"] = None
        self._arguments = Arguments(**given)
        self._callbacks = Callbacks()
        self._arrange(LoaderPlan(self._arguments, site_of_loader()))
        lightning_made(self)

    def _arrange(self, arranged: LoaderPlan) -> None:
        """Set up this loader by a plan."""
        self._loader_plan = arranged
        self._number = secrets.token_hex(8)
        source = partial(source_of, weakref.ref(self), DataLoader) if arranged.packed else None
        kind = sampler_class(arranged.beginning.is_divided, arranged.order)
        sampler = kind(arranged.make_sampler, arranged.known, arranged.dataset, arranged.order, source)
        single = not arranged.packed and arranged.arguments.persistent_workers
        self._epochs = Epochs(
            sampler,  # type: ignore[arg-type]
            Iterations(partial(arranged.start, sampler), movable=arranged.packed, single=single),
            arranged.kind is SourceKind.STREAM,
            arranged.batch_size,
            partial(arranged.before_iteration, sampler),
        )
        sampler.upcoming = partial(_upcoming, weakref.ref(self._epochs))
        sampler.meant = partial(epoch_meant, weakref.ref(self._epochs))
        self._sampler = sampler
        set_attributes(self, arranged)

    @property
    def _is_accelerate_prepared(self) -> bool:
        """Accelerate's mark for loaders that it must not rebuild: fastload handles ranks, order and state."""
        return accelerate_asks(self)

    @_is_accelerate_prepared.setter
    def _is_accelerate_prepared(self, value: bool) -> None:
        """Ignore that Accelerate sets it on what it has prepared."""

    @property
    def sampler(self) -> Any:
        """The sampler that was passed, or else this rank's sample ids in the next epoch.

        These are a ``DistributedSampler`` if the ranks divide the samples, else a ``RandomSampler`` or a
        ``SequentialSampler``. A subclass may set it before the first batch, as with torch's loader.
        """
        given = None if self._loader_plan.beginning.is_divided else self._loader_plan.order.sampler
        return self._sampler if given is None else given

    @sampler.setter
    def sampler(self, sampler: Any) -> None:
        self._replace_order("sampler", sampler)

    @property
    def batch_sampler(self) -> Any:
        """The batch sampler that was passed, or else this rank's batches of sample ids in the next epoch;
        None without batches. A subclass may set it before the first batch, as with torch's loader."""
        arranged = self._loader_plan
        given = None if arranged.beginning.is_divided else arranged.order.batch_sampler
        if given is not None or arranged.unbatched:
            return given
        let_skip()
        return RankBatches(self._sampler, arranged.batch_size, bool(self.drop_last), owner=self)

    @batch_sampler.setter
    def batch_sampler(self, batch_sampler: Any) -> None:
        self._replace_order("batch_sampler", batch_sampler)

    def _replace_order(self, name: str, value: Any) -> None:
        """Let ``value``, which may iterate over the former order, choose the samples. Subclasses of torch's
        loader do this (timm's ``MultiEpochsDataLoader``, Ultralytics' ``InfiniteDataLoader``).

        Raises:
            StateError: iteration has begun.
        """
        before = self._loader_plan
        if value is self._sampler or (type(value) is RankBatches and value.sampler is self._sampler):
            return
        if before.beginning.has_begun:
            raise StateError(
                f"loader.{name} was set after the first batch: its samples would begin anew. Set it when the "
                "loader is made, or make a new DataLoader."
            )
        begin_before = self._sampler.detach(before.begin)
        none: dict[str, Any] = {"shuffle": None, "sampler": None, "batch_sampler": None, "drop_last": False}
        if name == "batch_sampler":
            none["batch_size"] = 1
        own = self._arguments.changed(**none).changed(dataset=before.dataset, storage_options=None)
        self._arrange(LoaderPlan(own.changed(**{name: value}), before.site))
        self._loader_plan.beginning.go_with(before.beginning, begin_before)

    def __repr__(self) -> str:
        return self._loader_plan.described_in_words()

    def __len__(self) -> int:
        """Return the number of this rank's batches in an epoch, which is the same on all ranks."""
        if self._loader_plan.kind is SourceKind.STREAM:
            return len(self._epochs.started())  # type: ignore[arg-type]
        return int(self._sampler.num_batches(self._sampler.epoch))

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        """Iterate over the batches of the next epoch. Nothing starts before the first ``next()``."""
        return self._iterate()

    def __fastload_view__(self) -> View:
        """Return what diagnose and frameworks see; see :func:`fastload.loader.view.view_of`."""
        return View(self)

    def _get_iterator(self) -> Iterator[Any]:  # type: ignore[override]
        """Return a new iterator; subclasses of torch's loader call this."""
        return self._iterate()

    def _iterate(self, skip: int | None = None) -> Iterator[Any]:
        """Iterate over the next epoch from batch ``skip`` on; None: from where a loaded state was saved."""
        iterator = EpochIterator(self._epochs, self, skip)
        if self._companion is None:
            look_for_accelerate(self)
            return iterator
        return self._companion.watch(iterator)

    def set_epoch(self, epoch: int) -> None:
        """Run ``epoch`` next. This is not needed: epochs advance by themselves."""
        self._sampler.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Return what the consumer has received so far (:class:`fastload.backends.state.LoaderState`).

        It describes the iteration that was last asked for a batch. If a torch Dataset knows its own place and
        torchdata is installed, it also has torchdata's keys, for which workers are started.
        """
        kept = self._epochs.place_state() if self._keeps_state else {}
        place = self._epochs.place
        place = place if self._companion is None else self._companion.place(*place)
        return {**self._state(*place).to_dict(), **kept}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where ``state`` was saved, on this or any other number of ranks, in O(1).

        Raises:
            StateError: not a loader state, one of another dataset, seed or order, or a position past the
                epoch's end.
        """
        loaded, kept, is_other = self._checked_state(state)
        if is_other:
            self._epochs.lanes.restart()
        self._go_on_by(loaded)
        self._epochs.resume_at(loaded.epoch, loaded.position, kept)

    def _checked_state(self, state: Mapping[str, Any]) -> tuple[LoaderState, dict[str, Any], bool]:
        """Return a state that fits, the part of it that is a torch Dataset's, and whether its run is another.

        The loader has the state's seed, generation and mix then. If the state does not fit, nothing changes.
        """
        arranged = self._loader_plan
        own, kept = (state, {}) if arranged.packed else LoaderState.divided(state)
        loaded = LoaderState.from_dict(own)
        arranged.check_rank(loaded.rank)
        check_kept(self.dataset, kept)
        before = arranged.run
        try:
            is_other = arranged.adopt_seed(loaded.seed)
            if arranged.go_with(loaded):
                self._sampler.remake()
                is_other = True
            manifest = getattr(arranged.set_at(loaded.epoch), "manifest", None)  # a mix has none
            same_as = () if manifest is None else manifest.all_ids
            differs = self._sampler.core.differs(loaded.shuffle)
            self._state(loaded.epoch, 0).check_fits(loaded, same_as, differs)
            if arranged.adopt_start(loaded.mixture):
                self._sampler.remake()
                is_other = True
            if arranged.kind is not SourceKind.STREAM and not self._sampler.order.is_drawn:
                check_position(self._sampler.core, loaded.epoch, loaded.position)
        except BaseException:
            arranged.run = before
            self._sampler.remake()
            raise
        return loaded, kept, is_other

    def reshard(
        self, rank: Any = None, world_size: int | None = None, *, state: Mapping[str, Any] | None = None
    ) -> None:
        """Take another rank of another world from the next batch on; loader, threads and iterators go on.

        Call it between two batches, on all ranks of the new world, at the same place: with the same number
        of samples over. The rest of the epoch is divided anew, so that no sample is lost or comes twice.
        Batches in work that are due again are kept, others are dropped. In a process group the ranks compare
        their places at the next batch.

        Args:
            rank, world_size: this process's number, and how many there are. ``rank`` may be a process group,
                a ``DeviceMesh`` or :class:`fastload.Ranks` instead. None: found anew, as the loader does.
            state: another rank's ``state_dict()``, to go on where that one is: for a rank that was away.

        Raises:
            WorldError: the ranks do not divide this loader's samples, or the rank is not known.
            StateError: called from within next(); or ``BucketSampler`` in the middle of an epoch, if the
                global batch changes; or the state does not fit. Nothing has changed then.
        """
        arranged, sampler = self._loader_plan, self._sampler
        if arranged.kind is SourceKind.STREAM:
            raise WorldError("An IterableDataset divides its samples itself: reshard() cannot.")
        if self._companion is not None:
            raise StateError(
                "This loader was prepared by Accelerate, which counts its batches for one world. Make a new "
                "Accelerator and a new loader, and call load_state_dict()."
            )
        before = Ranks.of(self._arguments.ranks)
        is_number = world_size is not None or (isinstance(rank, int) and rank != OUTSIDE)
        given = Ranks(rank, world_size) if is_number else Ranks.of(rank)
        ranks = given if isinstance(rank, Ranks) else replace(given, handshake=before.handshake)
        loaded, run = None, arranged.run
        if state is not None:
            loaded, _, is_other = self._checked_state(state)
            if is_other and arranged.beginning.has_begun:
                arranged.run = run
                sampler.remake()
                raise StateError(
                    "The state goes on with another seed, generation or mix than this loader's iterations. "
                    "Call load_state_dict() and reshard() without a state, and iterate anew."
                )
        if not arranged.beginning.has_begun:
            arranged.reshard(ranks, sampler, [])
            self._arguments = self._arguments.changed(ranks=ranks)
            if state is not None:
                self.load_state_dict(state)
        else:
            at = None if loaded is None else (loaded.epoch, loaded.position)
            place = self._epochs.place if at is None else at
            size = sampler.global_batch(place[0]) if loaded is None else loaded.global_batch

            def divide(places: Sequence[tuple[int, int]]) -> Handshake:
                arranged.reshard(ranks, sampler, places)
                sampler.begun = (place[0], size) if size is not None and place[1] else None
                self._arguments = self._arguments.changed(ranks=ranks)
                assert arranged.beginning.agreement is not None
                return arranged.beginning.agreement

            self._epochs.go_on(divide, at, keep=not arranged.plan.puts_together)

    def on_preemption(self, callback: Callable[[], Any]) -> None:
        """After SIGTERM, call ``callback`` once when the next batch is requested; then end by the signal.

        By then all batches received so far have been trained on, so ``state_dict()`` matches the model. A
        handler that was installed before is called when the signal arrives, and then the process goes on
        after the callback, which may register itself again. A second SIGTERM ends it at once. ``callback``
        must not call a collective: other ranks may be a batch behind.

        Raises:
            RuntimeError: called outside the main thread.
        """
        self._callbacks.add(callback)

    def close(self) -> None:
        """End all threads and release the cache now; the loader cannot be used afterwards. Idempotent."""
        self._callbacks.clear()
        self._epochs.close()

    def __enter__(self) -> DataLoader[T_co]:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        """Let a copy begin where a new iteration of this loader would, not in the middle of one."""
        kept = self._epochs.pending_state() if self._keeps_state else {}
        return {
            "arguments": self._arguments.as_keywords(),
            "state": {**self._state(*self._epochs.upcoming()).to_dict(), **kept},
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state["arguments"])  # type: ignore[misc]
        self.load_state_dict(state["state"])

    @property
    def _keeps_state(self) -> bool:
        """Whether the dataset may know its place."""
        return not self._loader_plan.packed and keeps_state(self._loader_plan.dataset)

    def _fetch(self, key: BatchKey) -> Any:
        """Return the batch ``key``, for a loader that a framework built from this one's attributes."""
        return self._epochs.fetch(key)

    def _go_on_by(self, loaded: LoaderState) -> None:
        """In the rest of the epoch, combine samples (mosaics) as the run that began the epoch did."""
        size = loaded.global_batch if loaded.position else None
        before = self._sampler.global_batch(loaded.epoch)
        self._sampler.begun = None if size is None else (loaded.epoch, size)
        if self._sampler.global_batch(loaded.epoch) != before:
            self._epochs.lanes.restart()  # batches in work have other combinations

    def _state(self, epoch: int, position: int) -> LoaderState:
        arranged, sampler = self._loader_plan, self._sampler
        now, then = arranged.set_at(epoch), arranged.set_at(epoch + 1)
        return LoaderState(
            dataset=now.id if arranged.packed else "",
            length=len(now) if arranged.packed else 0,
            seed=arranged.beginning.seed,
            shuffle=order_name(sampler.order, arranged.shuffle, epoch),
            epoch=epoch,
            position=position,
            global_batch=sampler.global_batch(epoch) if arranged.plan.puts_together else None,
            rank=arranged.own_rank,
            mixture=arranged.mixture,
            then=None if then is now else then.id,
        )


def _upcoming(epochs: weakref.ref[Epochs]) -> tuple[int, int] | None:
    alive = epochs()
    return alive.upcoming() if alive is not None else None


# ---- The view of diagnose and of frameworks ---------------------------------------------------------


class View:
    """A loader as :class:`fastload.loader.view.AdaptedLoader`: beside it, as a subclass of a user's may have
    attributes of these names.

    Args:
        loader: the loader.
    """

    def __init__(self, loader: DataLoader[Any]) -> None:
        self.loader = loader
        self.stats, self.memory_plan, self.close = loader.stats, loader.memory_plan, loader.close
        self.state_dict, self.load_state_dict = loader.state_dict, loader.load_state_dict

    def __fastload_view__(self) -> View:
        return self

    def __iter__(self) -> Iterator[Any]:
        return iter(self.loader)

    def __len__(self) -> int:
        return len(self.loader)

    @property
    def _plan(self) -> LoaderPlan:
        return self.loader._loader_plan

    @property
    def dataset(self) -> Any:
        """The dataset that frameworks see."""
        return self.loader.dataset

    @property
    def errors(self) -> list[SampleReport]:
        """The bad samples met so far."""
        return self.loader.errors

    @property
    def arguments(self) -> Arguments:
        """What the user wrote."""
        return self.loader._arguments

    @property
    def options(self) -> Options:
        """What it means; it may change until iteration begins."""
        return self._plan.options

    @property
    def order(self) -> Order:
        """Which samples come when, as far as the arguments say it."""
        return self._plan.order

    @property
    def plan(self) -> Plan:
        """The compiled transform."""
        return self._plan.plan

    @property
    def opened(self) -> Any:
        """The dataset that is read: of pictures and targets, the packed one behind them."""
        return self._plan.dataset

    @property
    def kind(self) -> SourceKind:
        """Who reads the dataset."""
        return self._plan.kind

    @property
    def threads(self) -> ThreadPlan:
        """Decoding threads; they may change until iteration begins."""
        return self._plan.threads

    @property
    def core(self) -> Sampler:
        """This rank's batches of sample ids, in any epoch."""
        return self.loader._sampler.core

    @property
    def backends(self) -> Sequence[Backend]:
        """The back ends that have been started."""
        return self.loader._epochs.lanes.backends

    @property
    def site(self) -> str:
        """The place in the program that made the loader, the same on all ranks."""
        return self._plan.site

    @property
    def is_divided(self) -> bool:
        """Whether the ranks divide the samples among them."""
        return self._plan.beginning.is_divided

    @property
    def has_begun(self) -> bool:
        """Whether rank, world size and seed are fixed."""
        return self._plan.beginning.has_begun

    @property
    def processes(self) -> World:
        """Rank and world size of this process, whether or not the ranks divide the samples."""
        return self._plan.beginning.processes

    def place_of_rank(self) -> tuple[World, int | None]:
        """Return the rank and the world size by which samples are divided, and the seed if it is known."""
        return self._plan.known()

    def again(self, **changes: Any) -> View:
        """Make a loader of the same class over the same open dataset, with some arguments changed."""
        own = self.arguments.changed(dataset=self.loader.dataset, storage_options=None)
        return View(type(self.loader)(**own.changed(**changes).as_keywords()))

    def amend(self, **changes: Any) -> None:
        """Change arguments that a framework decides, before iteration begins.

        Raises:
            StateError: iteration has begun.
            TypeError, ValueError: as when the loader is made.
        """
        if self.has_begun:
            raise StateError(
                f"The loader's {', '.join(changes)} cannot change after the first batch. Prepare it before, "
                "or make a new DataLoader."
            )
        self._plan.amend(changes)
        self.loader._sampler.remake(self._plan.order)
        shown = {name: value for name, value in changes.items() if name in ("batch_size", "device")}
        self.loader.__dict__.update(shown)  # torch refuses to set them

    def divide(self) -> None:
        """Divide the samples among the ranks, before iteration begins."""
        self._plan.divide()
        self.loader._sampler.remake()

    def pad(self, padding: str) -> None:
        """Fill the last batch of several ranks this way; see :class:`fastload.sampler.Partition`."""
        self.loader._sampler.pad(padding)

    def follow(self, companion: Companion) -> None:
        """Let ``companion`` stand around each pass from now on."""
        self.loader._companion = companion

    def iterate_from(self, batch: int) -> Iterator[Any]:
        """Iterate over the next epoch from this batch on."""
        return self.loader._iterate(batch)
