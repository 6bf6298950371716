"""A loader's numbers in MLflow, by the callback of docs/guide/reports.md, read back by its client."""

from __future__ import annotations

from pathlib import Path

import mlflow
import pytest
from numbered_set import make_numbered_set

from fastload import DataLoader
from fastload import transforms as T
from fastload.integrations.stats_stream import Every


def test_mlflow_has_what_the_callback_got(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # a database wants more packages
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    mlflow.set_tracking_uri(f"file://{tmp_path}/runs")
    packed = make_numbered_set(tmp_path / "packed")
    told: list[tuple[int, dict[str, float]]] = []

    def logged(step: int, values: dict[str, float]) -> None:
        told.append((step, values))
        mlflow.log_metrics(values, step=step)

    with (
        mlflow.start_run() as run,
        DataLoader(packed, batch_size=2, transform=T.RandomResizedCrop(16)) as loader,
    ):
        log = Every(4, loader, logged)
        for _ in range(3):
            for _ in loader:
                log.step()
    steps = [step for step, _ in told]
    assert len(steps) >= 2
    assert steps == list(range(4, steps[-1] + 1, 4))
    client = mlflow.MlflowClient()
    names = {name for _, values in told for name in values}
    assert set(client.get_run(run.info.run_id).data.metrics) == names
    for name in ("fastload/images_per_second", "fastload/data_wait_percent"):
        kept = client.get_metric_history(run.info.run_id, name)
        assert [(one.step, one.value) for one in kept] == [(step, values[name]) for step, values in told]
