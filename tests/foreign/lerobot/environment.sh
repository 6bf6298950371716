#!/usr/bin/env bash
# torchcodec needs FFmpeg's libraries, which PyAV's wheel brings under other names: links with theirs.
av=$(echo "$venv"/lib/python3*/site-packages/av.libs)
mkdir -p "$venv/ffmpeg"
for library in "$av"/libav*.so.* "$av"/libsw*.so.*; do
  link=$(basename "$library" | sed -E 's/-[0-9a-f]{8}\.so\.([0-9]+).*/.so.\1/')
  ln -sf "$library" "$venv/ffmpeg/$link"
done
export LD_LIBRARY_PATH=$venv/ffmpeg:$av${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
