"""The parts of tools/train.py, one a file."""
