"""LoaderPlan, what follows from a loader's arguments: dataset, plan, options, threads, order, ranks."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from fastload.backends.batch_form import delivers_pairs, runs_python
from fastload.backends.choice import make_backend, makes_empty_batches, plan_memory
from fastload.backends.options import Options, default_prefetch
from fastload.backends.values import Ranks
from fastload.dataset.generations import Generations, order_by_epoch, refuse_nodes, refuse_sampler
from fastload.dataset.mixture import MixedFiles
from fastload.dataset.targets import with_field_target, with_targets
from fastload.dataset.views import (
    SourceKind,
    check_unchanged,
    given_transform,
    is_named,
    kind_of,
    open_dataset,
    transforms_of,
)
from fastload.errors import RankWarning, StateError, WorldError
from fastload.loader.arguments import Arguments
from fastload.loader.compared import compared
from fastload.loader.fitting import check_fit
from fastload.loader.generations import generations_of, tell_of_newer
from fastload.loader.options import resolve
from fastload.loader.rank_sampler import RankBatches, RankSampler
from fastload.machine.cpu import ThreadPlan, find_budget
from fastload.machine.messages import stacklevel
from fastload.machine.sizes import counted
from fastload.ranks.handshake import Handshake
from fastload.ranks.mesh import forget
from fastload.ranks.world import World, find_processes, find_world, local_ranks, warn_of_whole
from fastload.sampler import (
    BlockSampler,
    KeyedSampler,
    Partition,
    Sampler,
    block_sampler,
    check_begun,
    check_position,
    default_blocks,
    make_sampler,
)
from fastload.shard.dataset import PackedFiles
from fastload.transforms.compiler import compile_plan
from fastload.transforms.plan import Plan

if TYPE_CHECKING:
    from fastload.backends.protocol import Backend
    from fastload.backends.state import LoaderState
    from fastload.collate.planned import Collation
    from fastload.loader.collation import PlannedChat
    from fastload.loader.explain import Explanation
    from fastload.loader.windows import LoaderWindows
    from fastload.sample.schema import Captions


# ---- Rank, world size and seed ----------------------------------------------------------------------

_FALLBACK_SEED = 0  # of torch's DistributedSampler


class WorldBinding:
    """Rank, world size and seed of one loader: looked up until its first iteration begins, then fixed.

    A loader may be made before the process group is: by a script that a framework starts again on each rank,
    or in the parent of ``torch.multiprocessing.spawn``.

    Args:
        ranks: the loader's argument.
        seed: the loader's argument; None: drawn from a generator, as by torch's DataLoader.
        generator: draws the seed; None: torch's default generator.
        is_divided: whether the ranks divide the samples among them; else each reads what its dataset and
            sampler give, as with torch's loader, and this loader is the only one of its world.
    """

    def __init__(
        self,
        ranks: Ranks,
        seed: int | None,
        generator: torch.Generator | None,
        is_divided: bool,
    ) -> None:
        self.is_divided = is_divided
        self._ranks = ranks
        self._generator = generator
        self._fixed: World | None = None
        self._began: World | None = None  # the processes at that time
        self._other: tuple[WorldBinding, Callable[[], Any]] | None = None
        #: The handshake with the other ranks, once they are fixed.
        self.agreement: Handshake | None = None
        #: The seed, if it is known.
        self.seed = seed
        #: How often the ranks have changed.
        self.moves = 0

    @property
    def world(self) -> World:
        """Rank and world size: those of the first iteration, if that has begun."""
        return self._fixed or self._find()

    def _find(self) -> World:
        if not self.is_divided:
            return World(0, 1, *local_ranks())
        ranks = self._ranks
        return find_world(ranks.rank, ranks.world_size, group=ranks.group)

    @property
    def processes(self) -> World:
        """Rank and world size of this process, whether or not its ranks divide the samples among them."""
        if self._ranks.rank is not None:
            return self.world
        try:
            return find_processes()
        except WorldError:  # variables are only partly set, and nobody needs them
            return self.world

    def draw_from(self, generator: torch.Generator | None) -> None:
        """Let the seed be drawn from another generator."""
        self._generator = generator

    def in_words(self) -> str:
        """Describe rank and world size, as far as they are known."""
        try:
            world = self.world
        except WorldError:
            return "rank not known yet"
        return f"rank {world.rank} of {world.size}"

    def go_with(self, other: WorldBinding, begin: Callable[[], Any]) -> None:
        """Begin when ``other`` does, with its seed; ``begin`` makes the other one begin."""
        self._other = other, begin

    @property
    def has_begun(self) -> bool:
        """Whether rank, world size and seed are fixed."""
        return self._fixed is not None

    def check(self) -> None:
        """Check the world before each iteration but the first.

        Raises:
            WorldError: the process's rank or world size has changed since the loader began.
        """
        began, now = self._began, self.processes
        if self.is_divided and began is not None and (now.rank, now.size) != (began.rank, began.size):
            raise WorldError(
                f"This loader began as rank {began.rank} of {began.size}, now the process is rank {now.rank} "
                f"of {now.size}: its share of the samples would be wrong. Begin to iterate after the process "
                "group is made; after a change of the world call loader.reshard() on all of its ranks."
            )

    def move(
        self, ranks: Ranks, divide: Callable[[World], None], handshake: Callable[[World], Handshake]
    ) -> None:
        """Take another place among the ranks; nothing has changed if it raises.

        Args:
            ranks: which.
            divide: divides the samples of epochs that are under way.
            handshake: makes the handshake with the other ranks.

        Raises:
            WorldError: the place cannot be found, or the ranks do not divide the samples.
            StateError: the samples cannot be divided otherwise there.
        """
        if not self.is_divided:
            raise WorldError(
                "reshard() is for loaders whose ranks divide the samples among them; this one reads all of "
                "its dataset, as torch's does. Make it with ranks=, for example ranks=fastload.Ranks(rank, "
                "world_size), and without a sampler that has its own rank."
            )
        forget()
        world = find_world(ranks.rank, ranks.world_size, group=ranks.group)
        if self._fixed is None:
            self._ranks = ranks
            self.moves += 1
            return
        agreement, processes = handshake(world), world if ranks.rank is not None else find_processes()
        divide(world)
        self._ranks, self._began, self._fixed, self.agreement = ranks, processes, world, agreement
        self.moves += 1

    def fix(self, handshake: Callable[[World], Handshake], is_random: bool) -> Handshake:
        """Fix rank, world size and seed, and return the handshake with the other ranks.

        Args:
            handshake: makes the handshake.
            is_random: whether order or augmentation depend on the seed.

        Raises:
            WorldError: only one of rank and world size is set, or the ranks cannot agree on a seed or have
                different ones.
        """
        if self._other is not None:
            other, begin = self._other
            if self.seed is not None:  # of a loaded state
                other.seed = self.seed
            begin()
            self.seed = other.seed
        forget()
        world = self._find()
        agreement = handshake(world)
        self.seed = self._agreed(agreement, world, is_random)
        # Set together, even if a signal's handler raises: a loader that has begun has a handshake.
        self.agreement, self._fixed, self._began = agreement, world, self.processes
        return agreement

    def _drawn(self) -> int:
        return int(torch.empty((), dtype=torch.int64, device="cpu").random_(generator=self._generator).item())

    def _agreed(self, agreement: Handshake, world: World, is_random: bool) -> int:
        if self.seed is None and not is_random and not agreement.is_alone:
            self._drawn()  # torch's loader draws one, too
            return _FALLBACK_SEED  # nothing depends on it: no rank has to wait for another
        agreed = agreement.agree(self.seed, self._drawn)
        if agreed is not None:
            return agreed
        warnings.warn(
            f"Rank {world.rank} of {world.size} has no process group in which to agree on a seed, or "
            f'Ranks(handshake="off"), so the seed is {_FALLBACK_SEED}, as that of torch\'s '
            "DistributedSampler. Pass seed=, or make the process group before the first batch.",
            stacklevel=stacklevel(),
        )
        return _FALLBACK_SEED


# ---- The plan of a loader ---------------------------------------------------------------------------

_PLAIN = ("RandomSampler", "SequentialSampler", "WeightedRandomSampler")


class LoaderPlan:
    """What follows from the arguments of one DataLoader.

    Rank, world size and seed may change until iteration begins; what depends on them is made on request.

    Args:
        arguments: the DataLoader's.
        site: where the loader is made, for the handshake.

    Raises:
        See :class:`fastload.DataLoader`.
    """

    def __init__(self, arguments: Arguments, site: str) -> None:
        self.arguments = _unwrapped(arguments)
        self._asked, self.order = resolve(self.arguments)
        self.site = site
        self._fixed: tuple[Options, ThreadPlan] | None = None
        self._said_empty = False
        #: With which generations of the set a job goes on, by its state; (): with the one that was opened.
        self.generations: Generations = ()
        self._threads: dict[tuple[int, int], ThreadPlan] = {}
        self.dataset = open_dataset(self.arguments.dataset, self.arguments.storage_options)
        self.kind = kind_of(self.dataset)
        self._windows: LoaderWindows | None = None
        if self._asked.fields.windows is not None:
            self._take_windows()
        self.beginning = WorldBinding(
            self._asked.ranks, self.arguments.seed, self._asked.generator, is_divided=self._is_divided()
        )
        self._settle()

    def _take_windows(self) -> None:
        """Read the samples that have a window, in the windows' order, with what stands around them."""
        from fastload.loader.windows import LoaderWindows

        windows = self._asked.fields.windowed
        assert windows is not None
        if self._windows is None:
            self._windows = LoaderWindows(self.dataset, self.kind, windows)
            self.dataset = self._windows.dataset
        self._asked, self.order = self._windows.options(self._asked), self._windows.order(self.order)

    def _is_divided(self) -> bool:
        """Whether the ranks divide the samples: always if the loader is given ranks, else by torch's rule.

        torch's loader reads all of a Dataset on each rank, and what a sampler draws belongs to its rank. What
        torch does not know is divided: a packed set's path or URL, mixes, and fastload's samplers.
        """
        if self._asked.ranks.are_given or isinstance(self.order.sampler, KeyedSampler):
            return True
        return not self.order.is_given and is_named(self.arguments.dataset)

    def _settle(self) -> None:
        """Work out what follows from the arguments and the dataset as it is now."""
        self._transforms = transforms_of(self.dataset)
        self.plan, self._settled = self._fitted(self._asked)
        memory = self._settled.device.memory
        if self.plan.scheduled and memory != "fresh":
            raise ValueError(
                f"Device(memory={memory!r}) and ByEpoch exclude each other: batches of another size are "
                "other memory."
            )
        for plan in [plan for _, plan in self.plan.scheduled] or [self.plan]:
            check_fit(self.dataset, self.kind, plan, self._settled, self.order, self.arguments)
        if self.packed and not self.dataset.is_plain:
            from fastload.loader.fitting_fields import warn_of_fields

            warn_of_fields(self.dataset, self.plan, self._settled)
        self.make_sampler(World(), None)  # refuses a sampler that does not fit the dataset

    def _fitted(self, options: Options) -> tuple[Plan, Options]:
        """Return the compiled transform and the options, with what this dataset, ``collate`` and ``text``
        need."""
        plan = self._compiled()
        self._collation: Collation | None = None
        self._text: dict[str, Captions] | PlannedChat = {}
        in_dicts = self.order.in_packs or plan.vision is not None
        if in_dicts and self.packed and delivers_pairs(self.dataset, plan, options):
            # A pair has no place for where packs begin, and for what rows of patches are.
            names = [field.name for field in self.dataset.schema]
            options = replace(options, fields=replace(options.fields, names=names))
        if options.collate_fn is not None and hasattr(self.arguments.dataset, "of_packed"):
            from fastload.loader.collation import of_pictures_and_targets

            options = of_pictures_and_targets(self.arguments.dataset, options)
        if plan.vision is not None:
            from fastload.loader.collation import vision_collation

            self._collation = vision_collation(options, self.dataset, self.kind, plan)
        elif options.collate is not None:
            from fastload.loader.collation import in_pixels, planned_collation, with_wanted

            collation = planned_collation(options, self.dataset, self.kind, plan)
            plan, self._collation = in_pixels(options, collation, plan)
            options = with_wanted(options, self._collation.wanted)
        if options.text is not None and options.text.chat is not None:
            from fastload.loader.collation import planned_chat

            self._text, options = planned_chat(options, self.dataset, self.kind, plan, self.order)
        elif options.text is not None:
            from fastload.loader.collation import planned_text

            self._text, options = planned_text(options, self.dataset, self.kind)
        origins = self._collation is not None and self._collation.needs_origins
        origins = origins or (bool(self._text) and options.errors.action == "replace")
        options = replace(options, origins=origins)
        if not self.packed:
            return plan, options
        if delivers_pairs(self.dataset, plan, options):
            return plan, replace(options, collate_fn=with_targets(self.dataset, options.collate_fn))
        return with_field_target(self.dataset, plan), options

    def _compiled(self) -> Plan:
        given, options = self.arguments, self._asked
        plan = compile_plan(given_transform(self.dataset, given.transform))
        of_torch = self.packed and not is_named(given.dataset) and not plan.steps
        # A Dataset without a transform gives its collate function PIL pictures.
        return replace(plan, picture=True) if of_torch and options.collate_fn is not None else plan

    @property
    def shown(self) -> Any:
        """The value of ``loader.dataset``: the opened dataset, or pictures and targets if there are these."""
        if self._collation is None or self._collation.names is None:
            return self.dataset
        from fastload.dataset.detection import DetectionDataset

        return DetectionDataset(self.dataset, self._collation.names)

    @property
    def packed(self) -> bool:
        """Whether our own threads read the dataset."""
        return self.kind is SourceKind.PACKED

    @property
    def batch_size(self) -> int:
        """Samples per batch on this rank; 1 if a batch sampler decides."""
        return self._settled.batch_size

    @property
    def shuffle(self) -> bool | str:
        """True, False or "block"."""
        return self.order.in_words

    @property
    def unbatched(self) -> bool:
        """Whether samples come one by one."""
        return self._settled.unbatched

    # ---- What depends on rank, world size and seed ------------------------------------------

    @property
    def options(self) -> Options:
        """The options; they may change until iteration begins."""
        return self._now()[0]

    @property
    def threads(self) -> ThreadPlan:
        """Decoding threads; they may change until iteration begins."""
        return self._fixed[1] if self._fixed is not None else self._found_threads()

    def _found_threads(self) -> ThreadPlan:
        """Find the CPU budget in /proc and /sys, once for each local rank that this process has had."""
        here = local_ranks()
        if here not in self._threads:
            options = self._settled
            self._threads[here] = find_budget(*here).plan(options.num_workers, options.autotune)
        return self._threads[here]

    def _now(self) -> tuple[Options, ThreadPlan]:
        if self._fixed is not None:
            return self._fixed
        options, threads = self._settled, self._found_threads()
        prefetch = options.prefetch_factor
        if self.arguments.prefetch_factor is None and self.order.batch_sampler is None:
            prefetch = default_prefetch(threads.threads, self.order.samples_of(options.batch_size))
        seed = self.beginning.seed or 0
        return replace(options, prefetch_factor=prefetch, seed=seed, local_ranks=local_ranks()), threads

    def known(self) -> tuple[World, int | None]:
        """Return rank and world size, and the seed if it is known."""
        return self.beginning.world, self.beginning.seed

    def make_sampler(self, world: World, seed: int | None) -> Sampler:
        """Make the order of samples and this rank's share of it.

        Raises:
            ValueError, TypeError, IndexError: the sampler does not fit the dataset.
        """
        order, seed = self.order, seed or 0
        # A torch Dataset has no labels to mark.
        padding = order.padding if self.packed or order.padding == "drop" else "repeat"
        partition = Partition(self.batch_size, world.rank, world.size, order.drop_last, padding)
        files = self.dataset if self.packed and isinstance(self.dataset, PackedFiles) else None
        own_order = self.dataset.order if isinstance(self.dataset, MixedFiles) else None
        if files is not None:
            block = order.block
            blocks = None if block is None else (block.size, block.window)
            generations = self.generations or ((0, files),)
            if block is not None and block.nodes > 1:
                refuse_nodes([files for _, files in generations])
                files = generations[-1][1]  # by a loaded state perhaps not the newest
                shape = default_blocks(
                    files.num_ids, files.manifest.read_bytes, block.size, block.window, block.nodes
                )
                return block_sampler(files.num_ids, seed, shape, block.nodes, partition)
            own_order = partial(order_by_epoch, generations, blocks=blocks)
            if blocks is not None:
                return BlockSampler(own_order(seed, True), partition)
            if isinstance(order.sampler, KeyedSampler):
                refuse_sampler(files, order.sampler)
        grows = self.kind is SourceKind.MAPPED
        samples = 0 if self.kind is SourceKind.STREAM else None if grows else len(self.dataset)
        return make_sampler(
            samples if files is None else files.num_ids,
            partition,
            shuffle=bool(order.shuffle),
            seed=seed,
            sampler=order.sampler,
            batch_sampler=order.batch_sampler,
            own_order=own_order,
            length=partial(len, self.dataset) if grows else None,
            check_there=files.check_there if files is not None and len(files.dropped) else None,
        )

    def set_at(self, epoch: int) -> Any:
        """Return the dataset as an epoch has it: of a set that has grown, the generation."""
        return next((files for first, files in reversed(self.generations) if first <= epoch), self.dataset)

    def go_with(self, state: LoaderState) -> bool:
        """Take over the generations that a state says; True if the order is another one now.

        Raises:
            StateError: see :func:`fastload.loader.generations.generations_of`.
        """
        if not self.packed or not isinstance(self.dataset, PackedFiles):
            return False
        before = [(first, files.id) for first, files in self.generations]
        self.generations = generations_of(state, self.dataset, self.order.is_given)
        if self.generations:
            tell_of_newer(state, self.generations, self.dataset)
            if self._windows is not None:
                self._windows.of_generations([files for _, files in self.generations])
                self._asked = self._windows.options(self._asked)
                self._settled = self._windows.options(self._settled)
                if self._fixed is not None:
                    self._fixed = self._windows.options(self._fixed[0]), self._fixed[1]
        return before != [(first, files.id) for first, files in self.generations]

    @property
    def is_random(self) -> bool:
        """Whether order or augmentation depend on the seed."""
        plan, options = self.plan, self._settled
        drawn = self.order.shuffle or self.order.is_given
        own = callable(self.arguments.collate_fn) or callable(options.collate)  # which may draw
        own = own or options.batch_transform is not None or self._picks_texts()
        return bool(drawn or plan.is_random or plan.tail or own)

    def _picks_texts(self) -> bool:
        """Whether one of several texts is drawn for each sample."""
        if not isinstance(self._text, dict) or not self._text:
            return False
        from fastload.sample.fields import Texts

        schema = self.dataset.schema
        return any(
            one.pick == "one" and isinstance(schema[name].kind, Texts) for name, one in self._text.items()
        )

    def start(self, sampler: RankSampler) -> Backend:
        """Start a back end."""
        backend = make_backend(
            self.dataset, self.kind, sampler.core, self.plan, self.options, self.threads, self.order
        )
        if self._collation is None and not self._text:
            return backend
        from fastload.loader.collation import after_engine

        return after_engine(backend, self._collation, self._text, self.dataset, sampler.core, self.options)

    def before_iteration(self, sampler: RankSampler) -> Handshake | None:
        """Return the handshake with the other ranks, which the first iteration makes.

        Raises:
            WorldError: the world has changed since the first iteration.
            StateError, ValueError: see :meth:`_check_epoch`.
        """
        if (agreement := self.beginning.agreement) is None or self._fixed is None:
            agreement = self.begin(sampler)
        else:
            self.beginning.check()
            self.check_dataset()
        epoch, position = sampler.place
        if self.kind is not SourceKind.STREAM:
            self._check_epoch(sampler.core, epoch, position)
        return agreement

    def begin(self, sampler: RankSampler) -> Handshake:
        """Fix rank, world size and seed.

        Raises:
            WorldError: see :meth:`fastload.loader.assembly.WorldBinding.fix`.
        """
        self._see_dataset()
        agreement = self.beginning.agreement  # set already if a signal's handler raised below
        agreement = agreement or self.beginning.fix(partial(self._handshake, sampler), self.is_random)
        self._say_whole()
        self._fixed = self._now()
        return agreement

    def _see_dataset(self) -> None:
        """Take the dataset's transforms as they are at the first iteration, as torch's loader does."""
        now = transforms_of(self.dataset)
        if any(one is not before for one, before in zip(now, self._transforms, strict=True)):
            self._settle()
        self.check_dataset()

    def _say_whole(self) -> None:
        """Warn if there are several ranks and each reads all of a dataset."""
        processes, order = self.beginning.processes, self.order.sampler or self.order.batch_sampler
        if self.beginning.is_divided or processes.size == 1 or self.kind is SourceKind.STREAM:
            return
        if order is not None and not _is_plain(order):
            return
        warn_of_whole(self.dataset, processes, self.site)

    @property
    def own_rank(self) -> int | None:
        """This process's rank, if there are several and each has its own order; else None."""
        processes = self.beginning.processes
        return processes.rank if processes.size > 1 and not self.beginning.is_divided else None

    def check_rank(self, saved_by: int | None) -> None:
        """Warn if a state is another rank's, whose order this rank would have from now on."""
        own = self.own_rank
        if own is not None and saved_by is not None and saved_by != own and self.is_random:
            warnings.warn(
                f"This state was saved by rank {saved_by} and is loaded by rank {own}: both have the same "
                "order from now on. The ranks do not divide this loader's samples, so each has a state: save "
                "and load one for each rank.",
                RankWarning,
                stacklevel=stacklevel(),
            )

    def divide(self) -> None:
        """Divide the samples among the ranks, as frameworks do for torch's loader. Only before iteration."""
        self.beginning.is_divided = True

    def check_dataset(self) -> None:
        """Check the dataset before each iteration.

        Raises:
            StateError: the dataset's transform or a Subset's indices have changed since the loader was made.
        """
        check_unchanged(self.dataset, self._transforms)

    def _check_epoch(self, sampler: Sampler, epoch: int, position: int) -> None:
        """Refuse an epoch that cannot be delivered before its first batch.

        Raises:
            StateError: a loaded state's position is past the epoch's end, or a migrated mix began after it.
            ValueError: ``padding="drop"`` would leave a rank an empty batch, which only the core can make.
        """
        check_begun(sampler, epoch, position)
        if position:
            check_position(sampler, epoch, position)
        part = sampler.partition
        if part.drop_last and not position and self._warns_of_empty and not self.order.is_given:
            self._check_any(part, sampler.total(epoch), sampler.unit)
        if part.world_size == 1 or part.drop_last or part.padding in ("repeat", "end"):
            return
        if part.padding == "mark" and not self._warns_of_empty:
            return  # the epoch's length may take a second to find, which nobody needs here
        rest = (sampler.total(epoch) - position) % part.global_batch
        if not 0 < rest < part.world_size:
            return
        if part.padding == "mark":
            self._say_empty(rest, part.world_size, sampler.unit)
            return
        options = self._settled
        if not self.packed or runs_python(self.plan, options) or not makes_empty_batches(options):
            raise ValueError(
                f"padding='drop' leaves {counted(rest, sampler.unit)} for the last batch of "
                f"{part.world_size} ranks, so that some get none. The core makes such batches; Python's "
                "collate functions, batch_transform, device= and backend='dali' do not. Choose another "
                f"batch_size than {part.batch_size}, or another padding, which fastload.valid(batch) "
                "leaves out."
            )

    def _check_any(self, part: Partition, total: int, unit: str) -> None:
        """Warn, once, if an epoch has no batch: a loop over it would train nothing, in silence."""
        if total < part.global_batch:
            self._said_empty = True
            ranks = f" on {part.world_size} ranks" if part.world_size > 1 else ""
            warnings.warn(
                f"An epoch has no batch: {counted(total, unit)}, batch_size={part.batch_size}{ranks} and "
                "drop_last=True. Choose a smaller batch_size, or drop_last=False.",
                stacklevel=stacklevel(),
            )

    @property
    def _warns_of_empty(self) -> bool:
        """Whether a batch that is nothing but padding, or an epoch without batches, gets a warning."""
        return self.packed and self.dataset.is_plain and not self.unbatched and not self._said_empty

    def _say_empty(self, rest: int, ranks: int, unit: str) -> None:
        """Warn of a batch that is nothing but padding: the mean of no losses is nan."""
        self._said_empty = True
        warnings.warn(
            f"The epoch's last batch has {counted(rest, unit)} for {ranks} ranks: on {ranks - rest} of "
            "them it is nothing but padding, with the labels -100, and cross_entropy's mean of it is "
            "nan. Leave the padding out with fastload.valid(batch), and count samples instead of "
            "batches.",
            RankWarning,
            stacklevel=stacklevel(),
        )

    def reshard(self, ranks: Ranks, sampler: RankSampler, places: Sequence[tuple[int, int]]) -> None:
        """Take another place among the ranks; see :meth:`fastload.DataLoader.reshard`.

        Args:
            places: epoch and position of what is under way.

        Raises:
            WorldError, StateError, ValueError: it is not possible; nothing has changed.
        """

        def divide(world: World) -> None:
            furthest, before = max(position for _, position in places), sampler.core.partition
            sampler.divide(world, furthest)
            try:
                for place in places:
                    self._check_epoch(sampler.core, *place)
            except ValueError:
                sampler.core.divide(before, furthest)
                raise

        def handshake(world: World) -> Handshake:
            return Handshake(world, ranks.group, ranks.handshake, self._described(sampler), self.site)

        self.beginning.move(ranks, divide, handshake)
        self.arguments = self.arguments.changed(ranks=ranks)
        self._asked, self._settled = (replace(one, ranks=ranks) for one in (self._asked, self._settled))
        if self._fixed is not None:
            self._fixed = replace(self._fixed[0], ranks=ranks), self._fixed[1]
            sampler.divided()

    def _handshake(self, sampler: RankSampler, world: World) -> Handshake:
        ranks = self._settled.ranks
        return Handshake(world, ranks.group, ranks.handshake, self._described(sampler), self.site)

    def _described(self, sampler: RankSampler) -> Callable[[int], dict[str, Any]]:
        has_length = hasattr(self.dataset, "__len__") and self.kind is not SourceKind.STREAM

        def described(epoch: int) -> dict[str, Any]:
            world, options, dataset = self.beginning.world, self.options, self.set_at(epoch)
            length = len(dataset) if has_length else 0
            found = compared(dataset, length, sampler.core, self.plan, options, self.order, world, epoch)
            later = [
                f"{files.id} from epoch {first} on" for first, files in self.generations if first > epoch
            ]
            return found | {"generations of later epochs": ", ".join(later)}

        return described

    def explain(self, sampler: Sampler) -> Explanation:
        """Explain each step of the loader."""
        from fastload.loader.explain import explain

        return explain(self.dataset, self.kind, sampler, self.plan, self.options, self.threads)

    def plan_memory(self, sampler: Sampler) -> dict[str, int]:
        """Plan the memory; see :meth:`fastload.DataLoader.memory_plan`."""
        if not self.packed:
            raise ValueError("memory_plan() is for packed datasets.")
        return plan_memory(self.dataset, sampler, self.plan, self.options, self.threads)

    def described_in_words(self) -> str:
        """Return the loader's ``repr``: what it reads, how, and by which engine."""
        by_batches = self.order.batch_sampler is not None
        batches = "batch_sampler" if by_batches else f"batch_size={self.batch_size}"
        order = "sampler" if self.order.sampler is not None else f"shuffle={self.shuffle!r}"
        seed = "to be drawn" if self.beginning.seed is None else self.beginning.seed
        parts = [repr(self.dataset), batches, *([] if by_batches else [order])]
        parts += [f"seed {seed}", self.beginning.in_words(), self._engine_in_words()]
        return f"fastload.DataLoader({', '.join(parts)})"

    def _engine_in_words(self) -> str:
        if not self.packed:
            return f"torch's own workers: {self._settled.num_workers or 'none'}"
        python = ""
        if self.plan.tail or self._settled.collate_fn is not None:
            python = ", then Python"
        threads = self.threads.threads
        engine = "native" if self._settled.dali is None else "dali"
        return f"{engine} engine: {threads} thread{'s' if threads != 1 else ''}{python}"

    def amend(self, changes: Mapping[str, Any]) -> None:
        """Change arguments that a framework decides, before iteration begins.

        Raises:
            See :class:`fastload.DataLoader`.
        """
        self.arguments = self.arguments.changed(**changes)
        self._asked, self.order = resolve(self.arguments)
        if self._windows is not None:
            self._take_windows()
        if "generator" in changes:
            self.beginning.draw_from(changes["generator"])
        self.plan, self._settled = self._fitted(self._asked)
        self._threads.clear()

    @property
    def run(self) -> tuple[Any, ...]:
        """What a loaded state may change: the seed, the generations, where a mix began."""
        return self.beginning.seed, self._fixed, self.generations, self.dataset

    @run.setter
    def run(self, before: tuple[Any, ...]) -> None:
        self.beginning.seed, self._fixed, self.generations, self.dataset = before

    def adopt_seed(self, seed: int | None) -> bool:
        """Take over a saved state's seed unless one was given; True if iteration began with another."""
        if seed is None or self.arguments.seed is not None or self.beginning.seed == seed:
            return False
        self.beginning.seed = seed
        if self._fixed is None:
            return False
        self._fixed = None
        self._fixed = self._now()
        return True

    @property
    def mixture(self) -> str | None:
        """Where the mix began, for a state; None: with the run, or the dataset is no mix."""
        start = getattr(self.dataset, "start", None)
        return None if start is None else str(start.to_text())

    def mixture_at(self, sampler: RankSampler, epoch: int, position: int) -> list[dict[str, Any]]:
        """Return what each dataset of a mix has given before a position, and its shares; [] for no mix, or in
        the order of a sampler."""
        if not isinstance(self.dataset, MixedFiles):
            return []
        order: Any = sampler.core.order
        if not hasattr(order, "wished"):
            return []
        given, wished = order.given(epoch, position), order.wished(epoch, position)
        whole = max(1, int(given.sum()))
        return [
            {
                "where": part.where,
                "samples": count,
                "share": count / whole,
                "wish": share,
                "pass": count // len(part),
            }
            for part, count, share in zip(self.dataset.parts, given.tolist(), wished.tolist(), strict=True)
        ]

    def adopt_start(self, mixture: str | None) -> bool:
        """Let the mix begin where a saved state says (``MixtureStart.to_text``), by default with the run;
        return whether it began elsewhere until now.

        Raises:
            StateError: the text is damaged, or the dataset is no mix.
        """
        before = getattr(self.dataset, "start", None)
        if mixture is None and before is None:
            return False
        from fastload.sampler.schedule import MixtureStart

        start = None if mixture is None else MixtureStart.from_text(mixture)
        if start == before:
            return False
        if not isinstance(self.dataset, MixedFiles):
            raise StateError("The state is of a mix that was migrated. Found: a loader of no mix.")
        self.dataset = self.dataset.starting(start)
        return True

    def arguments_here(self) -> Arguments:
        """Return arguments by which another process of this rank makes the same batches, one by one."""
        world, seed = self.known()
        here = self.arguments.changed(dataset=self.dataset, storage_options=None, seed=seed, generator=None)
        ranks = Ranks(world.rank, world.size, handshake="off")
        once = here.changed(ranks=ranks, num_workers=1, prefetch_factor=None)
        return once.changed(device=None, pin_memory=False, autotune=False)


def _is_plain(order: Any) -> bool:
    """Whether a sampler is one of torch's that draws from the whole dataset on each rank."""
    inner = getattr(order, "sampler", order)
    return type(inner).__name__ in _PLAIN and type(inner).__module__.startswith("torch.utils.data.")


def _unwrapped(given: Arguments) -> Arguments:
    """Return the arguments, with samplers that a framework took from another fastload loader resolved."""
    batches = given.batch_sampler
    if type(batches) is RankBatches:
        taken = {"batch_size": batches.batch_size, "drop_last": batches.drop_last}
        given = given.changed(batch_sampler=None, sampler=batches.sampler, **taken)
    if isinstance(given.sampler, RankSampler):
        order = given.sampler.order_given
        shuffle = order.block or order.shuffle
        given = given.changed(shuffle=shuffle, sampler=order.sampler, batch_sampler=order.batch_sampler)
        if given.batch_sampler is not None:
            given = given.changed(batch_size=1, drop_last=False)
    return given
