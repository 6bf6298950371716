"""A second judge beside pycocotools: faster-coco-eval reads what ``.coco`` makes of a packed set, and says of
the same predictions the same."""

from __future__ import annotations

import copy
import io
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import faster_coco_eval
import numpy as np
import pytest
from example_programs import pack_objects
from pycocotools import mask as coco_mask
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from fastload import PackedDataset


def predictions(coco: Any, seed: int) -> list[dict[str, Any]]:
    """Objects moved a little, some of another class, some twice."""
    rng, found = np.random.default_rng(seed), []
    for one in coco.dataset["annotations"]:
        picture = coco.imgs[one["image_id"]]
        for _ in range(int(rng.integers(1, 3))):
            mask = np.roll(coco.annToMask(one), rng.integers(-1, 2, 2), (0, 1))
            classes = [one["category_id"]] * 20 + coco.getCatIds()
            runs = coco_mask.encode(np.asfortranarray(mask))
            assert mask.shape == (picture["height"], picture["width"])
            found.append(
                {
                    "image_id": one["image_id"],
                    "category_id": int(rng.choice(classes)),
                    "bbox": (np.array(one["bbox"]) + rng.uniform(-1, 1, 4)).clip(min=1).tolist(),
                    "segmentation": {"size": runs["size"], "counts": runs["counts"].decode()},
                    "score": float(rng.random()),
                }
            )
    return found


def stats(coco: Any, found: list[dict[str, Any]], evaluator: Any, kind: str) -> Any:
    with redirect_stdout(io.StringIO()):
        judge = evaluator(coco, coco.loadRes(copy.deepcopy(found)), kind)
        judge.evaluate()
        judge.accumulate()
        judge.summarize()
    return np.array(judge.stats[:12])


@pytest.mark.parametrize("kind", ["bbox", "segm"])
def test_both_judges_say_the_same(tmp_path: Path, kind: str) -> None:
    packed, made = pack_objects(tmp_path)
    ours = PackedDataset(packed).as_detection().coco
    with redirect_stdout(io.StringIO()):
        truth = COCO(str(made.json))
        other = faster_coco_eval.COCO(copy.deepcopy(ours.dataset))
    found = predictions(truth, 3)
    assert len(found) > 20
    wanted = stats(truth, found, COCOeval, kind)
    assert 0.1 < wanted[0] < 0.9
    assert np.array_equal(stats(ours, found, COCOeval, kind), wanted)
    assert np.allclose(stats(other, found, faster_coco_eval.COCOeval_faster, kind), wanted, atol=1e-9)
