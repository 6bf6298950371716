"""One case of one table of bench_articles.py: a process that measures a round when it is asked."""

from __future__ import annotations

import argparse
import importlib

from harness.rounds import serve
from starvation.training_step import wake

from articles.setting import Setting

TRAINING = ("mnist", "batch_parts", "ladder")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("module")
    parser.add_argument("case")
    parser.add_argument("setting", help="JSON")
    options = parser.parse_args()
    module = importlib.import_module(f"articles.{options.module}")
    setting = Setting.from_json(options.setting)
    if options.module in TRAINING:
        wake(setting.device)
    serve(lambda: module.start(options.case, setting))


if __name__ == "__main__":
    main()
