"""bench_mlperf with a stub in DLIO's place: what is run, and what is counted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from small_photos import environment

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
#: Prints steps as DLIO does, one of which takes CPU time in a process below it. Data are empty folders.
STUB = """#!{python}
import json, re, subprocess, sys
from pathlib import Path

words = dict(re.findall(r"^(?:[+][+]workload[.])?([a-z_.]+)=(.*)$", "\\n".join(sys.argv), re.M))
if words["workflow.train" if "workflow.generate_data" in words else "framework"] == "False":
    for name in ("train", "valid"):
        (Path(words["dataset.data_folder"]) / name).mkdir(parents=True)
    sys.exit()
with open("asked", "a") as file:
    file.write(json.dumps(words) + "\\n")
ranks = int(sys.argv[sys.argv.index("-n") + 1])
steps = int(words["dataset.num_files_train"]) * int(words["dataset.num_samples_per_file"])
steps //= int(words["reader.batch_size"]) * ranks
epochs = int(words["train.epochs"])
for _ in range(epochs):
    for step in range(1, steps + 1):
        if step == 2:
            subprocess.run([sys.executable, "-c", "import time\\nwhile time.process_time() < 0.5: pass"])
        print(f"[INFO] Rank 0 step {{step}} processed 7 samples in 0.1 s", flush=True)
au = [95.0 if ranks < 3 else 80.0] * epochs
Path(words["hydra.run.dir"]).mkdir(exist_ok=True)
summary = {{"metric": {{"train_au_mean_percentage": au[0], "train_au_percentage": au}}}}
(Path(words["hydra.run.dir"]) / "summary.json").write_text(json.dumps(summary))
"""


def test_mlperf(tmp_path: Path) -> None:
    programs = tmp_path / "rivals" / "dlio" / "bin"
    programs.mkdir(parents=True)
    for name, text in (("mpirun", STUB.format(python=sys.executable)), ("python", "#!/bin/sh\n")):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    output = tmp_path / "mlperf.json"
    line = [sys.executable, str(BENCHMARKS / "bench_mlperf.py"), "--rivals-in", str(tmp_path / "rivals")]
    line += ["--workdir", str(tmp_path / "work"), "--output", str(output), "--only", "unet3d"]
    line += ["--loaders", "pytorch", "fastload packed", "--accelerators", "4", "--larger", "2"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=280, env=environment(), check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(output.read_text())
    for row in found["cpu"]:
        assert row["cpu_ms"]["count"] == 6
        assert row["cpu_ms"]["low"] > 0.4e3 / 77, "time of processes that are over is missing"
    clock = [(row["loader"], row["accelerators"], row["au"]) for row in found["clock"]]
    loaders = ("pytorch", "fastload packed")
    assert clock == [(loader, n, 95.0 if n < 3 else 80.0) for loader in loaders for n in (1, 2, 4, 3)]
    asked = [json.loads(words) for words in (tmp_path / "work" / "asked").read_text().splitlines()]
    plug_ins = [one.get("reader.data_loader_classname") for one in asked]
    assert plug_ins.count(None) == plug_ins.count("fastload.integrations.dlio.FastloadDataLoader") == 6
    folders = {(one["reader.data_loader"], Path(one["dataset.data_folder"]).name) for one in asked}
    assert folders == {("pytorch", "unet3d-data"), ("custom", "unet3d-packed")}
