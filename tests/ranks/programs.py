"""What the ranks do: training scripts in miniature, each a function. Started by launch.py.

programs.py PROGRAM ARGUMENTS...                     one rank; the launcher's variables say which
programs.py --fork RANKS PORT PROGRAM ARGUMENTS...   so many ranks, with torchrun's variables
"""

from __future__ import annotations

import datetime
import hashlib
import itertools
import json
import os
import random
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from process import SLOWER

import fastload
from fastload import DataLoader, Ranks, errors
from fastload import transforms as T
from fastload.ranks import handshake
from fastload.ranks import handshake as exchange

CROP = T.RandomResizedCrop(8)
HANG = 240 * SLOWER  # seconds


def join(patience: float = HANG) -> int:
    """Join the process group that the launcher's variables describe; this rank.

    ``patience``: seconds that handshakes wait for the other ranks.
    """
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=HANG))
    handshake.WAIT_SECONDS = patience
    exchange._GATHER_SECONDS = HANG  # a busy machine lets ranks come late; all of them do come
    return dist.get_rank()


def wait_for(*paths: Path) -> None:
    """Until all of these files are there."""
    while not all(path.exists() for path in paths):
        time.sleep(0.02)


def write(folder: str, rank: int, result: Any) -> None:
    """This rank's result, whole or not at all."""
    path = Path(folder) / f"rank{rank}.json"
    path.with_suffix(".part").write_text(json.dumps(result))
    path.with_suffix(".part").rename(path)


def labels_of(batches: Any) -> list[list[int]]:
    return [labels.tolist() for _, labels in batches]


def flat(batches: list[list[int]]) -> list[int]:
    return [label for batch in batches for label in batch]


def everything(data: str, folder: str) -> None:
    """Two epochs, exact evaluation with summed metrics, stop and resume; nothing names a rank."""
    if "RANK" in os.environ:
        join()
    world = dist.get_world_size() if dist.is_initialized() else 0
    torch.manual_seed(world and dist.get_rank())  # the ranks' generators differ; the first one's counts
    train = DataLoader(data, batch_size=3, shuffle=True, num_workers=1, transform=CROP)
    epochs = [labels_of(train), labels_of(train)]
    settings: Any = {"shuffle": True, "num_workers": 1, "transform": CROP, "seed": train.sampler.seed}
    stopped = DataLoader(data, batch_size=3, **settings)
    iterator = iter(stopped)
    next(iterator)
    next(iterator)
    resumed = DataLoader(data, batch_size=3, shuffle=True, num_workers=1, transform=CROP)
    resumed.load_state_dict(stopped.state_dict())
    val = labels_of(DataLoader(data, batch_size=3, num_workers=1, transform=CROP))
    # A metric as users compute it: hits and samples, marked rows left out, summed over the ranks.
    counted = [label for batch in val for label in batch if label != -100]
    metric = torch.tensor([sum(label % 3 == 0 for label in counted), sum(counted), len(counted)])
    if world:
        dist.all_reduce(metric)
    own = train._loader_plan.beginning.world
    result = {
        "length": len(train),
        "seed": train.sampler.seed,
        "epochs": epochs,
        "resumed": labels_of(resumed),
        "val": val,
        "metric": metric.tolist(),
        "world": [own.rank, own.size, own.local_rank, own.local_size],
    }
    write(folder, own.rank, result)
    if world:
        dist.destroy_process_group()


def everything_by_slurm(data: str, folder: str, address: str) -> None:
    """The same as a task of srun, which joins the group by SLURM's variables itself."""
    numbers = {"rank": int(os.environ["SLURM_PROCID"]), "world_size": int(os.environ["SLURM_NTASKS"])}
    dist.init_process_group("gloo", init_method=address, **numbers)
    everything(data, folder)


def spawned(rank: int, world: int, store: str, data: str, folder: str) -> None:
    """A rank of torch.multiprocessing.spawn: no launcher's variables at all."""
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    everything(data, folder)


def spawn(world: str, data: str, folder: str) -> None:
    """mp.spawn."""
    arguments = (int(world), f"{folder}/store", data, folder)
    torch.multiprocessing.spawn(spawned, arguments, nprocs=int(world))


def first_batch(data: str, **options: Any) -> str:
    """ "" or the error's text, of a loader's first batch."""
    settings = {"batch_size": 2, "shuffle": True, "num_workers": 1, "transform": CROP, **options}
    loader = DataLoader(data, **settings)
    try:
        next(iter(loader))
    except errors.WorldError as error:
        return str(error)
    return ""


def handshakes(data: str, copy: str, other: str, folder: str) -> None:
    """Loaders that are equal, and that differ on the last rank, one after the other."""
    rank = join()
    last = rank == dist.get_world_size() - 1
    divided = {"ranks": dist.group.WORLD}  # which torch's rule does not do
    found = {
        "equal": first_batch(data, num_workers=1 + rank, prefetch_factor=1 + rank),
        "copy": first_batch(copy if last else data),
        "named": first_batch(data, fields=["image", "label"]),
        "fields": first_batch(data, fields=["image"] if last else ["image", "label"]),
        "dataset": first_batch(other if last else data),
        "order": first_batch(data, shuffle=None, sampler=list(range(53))[:: -1 if last else 1], **divided),
        "seed": first_batch(data, seed=5 if last else 0),
        "batch_size": first_batch(data, batch_size=3 if last else 2),
        "transform": first_batch(data, transform=T.RandomResizedCrop(9) if last else CROP),
        "torch": first_batch(
            torch.utils.data.TensorDataset(torch.zeros(9 + last)), transform=None, **divided
        ),
    }
    loader = DataLoader(data, 2, num_workers=1, transform=CROP, seed=0)
    next(iterator := iter(loader))
    state = loader.state_dict()
    del iterator
    resumed = DataLoader(data, 2, num_workers=1, transform=CROP, seed=0)
    if last:
        resumed.load_state_dict(state)
    try:
        next(iter(resumed))
    except errors.WorldError as error:
        found["state"] = str(error)
    found["afterwards"] = first_batch(data)
    value = torch.ones(1)
    dist.all_reduce(value)  # the handshakes left the group's own collectives alone
    write(folder, rank, {**found, "sum": value.item()})
    dist.barrier()
    dist.destroy_process_group()


def absent(data: str, folder: str, policy: str) -> None:
    """The last rank makes no loader; the others find out, once they have found each other."""
    rank = join(patience=0.5)
    last = dist.get_world_size() - 1
    if rank == last:
        wait_for(*(Path(folder, f"rank{other}.json") for other in range(rank)))
        return
    wait = handshake.Handshake._wait

    def wait_longer(self: handshake.Handshake, met: exchange.Exchange) -> None:
        while met.missing != [last]:
            time.sleep(0.02)
        wait(self, met)

    handshake.Handshake._wait = wait_longer  # type: ignore[method-assign]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        error = first_batch(data, ranks=Ranks(handshake=policy), seed=0)
    write(folder, rank, {"error": error, "warnings": [str(warning.message) for warning in caught]})
    if rank == 0:  # the store's host
        wait_for(*(Path(folder, f"rank{other}.json") for other in range(last)))
    os._exit(0)


def orphaned(data: str, folder: str) -> None:
    """The first rank, which hosts the store, dies while the others wait for it at the handshake."""
    rank = join()
    if rank == 0:
        wait_for(Path(folder, "waiting"))
        time.sleep(0.3)
        os._exit(0)
    Path(folder, "waiting").touch()
    write(folder, rank, first_batch(data))
    os._exit(0)


def late(data: str, folder: str) -> None:
    """The last rank comes after the others have gone on without it, and differs."""
    rank = join(patience=0.5)
    last = rank == dist.get_world_size() - 1
    if last:
        wait_for(*(Path(folder, f"passed{other}") for other in range(rank)))
    warnings.simplefilter("ignore")
    loader = DataLoader(data, 1, num_workers=1, seed=int(last), transform=CROP)
    error = ""
    try:
        while not error:
            for _ in loader:
                Path(folder, f"passed{rank}").touch()
                time.sleep(0.01)
    except errors.WorldError as raised:
        error = str(raised)
    write(folder, rank, error)
    if rank == 0:  # the store's host
        wait_for(*(Path(folder, f"rank{other}.json") for other in range(dist.get_world_size())))
    os._exit(0)


def groups(data: str, folder: str) -> None:
    """Four ranks, two by two: in each pair (tensor parallelism) the same batches; then one alone."""
    rank = join()
    pairs = [dist.new_group([0, 2]), dist.new_group([1, 3])]  # data parallel: the same half of each model
    own = pairs[rank % 2]
    loader = DataLoader(data, 3, shuffle=True, num_workers=1, transform=CROP, ranks=own)
    labels = labels_of(loader)
    refused = ""
    try:
        next(iter(DataLoader(data, 3, num_workers=1, transform=CROP, ranks=pairs[1 - rank % 2])))
    except errors.WorldError as error:
        refused = str(error)
    alone = -1
    if rank == 1:  # a loader that only one rank makes, and gives it a world of its own
        alone = len(labels_of(DataLoader(data, 3, num_workers=1, transform=CROP, ranks=Ranks(0, 1))))
    value = torch.ones(1)
    dist.all_reduce(value)
    write(folder, rank, {"labels": labels, "refused": refused, "alone": alone})
    dist.destroy_process_group()


def rows(data: str, folder: str, share: str, seed: str, joins: str) -> None:
    """Rows beside torch's loader, form by form; the ranks know of each other by a group or by variables."""
    from row_table import differences

    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if joins == "group":
        join()
    looked_at, found = differences(data, rank, world, float(share), int(seed))
    write(folder, rank, {"looked at": looked_at, "differences": found, "own": own_rows(data)})
    if joins == "group":
        dist.barrier()
        dist.destroy_process_group()


def own_rows(data: str) -> dict[str, Any]:
    """What fastload's own names of data give a rank: paths and mixes, which torch does not know."""
    sequential = torch.utils.data.SequentialSampler(range(30))
    warnings.simplefilter("ignore")
    options: Any = {"batch_size": 4, "num_workers": 1, "transform": CROP, "seed": 0}
    packed = fastload.PackedDataset(data)
    made = {
        "path": DataLoader(data, **options),
        "path, shuffled": DataLoader(data, **options, shuffle=True),
        "mix": DataLoader(fastload.mix([data]), **options),
        "own sampler": DataLoader(
            packed, **options, sampler=fastload.SubsetSampler(range(30), shuffle=False)
        ),
        "path, sampler of torch's": DataLoader(data, **options, sampler=sequential),
        "made from another's dataset": DataLoader(DataLoader(data).dataset, **options),
    }
    if dist.is_initialized():
        group = dist.group.WORLD
        made["told of a group"] = DataLoader(packed, **options, ranks=group)
        made["sampler, told of a group"] = DataLoader(packed, **options, ranks=group, sampler=sequential)
    return {name: flat(labels_of(loader)) for name, loader in made.items()}


def hashes(loader: Any, most: int = 100) -> list[str]:
    """Each batch's pixels and labels, as a word."""
    found = []
    for images, labels in itertools.islice(loader, most):
        found.append(hashlib.sha256(images.numpy().tobytes() + labels.numpy().tobytes()).hexdigest()[:12])
    return found


def meshes(data: str, folder: str) -> None:
    """Eight ranks, 2 x 2 x 2: which batches each one gets, however it is seeded and told of the mesh."""
    from torch.distributed.device_mesh import init_device_mesh

    rank = join()
    mesh = init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=("pp", "dp", "tp"))
    mine, options = mesh["dp"].get_group(), {"num_workers": 1, "transform": CROP, "shuffle": True}
    generator = torch.Generator().manual_seed(100 + rank)
    found, labels = {}, {}
    ways: Any = {
        "found": {},
        "a generator of each rank": {"generator": generator},
        "a seed": {"seed": 7},
        "group": {"ranks": mine},
        "mesh of one dimension": {"ranks": mesh["dp"]},
        "whole mesh": {"ranks": mesh},
    }
    for name, given in ways.items():
        torch.manual_seed(rank)  # as many programs do, for dropout
        found[name] = hashes(DataLoader(data, 4, **options, **given))
        labels[name] = labels_of(
            DataLoader(data, 4, **{**options, "transform": CROP}, **{"seed": 7, **given})
        )
    stopped = DataLoader(data, 4, **options, seed=3)
    begun = hashes(stopped, 2)
    rest = rows_left(data, stopped.state_dict(), 4, options, mesh)
    other = init_device_mesh("cpu", (4, 2), mesh_dim_names=("dp_shard", "cp"))
    wider = rows_left(data, stopped.state_dict(), 2, options, other)
    place = mesh.get_coordinate()
    write(folder, rank, {"place": place, "found": found, "labels": labels, "begun": begun, "rest": rest,
                         "wider": wider, "wide place": other.get_coordinate()})  # fmt: skip
    dist.barrier()
    dist.destroy_process_group()


def rows_left(data: str, state: Any, batch_size: int, options: Any, mesh: Any) -> list[list[int]]:
    """The labels of what is left of an epoch, on the ranks of ``mesh``."""
    resumed = DataLoader(data, batch_size, **options, seed=3, ranks=mesh)
    resumed.load_state_dict(state)
    return labels_of(resumed)


def odd_meshes(data: str, folder: str) -> None:
    """Four ranks whose mesh does not say which of them have different data, and what they shall write."""
    from torch.distributed.device_mesh import init_device_mesh

    rank = join()
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))
    found = {"nothing said": first_batch(data), "mesh": first_batch(data, ranks=mesh)}
    told = DataLoader(data, 4, num_workers=1, transform=CROP, ranks=mesh.get_group("a"))
    whole = DataLoader(fastload.PackedDataset(data), 4, num_workers=1, transform=CROP)
    warnings.simplefilter("ignore")
    found["told"], found["a Dataset"] = labels_of(told), labels_of(whole)
    write(folder, rank, {**found, "place": mesh.get_coordinate()})
    dist.barrier()
    dist.destroy_process_group()


def validates_alone(data: str, folder: str) -> None:
    """Rank 0 validates, in each way that there is; the other one waits for it."""
    rank = join(patience=0.5)
    found: dict[str, Any] = {}
    if rank == 0:
        options: Any = {"batch_size": 4, "num_workers": 1, "transform": T.CenterCrop(8)}
        for name, dataset, given in (
            ("a Dataset", fastload.PackedDataset(data), {}),
            ("a path", data, {}),
            ("a path, no handshake", data, {"ranks": Ranks(handshake="off")}),
            ("a path, drawn", data, {"shuffle": True}),
            ("a world of its own", data, {"ranks": Ranks(0, 1), "shuffle": True}),
        ):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                try:
                    rows: Any = flat(labels_of(DataLoader(dataset, **options, **given)))
                except errors.WorldError as error:
                    rows = str(error)
            found[name] = [rows, [str(one.message) for one in caught]]
    write(folder, rank, found)
    wait_for(*(Path(folder, f"rank{other}.json") for other in range(2)))
    os._exit(0)


def steps(data: str, folder: str, timeout: str = "60") -> None:
    """Trains without end: a batch, a collective. Says how far it is, and what ended it."""
    rank = join()
    group = dist.new_group(timeout=datetime.timedelta(seconds=float(timeout)))
    Path(folder, f"pid{rank}").write_text(str(os.getpid()))
    loader = DataLoader(data, 2, shuffle=True, num_workers=1, transform=CROP)
    done = 0
    try:
        while True:
            for _, labels in loader:
                dist.all_reduce(labels.double().sum(), group=group)
                done += 1
                Path(folder, f"step{rank}").write_text(str(done))
    except Exception as error:
        ended = time.time()
        batches = len(labels_of(loader)) if "WorldError" not in type(error).__name__ else 0
        name = type(error).__name__
        write(folder, rank, {"ended": ended, "error": f"{name}: {error}", "batches_afterwards": batches})
    os._exit(0)  # destroying a broken group may wait for the dead


def meet_when_told(data: str, folder: str) -> None:
    """Join, wait for a sign, then come to the first batch."""
    rank = join(patience=4)
    Path(folder, f"joined{rank}").touch()
    wait_for(Path(folder, "go"))
    write(folder, rank, first_batch(data, ranks=Ranks(handshake="raise"), seed=0))
    os._exit(0)


class LastIsSlow:
    """The last rank's batches take longer than any other rank has waited so far, on a busy machine too."""

    def __init__(self, folder: str, rank: int) -> None:
        self.rank = rank
        self._is_last = rank == dist.get_world_size() - 1
        self._waits = [Path(folder, f"wait{other}") for other in range(dist.get_world_size() - 1)]

    def collate(self, samples: list[Any]) -> Any:
        """The pictures of a batch."""
        if self._is_last:
            others = [float(path.read_text()) for path in self._waits if path.exists()]
            time.sleep(0.25 + 2 * max(others, default=0.0))
        return torch.stack([image for image, _ in samples])

    def say(self, loader: DataLoader[Any]) -> None:
        """Write down what this rank has waited, but for its first batch, which counts for nobody."""
        if not self._is_last:
            stats = loader.stats()
            part = self._waits[self.rank].with_suffix(".part")
            part.write_text(str(stats["data_wait"]["seconds"] - stats["first_batch_seconds"]))
            part.rename(self._waits[self.rank])


def clocks(data: str, folder: str) -> None:
    """Two epochs in step; the last rank's batches take longer. All write their clocks down, then read."""
    from fastload.diagnose import ranks as gathered
    from fastload.diagnose.ranks import gathered_stats

    gathered._PATIENCE = HANG
    slow = LastIsSlow(folder, join())
    rank = slow.rank
    loader = DataLoader(data, batch_size=3, num_workers=1, transform=CROP, collate_fn=slow.collate, seed=1)
    before = gathered_stats(loader)
    for _ in range(2):
        for _ in loader:
            slow.say(loader)
            dist.all_reduce(torch.zeros(1))
    gathered_stats(loader)
    files = Path(folder) / "clocks"
    gathered_stats(loader, folder=files)
    dist.barrier()
    after, by_files = gathered_stats(loader), gathered_stats(loader, folder=files, name="")
    dist.barrier()
    write(
        folder,
        rank,
        {
            "before": [before.slow, str(before)],
            "after": [after.slow, str(after), sorted(after.clocks), list(after.missing), after.silent],
            "files": [by_files.slow, sorted(by_files.clocks), list(by_files.missing)],
            "samples": [each.samples for _, each in sorted(after.clocks.items())],
        },
    )
    loader.close()


def doctor(data: str, folder: str) -> None:
    """An epoch in step, watched; the last rank's batches take longer. Verdicts without experiments."""
    from fastload.diagnose import watch
    from fastload.diagnose.facts import Verdict

    slow = LastIsSlow(folder, join())

    def examine(loader: Any, loop: Any, *given: Any) -> Verdict:
        dist.barrier()  # the minute in which all ranks come to their ends
        return Verdict("decode", loop.rate, 900.0, 0.0, (), (), (), loop)

    import fastload.diagnose.doctor

    fastload.diagnose.doctor.examine = examine
    loader = DataLoader(data, batch_size=3, num_workers=1, transform=CROP, collate_fn=slow.collate, seed=1)
    with watch.diagnose(loader) as watched:
        for _ in loader:
            slow.say(loader)
            dist.all_reduce(torch.zeros(1))
    verdict = watched.verdict
    dist.barrier()
    write(folder, slow.rank, [verdict.limit, str(verdict)])
    loader.close()


def reshards(data: str, folder: str, changes: str, policy: str) -> None:
    """Worlds of some of these ranks, drawn at random, one after another; every rank draws the same.

    Whoever is in notes which labels it got at which place, and how long its changes took.
    """
    own = join()
    chance = random.Random(f"{folder} {changes}")
    loader = DataLoader(
        data, 2, shuffle=True, seed=9, num_workers=1, transform=T.Resize((8, 8)), padding="mark",
        ranks=Ranks(own, dist.get_world_size()),
    )  # fmt: skip
    members, iterator, seen, seconds = list(range(dist.get_world_size())), iter(loader), [], []
    for _ in range(int(changes)):
        for _ in range(chance.randrange(4)):
            if own not in members:
                continue
            place = loader.state_dict()
            batch = next(iterator, None)
            if batch is None:
                iterator = iter(loader)
                place, batch = loader.state_dict(), next(iterator)
            labels = [label for label in batch[1].tolist() if label >= 0]
            seen.append([place["epoch"], place["position"], members.index(own), labels])
        told: list[Any] = [loader.state_dict()]
        dist.broadcast_object_list(told, members[0])
        new = sorted(
            chance.sample(range(dist.get_world_size()), chance.randrange(1, dist.get_world_size() + 1))
        )
        group = dist.new_group(new)  # a collective of all ranks
        if own in new:
            state = told[0] if own not in members else None
            began = time.perf_counter()
            if policy == "off":
                loader.reshard(Ranks(new.index(own), len(new), handshake="off"), state=state)
            else:
                loader.reshard(group, state=state)
            seconds.append(time.perf_counter() - began)
        members = new
    write(folder, own, [seen, seconds])
    dist.barrier()
    loader.close()


def checkpointed(data: str, folder: str, checkpoint: str, action: str, steps: str) -> None:
    """A loader in torch.distributed.checkpoint, beside a tensor: saved behind some steps, or loaded."""
    import torch.distributed.checkpoint as dcp

    rank = join()
    loader = DataLoader(data, 3, shuffle=True, seed=9, num_workers=1, transform=CROP, padding="mark")
    states = {"loader": loader, "weights": torch.arange(6.0) if action == "save" else torch.zeros(6)}
    if action == "load":
        dcp.load(states, checkpoint_id=checkpoint)
    before = loader.state_dict()
    batches = labels_of(itertools.islice(loader, None if steps == "-1" else int(steps)))
    if action == "save":
        before = loader.state_dict()
        dcp.save(states, checkpoint_id=checkpoint)
    assert states["weights"].tolist() == [0, 1, 2, 3, 4, 5]
    write(folder, rank, [before, [label for label in flat(batches) if label >= 0]])
    dist.barrier()
    loader.close()


def apart(data: str, folder: str) -> None:
    """Two ranks that change the world at different places."""
    own = join()
    loader = DataLoader(data, 1, shuffle=True, seed=9, num_workers=1, transform=CROP, ranks=Ranks(own, 2))
    iterator = iter(loader)
    for _ in range(2 + own):
        next(iterator)
    loader.reshard(dist.group.WORLD)
    try:
        next(iterator)
    except errors.WorldError as error:
        write(folder, own, str(error))
    dist.barrier()


def outside(data: str, folder: str) -> None:
    """A world that one of two ranks is not in."""
    own = join()
    loader = DataLoader(data, 1, shuffle=True, seed=9, num_workers=1, transform=CROP, ranks=Ranks(own, 2))
    next(iter(loader))
    group, told = dist.new_group([0]), ""
    try:
        loader.reshard(group)
    except errors.WorldError as error:
        told = str(error)
    write(folder, own, told)
    dist.barrier()


def migrated_by_one(data: str, folder: str) -> None:
    """Two ranks of which one goes on with a newer generation after the epoch."""
    own = join()
    state = json.loads((Path(data) / "state.json").read_text())
    if own == 0:
        state = fastload.migrate(state, fastload.PackedDataset(data)).state
    loader = DataLoader(data, 1, shuffle=True, seed=3, num_workers=1, ranks=Ranks(own, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that newer rows exist
        loader.load_state_dict(state)
    told = ""
    try:
        next(iter(loader))
    except errors.WorldError as error:
        told = str(error)
    write(folder, own, told)
    dist.barrier()


def forked(count: int, port: str, program: str, arguments: list[str]) -> int:
    """``count`` ranks by fork, before any thread begins; 0 if all of them ended well."""
    pids = []
    first, world = int(os.environ.get("FIRST_RANK", "0")), int(os.environ.get("ALL_RANKS", str(count)))
    for local in range(count):
        pid = os.fork()
        if pid == 0:
            numbers = {
                "RANK": first + local,
                "LOCAL_RANK": local,
                "WORLD_SIZE": world,
                "LOCAL_WORLD_SIZE": count,
            }
            os.environ.update({name: str(value) for name, value in numbers.items()})
            os.environ.update({"MASTER_ADDR": os.environ.get("FIRST_HOST", "127.0.0.1"), "MASTER_PORT": port})
            try:
                globals()[program](*arguments)
                os._exit(0)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
        pids.append(pid)
    statuses = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    return int(any(statuses))


def main(arguments: list[str]) -> int:
    if arguments[0] == "--fork":
        return forked(int(arguments[1]), arguments[2], arguments[3], arguments[4:])
    globals()[arguments[0]](*arguments[1:])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
