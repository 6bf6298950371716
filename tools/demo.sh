#!/usr/bin/env bash
# make demo: sample images -> fastload pack -> two epochs of training on the CPU or GPU.
#   tools/demo.sh FOLDER
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:?usage: tools/demo.sh FOLDER}

step() { printf '\n== %s\n' "$*"; }

step "1. Real photographs, cropped from what scikit-image and scikit-learn carry: $folder/images"
python tools/make_sample.py "$folder/images"

step "2. fastload pack $folder/images $folder/packed --format arrow"
fastload pack "$folder/images" "$folder/packed" --format arrow

step "3. Two epochs of a small ResNet: tools/train.py $folder/packed"
rm -f "$folder/log.jsonl"
python tools/train.py "$folder/packed" --model resnet8 --size 96 --epochs 2 --batch-size 32 --lr 0.1 \
  --schedule onecycle --log-file "$folder/log.jsonl" --checkpoint "$folder/checkpoint"

cat <<TEXT

== Where everything lies
  $folder/images        the photographs, a folder a class
  $folder/packed        the same, packed: dataset.json, index.fli and the shards, for train and val
  $folder/log.jsonl     the epochs' numbers
  $folder/checkpoint    weights, optimiser and the loader's state

== The same with images of your own (IMAGES/train/<class>/*.jpg, IMAGES/val/<class>/*.jpg)
  .venv/bin/fastload pack IMAGES PACKED
  .venv/bin/python tools/train.py PACKED --model resnet18 --epochs 10 --checkpoint runs/first
  .venv/bin/python tools/train.py IMAGES --loader torch --model resnet18 --epochs 1   # for comparison
TEXT
