"""Packed datasets: the index, the manifest and the three shard formats."""
