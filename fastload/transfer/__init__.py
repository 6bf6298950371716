"""transfer: host batches onto the device. ``cuda.py`` alone talks to CUDA."""
