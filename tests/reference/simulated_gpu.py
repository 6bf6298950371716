"""A GPU made of queues: copies and kernels run late and out of order, as far as streams and events allow.

Each stream is a queue of operations. At every call a random number of operations of random streams is run; an
operation runs only if it is the first of its stream, and a wait only if its event has passed. So whatever a
program does not order by streams and events happens in any order, and host memory that is written before the
copy from it has passed reaches the device wrong. Copies run in pieces. Freed memory goes back to its stream's
pool at once, as in torch's caching allocator, and is handed out again.

``broken`` leaves something out, to show that the tests would notice:
    "consumer_wait"   waits of the consumers' streams
    "copy_wait"       waits of the streams made by new_stream()
    "early_reuse"     events look passed to the host as soon as they are recorded
    "record_stream"   memory goes back although another stream uses it
"""

from __future__ import annotations

import random
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
import torch

from fastload.machine.generators import profiled
from fastload.transfer.augment import host_seeded

PIECES = 3  # of a copy


def _address(array: Any) -> int:
    return int(array.__array_interface__["data"][0])


class SimEvent:
    """Counts how often it was recorded, and how many of these have passed."""

    def __init__(self) -> None:
        self.recorded = 0
        self.passed = 0
        self.streams: list[SimStream] = []  # of each record


class SimStream:
    """A queue of operations: ("run", function) or ("wait", event, how often it must have passed)."""

    def __init__(self, name: str, copies: bool) -> None:
        self.name = name
        self.copies = copies  # made by new_stream()
        self.queue: deque[tuple[Any, ...]] = deque()


class SimulatedGpu:
    """See :class:`fastload.transfer.streams.Gpu`; "device" tensors are host tensors.

    Args:
        seed: of the order of things.
        eagerness: how much of what could run does at each call, in [0, 1].
        broken: see above.
        refuses_pinning: why, or None.
    """

    device = torch.device("cpu")

    def __init__(
        self, seed: int, eagerness: float = 0.3, broken: str = "", refuses_pinning: str | None = None
    ) -> None:
        self.random = random.Random(seed)
        self.eagerness = eagerness
        self.broken = broken
        self.refuses_pinning = refuses_pinning
        self.user_streams = [SimStream(f"user{i}", copies=False) for i in range(3)]
        self.current = self.user_streams[0]
        self.streams = [*self.user_streams]
        self.pinned: dict[int, int] = {}
        self.most_pinned = 0
        self.lost = False
        self.captures = False
        self.pending_copies = 0
        self.copied_bytes = 0
        self.allocations: set[int] = set()  # blocks taken from the system
        self.failures: list[str] = []
        self._free: dict[tuple[str, int], list[tuple[Any, list[tuple[SimEvent, int]]]]] = {}
        self._users: dict[int, set[SimStream]] = {}  # by the address of memory that is in use

    # Running

    def _check(self) -> None:
        if self.lost:
            raise RuntimeError("CUDA error: unspecified launch failure")

    def _runnable(self, stream: SimStream) -> bool:
        if not stream.queue:
            return False
        head = stream.queue[0]
        return bool(head[0] == "run" or head[1].passed >= head[2])

    def _step(self, stream: SimStream) -> None:
        operation = stream.queue.popleft()
        if operation[0] == "run":
            operation[1]()

    def advance(self) -> None:
        """Some of what could run does."""
        self._check()
        while self.random.random() < self.eagerness:
            able = [stream for stream in self.streams if self._runnable(stream)]
            if not able:
                return
            self._step(self.random.choice(able))

    def finish(self, stream: SimStream) -> None:
        """All of ``stream``, and what it waits for."""
        while stream.queue:
            if self._runnable(stream):
                self._step(stream)
            else:
                _, event, count = stream.queue[0]
                while event.passed < count:
                    self._one_towards(event.streams[count - 1])

    def _one_towards(self, stream: SimStream) -> None:
        while not self._runnable(stream):
            _, event, count = stream.queue[0]
            stream = event.streams[count - 1]
        self._step(stream)

    def synchronize(self) -> None:
        """Everything there is."""
        for stream in self.streams:
            self.finish(stream)

    @contextmanager
    def using(self, stream: SimStream) -> Iterator[None]:
        """``stream`` is the current one inside."""
        before, self.current = self.current, stream
        try:
            yield
        finally:
            self.current = before

    def kernel(self, function: Callable[[], Any]) -> None:
        """A consumer's kernel on the current stream."""
        self.advance()
        mode = torch.is_inference_mode_enabled()  # a kernel is of the mode it was launched in

        def run() -> None:
            with torch.inference_mode(mode):
                function()

        self.current.queue.append(("run", run))
        self.advance()

    # The interface

    def new_stream(self) -> SimStream:
        stream = SimStream(f"copy{len(self.streams)}", copies=True)
        self.streams.append(stream)
        return stream

    def current_stream(self) -> SimStream:
        return self.current

    def on_stream(self, stream: SimStream) -> AbstractContextManager[Any]:
        return self.using(stream)

    def new_event(self, timed: bool = False) -> SimEvent:
        return SimEvent()

    def record(self, event: SimEvent, stream: SimStream) -> None:
        self.advance()
        event.recorded += 1
        event.streams.append(stream)
        number = event.recorded

        def pass_event() -> None:
            event.passed = max(event.passed, number)

        stream.queue.append(("run", pass_event))
        self.advance()

    def wait(self, stream: SimStream, event: SimEvent) -> None:
        self._check()
        if self.broken != ("copy_wait" if stream.copies else "consumer_wait"):
            stream.queue.append(("wait", event, event.recorded))
        self.advance()

    def passed(self, event: SimEvent) -> bool:
        self.advance()
        if self.broken == "early_reuse":
            return True
        if event.passed < event.recorded and self.random.random() < 0.2:
            self._one_towards(event.streams[-1])  # time passes for one who keeps asking
        return event.passed >= event.recorded

    def seconds_between(self, first: SimEvent, last: SimEvent) -> float:
        if self.broken != "early_reuse":
            assert first.passed == first.recorded == 1
            assert last.passed == last.recorded == 1
        return 0.001

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        self._check()
        nbytes = int(np.prod(shape)) * dtype.itemsize
        memory = self._block(nbytes)
        flat = torch.from_numpy(memory).view(dtype)
        if len(shape) == 4:
            n, c, h, w = shape
            return flat.view(n, h, w, c).permute(0, 3, 1, 2)
        return flat.view(shape)

    def _block(self, nbytes: int) -> np.ndarray[Any, Any]:
        pool = self._free.setdefault((self.current.name, nbytes), [])
        ready = [item for item in pool if all(event.passed >= count for event, count in item[1])]
        if ready:
            base = ready[-1][0]
            pool[:] = [item for item in pool if item[0] is not base]
        else:
            base = np.full(nbytes, 0xA5, np.uint8)
            self.allocations.add(id(base))
        memory = base[:]  # what the tensors hold
        self._users[_address(base)] = set()
        weakref.finalize(memory, self._give_back, base, pool)
        return memory

    def _give_back(self, base: Any, pool: list[Any]) -> None:
        needed = []
        for stream in self._users.pop(_address(base)):
            event = SimEvent()
            event.recorded, event.streams = 1, [stream]
            stream.queue.append(("run", lambda event=event: setattr(event, "passed", 1)))
            needed.append((event, 1))
        pool.append((base, needed))

    def copy(self, to: torch.Tensor, source: torch.Tensor, stream: SimStream) -> None:
        self.advance()
        assert to.is_contiguous()
        assert source.is_contiguous()
        assert to.shape == source.shape
        assert to.dtype == source.dtype
        self.copied_bytes += source.nbytes
        self.pending_copies += 1
        pieces = list(zip(to.chunk(PIECES), source.chunk(PIECES), strict=True))

        def last() -> None:
            self.pending_copies -= 1

        for target, part in pieces:
            stream.queue.append(("run", lambda target=target, part=part: target.copy_(part)))
        stream.queue.append(("run", last))
        self.advance()

    def launch(self, kernels: Callable[[], Any]) -> None:
        self.kernel(kernels)

    def run(self, operations: Callable[[], Any]) -> Any:
        self.finish(self.current)  # one legal order: the current stream is in no hurry but ahead of its host
        return operations()

    def upload(self, tensor: torch.Tensor, stream: SimStream) -> torch.Tensor:
        with self.using(stream):
            moved = self.empty((tensor.nbytes,), torch.uint8)
        self.copy(moved, tensor.contiguous().reshape(-1).view(torch.uint8), stream)
        return moved.view(tensor.dtype).view(tensor.shape)

    def use_on_current_stream(self, tensor: torch.Tensor) -> None:
        if self.broken != "record_stream":
            self._users[tensor.untyped_storage().data_ptr()].add(self.current)

    def seeded(self, seed: int) -> AbstractContextManager[None]:
        return host_seeded(seed)

    def pin(self, address: int, nbytes: int) -> str | None:
        self._check()
        if self.refuses_pinning is not None:
            return self.refuses_pinning
        assert address % 4096 == 0
        self.pinned[address] = nbytes
        self.most_pinned = max(self.most_pinned, sum(self.pinned.values()))
        return None

    def unpin(self, address: int) -> None:
        del self.pinned[address]
        if self.pending_copies and not self.lost:
            self.failures.append("memory was unpinned while copies from it were under way")

    def capturing(self) -> bool:
        return self.captures

    def range(self, stage: str, number: int) -> AbstractContextManager[Any]:
        return profiled(stage, number)
