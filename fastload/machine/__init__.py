"""What the machine gives: cores, memory, GPUs, locks, threads, sizes."""
