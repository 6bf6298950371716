"""What nodes read from a store in later epochs, by order: uniform, blocks, blocks that belong to nodes.

    python benchmarks/bench_nodes.py [--records 960] [--nodes 4] [--epochs 9]

The store is tests/reference/fault_server.py; each node has a disk tier of its own, with room for its share of
the set or for half of that. Figures are bytes that the store sent per epoch after the first, over those of
the set: the difference between a job of --epochs epochs and one of one. Buffers for reading ahead are 2 MB:
with those of a loader, a set as small as this would be read epochs ahead.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from harness.machine import facts

sys.path.append(str(Path(__file__).parents[1] / "tests" / "cache"))
sys.path.append(str(Path(__file__).parents[1] / "tests" / "reference"))

from node_stores import RECORD, Cluster, numbered_set

from fastload import Block
from fastload.prefetch import engine_calls

ROOT = Path(__file__).parents[1]


def main() -> int:
    """Print and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--records", type=int, default=960)
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=9)
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "bench" / "nodes.json")
    given = parser.parse_args()
    engine_calls._BUFFERS = 2_000_000
    block, window = 8, given.records // 4
    orders = {
        "shuffle=True": True,
        "Block()": Block(block, window),
        f"Block(nodes={given.nodes})": Block(block, window, nodes=given.nodes),
    }
    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        dataset = numbered_set(Path(folder) / "set", given.records)
        for part, room in (
            ("whole", given.records // given.nodes),
            ("half", given.records // given.nodes // 2),
        ):
            for name, shuffle in orders.items():
                sent = []
                for epochs in (1, given.epochs):
                    root = Path(folder) / f"{part} {name} {epochs}"
                    cluster = Cluster(dataset, root, given.nodes, shuffle, room)
                    sent.append(sum(size for _, _, size in cluster.run(range(epochs))))
                later = (sent[1] - sent[0]) / (given.epochs - 1) / (given.records * RECORD)
                found.setdefault(name, {})[part] = round(later, 3)
                print(f"{name:>16}, a cache for {part} of a node's share: {later:.3f} of the set per epoch")
    given.output.parent.mkdir(parents=True, exist_ok=True)
    given.output.write_text(
        json.dumps({"machine": facts(), "nodes": given.nodes, "of the set": found}, indent=1)
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
