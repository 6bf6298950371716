"""Too little memory is a MemoryError in words: no abort, no signal, nothing that waits for ever."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pictures import encoded, picture
from plain_pack import plain_pack

from fastload import DataLoader
from fastload import transforms as T
from fastload.backends import native as engines

PROGRAM = Path(__file__).with_name("memory_limits.py")


@pytest.mark.timeout(300)
def test_under_a_limit_of_memory_a_loader_works_or_says_so(folder: Path) -> None:
    run = subprocess.run(
        [sys.executable, str(PROGRAM), str(folder), "30"],
        capture_output=True,
        text=True,
        timeout=280,
        check=True,
    )
    found = json.loads(run.stdout)
    assert len(found) > 20
    outcomes = []
    for case, (status, outcome) in found.items():
        assert status == 0, f"{case}: {status}, {outcome}, {run.stderr}"
        assert outcome == "works" or outcome.startswith("MemoryError"), f"{case}: {outcome}"
        outcomes.append(outcome)
    assert any(outcome == "works" for outcome in outcomes)
    assert any("Lower " in outcome for outcome in outcomes), outcomes


@pytest.mark.parametrize("policy", ["raise", "skip", "replace"])
def test_a_decoder_without_memory_is_no_bad_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    def lacking(data: bytes, max_pixels: int) -> np.ndarray[Any, Any]:
        raise MemoryError

    monkeypatch.setattr(engines, "decode_with_pil", lacking)
    dataset = plain_pack(tmp_path, [encoded(picture(i, 70, 70), "GIF") for i in range(4)], range(4))
    loader = DataLoader(dataset, 4, num_workers=1, transform=T.RandomResizedCrop(32), on_error=policy)
    with pytest.raises(MemoryError, match=r"Batch 0 of epoch 0, sample 0: .*Lower num_workers"):
        next(iter(loader))
    loader.close()
