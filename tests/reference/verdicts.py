"""A verdict made by hand, with everything that one can have."""

from __future__ import annotations

import numpy as np

from fastload.diagnose.facts import Fix, Loop, Sentence, Stage, Verdict

__all__ = ["full_verdict", "step_limits"]


def loop(batches: int = 400) -> Loop:
    """One that waits more and more, with a few long waits."""
    random = np.random.Generator(np.random.Philox(3))
    wait = 0.03 + 0.02 * random.random(batches) + np.linspace(0, 0.02, batches)
    wait[::97] += 0.25
    return Loop(
        loader="torch DataLoader in train.py:41",
        batch_size=16,
        wait=wait,
        step=0.038 + 0.004 * random.random(batches),
        threads=2,
        cpus=2.0,
        loop_cpu=14.2,
        loader_cpu=61.5,
        read_bytes=734_003_200,
        copied_bytes=3_853_516_800,
        notes={
            "start_method": "fork",
            "ready_batches": [i % 3 for i in range(batches)],
            "throttled_seconds": 0.25,
            "with_grad": True,
            "shm_free": 67_108_864,
            "where": "<script> & co",
        },
    )


def full_verdict() -> Verdict:
    """Decoding is the bottleneck, and some things would help."""
    return Verdict(
        limit="decode",
        rate=233.0,
        loader_rate=241.0,
        step_rate=412.0,
        sentences=(
            Sentence(
                "The step can take 412 images/s; the loader delivers 233.",
                "60 steps on a batch that was already loaded took 38.8 ms each; a batch of the loop 68.6 ms.",
            ),
            Sentence(
                "Decoding is the bottleneck: 2 threads busy 98% of the time.",
                "Clocks of the decoding threads: 0.71 decode, 0.22 transform, 0.05 shard, 0.02 idle.",
            ),
            Sentence("Two more cores: 401 images/s (+72%)."),
            Sentence("`pack --max-side 512`: 520 for the loader, so that the step limits."),
        ),
        fixes=(
            Fix(
                "max-side",
                "Pack with --max-side 512: fastload pack photos set --max-side 512",
                408.0,
                0.751,
                "192 records transcoded to a temporary folder and read by the same loader.",
                "pictures of more than 512 pixels are encoded again",
            ),
            Fix("threads", "Give the job two more CPUs: num_workers=4", 401.0, 0.721, "1, 2 threads tried."),
            Fix(
                "entry-points", "fastload index SET --entries", 262.0, 0.124, "192 records.", "2% more bytes"
            ),
            Fix("channels-last", "Use model.to(memory_format=torch.channels_last).", 0.0, 0.0, "", ""),
        ),
        stages=(
            Stage("storage, cold", 5120.0, 0.0, "256 records in random order, page cache dropped."),
            Stage("storage, warm", 91_000.0, 0.000011, "256 records from memory."),
            Stage("decode", 263.0, 0.0076, "256 records one by one, 2 threads."),
            Stage("transform", 1040.0, 0.0019, "256 pictures, 2 threads."),
            Stage("collate", float("inf"), 0.0, "decoded in place: nothing to do."),
            Stage("loader", 241.0, 0.0083, "20 batches without a step."),
            Stage("step", 412.0, 0.0021, "60 steps."),
        ),
        loop=loop(),
    )


def step_limits() -> Verdict:
    """The best answer, with nothing else known."""
    return Verdict("step", 410.0, 0.0, 412.0, (Sentence("Nothing: the step is the bottleneck."),), (), ())
