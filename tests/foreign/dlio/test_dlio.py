"""DLIO's own program with the plug-in: it makes its files, trains on them, and each sample comes once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

EPOCHS = 2
MPI = ["mpirun", "--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"]
#: What the loader gave, by epoch, written by every rank; DLIO names this class of the test's.
RECORDER = """
import hashlib
import json
from pathlib import Path

from fastload.integrations.dlio import FastloadDataLoader


class Recorder(FastloadDataLoader):
    def next(self):
        found = []
        for batch in super().next():
            found += [hashlib.sha1(one.numpy().tobytes()).hexdigest() for one in batch]
            self._write(found)
            yield batch

    def _write(self, found):
        path = Path(f"epoch{self.epoch_number}-rank{self._args.my_rank}.json")
        path.write_text(json.dumps(found))
"""
SMALL = {
    "tfrecord": {"num_files_train": 2, "num_samples_per_file": 12, "record_length": 900},
    "npz": {"num_files_train": 24, "num_samples_per_file": 1, "record_length": 90000},
    "jpeg": {"num_files_train": 24, "num_samples_per_file": 1, "record_length": 900},
    "png": {"num_files_train": 24, "num_samples_per_file": 1, "record_length": 900},
}


def run(folder: Path, kind: str, ranks: int, *options: str) -> None:
    """Run DLIO in a folder, with a small set of this kind of files."""
    small = [f"++workload.dataset.{name}={value}" for name, value in SMALL[kind].items()]
    words = [
        *MPI, "-n", str(ranks), sys.executable, "-m", "dlio_benchmark.main", "workload=resnet50_h100",
        "hydra.run.dir=output", f"++workload.dataset.format={kind}", "++workload.dataset.data_folder=data",
        "++workload.reader.batch_size=4", *small, *(f"++workload.{option}" for option in options),
    ]  # fmt: skip
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        words, cwd=folder, env={**os.environ, **root, "PYTHONPATH": path, "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


def own_samples(folder: Path, kind: str) -> list[bytes]:
    """What is in DLIO's files, by the libraries that DLIO reads them with."""
    files = sorted((folder / "data" / "train").iterdir())
    if kind == "npz":
        return [np.load(path)["x"][..., 0].tobytes() for path in files]
    import tensorflow as tf

    feature = {"image": tf.io.FixedLenFeature([], tf.string)}
    records = tf.data.TFRecordDataset([str(path) for path in files])
    return [tf.io.parse_single_example(record, feature)["image"].numpy() for record in records]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", list(SMALL))
def test_trains(tmp_path: Path, kind: str) -> None:
    import hashlib

    (tmp_path / "recorder.py").write_text(RECORDER)
    run(tmp_path, kind, 1, "workflow.generate_data=True", "workflow.train=False")
    plug_in = (
        "framework=pytorch", "reader.data_loader=custom", "reader.data_loader_classname=recorder.Recorder",
        "reader.data_loader_sampler=none", "reader.sample_shuffle=seed", "reader.read_threads=1",
        "train.computation_time=0.001", f"train.epochs={EPOCHS}",
    )  # fmt: skip
    for packed, ranks in [(True, 1), (True, 2)] if kind in ("jpeg", "png") else [(False, 2), (True, 1)]:
        if packed and not (tmp_path / "data" / "packed").exists():
            line = [sys.executable, "-m", "fastload.integrations.dlio", "data"]
            subprocess.run(line, cwd=tmp_path, check=True, timeout=300)
        run(tmp_path, kind, ranks, *plug_in)
        summary = json.loads((tmp_path / "output" / "summary.json").read_text())
        assert summary["num_accelerators"] == ranks
        assert len(summary["metric"]["train_au_percentage"]) == EPOCHS
        orders = []
        for epoch in range(1, EPOCHS + 1):
            found: list[str] = []
            for rank in range(ranks):
                found += json.loads((tmp_path / f"epoch{epoch}-rank{rank}.json").read_text())
            assert len(found) == len(set(found)) == 24
            orders.append(found)
        assert orders[0] != orders[1]
        assert set(orders[0]) == set(orders[1])
        if kind in ("npz", "tfrecord"):
            assert set(orders[0]) == {hashlib.sha1(one).hexdigest() for one in own_samples(tmp_path, kind)}
